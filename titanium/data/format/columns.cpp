// Parquet and Arrow, read by a plug-in that is loaded with the first such file.
#include <dlfcn.h>

#include "titanium/base/error.h"
#include "titanium/base/printable.h"
#include "titanium/data/format/formats.h"
#include "titanium/data/plugin/arrow_functions.h"
#include "titanium/data/source_files.h"
#include "titanium/remote/url.h"
#include "titanium/remote/windowed_bytes.h"

namespace titanium::data {
namespace {

constexpr const char* kPlugin = "libtitanium_arrow.so";

struct Plugin {
  const TitaniumArrow* functions = nullptr;
  std::string problem;
};

// Beside the program. Never unloaded: Arrow has threads and memory pools of its own.
Plugin load_plugin() {
  std::error_code ignored;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / kPlugin;
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {nullptr, printable(::dlerror())};
  const auto entry = reinterpret_cast<TitaniumArrowEntry>(::dlsym(library, "titanium_arrow"));
  if (entry == nullptr) return {nullptr, "it is not a plug-in of this program"};
  if (entry()->version != kTitaniumArrowVersion) return {nullptr, "it belongs to another version of this program"};
  return {entry(), ""};
}

const TitaniumArrow& arrow_for(const SourceFile& file) {
  static const Plugin plugin = load_plugin();
  TI_CHECK(plugin.functions != nullptr,
           "Data file {} is {}, which needs the plug-in {} beside the program: {}. Install the wheel pyarrow of "
           "tools/requirements.txt and build again (run_train.sh does both), or convert the data to JSON lines.",
           file.path.string(), file.format->name(), kPlugin, plugin.problem);
  return *plugin.functions;
}

// The bytes of an address, for the plug-in. An exception must not pass through it, so it is kept.
class RemoteColumns {
 public:
  explicit RemoteColumns(const std::string& path) : bytes_(remote::open_bytes(path)) {
    table_ = {.source = this, .size = bytes_.size(), .read = &read, .expect = &expect};
  }

  const TitaniumBytes* table() const { return &table_; }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  static int32_t read(void* source, int64_t offset, int64_t size, char* out) {
    auto& self = *static_cast<RemoteColumns*>(source);
    try {
      self.bytes_.read(offset, {out, static_cast<size_t>(size)});
      return 0;
    } catch (...) {
      self.failure_ = std::current_exception();
      return -1;
    }
  }
  static void expect(void* source, int64_t begin, int64_t end) {
    static_cast<RemoteColumns*>(source)->bytes_.expect(begin, end);
  }

  remote::WindowedBytes bytes_;
  TitaniumBytes table_{};
  std::exception_ptr failure_;
};

class ColumnReader : public BlockReader {
 public:
  ColumnReader(const SourceFile& file, const Anchor& start, const ReadOptions& options)
      : BlockReader(start, options), file_(file), arrow_(arrow_for(file)), group_(start) {
    if (remote::is_url(file.path.string())) remote_ = std::make_unique<RemoteColumns>(file.path.string());
    handle_ = arrow_.open(file.path.c_str(), remote_ ? remote_->table() : nullptr, options.text_field.c_str(),
                          error_.data(), error_.size());
    if (handle_ == nullptr) refuse();
    const int64_t groups = arrow_.groups(handle_);
    TI_CHECK(
        groups < 0 || start.offset <= groups,
        "The saved data position is group {} of {}, which has only {}. Restore the files of the saved run, or start "
        "the data from the beginning.",
        start.offset, file.path.string(), groups);
  }
  ~ColumnReader() override { arrow_.close(handle_); }

  std::shared_ptr<const Block> next() override {
    TitaniumRows rows{};
    while (!next_rows(rows)) {
      if (at_end_) return begin_block(Content::kText, group_);
    }
    const auto block = begin_block(rows.token_bytes == 0 ? Content::kText : Content::kTokens, group_);
    block->token_bytes = rows.token_bytes;
    reserve(*block, rows);
    for (int64_t i = 0; i < rows.count; ++i) {
      const bool missing = rows.sizes[i] < 0;
      TI_CHECK(rows.sizes[i] <= options_.max_record_bytes,
               "{}:{}: this record is longer than {} bytes, the most that one document may have. Split it.",
               file_.path.string(), position_.line, options_.max_record_bytes);
      append(*block, missing ? "" : std::string_view(rows.data[i], static_cast<size_t>(rows.sizes[i])), missing);
    }
    return block;
  }

