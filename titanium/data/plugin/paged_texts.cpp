#include "titanium/data/plugin/paged_texts.h"

#include <parquet/column_page.h>
#include <parquet/types.h>

#include <limits>
#include <utility>

#include "titanium/data/plugin/results.h"

namespace titanium::data::plugin {
namespace {

constexpr int64_t kRowsAtOnce = 1024;
constexpr int64_t kPaddingOfOldFiles = 100;  // PARQUET-816: sizes of chunks lacked the header of the dictionary

using Version = parquet::ApplicationVersion;

PageRange bytes_of(const parquet::FileMetaData& metadata, const parquet::ColumnChunkMetaData& chunk, int64_t size) {
  PageRange bytes{.begin = chunk.data_page_offset(), .end = 0};
  if (chunk.has_dictionary_page() && chunk.dictionary_page_offset() > 0)
    bytes.begin = std::min(bytes.begin, chunk.dictionary_page_offset());
  const int64_t length = chunk.total_compressed_size();
  if (bytes.begin < 0 || length < 0 || bytes.begin > size || length > size - bytes.begin)
    fail("a column lies outside of the file: it is damaged.");
  bytes.end = bytes.begin + length;
  if (metadata.writer_version().VersionLt(Version::PARQUET_816_FIXED_VERSION()))
    bytes.end = std::min(bytes.end + kPaddingOfOldFiles, size);
  return bytes;
}

// Old writers said of pages of the second version that they are not compressed.
bool is_always_compressed(const parquet::FileMetaData& metadata) {
  const Version& writer = metadata.writer_version();
  return writer.application_ == "parquet-cpp" && writer.VersionLt(Version::PARQUET_CPP_10353_FIXED_VERSION());
}

// Its own Tell() is wrong after a Peek() that has read more than was buffered.
int64_t place_in(const arrow::io::BufferedInputStream& stream) {
  return value_of(stream.raw()->Tell()) - stream.bytes_buffered();
}

}  // namespace

// The pages from one on. Tells where each lies, and gives the dictionary before the first page that needs it.
class PagedTexts::Pages : public parquet::PageReader {
 public:
  Pages(PagedTexts& texts, const PageRange& bytes, int64_t row)
      : texts_(texts),
        begin_(bytes.begin),
        row_(row),
        pages_(texts.pages_of(bytes, texts.rows_in_group_ - row, &stream_)) {}

  std::shared_ptr<parquet::Page> NextPage() override {
    if (held_back_) return std::exchange(held_back_, nullptr);
    const int64_t begin = begin_ + place_in(*stream_);
    std::shared_ptr<parquet::Page> page = pages_->NextPage();
    if (page == nullptr) return nullptr;
    const PageRange bytes{begin, begin_ + place_in(*stream_)};
    if (page->type() == parquet::PageType::DICTIONARY_PAGE) {
      texts_.dictionary_ = bytes;
      return given(std::move(page));
    }
    const auto* data = dynamic_cast<const parquet::DataPage*>(page.get());
    if (data == nullptr) return page;
    if (data->num_values() < 0) fail("a page has fewer values than none: the file is damaged.");
    const bool has_indices = data->encoding() == parquet::Encoding::PLAIN_DICTIONARY ||
                             data->encoding() == parquet::Encoding::RLE_DICTIONARY;
    texts_.page_ = {bytes, {row_, row_ + data->num_values()}, page->size(), has_indices};
    row_ += data->num_values();
    if (!has_indices || has_dictionary_ || !texts_.dictionary_) return page;
    held_back_ = std::move(page);
    if (texts_.remote_ != nullptr) texts_.remote_->expect(texts_.dictionary_->begin, texts_.dictionary_->end);
    dictionary_ = texts_.pages_of(*texts_.dictionary_, 1, &stream_of_dictionary_);
    std::shared_ptr<parquet::Page> dictionary = dictionary_->NextPage();
    if (dictionary == nullptr) fail("a dictionary is not there any more: the file has changed.");
    return given(std::move(dictionary));
  }

  void set_max_page_header_size(uint32_t size) override { pages_->set_max_page_header_size(size); }

 private:
  std::shared_ptr<parquet::Page> given(std::shared_ptr<parquet::Page> dictionary) {
    has_dictionary_ = true;
    texts_.dictionary_in_memory_ = dictionary->size();
    return dictionary;
  }

