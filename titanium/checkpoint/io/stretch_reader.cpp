#include "titanium/checkpoint/io/stretch_reader.h"

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <fcntl.h>
#include <omp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "titanium/base/error.h"
#include "titanium/base/machine/usable_cores.h"
#include "titanium/checkpoint/io/crc32.h"
#include "titanium/remote/reading/byte_source.h"
#include "titanium/remote/transport/url.h"
#include "titanium/tensor/tensor.h"

namespace titanium::checkpoint {
namespace {

constexpr uint64_t kPage = 4096;                          // what direct reads are aligned to
constexpr uint64_t kBufferBytes = kSumBlock + 2 * kPage;  // a block, and an element that reaches into the next one
constexpr std::string_view kRemedy = "Copy the checkpoint again, or use another step.";

uint64_t round_down(uint64_t value, uint64_t unit) { return value / unit * unit; }
uint64_t round_up(uint64_t value, uint64_t unit) { return round_down(value + unit - 1, unit); }

// Memory for a block.
struct Buffer {
  explicit Buffer(bool pinned)
      : memory(at::empty({static_cast<int64_t>(kBufferBytes + kPage)},
                         at::TensorOptions(at::kByte).pinned_memory(pinned))),
        data(aligned(memory)) {}

  static std::byte* aligned(const Tensor& memory) {
    void* first = memory.mutable_data_ptr();
    size_t size = memory.nbytes();
    return static_cast<std::byte*>(std::align(kPage, kBufferBytes, first, size));
  }

