#include "titanium/base/files/growing_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/base/text/thousands.h"

namespace titanium {

GrowingFile::GrowingFile(const std::filesystem::path& path, std::string_view remedy, DescribeLoss describe_loss)
    : path_(path), describe_loss_(std::move(describe_loss)) {
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  TI_CHECK(file_ >= 0, "{} cannot be written: {}. {}", path.string(), std::strerror(errno), remedy);
}

GrowingFile::~GrowingFile() {
  append("");
  if (in_trouble_) {
    log_warning("{} ends too early: {} bytes could not be written", path_.string(),
                with_thousands_separators(static_cast<int64_t>(kept_.size()) + missing_));
  }
  ::close(file_);
}

void GrowingFile::append(std::string_view record) noexcept {
  try {
    if (write_kept() && write(record)) return;
    if (kept_.size() + record.size() > kMostKept || lost_ > 0) return lose(record.size());
    kept_ += record;
  } catch (...) {  // no memory is left: a log should not end the run
    lose(record.size());
  }
}

void GrowingFile::lose(size_t bytes) {
  lost_ += static_cast<int64_t>(bytes);
  missing_ += static_cast<int64_t>(bytes);
}

bool GrowingFile::write(std::string_view& bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      begin_of_trouble(written == 0 ? ENOSPC : errno);
      return false;
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

bool GrowingFile::write_kept() {
  if (!in_trouble_) return true;
  std::string_view rest = kept_;
  const bool written = write(rest);
  kept_.erase(0, kept_.size() - rest.size());
  if (!written) return false;
  if (const int64_t lost = std::exchange(lost_, 0); lost > 0 && describe_loss_) {
    const std::string note = describe_loss_(lost);
    rest = note;
    if (!write(rest)) {
      kept_ = rest;
      return false;
    }
  }
  end_of_trouble();
  return true;
}

void GrowingFile::begin_of_trouble(int error) {
  if (std::exchange(in_trouble_, true)) return;
  log_warning("{} cannot be written: {}. The run goes on and tries again; free some space", path_.string(),
              std::strerror(error));
}

void GrowingFile::end_of_trouble() {
  log_info(
      "{} can be written again; {}", path_.string(),
      missing_ == 0 ? "nothing is missing" : fmt::format("{} bytes are missing", with_thousands_separators(missing_)));
  missing_ = 0;
  in_trouble_ = false;
}

}  // namespace titanium
