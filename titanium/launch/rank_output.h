// What one rank writes: to its log files, which say so where a full disk has cut them, to the launcher's own output
// with a prefix, and its last lines for a report.
#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "titanium/base/files/growing_file.h"
#include "titanium/launch/line_splitter.h"
#include "titanium/launch/options.h"

namespace titanium::launch {

class RankOutput {
 public:
  static constexpr size_t kLastLines = 20;

  // Appends to `log_folder`/stdout.log and stderr.log, which it makes; an empty path keeps no log. Only a `shown`
  // rank's lines go to `write`, each with `[rank3]:` in front, or as the JSON object that it is or is put into
  // (base/log.h). Throws Error when a log cannot be opened.
  RankOutput(int rank, bool shown, const std::filesystem::path& log_folder, const Writer& write,
             LogFormat format = LogFormat::kText);
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  void receive(Stream stream, std::string_view bytes);
  // Hands on the lines that have no newline at the end.
  void finish();

  // The last lines of both streams, in the order of arrival, without prefix.
  std::vector<std::string> last_lines() const { return {last_lines_.begin(), last_lines_.end()}; }

 private:
  struct Channel {
    LineSplitter lines;
    std::unique_ptr<GrowingFile> log;  // may be null
  };

  Channel open(Stream stream, const std::filesystem::path& log_folder);
  void take_line(Stream stream, std::string_view line);
  std::string as_json(Stream stream, std::string_view line) const;

  int rank_;
  bool shown_;
  LogFormat format_;
  const Writer& write_;
  std::deque<std::string> last_lines_;
  Channel out_;
  Channel err_;
};

}  // namespace titanium::launch
