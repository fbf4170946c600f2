// What c10d's NCCL back end reads from the environment when it is created.
#pragma once

#include <cstdint>
#include <filesystem>

namespace titanium::comm {

// Turns c10d's own flight recorder on (off with 0 entries): TORCH_NCCL_ASYNC_ERROR_HANDLING, TORCH_FR_BUFFER_SIZE,
// TORCH_NCCL_DUMP_ON_TIMEOUT and TORCH_FR_DUMP_TEMP_FILE, to which c10d appends the rank. Makes the folder of
// `dump_prefix`. Warns about every variable that had another value. To be called before `connect` and before any thread
// starts, because the environment belongs to the process.
void set_flight_recorder_environment(int64_t trace_buf_size, const std::filesystem::path& dump_prefix);

}  // namespace titanium::comm
