// libtitanium_arrow.so: one column of a Parquet or Arrow file, in pieces of rows.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/io/interfaces.h>
#include <arrow/ipc/reader.h>
#include <arrow/util/byte_size.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>
#include <parquet/schema.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "titanium/data/plugin/arrow_functions.h"
#include "titanium/data/plugin/paged_texts.h"
#include "titanium/data/plugin/program_file.h"
#include "titanium/data/plugin/results.h"

namespace titanium::data::plugin {
namespace {

constexpr int64_t kFewestRows = 16, kRowsAtOnce = 1024;
constexpr int64_t kBytesAtOnce = int64_t{1} << 19;  // about, of rows that are decoded
constexpr int64_t kReadBytes = int64_t{256} << 10;
constexpr int64_t kOpenLeaf = (int64_t{2} << 20) + kReadBytes;  // about: page, dictionary and what is read ahead

// What is read again, of a file of this machine or an address, for a reader that gives back its memory.
constexpr int64_t kQuickBytes = int64_t{32} << 20, kQuickRemoteBytes = int64_t{4} << 20;

std::vector<std::string> split(const std::string& path) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', begin)) {
    parts.push_back(path.substr(begin, dot - begin));
    begin = dot + 1;
  }
  parts.push_back(path.substr(begin));
  return parts;
}

[[noreturn]] void fail_without_column(const std::string& column, const arrow::Schema& schema) {
  std::string names;
  for (const auto& field : schema.fields()) names += (names.empty() ? "" : ", ") + field->name();
  fail("there is no column \"" + column + "\" (its columns: " + names + "). Set training.text_field to one of them.");
}

// The column at a path, through the fields of structs. A column whose own name has dots is found first.
std::shared_ptr<arrow::Array> find_column(const arrow::RecordBatch& batch, const std::string& path) {
  if (auto column = batch.GetColumnByName(path)) return column;
  const std::vector<std::string> parts = split(path);
  std::shared_ptr<arrow::Array> column = batch.GetColumnByName(parts[0]);
  for (size_t i = 1; i < parts.size() && column != nullptr; ++i) {
    if (column->type_id() != arrow::Type::STRUCT) fail_without_column(path, *batch.schema());
    const auto& rows = static_cast<const arrow::StructArray&>(*column);
    if (rows.struct_type()->GetFieldIndex(parts[i]) < 0) fail_without_column(path, *batch.schema());
    column = value_of(rows.GetFlattenedField(rows.struct_type()->GetFieldIndex(parts[i])));  // with the struct's nulls
  }
  if (column == nullptr) fail_without_column(path, *batch.schema());
  return column;
}

// Rows of a column as pointers and sizes.
class Rows {
 public:
  // `column` must stay alive as long as the rows are used.
  void set(const arrow::Array& column, const std::string& name) {
    data_.clear();
    sizes_.clear();
    token_bytes_ = 0;
    add(column, name);
  }

  TitaniumRows view() const { return {static_cast<int64_t>(data_.size()), data_.data(), sizes_.data(), token_bytes_}; }

 private:
  void put(const char* data, int64_t size) {
    data_.push_back(data);
    sizes_.push_back(size);
  }

  // Files of Arrow are used as they lie there, and Arrow's quick validation looks at the first and last offset alone.
  template <typename Offset>
  static void check_offsets(const Offset* offsets, int64_t count, int64_t limit) {
    bool good = count == 0 || (offsets[0] >= 0 && offsets[count] <= limit);
    for (int64_t i = 0; i < count; ++i) good &= offsets[i] <= offsets[i + 1];
    if (!good) fail("the offsets of a column do not ascend: the file is damaged.");
  }

