// How a process ends.
#pragma once

namespace titanium {

// Ends the process with `code` once everything of stdio and std::cout is written, without running the destructors of
// static objects: those of libtorch take back one by one what it registered at the start, which is a third of the time
// of a short command. They run after all where somebody inside the process waits for its end: sanitizers, and tools
// that are preloaded or injected, such as profilers.
[[noreturn]] void end_process(int code);

}  // namespace titanium
