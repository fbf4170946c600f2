// libtitanium_arrow.so: one column of a Parquet or Arrow file, in pieces of rows.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/io/interfaces.h>
#include <arrow/ipc/reader.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>
#include <parquet/schema.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "titanium/data/plugin/arrow_functions.h"

namespace {

constexpr int64_t kFewestRows = 16, kRowsAtOnce = 1024;
constexpr int64_t kBytesAtOnce = int64_t{1} << 19;  // about, of rows that are decoded
constexpr int64_t kReadBytes = int64_t{256} << 10;

[[noreturn]] void fail(const std::string& message) { throw std::runtime_error(message); }

void check(const arrow::Status& status) {
  if (!status.ok()) fail(status.message() + ".");
}

template <typename T>
T value_of(arrow::Result<T> result) {
  check(result.status());
  return std::move(result).ValueUnsafe();
}

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
  explicit File(std::string column) : column_(std::move(column)) {}
  virtual ~File() = default;
  virtual int64_t groups() const = 0;
  virtual int64_t rows(int64_t group) const = 0;
  virtual int64_t bytes(int64_t /*group*/) const { return -1; }
  virtual bool enter(int64_t group) = 0;

  // False at the end of the group.
  bool next(TitaniumRows& rows) {
    while (batch_ == nullptr || at_ == batch_->num_rows()) {
      batch_ = next_batch();
      at_ = 0;
      if (batch_ == nullptr) return false;
    }
    const int64_t count = std::min(kRowsAtOnce, batch_->num_rows() - at_);
    piece_ = find_column(*batch_, column_)->Slice(at_, count);
    check(piece_->Validate());
    rows_.set(*piece_, column_);
    at_ += count;
    rows = rows_.view();
    return true;
  }

 protected:
  virtual std::shared_ptr<arrow::RecordBatch> next_batch() = 0;  // of the group; null at its end
  void forget() { batch_ = nullptr; }

  const std::string column_;

 private:
  std::shared_ptr<arrow::RecordBatch> batch_;
  int64_t at_ = 0;
  std::shared_ptr<arrow::Array> piece_;
  Rows rows_;
};

// What the program reads.
class ProgramFile : public arrow::io::RandomAccessFile {
 public:
  explicit ProgramFile(const TitaniumBytes& bytes) : bytes_(bytes) {}

  void expect(int64_t begin, int64_t end) { bytes_.expect(bytes_.source, begin, end); }

  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }
  arrow::Result<int64_t> Tell() const override { return position_; }
  arrow::Status Seek(int64_t position) override {
    position_ = position;
    return arrow::Status::OK();
  }
  arrow::Result<int64_t> GetSize() override { return bytes_.size; }

  arrow::Result<int64_t> ReadAt(int64_t position, int64_t count, void* out) override {
    if (position < 0 || count < 0) return arrow::Status::IOError("the file is damaged: it points to nowhere");
    count = std::min(count, std::max(bytes_.size - position, int64_t{0}));
    if (count > 0 && bytes_.read(bytes_.source, position, count, static_cast<char*>(out)) != 0)
      return arrow::Status::IOError("it cannot be read");
    return count;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position, int64_t count) override {
    const int64_t there = std::min(count, std::max(bytes_.size - position, int64_t{0}));
    if (position < 0 || there < 0) return arrow::Status::IOError("the file is damaged: it points to nowhere");
    ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::Buffer> buffer, arrow::AllocateBuffer(there));
    ARROW_ASSIGN_OR_RAISE(const int64_t got, ReadAt(position, there, buffer->mutable_data()));
    return got == there ? buffer : arrow::SliceBuffer(buffer, 0, got);
  }
  arrow::Result<int64_t> Read(int64_t count, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const int64_t got, ReadAt(position_, count, out));
    position_ += got;
    return got;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t count) override {
    ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::Buffer> buffer, ReadAt(position_, count));
    position_ += buffer->size();
    return buffer;
  }

 private:
  const TitaniumBytes bytes_;
  int64_t position_ = 0;
  bool closed_ = false;
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

