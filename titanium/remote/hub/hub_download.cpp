#include "titanium/remote/hub/hub_download.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>

#include "titanium/base/files/file.h"
#include "titanium/base/files/file_lock.h"
#include "titanium/remote/digest.h"
#include "titanium/remote/hub/hub_cache.h"

namespace titanium::remote {
namespace {

namespace fs = std::filesystem;

// A file that grows at its end.
class PartialFile {
 public:
  explicit PartialFile(fs::path path) : path_(std::move(path)) {
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
    TI_CHECK(file_ >= 0, "{} cannot be written: {}. Check permissions and free space.", path_.string(),
             std::strerror(errno));
    size_ = ::lseek(file_, 0, SEEK_END);
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  ~PartialFile() { ::close(file_); }

  int64_t size() const { return size_; }

  void append(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(file_, bytes.data(), bytes.size(), size_);
      if (written < 0 && errno == EINTR) continue;
      TI_CHECK(written >= 0, "{} cannot be written: {}. Check free space.", path_.string(), std::strerror(errno));
      size_ += written;
      bytes.remove_prefix(static_cast<size_t>(written));
    }
  }

  void truncate() {
    TI_CHECK(::ftruncate(file_, 0) == 0, "{} cannot be written: {}.", path_.string(), std::strerror(errno));
    size_ = 0;
  }

 private:
  fs::path path_;
  int file_;
  int64_t size_ = 0;
};

std::string hash_of(const fs::path& path, const HubFile& file) {
  std::ifstream in(path, std::ios::binary);
  Sha256 large;
  Sha1 small;
  small.update(fmt::format("blob {}", file.size) + '\0');
  std::vector<char> buffer(1 << 20);
  while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), in.gcount() > 0) {
    const std::string_view bytes(buffer.data(), static_cast<size_t>(in.gcount()));
    file.large ? large.update(bytes) : small.update(bytes);
  }
  return to_hex(file.large ? large.finish() : small.finish());
}

class Downloader {
 public:
  Downloader(const HubDownload& download, HubListing listing, const std::function<void(int64_t, int64_t)>& progress)
      : download_(download),
        listing_(std::move(listing)),
        progress_(progress),
        storage_(hub_cache_folder(download.repo)) {
    for (const HubFile& file : listing_.files) {
      if (download.wanted(file.path)) wanted_.push_back(&file);
    }
  }

  HubResult run() {
    HubResult result{.folder = download_.local_dir.value_or(storage_ / "snapshots" / listing_.commit),
                     .files = wanted_.size()};
    if (!download_.local_dir && !hub_is_offline() && download_.repo.revision != listing_.commit) {
      write_file_atomically(storage_ / "refs" / download_.repo.revision, listing_.commit);
    }
    std::erase_if(wanted_, [&](const HubFile* file) { return is_there(*file); });
    for (const HubFile* file : wanted_) total_ += file->size;
    std::vector<std::thread> threads;
    for (int i = 0; i < std::min<int>(download_.threads, static_cast<int>(wanted_.size())); ++i) {
      threads.emplace_back([this] { work(); });
    }
    for (std::thread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
    result.bytes = fetched_;
    return result;
  }

 private:
  bool is_there(const HubFile& file) const {
    std::error_code ignored;
    if (!download_.local_dir) return fs::exists(storage_ / "snapshots" / listing_.commit / file.path, ignored);
    std::ifstream metadata(metadata_path(file));
    std::string commit, etag;
    return fs::exists(*download_.local_dir / file.path, ignored) && std::getline(metadata, commit) &&
           std::getline(metadata, etag) && etag == file.etag;
  }

  fs::path metadata_path(const HubFile& file) const {
    return *download_.local_dir / ".cache/huggingface/download" / (file.path + ".metadata");
  }

  void work() {
    for (size_t i = next_++; i < wanted_.size() && !failed_; i = next_++) {
      try {
        fetch(*wanted_[i]);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!failed_.exchange(true)) failure_ = std::current_exception();
      }
    }
  }

