#include "titanium/data/byte_stream.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cerrno>
#include <cstring>

#include "titanium/base/error.h"
#include "titanium/remote/transport/url.h"

namespace titanium::data {
namespace {

constexpr size_t kInputBytes = size_t{128} << 10;

class PlainStream : public ByteStream {
 public:
  PlainStream(std::filesystem::path path, int64_t offset) : path_(std::move(path)), offset_(offset) {
    file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    TI_CHECK(file_ >= 0, "Data file {} cannot be opened: {}. Check the path and its permissions.", path_.string(),
             std::strerror(errno));
  }
  PlainStream(const PlainStream&) = delete;
  PlainStream& operator=(const PlainStream&) = delete;
  ~PlainStream() override { ::close(file_); }

  size_t read(char* out, size_t size) override {
    ssize_t count = 0;
    do {
      count = ::pread(file_, out, size, offset_);
    } while (count < 0 && errno == EINTR);
    TI_CHECK(count >= 0, "Data file {} cannot be read at byte {}: {}. Check the disk.", path_.string(), offset_,
             std::strerror(errno));
    offset_ += count;
    return static_cast<size_t>(count);
  }

 private:
  std::filesystem::path path_;
  int64_t offset_;
  int file_;
};

// The bytes at an address.
class AddressStream : public ByteStream {
 public:
  AddressStream(const std::filesystem::path& path, const remote::ReadAheadPlace& place)
      : bytes_(remote::open_bytes(path.string()), place) {}
  size_t read(char* out, size_t size) override { return bytes_.read(out, size); }

 private:
  remote::ReadAhead bytes_;
};

std::unique_ptr<ByteStream> open_plain(const std::filesystem::path& path, const remote::ReadAheadPlace& place) {
  if (remote::is_url(path.string())) return std::make_unique<AddressStream>(path, place);
  return std::make_unique<PlainStream>(path, place.offset);
}

[[noreturn]] void throw_truncated(const std::filesystem::path& path) {
  throw Error(fmt::format("Data file {} is truncated: its compressed data ends too early. Fetch or make it again.",
                          path.string()));
}

[[noreturn]] void throw_damaged(const std::filesystem::path& path, const char* format, const char* reason) {
  throw Error(
      fmt::format("Data file {} is not valid {} data ({}). Fetch or make it again.", path.string(), format, reason));
}

class GzipStream : public ByteStream {
 public:
  GzipStream(const std::filesystem::path& path, const remote::ReadAheadPlace& place)
      : path_(path), input_(open_plain(path, place)), buffer_(kInputBytes) {
    TI_CHECK(inflateInit2(&state_, 15 + 16) == Z_OK, "zlib cannot be started: not enough memory.");  // 16: gzip header
  }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;
  ~GzipStream() override { inflateEnd(&state_); }

  size_t read(char* out, size_t size) override {
    state_.next_out = reinterpret_cast<Bytef*>(out);
    state_.avail_out = static_cast<uInt>(std::min<size_t>(size, size_t{1} << 30));
    const uInt wanted = state_.avail_out;
    while (state_.avail_out == wanted) {
      if (state_.avail_in == 0 && !refill()) {
        if (!between_members_) throw_truncated(path_);
        return 0;
      }
      if (between_members_) inflateReset(&state_);
      const int status = inflate(&state_, Z_NO_FLUSH);
      between_members_ = status == Z_STREAM_END;
      if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
        throw_damaged(path_, "gzip", state_.msg != nullptr ? state_.msg : "unknown error");
    }
    return wanted - state_.avail_out;
  }

  int64_t decoded_bytes() const override { return taken_ - static_cast<int64_t>(state_.avail_in); }

 private:
  bool refill() {
    state_.avail_in = static_cast<uInt>(input_->read(buffer_.data(), buffer_.size()));
    taken_ += static_cast<int64_t>(state_.avail_in);
    state_.next_in = reinterpret_cast<Bytef*>(buffer_.data());
    return state_.avail_in > 0;
  }

  std::filesystem::path path_;
  std::unique_ptr<ByteStream> input_;
  std::vector<char> buffer_;
  z_stream state_{};
  int64_t taken_ = 0;  // from the file
  bool between_members_ = false;
};

class ZstdStream : public ByteStream {
 public:
  ZstdStream(const std::filesystem::path& path, const remote::ReadAheadPlace& place)
      : path_(path),
        input_(open_plain(path, place)),
        buffer_(kInputBytes),
        state_(ZSTD_createDStream(), &ZSTD_freeDStream) {
    TI_CHECK(state_ != nullptr, "zstd cannot be started: not enough memory.");
  }

  size_t read(char* out, size_t size) override {
    ZSTD_outBuffer output = {out, size, 0};
    while (output.pos == 0) {
      // A full output buffer may leave decoded bytes inside zstd, so it is asked again before new input is read.
      if (chunk_.pos == chunk_.size && !flushing_ && !refill()) {
        if (!between_frames_) throw_truncated(path_);
        return 0;
      }
      const size_t status = ZSTD_decompressStream(state_.get(), &output, &chunk_);
      if (ZSTD_isError(status)) throw_damaged(path_, "zstd", ZSTD_getErrorName(status));
      between_frames_ = status == 0;
      flushing_ = output.pos == output.size && !between_frames_;
    }
    return output.pos;
  }

  int64_t decoded_bytes() const override { return taken_ - static_cast<int64_t>(chunk_.size - chunk_.pos); }

 private:
  bool refill() {
    chunk_ = {buffer_.data(), input_->read(buffer_.data(), buffer_.size()), 0};
    taken_ += static_cast<int64_t>(chunk_.size);
    return chunk_.size > 0;
  }

  std::filesystem::path path_;
  std::unique_ptr<ByteStream> input_;
  std::vector<char> buffer_;
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> state_;
  ZSTD_inBuffer chunk_{};
  int64_t taken_ = 0;  // from the file
  bool between_frames_ = false;
  bool flushing_ = false;
};

}  // namespace

Compression compression_by_content(std::string_view head) {
  if (head.starts_with("\x1f\x8b\x08")) return Compression::kGzip;
  if (head.starts_with("\x28\xb5\x2f\xfd")) return Compression::kZstd;
  return Compression::kNone;
}

std::string read_head(const std::filesystem::path& path, size_t size) {
  std::string head(size, '\0');
  if (remote::is_url(path.string())) {  // no more than that, where a stream would read ahead
    const auto source = remote::open_bytes(path.string());
    head.resize(std::min(size, static_cast<size_t>(source->size())));
    source->read(0, head);
    return head;
  }
  const auto stream = open_plain(path, {});
  size_t filled = 0;
  while (filled < size) {
    const size_t count = stream->read(head.data() + filled, size - filled);
    if (count == 0) break;
    filled += count;
  }
  head.resize(filled);
  return head;
}

std::unique_ptr<ByteStream> open_byte_stream(const std::filesystem::path& path, Compression compression,
                                             const remote::ReadAheadPlace& place) {
  TI_ASSERT(place.offset == 0 || compression == Compression::kNone, "compressed files cannot be entered in the middle");
  switch (compression) {
    case Compression::kGzip:
      return std::make_unique<GzipStream>(path, place);
    case Compression::kZstd:
      return std::make_unique<ZstdStream>(path, place);
    case Compression::kNone:
      break;
  }
  return open_plain(path, place);
}

}  // namespace titanium::data