class ParquetFile : public File {
 public:
  // Without `file`, which is there for bytes of the program, the file at `path` is opened.
  ParquetFile(const std::string& path, std::shared_ptr<ProgramFile> file, const std::string& column)
      : File(column), file_(std::move(file)) {
    parquet::ReaderProperties properties = parquet::default_reader_properties();
    properties.enable_buffered_stream();
    properties.set_buffer_size(kReadBytes);
    properties.set_page_checksum_verification(true);  // of pages that have one
    std::shared_ptr<arrow::io::RandomAccessFile> bytes = file_;
    if (!bytes) bytes = value_of(arrow::io::ReadableFile::Open(path));
    const std::string key = path + ":" + std::to_string(value_of(bytes->GetSize())) + ":" + time_of_change(path);
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(bytes, properties, Footers::all().find(key)));
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
    if (group >= groups()) return false;
    if (file_) expect_columns(static_cast<int>(group));
    batches_ = value_of(reader_->GetRecordBatchReader({static_cast<int>(group)}, leaves_));
    return true;
  }

 private:
  std::shared_ptr<arrow::RecordBatch> next_batch() override {
    std::shared_ptr<arrow::RecordBatch> batch;
    check(batches_->ReadNext(&batch));
    return batch;
  }

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
  }

  void expect_columns(int group) {
    const auto metadata = reader_->parquet_reader()->metadata()->RowGroup(group);
    for (const int leaf : leaves_) {
      const auto chunk = metadata->ColumnChunk(leaf);
      int64_t begin = chunk->data_page_offset();
      if (chunk->has_dictionary_page() && chunk->dictionary_page_offset() > 0)
        begin = std::min(begin, chunk->dictionary_page_offset());
      file_->expect(begin, begin + chunk->total_compressed_size());
    }
  }

  std::shared_ptr<ProgramFile> file_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::vector<int> leaves_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
};

// Record batches of an IPC file, each a group.
class ArrowFile : public File {
 public:
  ArrowFile(const std::shared_ptr<arrow::io::RandomAccessFile>& file, const std::string& column)
      : File(column), reader_(value_of(arrow::ipc::RecordBatchFileReader::Open(file))) {}

  int64_t groups() const override { return reader_->num_record_batches(); }
  int64_t rows(int64_t) const override { return -1; }
  bool enter(int64_t group) override {
    forget();
    if (group >= groups()) return false;
    batch_ = value_of(reader_->ReadRecordBatch(static_cast<int>(group)));
    return true;
  }

 private:
  std::shared_ptr<arrow::RecordBatch> next_batch() override { return std::exchange(batch_, nullptr); }

  std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader_;
  std::shared_ptr<arrow::RecordBatch> batch_;
};

// Record batches of an IPC stream, each a group. It is read forward; what lies before a group is passed over.
class ArrowStream : public File {
 public:
  ArrowStream(std::shared_ptr<arrow::io::RandomAccessFile> file, const std::string& column)
      : File(column), file_(std::move(file)) {
    begin();
  }

  int64_t groups() const override { return -1; }
  int64_t rows(int64_t) const override { return -1; }
  bool enter(int64_t group) override {
    forget();
    if (group < next_group_) begin();
    while (next_group_ <= group) {
      check(reader_->ReadNext(&batch_));
      if (batch_ == nullptr) return false;
      ++next_group_;
    }
    return true;
  }

 private:
  void begin() {
    check(file_->Seek(0));
    reader_ = value_of(arrow::ipc::RecordBatchStreamReader::Open(file_.get()));
    next_group_ = 0;
  }
  std::shared_ptr<arrow::RecordBatch> next_batch() override { return std::exchange(batch_, nullptr); }

  std::shared_ptr<arrow::io::RandomAccessFile> file_;
  std::shared_ptr<arrow::ipc::RecordBatchStreamReader> reader_;
  int64_t next_group_ = 0;
  std::shared_ptr<arrow::RecordBatch> batch_;
};

std::unique_ptr<File> open_file(const std::string& path, const TitaniumBytes* bytes, const std::string& column) {
  const auto remote = bytes != nullptr ? std::make_shared<ProgramFile>(*bytes) : nullptr;
  std::shared_ptr<arrow::io::RandomAccessFile> file = remote;
  if (!file) file = value_of(arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ));
  char magic[6] = {};
  if (remote) remote->expect(0, sizeof(magic));  // what follows may not be wanted
  value_of(file->ReadAt(0, sizeof(magic), magic));
  if (std::memcmp(magic, "PAR1", 4) == 0) return std::make_unique<ParquetFile>(path, remote, column);
  if (std::memcmp(magic, "ARROW1", 6) == 0) return std::make_unique<ArrowFile>(file, column);
  return std::make_unique<ArrowStream>(file, column);
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
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const TitaniumArrow* titanium_arrow() { return &kFunctions; }