  template <typename Array>
  void add_texts(const arrow::Array& column) {
    const auto& texts = static_cast<const Array&>(column);
    if constexpr (std::is_same_v<Array, arrow::BinaryViewArray>) {
      check(texts.ValidateFull());
    } else {
      check_offsets(texts.raw_value_offsets(), texts.length(), texts.value_data() ? texts.value_data()->size() : 0);
    }
    for (int64_t i = 0; i < texts.length(); ++i) {
      if (texts.IsNull(i)) {
        put(nullptr, -1);
      } else {
        const std::string_view text = texts.GetView(i);
        put(text.data(), static_cast<int64_t>(text.size()));
      }
    }
  }

  void add_dictionary(const arrow::DictionaryArray& column, const std::string& name) {
    Rows words;
    words.set(*column.dictionary(), name);
    if (words.token_bytes_ != 0) fail_for_type(*column.type(), name);
    for (int64_t i = 0; i < column.length(); ++i) {
      if (column.IsNull(i)) {
        put(nullptr, -1);
        continue;
      }
      const int64_t word = column.GetValueIndex(i);
      if (word < 0 || word >= static_cast<int64_t>(words.data_.size())) fail("a dictionary index is out of range.");
      put(words.data_[word], words.sizes_[word]);
    }
  }

  template <typename Array>
  void add_lists(const arrow::Array& column, const std::string& name) {
    const auto& lists = static_cast<const Array&>(column);
    const std::shared_ptr<arrow::Array> values = lists.values();
    check_offsets(lists.raw_value_offsets(), lists.length(), values->length());
    if (!arrow::is_integer(values->type_id())) fail_for_type(*column.type(), name);
    token_bytes_ = values->type()->byte_width();
    if (token_bytes_ == 1) fail_for_type(*column.type(), name);
    const auto* bytes = reinterpret_cast<const char*>(values->data()->GetValues<uint8_t>(1, 0));
    for (int64_t i = 0; i < lists.length(); ++i) {
      if (lists.IsNull(i)) {
        put(nullptr, -1);
      } else {
        const int64_t begin = values->offset() + lists.value_offset(i);
        put(bytes + begin * token_bytes_, int64_t{lists.value_length(i)} * token_bytes_);
      }
    }
  }

  [[noreturn]] static void fail_for_type(const arrow::DataType& type, const std::string& name) {
    fail("column \"" + name + "\" holds " + type.ToString() +
         ", but texts or lists of integers of 2, 4 or 8 bytes are needed. Set training.text_field to another column.");
  }

  void add(const arrow::Array& column, const std::string& name) {
    switch (column.type_id()) {
      case arrow::Type::STRING:
      case arrow::Type::BINARY:
        return add_texts<arrow::BinaryArray>(column);
      case arrow::Type::LARGE_STRING:
      case arrow::Type::LARGE_BINARY:
        return add_texts<arrow::LargeBinaryArray>(column);
      case arrow::Type::STRING_VIEW:
      case arrow::Type::BINARY_VIEW:
        return add_texts<arrow::BinaryViewArray>(column);
      case arrow::Type::DICTIONARY:
        return add_dictionary(static_cast<const arrow::DictionaryArray&>(column), name);
      case arrow::Type::LIST:
        return add_lists<arrow::ListArray>(column, name);
      case arrow::Type::LARGE_LIST:
        return add_lists<arrow::LargeListArray>(column, name);
      default:
        fail_for_type(*column.type(), name);
    }
  }

  std::vector<const char*> data_;
  std::vector<int64_t> sizes_;
  int32_t token_bytes_ = 0;
};

class File {
 public:
  virtual ~File() = default;
  virtual int64_t groups() const = 0;
  virtual int64_t rows(int64_t group) const = 0;
  virtual int64_t bytes(int64_t /*group*/) const { return -1; }
  virtual bool enter(int64_t group) = 0;
  virtual bool next(TitaniumRows& rows) = 0;  // false at the end of the group
  virtual int64_t held_bytes() const = 0;
  virtual bool rest(int64_t row) = 0;
};

// Groups that are read as record batches.
class Batches : public File {
 public:
  Batches(std::string column, bool is_remote) : column_(std::move(column)), is_remote_(is_remote) {}