  void skip_towards(int64_t record) override {
    for (;;) {
      const int64_t rows = group_.offset < arrow_.groups(handle_) ? arrow_.rows(handle_, group_.offset) : -1;
      if (rows < 0 || record < group_.record + rows) return;
      leave_group(group_.record + rows, group_.line + rows);
    }
  }

  bool is_entrance() const override { return !inside_group_; }

 private:
  // Room for the owned rows, so that nothing is copied twice.
  void reserve(Block& block, const TitaniumRows& rows) const {
    size_t bytes = 0;
    for (int64_t i = 0; i < rows.count; ++i) {
      if (options_.ownership.owns(position_.record + i))
        bytes += static_cast<size_t>(std::max<int64_t>(rows.sizes[i], 0)) + 1;
    }
    block.bytes.reserve(bytes);
  }

  // False when a group or, with at_end_, the file has ended.
  bool next_rows(TitaniumRows& rows) {
    if (!inside_group_) {
      const int32_t entered = arrow_.enter(handle_, group_.offset, error_.data(), error_.size());
      if (entered < 0) refuse();
      at_end_ = entered == 0;
      if (at_end_) return false;
      inside_group_ = true;
    }
    const int32_t found = arrow_.next(handle_, &rows, error_.data(), error_.size());
    if (found < 0) refuse();
    if (found == 0) leave_group(position_.record, position_.line);
    return found > 0;
  }

  void leave_group(int64_t record, int64_t line) {
    group_ = position_ = {.record = record, .file = position_.file, .offset = group_.offset + 1, .line = line};
    inside_group_ = false;
  }

  [[noreturn]] void refuse() const {
    if (remote_) remote_->rethrow();
    throw Error(fmt::format("Data file {} cannot be read as {}: {}", file_.path.string(), file_.format->name(),
                            printable(error_.data(), 400)));
  }

  const SourceFile& file_;
  const TitaniumArrow& arrow_;
  std::unique_ptr<RemoteColumns> remote_;
  void* handle_ = nullptr;
  Anchor group_;  // the beginning of the group that position_ is in
  bool inside_group_ = false;
  std::array<char, 1024> error_{};
};

class ColumnFormat : public SourceFormat {
 public:
  // What is saved is the number of a group; opening the file there checks it.
  bool is_place(const SourceFile&, const Anchor&) const override { return true; }
  std::unique_ptr<BlockReader> open(const SourceFile& file, const Anchor& start,
                                    const ReadOptions& options) const override {
    return std::make_unique<ColumnReader>(file, start, options);
  }
};

class ParquetFiles : public ColumnFormat {
 public:
  std::string_view name() const override { return "Parquet"; }
  bool has_name(std::string_view name) const override { return name.ends_with(".parquet"); }
  bool knows_counts() const override { return true; }
  bool has_content(std::string_view head) const override { return head.starts_with("PAR1"); }
};

class ArrowFiles : public ColumnFormat {
 public:
  std::string_view name() const override { return "Arrow"; }
  bool has_name(std::string_view name) const override { return name.ends_with(".arrow"); }
  // A stream begins with a message: the mark of a continuation and its size, a multiple of 8.
  bool has_content(std::string_view head) const override {
    if (head.starts_with("ARROW1")) return true;
    return head.size() >= 8 && head.starts_with("\xff\xff\xff\xff") && (head[4] & 7) == 0 && head[7] == 0;
  }
};

}  // namespace

const SourceFormat& parquet_files() {
  static const ParquetFiles format;
  return format;
}

const SourceFormat& arrow_files() {
  static const ArrowFiles format;
  return format;
}

}  // namespace titanium::data
