#include "titanium/observe/run/appended_lines.h"

#include <sys/stat.h>

#include <fstream>

namespace titanium::observe {
namespace {

constexpr size_t kPiece = 1 << 20;
constexpr size_t kLongestLine = 64 << 20;  // a longer one is not one of ours, and is passed over

}  // namespace

AppendedLines::News AppendedLines::read(const std::function<void(std::string_view line)>& receive,
                                        const std::function<void()>& anew) {
  struct ::stat status = {};
  if (::stat(path_.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return News::kNone;
  const auto size = static_cast<uint64_t>(status.st_size);
  const bool replaced = inode_ != 0 && (status.st_ino != inode_ || size < offset_);
  inode_ = status.st_ino;
  if (replaced) {
    offset_ = 0;
    anew();
  }
  std::ifstream file(path_, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset_));
  std::string rest, piece(kPiece, '\0');
  bool more = false;
  while (file.read(piece.data(), kPiece) || file.gcount() > 0) {
    rest.append(piece.data(), static_cast<size_t>(file.gcount()));
    size_t begin = 0;
    for (size_t end; (end = rest.find('\n', begin)) != std::string::npos; begin = end + 1) {
      receive(std::string_view(rest).substr(begin, end - begin));
      more = true;
    }
    offset_ += begin;
    rest.erase(0, begin);
    if (rest.size() <= kLongestLine) continue;
    offset_ += rest.size();
    rest.clear();
  }
  return replaced ? News::kAnew : more ? News::kMore : News::kNone;
}

}  // namespace titanium::observe
