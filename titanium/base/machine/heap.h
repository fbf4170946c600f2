// How the C library treats freed memory.
#pragma once

namespace titanium {

// Keeps freed memory in the process. A training step allocates and frees the same large buffers again and again; by
// default their pages go back to the kernel each time and are faulted in anew, which costs a CPU run about a tenth.
void keep_freed_memory();

}  // namespace titanium