  Tensor memory;
  std::byte* data;
  std::optional<c10::Event> used;  // what a stream still has to do with it
};

class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path) : path_(path) {
    if (remote::is_url(path.string())) {
      remote_ = remote::open_bytes(path.string());
      return;
    }
    file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    TI_CHECK(file_ >= 0, "{} cannot be opened: {}. {}", path.string(), std::strerror(errno), kRemedy);
    struct stat status{};
    const bool is_large = ::fstat(file_, &status) == 0 && static_cast<uint64_t>(status.st_size) >= kSumBlock;
    if (is_large) ::fcntl(file_, F_SETFL, O_DIRECT);  // where it is refused, the page cache serves
  }
  ~InputFile() {
    if (file_ >= 0) ::close(file_);
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Bytes [begin, end), somewhere in the buffer.
  std::span<const std::byte> read(uint64_t begin, uint64_t end, std::byte* buffer) const {
    if (remote_) {
      TI_CHECK(end <= static_cast<uint64_t>(remote_->size()), "{} has only {} bytes, but {} are needed. {}",
               path_.string(), remote_->size(), end, kRemedy);
      remote_->read(static_cast<int64_t>(begin), {reinterpret_cast<char*>(buffer), end - begin});
      return {buffer, end - begin};
    }
    const uint64_t first = round_down(begin, kPage), size = round_up(end, kPage) - first;
    uint64_t done = 0;
    while (done < end - first) {
      const ssize_t got = ::pread(file_, buffer + done, size - done, static_cast<off_t>(first + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EINVAL && ::fcntl(file_, F_SETFL, 0) == 0) continue;  // no direct reads here
      TI_CHECK(got >= 0, "{} cannot be read: {}. {}", path_.string(), std::strerror(errno), kRemedy);
      TI_CHECK(got > 0, "{} has only {} bytes, but {} are needed. {}", path_.string(), first + done, end, kRemedy);
      done += static_cast<uint64_t>(got);
    }
    return {buffer + (begin - first), end - begin};
  }

 private:
  std::filesystem::path path_;
  int file_ = -1;
  std::unique_ptr<remote::ByteSource> remote_;  // of an address
};

// A block of a file, and who needs something of it.
struct Task {
  std::string file;
  uint64_t block = 0;
  std::vector<size_t> stretches;
};

// The part of a stretch that lies in a block.
struct Part {
  uint64_t begin, end;             // bytes
  uint64_t first_unit, last_unit;  // the elements that begin there, as bytes of the file
};

Part part_in(const Stretch& stretch, uint64_t block) {
  const uint64_t begin = std::max(stretch.begin, block * kSumBlock);
  const uint64_t end = std::min(stretch.end, (block + 1) * kSumBlock);
  return {begin, end, stretch.begin + round_up(begin - stretch.begin, stretch.unit),
          stretch.begin + round_up(end - stretch.begin, stretch.unit)};
}

class Reading {
 public:
  Reading(const std::filesystem::path& folder, std::span<const Stretch> stretches,
          const std::map<std::string, FileSum>& sums, const StretchOptions& options)
      : folder_(folder), stretches_(stretches), sums_(sums), options_(options), remaining_(stretches.size()) {
    std::map<std::pair<std::string, uint64_t>, std::vector<size_t>> blocks;
    crcs_.resize(stretches.size());
    for (size_t i = 0; i < stretches.size(); ++i) {
      const Stretch& stretch = stretches[i];
      if (stretch.begin >= stretch.end) continue;
      const uint64_t first = stretch.begin / kSumBlock, last = (stretch.end - 1) / kSumBlock;
      for (uint64_t block = first; block <= last; ++block) blocks[{stretch.file, block}].push_back(i);
      crcs_[i].resize(last - first + 1);
      remaining_[i] = last - first + 1;
    }
    for (auto& [place, needed] : blocks) tasks_.push_back({place.first, place.second, std::move(needed)});
  }

  std::vector<FileProblem> run() {
    const auto cores = static_cast<size_t>(usable_cores());
    const size_t wanted =
        options_.threads > 0 ? static_cast<size_t>(options_.threads) : std::clamp<size_t>(cores, 4, 16);
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < std::min(wanted, tasks_.size()); ++i) threads.emplace_back([this] { work(); });
    threads.clear();
    if (failure_) std::rethrow_exception(failure_);
    return std::move(problems_);
  }

 private:
  void work() {
    omp_set_num_threads(1);  // of this thread: there are others
    try {
      const c10::OptionalStreamGuard guard(options_.stream);
      std::vector<Buffer> buffers;
      std::unique_ptr<InputFile> file;
      for (size_t turn = 0; !stop_; ++turn) {
        const size_t next = next_++;
        if (next >= tasks_.size()) break;
        if (buffers.size() < (options_.stream ? 3 : 1)) buffers.emplace_back(options_.stream.has_value());
        Buffer& buffer = buffers[turn % buffers.size()];
        if (buffer.used) buffer.used->synchronize();
        do_task(tasks_[next], file, buffer);
        if (options_.stream) {
          buffer.used.emplace(options_.stream->device_type());
          buffer.used->record(*options_.stream);
        }
      }
      for (const Buffer& buffer : buffers) {
        if (buffer.used) buffer.used->synchronize();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      stop_ = true;
    }
  }

  void do_task(const Task& task, std::unique_ptr<InputFile>& file, Buffer& buffer) {
    const auto found = sums_.find(task.file);
    const FileSum* sum = found == sums_.end() ? nullptr : &found->second;
    uint64_t begin = UINT64_MAX, end = 0;
    if (sum != nullptr) begin = task.block * kSumBlock, end = std::min(begin + kSumBlock, sum->size);
    for (const size_t i : task.stretches) {
      const Part part = part_in(stretches_[i], task.block);
      begin = std::min(begin, part.begin), end = std::max({end, part.end, part.last_unit});
    }
    std::span<const std::byte> bytes;
    try {
      if (!file || file->path() != folder_ / task.file) file = std::make_unique<InputFile>(folder_ / task.file);
      bytes = file->read(begin, end, buffer.data);
    } catch (const Error& error) {
      return report(task.file, error.what());
    }
    if (sum != nullptr) {
      const uint64_t size = std::min(kSumBlock, sum->size - begin);
      if (crc32(bytes.first(size)) != sum->blocks[task.block]) {
        return report_damage(stretches_[task.stretches.front()], begin, begin + size);
      }
    }
    for (const size_t i : task.stretches) {
      const Stretch& stretch = stretches_[i];
      const Part part = part_in(stretch, task.block);
      if (sum == nullptr && stretch.crc) {
        add_crc(i, task.block, crc32(bytes.subspan(part.begin - begin, part.end - part.begin)));
      }
      if (stretch.use && part.first_unit < part.last_unit) {
        stretch.use(part.first_unit - stretch.begin,
                    bytes.subspan(part.first_unit - begin, part.last_unit - part.first_unit));
      }
    }
  }

  // The last one of a stretch joins them.
  void add_crc(size_t i, uint64_t block, uint32_t crc) {
    const Stretch& stretch = stretches_[i];
    const uint64_t first = stretch.begin / kSumBlock;
    crcs_[i][block - first] = crc;
    if (--remaining_[i] > 0) return;
    uint32_t whole = 0;
    for (size_t k = 0; k < crcs_[i].size(); ++k) {
      const Part part = part_in(stretch, first + k);
      whole = crc32_combine(whole, crcs_[i][k], part.end - part.begin);
    }
    if (whole != *stretch.crc) report_damage(stretch, stretch.begin, stretch.end);
  }

  void report_damage(const Stretch& stretch, uint64_t begin, uint64_t end) {
    const std::string subject =
        stretch.what.empty() ? (folder_ / stretch.file).string()
                             : fmt::format("{}: {} lies in {}, which", folder_.string(), stretch.what, stretch.file);
    report(stretch.file,
           fmt::format("{} is damaged (checksum of bytes {} to {} differs). {}", subject, begin, end, kRemedy));
  }

  void report(const std::string& file, const std::string& message) {
    const std::lock_guard lock(mutex_);
    problems_.push_back({file, message});
    if (!options_.keep_going) stop_ = true;
  }

  std::filesystem::path folder_;
  std::span<const Stretch> stretches_;
  const std::map<std::string, FileSum>& sums_;
  StretchOptions options_;
  std::vector<Task> tasks_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> stop_ = false;
  std::vector<std::vector<uint32_t>> crcs_;       // of each stretch, block by block
  std::vector<std::atomic<uint64_t>> remaining_;  // how many of them are missing
  std::mutex mutex_;                              // for those below
  std::vector<FileProblem> problems_;
  std::exception_ptr failure_;
};

}  // namespace

std::vector<FileProblem> read_stretches(const std::filesystem::path& folder, std::span<const Stretch> stretches,
                                        const std::map<std::string, FileSum>& sums, const StretchOptions& options) {
  return Reading(folder, stretches, sums, options).run();
}

}  // namespace titanium::checkpoint