  bool next(TitaniumRows& rows) override {
    if (std::exchange(rests_, false)) enter_again();
    while (batch_ == nullptr || at_ == batch_->num_rows()) {
      batch_ = next_batch();
      if (batch_ == nullptr) {
        forget();
        return false;
      }
      at_ = std::min(passed_over_, batch_->num_rows());
      passed_over_ -= at_;
    }
    // Pieces end where they do without a rest: blocks of a file must not depend on who rested when.
    const int64_t count = std::min(kRowsAtOnce - at_ % kRowsAtOnce, batch_->num_rows() - at_);
    piece_ = find_column(*batch_, column_)->Slice(at_, count);
    check(piece_->Validate());
    rows_.set(*piece_, column_);
    at_ += count;
    rows = rows_.view();
    return true;
  }

  int64_t held_bytes() const override { return batch_ == nullptr ? 0 : arrow::util::TotalBufferSize(*batch_); }

  bool rest(int64_t row) override {
    if (!is_quick(bytes_of_rest())) return false;
    forget();
    rests_ = true;
    passed_over_ = row;
    return true;
  }

 protected:
  virtual std::shared_ptr<arrow::RecordBatch> next_batch() = 0;  // of the group; null at its end
  virtual void enter_again() = 0;                                // the group that was entered last
  virtual int64_t bytes_of_rest() const { return held_bytes(); }
  bool is_quick(int64_t bytes) const { return bytes <= (is_remote_ ? kQuickRemoteBytes : kQuickBytes); }
  void forget() {
    batch_ = nullptr;
    piece_ = nullptr;
    rests_ = false;
    passed_over_ = 0;
  }

  const std::string column_;

 private:
  const bool is_remote_;
  std::shared_ptr<arrow::RecordBatch> batch_;
  int64_t at_ = 0;
  bool rests_ = false;
  int64_t passed_over_ = 0;  // rows that were given before it rested
  std::shared_ptr<arrow::Array> piece_;
  Rows rows_;
};

// When a file of this machine was last written; empty for others.
std::string time_of_change(const std::string& path) {
  std::error_code error;
  const auto time = std::filesystem::last_write_time(path, error);
  return error ? "" : std::to_string(time.time_since_epoch().count());
}

// The footers that were used last: a reader that goes from one part of a file to another, and readers of other parts of
// it, need not read and parse it again.
class Footers {
 public:
  static Footers& all() {
    static Footers footers;
    return footers;
  }

  std::shared_ptr<parquet::FileMetaData> find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(known_.begin(), known_.end(), [&](const auto& entry) { return entry.first == key; });
    if (found == known_.end()) return nullptr;
    known_.splice(known_.begin(), known_, found);
    return found->second;
  }

  void keep(const std::string& key, std::shared_ptr<parquet::FileMetaData> footer) {
    if (find(key) != nullptr) return;
    const std::lock_guard lock(mutex_);
    known_.emplace_front(key, std::move(footer));
    if (known_.size() > kMost) known_.pop_back();
  }

 private:
  static constexpr size_t kMost = 16;

  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<parquet::FileMetaData>>> known_;
};

