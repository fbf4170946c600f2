#include "titanium/launch/rank_output.h"

#include "titanium/base/error.h"
#include "titanium/base/thousands.h"

namespace titanium::launch {
namespace {

std::string describe_loss(int64_t bytes) {
  return fmt::format("\n[titanium launch: {} bytes are missing here, because this file could not be written]\n",
                     with_thousands_separators(bytes));
}

}  // namespace

RankOutput::RankOutput(int rank, bool shown, const std::filesystem::path& log_folder, const Writer& write)
    : prefix_(fmt::format("[rank{}]:", rank)),
      shown_(shown),
      write_(write),
      out_(open(Stream::kOut, log_folder)),
      err_(open(Stream::kErr, log_folder)) {}

RankOutput::Channel RankOutput::open(Stream stream, const std::filesystem::path& log_folder) {
  Channel channel{LineSplitter([this, stream](std::string_view line) { take_line(stream, line); }), {}};
  if (log_folder.empty()) return channel;
  const auto path = log_folder / (stream == Stream::kOut ? "stdout.log" : "stderr.log");
  std::error_code failed;
  std::filesystem::create_directories(log_folder, failed);
  TI_CHECK(!failed, "{} cannot be written: {}. Choose another --log-dir.", path.string(), failed.message());
  channel.log = std::make_unique<GrowingFile>(path, "Choose another --log-dir.", describe_loss);
  return channel;
}

void RankOutput::receive(Stream stream, std::string_view bytes) {
  Channel& channel = stream == Stream::kOut ? out_ : err_;
  if (channel.log) channel.log->append(bytes);
  channel.lines.feed(bytes);
}

void RankOutput::finish() {
  out_.lines.finish();
  err_.lines.finish();
}

void RankOutput::take_line(Stream stream, std::string_view line) {
  last_lines_.emplace_back(line);
  if (last_lines_.size() > kLastLines) last_lines_.pop_front();
  if (shown_) write_(stream, fmt::format("{}{}\n", prefix_, line));
}

}  // namespace titanium::launch
