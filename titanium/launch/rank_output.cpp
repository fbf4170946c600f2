#include "titanium/launch/rank_output.h"

#include <nlohmann/json.hpp>

#include "titanium/base/error.h"
#include "titanium/base/text/json.h"
#include "titanium/base/text/thousands.h"

namespace titanium::launch {
namespace {

std::string describe_loss(int64_t bytes) {
  return fmt::format("\n[titanium launch: {} bytes are missing here, because this file could not be written]\n",
                     with_thousands_separators(bytes));
}

// A line that is a record already.
std::optional<nlohmann::ordered_json> parse_record(std::string_view line) {
  if (!line.starts_with('{')) return std::nullopt;
  try {
    auto object = parse_ordered_json(line);
    if (object.contains("message") && object.contains("rank")) return object;
  } catch (const JsonError&) {
  }
  return std::nullopt;
}

}  // namespace

RankOutput::RankOutput(int rank, bool shown, const std::filesystem::path& log_folder, const Writer& write,
                       LogFormat format)
    : rank_(rank),
      shown_(shown),
      format_(format),
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
  if (!shown_) return;
  write_(stream, format_ == LogFormat::kJson ? as_json(stream, line) : fmt::format("[rank{}]:{}\n", rank_, line));
}

std::string RankOutput::as_json(Stream stream, std::string_view line) const {
  if (auto object = parse_record(line)) {
    if ((*object)["rank"].is_null()) (*object)["rank"] = rank_;
    return object->dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }
  const bool nccl = line.find(" NCCL ") != std::string_view::npos;
  const bool warns = stream == Stream::kErr || line.find(" NCCL WARN ") != std::string_view::npos;
  const std::string_view source = nccl ? "nccl" : stream == Stream::kOut ? "stdout" : "stderr";
  const LogLevel level = line.starts_with("titanium: ") ? LogLevel::kError
                         : warns                        ? LogLevel::kWarning
                                                        : LogLevel::kInfo;
  return to_json_line({.level = level, .source = source, .rank = rank_, .message = line}) + "\n";
}

}  // namespace titanium::launch