class ParquetFile : public Batches {
 public:
  // Without `file`, which is there for bytes of the program, the file at `path` is opened.
  ParquetFile(const std::string& path, std::shared_ptr<ProgramFile> file, const std::string& column)
      : Batches(column, file != nullptr), remote_(std::move(file)), file_(remote_) {
    properties_.enable_buffered_stream();
    properties_.set_buffer_size(kReadBytes);
    properties_.set_page_checksum_verification(true);  // of pages that have one
    if (!file_) file_ = value_of(arrow::io::ReadableFile::Open(path));
    const std::string key = path + ":" + std::to_string(value_of(file_->GetSize())) + ":" + time_of_change(path);
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(file_, properties_, Footers::all().find(key)));
    parquet::ArrowReaderProperties reading(/*use_threads=*/false);
    reading.set_pre_buffer(false);
    builder.properties(reading);
    reader_ = value_of(builder.Build());
    Footers::all().keep(key, reader_->parquet_reader()->metadata());
    choose_leaves();
    reader_->set_batch_size(rows_at_once());
  }

  int64_t groups() const override { return reader_->num_row_groups(); }
  int64_t rows(int64_t group) const override {
    return reader_->parquet_reader()->metadata()->RowGroup(static_cast<int>(group))->num_rows();
  }
  int64_t bytes(int64_t group) const override {
    int64_t sum = 0;
    const auto metadata = reader_->parquet_reader()->metadata()->RowGroup(static_cast<int>(group));
    for (const int leaf : leaves_) sum += std::max<int64_t>(metadata->ColumnChunk(leaf)->total_compressed_size(), 0);
    return sum;
  }
  bool enter(int64_t group) override {
    forget();
    texts_ = nullptr;
    if (group >= groups()) return false;
    group_ = static_cast<int>(group);
    if (are_texts_) {
      texts_ = std::make_unique<PagedTexts>(reader_->parquet_reader()->metadata(), group_, leaves_[0], file_,
                                            remote_.get(), properties_);
    } else {
      enter_again();
    }
    return true;
  }

  bool next(TitaniumRows& rows) override {
    if (!texts_) return Batches::next(rows);
    if (texts_->next(rows)) return true;
    texts_ = nullptr;
    return false;
  }

  int64_t held_bytes() const override {
    if (texts_) return texts_->held_bytes();
    return Batches::held_bytes() + (batches_ ? static_cast<int64_t>(leaves_.size()) * kOpenLeaf : 0);
  }

  bool rest(int64_t row) override {
    if (texts_) {
      if (!is_quick(texts_->bytes_of_rest())) return false;
      texts_->rest(row);
      return true;
    }
    if (!Batches::rest(row)) return false;
    batches_ = nullptr;
    return true;
  }

 private:
  std::shared_ptr<arrow::RecordBatch> next_batch() override {
    std::shared_ptr<arrow::RecordBatch> batch;
    if (batches_) check(batches_->ReadNext(&batch));
    if (!batch) batches_ = nullptr;
    return batch;
  }

  void enter_again() override {
    if (remote_) expect_columns();
    batches_ = value_of(reader_->GetRecordBatchReader({group_}, leaves_));
  }

  int64_t bytes_of_rest() const override { return bytes(group_); }

  // As many as take about kBytesAtOnce in the first group.
  int64_t rows_at_once() const {
    if (groups() == 0) return kRowsAtOnce;
    const auto group = reader_->parquet_reader()->metadata()->RowGroup(0);
    int64_t bytes = 0;
    for (const int leaf : leaves_) bytes += std::max<int64_t>(group->ColumnChunk(leaf)->total_uncompressed_size(), 0);
    const int64_t of_a_row = std::max<int64_t>(bytes / std::max<int64_t>(group->num_rows(), 1), 1);
    return std::clamp(kBytesAtOnce / of_a_row, kFewestRows, kRowsAtOnce);
  }

  // Parquet stores leaves: "meta.text" is one, a list has its own below the column.
  void choose_leaves() {
    const parquet::SchemaDescriptor& schema = *reader_->parquet_reader()->metadata()->schema();
    for (int i = 0; i < schema.num_columns(); ++i) {
      const std::string path = schema.Column(i)->path()->ToDotString();
      if (path == column_ || path.rfind(column_ + ".", 0) == 0) leaves_.push_back(i);
    }
    std::shared_ptr<arrow::Schema> columns;
    check(reader_->GetSchema(&columns));
    if (leaves_.empty()) fail_without_column(column_, *columns);
    const parquet::ColumnDescriptor& first = *schema.Column(leaves_[0]);
    are_texts_ = leaves_.size() == 1 && first.path()->ToDotString() == column_ && PagedTexts::can_read(first) &&
                 !reader_->parquet_reader()->metadata()->is_encryption_algorithm_set();
  }

  void expect_columns() {
    const auto metadata = reader_->parquet_reader()->metadata()->RowGroup(group_);
    for (const int leaf : leaves_) {
      const auto chunk = metadata->ColumnChunk(leaf);
      int64_t begin = chunk->data_page_offset();
      if (chunk->has_dictionary_page() && chunk->dictionary_page_offset() > 0)
        begin = std::min(begin, chunk->dictionary_page_offset());
      remote_->expect(begin, begin + chunk->total_compressed_size());
    }
  }

  const std::shared_ptr<ProgramFile> remote_;
  std::shared_ptr<arrow::io::RandomAccessFile> file_;
  parquet::ReaderProperties properties_ = parquet::default_reader_properties();
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::vector<int> leaves_;
  bool are_texts_ = false;
  int group_ = 0;                                      // that was entered last
  std::unique_ptr<PagedTexts> texts_;                  // of it, where the column is one of texts
  std::unique_ptr<arrow::RecordBatchReader> batches_;  // else
};

