// What c10d's NCCL back end reads from the environment when it is created.
#pragma once

#include <cstdint>

namespace titanium::comm {

// Turns c10d's own flight recorder on (off with 0 entries), TORCH_FR_BUFFER_SIZE, and leaves the writing to us,
// TORCH_NCCL_DUMP_ON_TIMEOUT: our dumps take its entries over. A process whose collective timed out ends,
// TORCH_NCCL_ASYNC_ERROR_HANDLING. Warns about every variable that had another value. To be called before `connect` and
// before any thread starts, because the environment belongs to the process.
void set_flight_recorder_environment(int64_t trace_buf_size);

}  // namespace titanium::comm
