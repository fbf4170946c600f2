// Shards of MosaicML's streaming data sets: u32 count of samples, u32 places of samples and of the end, a JSON object
// that names the columns, and the samples. A sample is the u32 sizes of its columns of variable size and all columns.
#include <nlohmann/json.hpp>

#include "titanium/base/error.h"
#include "titanium/base/text/json.h"
#include "titanium/base/text/printable.h"
#include "titanium/data/file_bytes.h"
#include "titanium/data/format/formats.h"
#include "titanium/data/format/token_reader.h"

namespace titanium::data {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& problem) {
  throw Error(fmt::format("Data file {} {}. Fetch or make it again.", path.string(), problem));
}

struct Column {
  std::string name;
  std::string encoding;
  std::optional<int64_t> size;  // none: each sample says it
};

// "uint16" of "ndarray:uint16:2048".
std::string dtype_of(const std::string& encoding) {
  if (!encoding.starts_with("ndarray:")) return "";
  const std::string rest = encoding.substr(8);
  return rest.substr(0, rest.find(':'));
}

bool has_shape(const std::string& encoding) { return std::ranges::count(encoding, ':') == 2; }

class MdsIndex : public DocumentIndex {
 public:
  MdsIndex(const SourceFile& source, const ReadOptions& options)
      : file_(source.path, source.compression, largest_window(options)) {
    if (file_.size() < 8) refuse(file_.path(), "is too short for a shard of MDS");
    samples_ = file_.number<uint32_t>(0);
    const int64_t header = 4 + 4 * (samples_ + 1);
    if (header > file_.size()) refuse(file_.path(), fmt::format("is not a shard of MDS of {} samples", samples_));
    const int64_t first = file_.number<uint32_t>(4);
    if (first < header || first > file_.size()) refuse(file_.path(), "is not a shard of MDS: its places do not fit");
    read_columns(file_.text(header, first - header));
    choose_column(options);
  }

  int64_t count() const override { return samples_; }
  Content content() const override { return token_bytes_ == 0 ? Content::kText : Content::kTokens; }
  int64_t token_bytes() const override { return token_bytes_; }
  void read(int64_t first, int64_t n, const std::function<bool(std::string_view)>& take) const override {
    const auto places = file_.numbers<uint32_t>(4 + 4 * first, n + 1);
    for (size_t i = 0; i + 1 < places.size(); ++i) {
      if (places[i + 1] < places[i]) refuse(file_.path(), "has places of samples that do not ascend");
      const std::string sample = file_.text(places[i], places[i + 1] - places[i]);
      if (!take(values_of(column_of(sample)))) return;
    }
  }
  void expect(int64_t first, int64_t end) const override {
    file_.expect(4 + 4 * first, 4 + 4 * (end + 1));
    file_.expect(file_.number<uint32_t>(4 + 4 * first), file_.number<uint32_t>(4 + 4 * end));
  }

 private:
  void read_columns(const std::string& json) {
    try {
      const nlohmann::json config = parse_json(json);
      const auto& names = config.at("column_names");
      for (size_t i = 0; i < names.size(); ++i) {
        const auto& size = config.at("column_sizes").at(i);
        columns_.push_back({names.at(i), config.at("column_encodings").at(i),
                            size.is_null() ? std::nullopt : std::optional(integer_of(size))});
      }
    } catch (const std::exception&) {
      refuse(file_.path(), "is not a shard of MDS: its list of columns cannot be read");
    }
  }

  // The column that was asked for, or the one that tokens usually have.
  void choose_column(const ReadOptions& options) {
    const auto find = [&](std::string_view name) {
      return static_cast<size_t>(std::ranges::find(columns_, name, &Column::name) - columns_.begin());
    };
    chosen_ = find(options.text_field);
    if (chosen_ == columns_.size()) chosen_ = find("tokens");
    if (chosen_ == columns_.size()) {
      std::vector<std::string> names;
      for (const Column& column : columns_) names.push_back(printable(column.name, 40));
      throw Error(
          fmt::format("Data file {} has no column \"{}\" (its columns: {}). Set training.text_field to one of "
                      "them.",
                      file_.path().string(), options.text_field, fmt::join(names, ", ")));
    }
    const std::string& encoding = columns_[chosen_].encoding;
    if (encoding == "str") return;
    const std::string dtype = encoding == "bytes" ? options.token_dtype : dtype_of(encoding);
    for (const auto& [name, bytes] :
         {std::pair{"uint16", 2}, {"int32", 4}, {"uint32", 4}, {"int64", 8}, {"uint64", 8}}) {
      if (dtype == name) token_bytes_ = bytes;
    }
    if (token_bytes_ == 0)
      throw Error(
          fmt::format("Data file {} has \"{}\" in its column \"{}\", but str, bytes or ndarray with a type of "
                      "integers is needed. Name another column with training.text_field.",
                      file_.path().string(), printable(encoding, 40), columns_[chosen_].name));
  }

  std::string_view column_of(std::string_view sample) const {
    int64_t header = 0;
    for (const Column& column : columns_) header += column.size ? 0 : 4;
    int64_t place = header;
    int64_t size_at = 0;
    for (size_t i = 0; i < columns_.size(); ++i) {
      int64_t size = columns_[i].size.value_or(0);
      if (!columns_[i].size) {
        uint32_t value = 0;
        if (size_at + 4 > static_cast<int64_t>(sample.size())) refuse(file_.path(), "has a sample that is cut");
        std::memcpy(&value, sample.data() + size_at, 4);
        size = value;
        size_at += 4;
      }
      if (size < 0 || size > static_cast<int64_t>(sample.size()) - place)
        refuse(file_.path(), "has a sample that is shorter than its columns");
      if (i == chosen_) return sample.substr(static_cast<size_t>(place), static_cast<size_t>(size));
      place += size;
    }
    return {};
  }

  // An array whose shape is not fixed begins with a byte (dimensions x 4 + log2 of the bytes of each) and the shape.
  std::string_view values_of(std::string_view column) const {
    const std::string& encoding = columns_[chosen_].encoding;
    if (encoding == "str" || encoding == "bytes" || has_shape(encoding)) return column;
    const auto first = column.empty() ? 0 : static_cast<unsigned char>(column[0]);
    const size_t header = 1 + (first >> 2U) * (size_t{1} << (first & 3U));
    if (column.size() < header) refuse(file_.path(), "has an array that is cut");
    return column.substr(header);
  }

  FileBytes file_;
  int64_t samples_ = 0;
  std::vector<Column> columns_;
  size_t chosen_ = 0;
  int64_t token_bytes_ = 0;
};

class MdsShards : public IndexedFormat {
 public:
  std::string_view name() const override { return "a shard of MDS"; }
  bool has_name(std::string_view name) const override { return name.ends_with(".mds"); }
  bool may_be_compressed() const override { return true; }
  // A compressed shard is in memory as a whole.
  int64_t reader_weight(const SourceFile& file) const override {
    return file.compression == Compression::kNone ? 1 : 32;
  }

 protected:
  std::unique_ptr<DocumentIndex> index_of(const SourceFile& file, const ReadOptions& options) const override {
    return std::make_unique<MdsIndex>(file, options);
  }
};

}  // namespace

const SourceFormat& mds_shards() {
  static const MdsShards format;
  return format;
}

}  // namespace titanium::data