// Record batches of an IPC file or stream, each a group. Files of this machine are mapped.
class ArrowBatches : public Batches {
 public:
  ArrowBatches(std::shared_ptr<arrow::io::RandomAccessFile> file, const std::string& column, bool is_remote)
      : Batches(column, is_remote), file_(std::move(file)) {
    if (!is_remote) mapped_ = value_of(file_->ReadAt(0, 1));  // of more, the system would read ahead
  }

  int64_t rows(int64_t) const override { return -1; }
  bool rest(int64_t row) override {
    if (!Batches::rest(row)) return false;
    if (mapped_) let_go_of_pages();
    return true;
  }

 protected:
  std::shared_ptr<arrow::RecordBatch> next_batch() override { return std::exchange(entered_, nullptr); }

  const std::shared_ptr<arrow::io::RandomAccessFile> file_;
  std::shared_ptr<arrow::RecordBatch> entered_;

 private:
  // They count as memory of the process as long as they are mapped.
  void let_go_of_pages() {
    ::madvise(const_cast<uint8_t*>(mapped_->data()), static_cast<size_t>(value_of(file_->GetSize())), MADV_DONTNEED);
  }

  std::shared_ptr<arrow::Buffer> mapped_;  // the first byte of the file
};

class ArrowFile : public ArrowBatches {
 public:
  ArrowFile(const std::shared_ptr<arrow::io::RandomAccessFile>& file, const std::string& column, bool is_remote)
      : ArrowBatches(file, column, is_remote), reader_(value_of(arrow::ipc::RecordBatchFileReader::Open(file))) {}

  int64_t groups() const override { return reader_->num_record_batches(); }
  bool enter(int64_t group) override {
    forget();
    if (group >= groups()) return false;
    group_ = static_cast<int>(group);
    enter_again();
    return true;
  }

 private:
  void enter_again() override { entered_ = value_of(reader_->ReadRecordBatch(group_)); }

  std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader_;
  int group_ = 0;
};

// It is read forward; what lies before a group is passed over.
class ArrowStream : public ArrowBatches {
 public:
  ArrowStream(std::shared_ptr<arrow::io::RandomAccessFile> file, const std::string& column, bool is_remote)
      : ArrowBatches(std::move(file), column, is_remote) {
    begin();
  }

  int64_t groups() const override { return -1; }
  bool enter(int64_t group) override {
    forget();
    if (group < next_group_) begin();
    while (next_group_ <= group) {
      place_ = value_of(file_->Tell());
      check(reader_->ReadNext(&entered_));
      if (entered_ == nullptr) return false;
      ++next_group_;
    }
    return true;
  }

  // What a dictionary has got in addition would be added once more.
  bool rest(int64_t row) override { return reader_->stats().num_dictionary_deltas == 0 && ArrowBatches::rest(row); }

