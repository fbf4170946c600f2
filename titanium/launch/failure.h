// How a process ended, and the failure that ends an attempt.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace titanium::launch {

struct ExitStatus {
  int code = 0;
  int signal = 0;  // 0: the process ended by itself, with `code`

  bool good() const { return code == 0 && signal == 0; }
  // As shells have it: the code, or 128 + the signal's number.
  int exit_code() const { return signal == 0 ? code : 128 + signal; }
  // "exit code 3", "SIGKILL".
  std::string describe() const;
};

struct Failure {
  int node = 0;
  int rank = 0;  // -1: the node itself is lost
  int pid = 0;
  ExitStatus exit;
  bool stopped = false;  // the launcher had been asked to stop: no restart
  std::vector<std::string> last_lines;
  std::string log_folder;  // on its node; may be empty

  // Nothing is known but that its launcher has fallen silent.
  static Failure lost_node(int node);

  // The sentences for the user; newline at the end.
  std::string report(bool with_last_lines) const;
  // For the other nodes.
  std::string to_json() const;
  // Nothing when `text` is not what to_json writes.
  static std::optional<Failure> from_json(const std::string& text);
};

}  // namespace titanium::launch
