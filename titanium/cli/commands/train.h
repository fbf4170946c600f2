// What other commands share with titanium train.
#pragma once

#include <string>

#include "titanium/base/log.h"

namespace titanium::cli {

// The log goes to stdout if this rank's output is shown.
void show_log(LogFormat format = LogFormat::kText);
// Ends the process without unwinding, because a rank that waits for a dead one cannot be woken.
[[noreturn]] void end_after_peer_failure(const std::string& line);

}  // namespace titanium::cli
