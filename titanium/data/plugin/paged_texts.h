// Texts of a column of Parquet that has one value for each row, page by page.
#pragma once

#include <arrow/io/buffered.h>
#include <arrow/io/interfaces.h>
#include <parquet/column_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>

#include <memory>
#include <optional>
#include <vector>

#include "titanium/data/plugin/program_file.h"

namespace titanium::data::plugin {

struct PageRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// One column chunk. Rows point into the page, so nothing is copied; the page and the chunk's dictionary are all that is
// held between calls, and both are found again by where they begin.
class PagedTexts {
 public:
  // Whether a column is one of these. Others are left to Arrow's own reader.
  static bool can_read(const parquet::ColumnDescriptor& column);

  // `remote` is `file` where the program gives the bytes, else null. Throws std::exception, as the other functions do.
  PagedTexts(std::shared_ptr<const parquet::FileMetaData> metadata, int group, int leaf,
             std::shared_ptr<arrow::io::RandomAccessFile> file, ProgramFile* remote,
             const parquet::ReaderProperties& properties);
  ~PagedTexts();

  // False at the end of the chunk.
  bool next(TitaniumRows& rows);

  // Bytes of memory, and those that are read again after a rest.
  int64_t held_bytes() const;
  int64_t bytes_of_rest() const;

  // Gives the memory back; `next` goes on with a row of those that it gave last, or the one behind them.
  void rest(int64_t row);

 private:
  class Pages;
  struct Page {
    PageRange bytes;        // in the file
    PageRange rows;         // of the group
    int64_t in_memory = 0;  // bytes, decompressed
    bool has_indices = false;
  };

  void wake();
  std::unique_ptr<parquet::PageReader> pages_of(const PageRange& bytes, int64_t values,
                                                std::shared_ptr<arrow::io::BufferedInputStream>* stream);

  const std::shared_ptr<const parquet::FileMetaData> metadata_;
  const std::unique_ptr<parquet::ColumnChunkMetaData> chunk_;
  const parquet::ColumnDescriptor* const column_;
  const std::shared_ptr<arrow::io::RandomAccessFile> file_;
  ProgramFile* const remote_;
  parquet::ReaderProperties properties_;
  const int64_t rows_in_group_;
  PageRange bytes_;                      // of the chunk in the file
  Page page_;                            // the one that was read last
  std::optional<PageRange> dictionary_;  // in the file, once it has been read
  int64_t dictionary_in_memory_ = 0;
  int64_t row_ = 0;                                   // the next one
  std::shared_ptr<parquet::ByteArrayReader> reader_;  // none while it rests
  std::vector<int16_t> levels_;
  std::vector<parquet::ByteArray> values_;
  std::vector<const char*> data_;
  std::vector<int64_t> sizes_;
};

}  // namespace titanium::data::plugin
