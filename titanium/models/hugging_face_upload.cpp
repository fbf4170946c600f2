#include "titanium/models/hugging_face_upload.h"

#include <algorithm>
#include <cstring>

#include "titanium/base/error.h"
#include "titanium/base/terminal/progress.h"
#include "titanium/checkpoint/sidecar.h"
#include "titanium/comm/text_collectives.h"

namespace titanium::models {
namespace {

// A message is a row of these, each followed by its bytes.
struct Stretch {
  uint64_t position;  // in the file
  uint64_t size;
};

void append(std::string& message, uint64_t position, std::span<const std::byte> bytes) {
  const Stretch stretch{position, bytes.size()};
  message.append(reinterpret_cast<const char*>(&stretch), sizeof stretch);
  message.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// Puts the stretches of a message into the range. Returns how many bytes they have.
uint64_t place(std::string_view message, const HuggingFaceExport::Range& range, std::string& content) {
  uint64_t placed = 0;
  while (!message.empty()) {
    Stretch stretch{};
    TI_ASSERT(message.size() >= sizeof stretch, "{} bytes of a message are no stretch", message.size());
    std::memcpy(&stretch, message.data(), sizeof stretch);
    message.remove_prefix(sizeof stretch);
    TI_ASSERT(stretch.size <= message.size() && stretch.position >= range.begin &&
                  stretch.position + stretch.size <= range.end,
              "{} bytes at {} are not in the range from {} to {}", stretch.size, stretch.position, range.begin,
              range.end);
    std::memcpy(content.data() + (stretch.position - range.begin), message.data(), stretch.size);
    message.remove_prefix(stretch.size);
    placed += stretch.size;
  }
  return placed;
}

// Remembers the first failure and lets the caller go on.
template <typename Function>
void keep_failure(std::string& failure, const Function& function) {
  if (!failure.empty()) return;
  try {
    function();
  } catch (const std::exception& error) {
    failure = error.what();
  }
}

}  // namespace

HuggingFaceUpload::HuggingFaceUpload(const HuggingFaceExport& plan, comm::Group& group, std::filesystem::path folder,
                                     uint64_t range_bytes)
    : plan_(plan), group_(group), folder_(std::move(folder)), ranges_(static_cast<size_t>(group.size())) {
  for (size_t file = 0; file < plan.file_count(); ++file) {
    auto& of_owner = ranges_[file % ranges_.size()];
    std::ranges::copy(plan.ranges(file, range_bytes), std::back_inserter(of_owner));
  }
}

std::vector<std::string> HuggingFaceUpload::messages(size_t round,
                                                     std::span<const checkpoint::DcpTensorItem> parts) const {
  std::vector<std::string> messages(ranges_.size());
  for (size_t owner = 0; owner < ranges_.size(); ++owner) {
    if (round >= ranges_[owner].size()) continue;
    for (const checkpoint::DcpTensorItem& part : parts) {
      plan_.for_each_stretch(
          ranges_[owner][round], part.name, part.box, part.tensor,
          [&](uint64_t position, std::span<const std::byte> bytes) { append(messages[owner], position, bytes); });
    }
  }
  return messages;
}

std::string HuggingFaceUpload::write(std::span<const checkpoint::DcpTensorItem> parts) {
  for (const checkpoint::DcpTensorItem& part : parts) plan_.warn_if_left_out(part.name, part.tensor);
  const auto& own = ranges_[static_cast<size_t>(group_.rank())];
  const size_t rounds = std::ranges::max(ranges_, {}, &std::vector<HuggingFaceExport::Range>::size).size();
  uint64_t bytes = 0;
  for (const HuggingFaceExport::Range& range : own) bytes += range.end - range.begin;
  Progress progress("uploading the weights", static_cast<int64_t>(bytes), ProgressUnit::kBytes);
  std::string failure;
  for (size_t round = 0; round < rounds; ++round) {
    std::vector<std::string> sent(ranges_.size());
    keep_failure(failure, [&] { sent = messages(round, parts); });
    const std::vector<std::string> received = comm::exchange_texts(group_, sent);
    if (round < own.size()) keep_failure(failure, [&] { write_range(own[round], received); });
    const bool ends_file = round < own.size() && (round + 1 == own.size() || own[round + 1].file != own[round].file);
    if (ends_file) keep_failure(failure, [&] { finish_file(own[round].file); });
    if (round < own.size()) progress.add(static_cast<int64_t>(own[round].end - own[round].begin));
  }
  TI_CHECK(failure.empty(), "{}", failure);
  return checkpoint::format_sidecar({.facts = {}, .sums = sums_});
}

void HuggingFaceUpload::write_range(const HuggingFaceExport::Range& range, const std::vector<std::string>& messages) {
  const auto put = [&](const std::string& bytes) {
    open_.file->write(bytes);
    open_.sums.add(std::as_bytes(std::span(bytes)));
  };
  if (!open_.file) {
    open_ = {std::make_unique<checkpoint::TemporaryFile>(folder_ / plan_.file_name(range.file)), {}};
    put(plan_.header(range.file));
  }
  std::string content(range.end - range.begin, '\0');
  uint64_t placed = 0;
  for (const std::string& message : messages) placed += place(message, range, content);
  TI_CHECK(placed == content.size(), "{}: of the bytes from {} to {} the ranks have sent {}. Another rank has failed.",
           (folder_ / plan_.file_name(range.file)).string(), range.begin, range.end, placed);
  put(content);
}

void HuggingFaceUpload::finish_file(size_t file) {
  const std::string& name = plan_.file_name(file);
  sums_[name] = open_.sums.finish(name);
  if (plan_.file_count() == 1) return;  // it makes the folder whole, so it appears last
  open_.file->publish();
  open_ = {};
}

void HuggingFaceUpload::write_small(const std::string& name, const std::string& content) {
  checkpoint::TemporaryFile file(folder_ / name);
  file.write(content);
  file.publish();
}

void HuggingFaceUpload::complete(const std::vector<std::string>& written) {
  checkpoint::Sidecar all;
  for (const std::string& text : written) {
    const auto part = checkpoint::parse_sidecar(std::as_bytes(std::span(text)), "a rank's part");
    all.sums.insert(part.sums.begin(), part.sums.end());
  }
  const auto add = [&](const std::string& name, const std::string& content) {
    all.sums[name] = checkpoint::sum_of(name, std::as_bytes(std::span(content)));
  };
  for (const auto& [name, content] : plan_.other_files()) {
    write_small(name, content);
    add(name, content);
  }
  const auto index = plan_.index_file();
  if (index) add(index->first, index->second);
  write_small(checkpoint::kSidecarFile, checkpoint::format_sidecar(all));
  if (index) return write_small(index->first, index->second);
  open_.file->publish();
  open_ = {};
}

}  // namespace titanium::models