  PagedTexts& texts_;
  const int64_t begin_;
  int64_t row_;
  std::shared_ptr<arrow::io::BufferedInputStream> stream_, stream_of_dictionary_;
  std::unique_ptr<parquet::PageReader> pages_, dictionary_;
  std::shared_ptr<parquet::Page> held_back_;
  bool has_dictionary_ = false;
};

bool PagedTexts::can_read(const parquet::ColumnDescriptor& column) {
  const auto& type = column.logical_type();
  const bool is_text =
      type == nullptr || type->is_none() || type->is_string() || type->is_JSON() || type->is_BSON() || type->is_enum();
  return is_text && column.physical_type() == parquet::Type::BYTE_ARRAY && column.max_repetition_level() == 0;
}

PagedTexts::PagedTexts(std::shared_ptr<const parquet::FileMetaData> metadata, int group, int leaf,
                       std::shared_ptr<arrow::io::RandomAccessFile> file, ProgramFile* remote,
                       const parquet::ReaderProperties& properties)
    : metadata_(std::move(metadata)),
      chunk_(metadata_->RowGroup(group)->ColumnChunk(leaf)),
      column_(metadata_->schema()->Column(leaf)),
      file_(std::move(file)),
      remote_(remote),
      properties_(properties),
      rows_in_group_(metadata_->RowGroup(group)->num_rows()),
      bytes_(bytes_of(*metadata_, *chunk_, value_of(file_->GetSize()))),
      levels_(kRowsAtOnce),
      values_(kRowsAtOnce) {
  if (chunk_->num_values() != rows_in_group_)
    fail("a column has another number of rows than its group: the file is damaged.");
  page_.bytes = {bytes_.begin, bytes_.begin};
  if (remote_ != nullptr) remote_->expect(bytes_.begin, bytes_.end);
}

PagedTexts::~PagedTexts() = default;

bool PagedTexts::next(TitaniumRows& rows) {
  if (reader_ == nullptr) wake();
  // Pieces end where they do without a rest: blocks of a file must not depend on who rested when.
  const int64_t inside = row_ < page_.rows.end ? (row_ - page_.rows.begin) % kRowsAtOnce : 0;
  int64_t values = 0, next = 0;
  const int64_t count = reader_->ReadBatch(kRowsAtOnce - inside, levels_.data(), nullptr, values_.data(), &values);
  if (count == 0 && row_ != rows_in_group_) fail("a column has fewer rows than its group: the file is damaged.");
  data_.clear();
  sizes_.clear();
  for (int64_t i = 0; i < count; ++i) {
    const bool missing = levels_[static_cast<size_t>(i)] < column_->max_definition_level();
    if (column_->max_definition_level() > 0 && missing) {
      data_.push_back(nullptr);
      sizes_.push_back(-1);
      continue;
    }
    if (next == values) fail("a column has fewer values than rows: the file is damaged.");
    const parquet::ByteArray& value = values_[static_cast<size_t>(next++)];
    data_.push_back(reinterpret_cast<const char*>(value.ptr));
    sizes_.push_back(value.len);
  }
  row_ += count;
  rows = {count, data_.data(), sizes_.data(), 0};
  return count > 0;
}

int64_t PagedTexts::held_bytes() const {
  if (reader_ == nullptr) return 0;
  return page_.in_memory + 2 * dictionary_in_memory_ + properties_.buffer_size();
}

int64_t PagedTexts::bytes_of_rest() const {
  const int64_t dictionary = page_.has_indices && dictionary_ ? dictionary_->end - dictionary_->begin : 0;
  return page_.bytes.end - page_.bytes.begin + dictionary;
}

void PagedTexts::rest(int64_t row) {
  if (row < page_.rows.begin || row > row_) fail("a reader rests at a row that it is not at.");
  reader_ = nullptr;
  dictionary_in_memory_ = 0;
  if (row == page_.rows.end) page_ = {{page_.bytes.end, page_.bytes.end}, {row, row}, 0, false};
  row_ = row;
}

// Opens the pages at the one where the next row is.
void PagedTexts::wake() {
  const PageRange bytes{page_.bytes.begin, bytes_.end};
  const int64_t first = page_.rows.begin;
  auto reader =
      parquet::ColumnReader::Make(column_, std::make_unique<Pages>(*this, bytes, first), properties_.memory_pool());
  reader_ = std::static_pointer_cast<parquet::ByteArrayReader>(std::move(reader));
  if (reader_->Skip(row_ - first) != row_ - first) fail("a page has fewer rows than before: the file has changed.");
}

std::unique_ptr<parquet::PageReader> PagedTexts::pages_of(const PageRange& bytes, int64_t values,
                                                          std::shared_ptr<arrow::io::BufferedInputStream>* stream) {
  const int64_t size = bytes.end - bytes.begin;
  *stream = value_of(arrow::io::BufferedInputStream::Create(
      properties_.buffer_size(), properties_.memory_pool(),
      value_of(arrow::io::RandomAccessFile::GetStream(file_, bytes.begin, size)), size));
  return parquet::PageReader::Open(*stream, values, chunk_->compression(), properties_, *column_,
                                   is_always_compressed(*metadata_));
}

}  // namespace titanium::data::plugin