 private:
  void begin() {
    check(file_->Seek(0));
    reader_ = value_of(arrow::ipc::RecordBatchStreamReader::Open(file_.get()));
    next_group_ = 0;
  }
  void enter_again() override {
    check(file_->Seek(place_));
    check(reader_->ReadNext(&entered_));
  }

  std::shared_ptr<arrow::ipc::RecordBatchStreamReader> reader_;
  int64_t next_group_ = 0;
  int64_t place_ = 0;  // where the group that was entered last begins
};

std::unique_ptr<File> open_file(const std::string& path, const TitaniumBytes* bytes, const std::string& column) {
  const auto remote = bytes != nullptr ? std::make_shared<ProgramFile>(*bytes) : nullptr;
  std::shared_ptr<arrow::io::RandomAccessFile> file = remote;
  if (!file) file = value_of(arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ));
  char magic[6] = {};
  if (remote) remote->expect(0, sizeof(magic));  // what follows may not be wanted
  value_of(file->ReadAt(0, sizeof(magic), magic));
  if (std::memcmp(magic, "PAR1", 4) == 0) return std::make_unique<ParquetFile>(path, remote, column);
  const bool is_remote = remote != nullptr;
  if (std::memcmp(magic, "ARROW1", 6) == 0) return std::make_unique<ArrowFile>(file, column, is_remote);
  return std::make_unique<ArrowStream>(file, column, is_remote);
}

// What `action` returns, or `failure` and the message of what it throws.
template <typename T, typename Action>
T guarded(T failure, char* error, size_t error_size, const Action& action) noexcept {
  const auto report = [&](const char* message) {
    std::strncpy(error, message, error_size - 1);
    error[error_size - 1] = '\0';
    return failure;
  };
  try {
    return action();
  } catch (const parquet::ParquetException& exception) {
    return report((std::string(exception.what()) + ".").c_str());
  } catch (const std::exception& exception) {
    return report(exception.what());
  } catch (...) {
    return report("unknown error.");
  }
}

File& file_of(void* file) { return *static_cast<File*>(file); }

constexpr TitaniumArrow kFunctions = {
    .version = kTitaniumArrowVersion,
    .open = [](const char* path, const TitaniumBytes* bytes, const char* column, char* error,
               size_t error_size) -> void* {
      return guarded<void*>(nullptr, error, error_size, [&] { return open_file(path, bytes, column).release(); });
    },
    .close = [](void* file) { delete static_cast<File*>(file); },
    .groups = [](void* file) { return file_of(file).groups(); },
    .rows = [](void* file, int64_t group) { return file_of(file).rows(group); },
    .bytes =
        [](void* file, int64_t group) {
          char error[8];
          return guarded<int64_t>(-1, error, sizeof(error), [&] { return file_of(file).bytes(group); });
        },
    .enter =
        [](void* file, int64_t group, char* error, size_t error_size) {
          return guarded<int32_t>(-1, error, error_size, [&] { return file_of(file).enter(group) ? 1 : 0; });
        },
    .next =
        [](void* file, TitaniumRows* rows, char* error, size_t error_size) {
          return guarded<int32_t>(-1, error, error_size, [&] { return file_of(file).next(*rows) ? 1 : 0; });
        },
    .held_bytes =
        [](void* file) {
          char error[8];
          return guarded<int64_t>(0, error, sizeof(error), [&] { return file_of(file).held_bytes(); });
        },
    .rest =
        [](void* file, int64_t row, char* error, size_t error_size) {
          return guarded<int32_t>(-1, error, error_size, [&] { return file_of(file).rest(row) ? 1 : 0; });
        },
};

}  // namespace
}  // namespace titanium::data::plugin

extern "C" __attribute__((visibility("default"))) const TitaniumArrow* titanium_arrow() {
  return &titanium::data::plugin::kFunctions;
}
