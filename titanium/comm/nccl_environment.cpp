#include "titanium/comm/nccl_environment.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "titanium/base/log.h"

namespace titanium::comm {
namespace {

void replace_variable(const char* name, const std::string& value, std::string_view reason) {
  const char* old = std::getenv(name);
  if (old != nullptr && old != value)
    log_warning("{} = {} in the environment is replaced by {} ({})", name, old, value, reason);
  ::setenv(name, value.c_str(), /*overwrite=*/1);
}

}  // namespace

void set_flight_recorder_environment(int64_t trace_buf_size, const std::filesystem::path& dump_prefix) {
  // A process whose collective timed out ends without cleaning up: aborting communicators may hang itself.
  replace_variable("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3", "a rank that times out must end");
  replace_variable("TORCH_FR_BUFFER_SIZE", std::to_string(trace_buf_size), "comm.trace_buf_size");
  if (trace_buf_size <= 0) return;
  std::filesystem::create_directories(dump_prefix.parent_path());
  replace_variable("TORCH_NCCL_DUMP_ON_TIMEOUT", "1", "comm.trace_buf_size is above 0");
  replace_variable("TORCH_FR_DUMP_TEMP_FILE", dump_prefix.string(), "comm.save_traces_folder");
}

}  // namespace titanium::comm
