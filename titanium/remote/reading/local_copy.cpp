#include "titanium/remote/reading/local_copy.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>

#include "titanium/base/files/file_lock.h"
#include "titanium/base/log.h"
#include "titanium/remote/digest.h"
#include "titanium/remote/hub/hub_download.h"
#include "titanium/remote/stores/object_stores.h"

namespace titanium::remote {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPiece = 8 << 20;

fs::path copies_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return fs::path(cache) / "titanium/objects";
  const char* home = std::getenv("HOME");
  return fs::path(home != nullptr ? home : "/tmp") / ".cache/titanium/objects";
}

// Where what is at the address now is copied to. What was there before may have had the same names and sizes.
fs::path folder_of_copy(const std::string& path, const std::vector<RemoteFile>& files) {
  std::string content = path;
  for (const RemoteFile& file : files) content += fmt::format("\n{}\n{} {}", file.name, file.size, file.version);
  return copies_folder() / to_hex(sha256(content)).substr(0, 32);
}

// Written under another name and renamed when it is whole. The ranks of a node ask at the same time: one copies, and
// the others wait.
void copy_file(const RemoteFile& file, const fs::path& folder) {
  const fs::path target = folder / file.name;
  std::error_code none;
  const auto is_there = [&] {
    return fs::exists(target, none) && static_cast<int64_t>(fs::file_size(target, none)) == file.size;
  };
  if (is_there()) return;
  const FileLock lock(copies_folder() / ".locks" / folder.filename() / (file.name + ".lock"));
  if (is_there()) return;
  fs::create_directories(target.parent_path());
  static std::atomic<unsigned> count = 0;
  const fs::path partial = target.string() + fmt::format(".{}.{}.tmp", ::getpid(), count++);
  const auto source = open_bytes(file.path);
  std::ofstream out(partial, std::ios::binary);
  std::vector<char> piece;
  for (int64_t at = 0; at < source->size(); at += kPiece) {
    piece.resize(static_cast<size_t>(std::min(kPiece, source->size() - at)));
    source->read(at, piece);
    out.write(piece.data(), static_cast<std::streamsize>(piece.size()));
  }
  out.close();
  if (!out) fs::remove(partial, none);
  TI_CHECK(out.good(), "{} cannot be written. Check permissions and free space.", target.string());
  fs::rename(partial, target);
}

fs::path copy_of_hub(const std::string& path, const std::function<bool(const std::string&)>& wanted) {
  const HubAddress address = parse_hub_address(path);
  const std::string folder = address.path.empty() ? "" : address.path + "/";
  const HubDownload download{
      .repo = address.repo, .access = hub_access_of_environment(), .wanted = [&](const std::string& file) {
        return file == address.path || (file.starts_with(folder) && wanted(file.substr(folder.size())));
      }};
  const HubResult result = download_from_hub(download, [](int64_t, int64_t) {});
  if (result.files == 0) throw UsageError(fmt::format("{} holds no file that is needed. Check the path.", path));
  if (result.bytes > 0) log_info("Fetched {:.1f} MB of {}", static_cast<double>(result.bytes) / 1e6, path);
  return result.folder / address.path;
}

}  // namespace

fs::path local_copy(const std::string& path, const std::function<bool(const std::string&)>& wanted) {
  if (!is_url(path)) return path;
  if (parse_url(path).scheme == "hf") return copy_of_hub(path, wanted);
  const std::vector<RemoteFile> files = list_files(path);
  fs::path folder = folder_of_copy(path, files);
  size_t copied = 0;
  for (const RemoteFile& file : files) {
    const bool is_it = files.size() == 1 && path.ends_with("/" + file.name);
    if (is_it) {
      copy_file(file, folder);
      return folder / file.name;
    }
    for (const fs::path& part : fs::path(file.name)) {
      TI_CHECK(part != "..", "{} holds the file {}, which would leave its folder.", path, file.name);
    }
    if (!wanted(file.name)) continue;
    copy_file(file, folder);
    ++copied;
  }
  if (copied == 0) throw UsageError(fmt::format("{} holds no file that is needed. Check the path.", path));
  return folder;
}

}  // namespace titanium::remote
