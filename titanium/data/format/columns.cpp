// Parquet and Arrow, read by a plug-in that is loaded with the first such file.
#include <dlfcn.h>

#include "titanium/base/error.h"
#include "titanium/base/text/printable.h"
#include "titanium/data/format/formats.h"
#include "titanium/data/plugin/arrow_functions.h"
#include "titanium/data/reader_memory.h"
#include "titanium/data/source_files.h"
#include "titanium/remote/reading/windowed_bytes.h"
#include "titanium/remote/transport/url.h"

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
  RemoteColumns(const std::string& path, int64_t largest_window) : bytes_(remote::open_bytes(path), largest_window) {
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

// A file that the plug-in has opened.
class ColumnFile {
 public:
  ColumnFile(const SourceFile& file, const ReadOptions& options) : file_(file), arrow_(arrow_for(file)) {
    if (remote::is_url(file.path.string()))
      remote_ = std::make_unique<RemoteColumns>(file.path.string(), largest_window(options));
    handle_ = arrow_.open(file.path.c_str(), remote_ ? remote_->table() : nullptr, options.text_field.c_str(),
                          error_.data(), error_.size());
    if (handle_ == nullptr) refuse();
  }
  ~ColumnFile() { arrow_.close(handle_); }
  ColumnFile(const ColumnFile&) = delete;
  ColumnFile& operator=(const ColumnFile&) = delete;

  // As the functions of the plug-in; they throw Error.
  int64_t groups() const { return arrow_.groups(handle_); }
  int64_t rows(int64_t group) const { return arrow_.rows(handle_, group); }
  int64_t bytes(int64_t group) const { return arrow_.bytes(handle_, group); }
  bool enter(int64_t group) {
    const int32_t entered = arrow_.enter(handle_, group, error_.data(), error_.size());
    if (entered < 0) refuse();
    return entered > 0;
  }
  bool next(TitaniumRows& rows) {
    const int32_t found = arrow_.next(handle_, &rows, error_.data(), error_.size());
    if (found < 0) refuse();
    return found > 0;
  }
  int64_t held_bytes() const { return arrow_.held_bytes(handle_); }
  bool rest(int64_t row) {
    const int32_t rests = arrow_.rest(handle_, row, error_.data(), error_.size());
    if (rests < 0) refuse();
    return rests > 0;
  }

 private:
  [[noreturn]] void refuse() const {
    if (remote_) remote_->rethrow();
    throw Error(fmt::format("Data file {} cannot be read as {}: {}", file_.path.string(), file_.format->name(),
                            printable(error_.data(), 400)));
  }

  const SourceFile& file_;
  const TitaniumArrow& arrow_;
  std::unique_ptr<RemoteColumns> remote_;
  void* handle_ = nullptr;
  std::array<char, 1024> error_{};
};

class ColumnReader : public BlockReader {
 public:
  ColumnReader(const SourceFile& file, const Anchor& start, const ReadOptions& options)
      : BlockReader(start, options), file_(file), column_(file, options), group_(start) {
    const int64_t groups = column_.groups();
    TI_CHECK(
        groups < 0 || start.offset <= groups,
        "The saved data position is group {} of {}, which has only {}. Restore the files of the saved run, or start "
        "the data from the beginning.",
        start.offset, file.path.string(), groups);
    if (start.offset < file.part.begin) {
      group_.offset = position_.offset = file.part.begin;
      group_.line = position_.line = std::max<int64_t>(file.part.first_line, 1);
    }
  }

  std::shared_ptr<const Block> next() override {
    while (used_ == rows_.count) {
      if (next_rows()) {
        if (!served_ && position_.record + rows_.count <= wanted_) pass_rows();
      } else if (at_end_) {
        return begin_block(Content::kText, group_);
      }
    }
    const auto block = begin_block(rows_.token_bytes == 0 ? Content::kText : Content::kTokens, group_);
    block->token_bytes = rows_.token_bytes;
    const int64_t end = reserve(*block);
    for (; used_ < end; ++used_) {
      const int64_t size = rows_.sizes[used_];
      TI_CHECK(size <= options_.max_record_bytes,
               "{}: this record is longer than {} bytes, the most that one document may have. Split it.",
               place_of(file_, position_.line), options_.max_record_bytes);
      const bool missing = size < 0;
      append(*block, missing ? "" : std::string_view(rows_.data[used_], static_cast<size_t>(size)), missing);
    }
    served_ = true;
    return block;
  }

  void skip_towards(int64_t record) override {
    for (;;) {
      const bool exists = group_.offset < column_.groups() && !is_behind_part();
      const int64_t rows = exists ? column_.rows(group_.offset) : -1;
      wanted_ = record;
      if (rows < 0 || record < group_.record + rows) return;
      leave_group(group_.record + rows, group_.line + rows);
    }
  }

  bool is_entrance() const override { return !inside_group_; }

  // An open group keeps a page and a dictionary, or a batch. The windows of an address stay: reading them again costs.
  void settle(int64_t most) override {
    memory_.set(column_.held_bytes());
    if (!inside_group_ || !ReaderMemory::exceeds(most) || !column_.rest(position_.record - group_.record)) return;
    rows_.count = used_ = 0;
    memory_.set(column_.held_bytes());
  }

 private:
  bool is_behind_part() const { return file_.part.end > 0 && group_.offset >= file_.part.end; }

  // Up to which row a block goes. Makes room for the owned ones, so that nothing is copied twice.
  int64_t reserve(Block& block) const {
    int64_t bytes = 0, owned = 0, row = used_;
    for (; row < rows_.count && bytes < options_.block_bytes; ++row) {
      const int64_t size = std::max<int64_t>(rows_.sizes[row], 0) + 1;
      bytes += size;
      if (options_.ownership.owns(position_.record + row - used_)) owned += size;
    }
    block.bytes.reserve(static_cast<size_t>(owned));
    return row;
  }

  // Leaves out rows before the one that is wanted, on the way of a new reader to its place.
  void pass_rows() {
    used_ = rows_.count;
    position_.record += rows_.count;
    position_.line += rows_.count;
  }

  // False when a group or, with at_end_, the file has ended.
  bool next_rows() {
    if (!inside_group_) {
      at_end_ = is_behind_part() || !column_.enter(group_.offset);
      if (at_end_) return false;
      inside_group_ = true;
    }
    used_ = 0;
    const bool found = column_.next(rows_);
    if (!found) leave_group(position_.record, position_.line);
    return found;
  }

  void leave_group(int64_t record, int64_t line) {
    group_ = position_ = {.record = record, .file = position_.file, .offset = group_.offset + 1, .line = line};
    inside_group_ = false;
    rows_.count = used_ = 0;
  }

  const SourceFile& file_;
  ColumnFile column_;
  TitaniumRows rows_{};
  int64_t used_ = 0;    // of them
  int64_t wanted_ = 0;  // the record that is on its way
  Anchor group_;        // the beginning of the group that position_ is in
  bool inside_group_ = false;
  bool served_ = false;  // a block since it was opened: other streams want what follows
  ReaderMemory memory_;
};

// Groups that follow each other until they have `bytes`.
std::vector<FilePart> parts_of(const ColumnFile& column, int64_t groups, const SourceFile& file, int64_t bytes) {
  std::vector<FilePart> parts;
  int64_t line = 1;  // 0: not known
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t rows = column.rows(group), stored = column.bytes(group);
    if (parts.empty() || parts.back().bytes >= bytes)
      parts.push_back({.begin = group, .first_line = line, .records = 0});
    FilePart& part = parts.back();
    part.end = group + 1;
    part.bytes += stored >= 0 ? stored : file.size / groups;
    part.records = rows >= 0 && part.records >= 0 ? part.records + rows : -1;
    line = rows >= 0 && line > 0 ? line + rows : 0;
  }
  return parts;
}

class ColumnFormat : public SourceFormat {
 public:
  // What is saved is the number of a group; opening the file there checks it.
  bool is_place(const SourceFile& file, const Anchor& anchor) const override {
    return file.part.is_inside(anchor.offset);
  }
  std::optional<std::vector<FilePart>> parts(const SourceFile& file, int64_t bytes,
                                             const ReadOptions& options) const override {
    const ColumnFile column(file, options);
    const int64_t groups = column.groups();
    if (groups < 0) return std::nullopt;
    return parts_of(column, groups, file, bytes);
  }
  std::string_view unit() const override { return "group"; }
  int64_t reader_weight(const SourceFile&) const override { return 4; }  // pages and decoded rows
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
