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

void set_flight_recorder_environment(int64_t trace_buf_size) {
  // A process whose collective timed out ends without cleaning up: aborting communicators may hang itself.
  replace_variable("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3", "a rank that times out must end");
  replace_variable("TORCH_FR_BUFFER_SIZE", std::to_string(trace_buf_size), "comm.trace_buf_size");
  replace_variable("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", "one dump has the collectives of all back ends");
}

}  // namespace titanium::comm