  void fetch(const HubFile& file) {
    if (download_.local_dir) {
      const fs::path target = *download_.local_dir / file.path;
      const fs::path partial =
          *download_.local_dir / ".cache/huggingface/download" / (file.path + "." + file.etag + ".incomplete");
      fs::create_directories(target.parent_path());
      fetch_into(file, partial, target);
      const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
      write_file_atomically(metadata_path(file), fmt::format("{}\n{}\n{}\n", listing_.commit, file.etag, now));
      write_file_atomically(*download_.local_dir / ".cache/huggingface/.gitignore", "*");
      return;
    }
    const FileLock lock(hub_cache_folder() / ".locks" / storage_.filename() / (file.etag + ".lock"));
    const fs::path blob = storage_ / "blobs" / file.etag;
    if (!fs::exists(blob)) fetch_into(file, blob.string() + ".incomplete", blob);
    const fs::path link = storage_ / "snapshots" / listing_.commit / file.path;
    fs::create_directories(link.parent_path());
    std::error_code exists;
    fs::create_symlink(blob.lexically_relative(link.parent_path()), link, exists);
    TI_CHECK(fs::exists(link), "{} cannot be linked: {}.", link.string(), exists.message());
  }

  // Goes on where an earlier download ended; what has the wrong hash is fetched once more from its beginning.
  void fetch_into(const HubFile& file, const fs::path& partial, const fs::path& target) {
    fs::create_directories(partial.parent_path());
    for (int round = 0; round < 2; ++round) {
      PartialFile out(partial);
      if (round > 0 || out.size() > file.size) out.truncate();
      count(out.size());
      with_retries(download_.policy, [&] { append_rest(file, out); });
      if (hash_of(partial, file) == file.etag) {
        fs::rename(partial, target);
        return;
      }
      count(-out.size());
    }
    fs::remove(partial);
    throw Error(
        fmt::format("the file {} of {} does not have the hash {} after two downloads. Something between here and {} "
                    "changes it.",
                    file.path, download_.repo.id, file.etag, download_.access.endpoint));
  }

  void append_rest(const HubFile& file, PartialFile& out) {
    if (out.size() == file.size) return;
    HttpRequest request = hub_file_request(download_.access, download_.repo, listing_.commit, file.path);
    if (out.size() > 0) request.headers["range"] = fmt::format("bytes={}-", out.size());
    bool first = true;
    const HttpResponse response = http_through_redirects(request, [&](int status, std::string_view piece) {
      if (std::exchange(first, false) && status == 200 && out.size() > 0) {  // a server that knows no ranges
        count(-out.size());
        out.truncate();
      }
      TI_CHECK(out.size() + static_cast<int64_t>(piece.size()) <= file.size,
               "the file {} is longer than the {} bytes that the hub lists.", file.path, file.size);
      out.append(piece);
      fetched_ += static_cast<int64_t>(piece.size());
      count(static_cast<int64_t>(piece.size()));
    });
    if (response.status != 200 && response.status != 206) explain_hub_failure(response, download_.repo);
    if (out.size() < file.size) {
      throw TransientError(
          fmt::format("{} ended after {} of {} bytes", response.url.without_query(), out.size(), file.size));
    }
  }

  void count(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    shown_ = std::max(shown_, done_);
    progress_(std::min(shown_, total_), total_);
  }

  const HubDownload& download_;
  const HubListing listing_;
  const std::function<void(int64_t, int64_t)>& progress_;
  const fs::path storage_;
  std::vector<const HubFile*> wanted_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  std::atomic<int64_t> fetched_ = 0;
  std::mutex mutex_;
  std::exception_ptr failure_;
  int64_t done_ = 0, shown_ = 0, total_ = 0;
};

}  // namespace

HubResult download_from_hub(const HubDownload& download, const std::function<void(int64_t, int64_t)>& progress) {
  TI_CHECK(
      !hub_is_offline() || !download.local_dir,
      "HF_HUB_OFFLINE is set, so {} is not asked, and nothing is fetched into {}. Unset it, or leave out the folder "
      "to be told where the cache has the files.",
      download.access.endpoint, download.local_dir->string());
  HubListing listing = list_hub_files(download.access, download.repo, download.policy);
  return Downloader(download, std::move(listing), progress).run();
}

}  // namespace titanium::remote
