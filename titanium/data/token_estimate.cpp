#include "titanium/data/token_estimate.h"

#include <cmath>
#include <map>
#include <tuple>

#include "titanium/data/document.h"

namespace titanium::data {
namespace {

constexpr int64_t kCounted = int64_t{8} << 20;      // stored bytes
constexpr int64_t kWholeFile = int64_t{4} << 20;    // likewise
constexpr int64_t kPassedOver = int64_t{64} << 20;  // of a part, on the way to a place inside it
constexpr int64_t kTextOfPlace = int64_t{64} << 10;
constexpr int64_t kPlaces = 32;
constexpr int64_t kBeginning = int64_t{8} << 20;  // stored bytes that are decoded of a large compressed file
constexpr size_t kDecodedAtOnce = size_t{1} << 18;
constexpr size_t kFewest = 4;

// What was read at a place.
struct Sample {
  double tokens = 0;
  double stored = 0;  // bytes
};

// Samples that stand for `places` places, with as much stored as there are places. None where nothing was read.
std::vector<Sample> weighed(std::vector<Sample> samples, int64_t places) {
  std::erase_if(samples, [](const Sample& sample) { return sample.stored <= 0; });
  double stored = 0;
  for (const Sample& sample : samples) stored += sample.stored;
  const double scale = static_cast<double>(places) / stored;
  for (Sample& sample : samples) sample = {sample.tokens * scale, sample.stored * scale};
  return samples;
}

struct Place {
  SourceFile file;  // with the part that is read
  int64_t first = 0;
  bool whole = false;          // the whole part is read
  double bytes_of_part = 0;    // of the file
  double bytes_of_record = 0;  // 0: records are stored as they are
  int64_t records = 0;         // that are read; 0: by their bytes
  int64_t times = 1;           // how many places fall here

  bool is_of_plain_lines() const { return !whole && records == 0; }
  bool goes_on_after(int64_t count, int64_t bytes) const {
    return whole || (records > 0 ? count < records : bytes < kTextOfPlace);
  }
  std::tuple<std::string, int64_t, int64_t> key() const { return {file.path.string(), file.part.begin, first}; }
};

int64_t tokens_of(const Record& record, const std::string& field, const Encoder& encoder) {
  try {
    if (has_tokens(record)) return std::ssize(document_tokens(record));
    std::string storage;
    return std::ssize(encoder(document_text(record, field, storage)));
  } catch (const Error&) {  // it is bad, or the tokenizer cannot take it
    return 0;
  }
}

Sample read(const Place& place, ReadOptions reading, const Encoder& encoder) {
  reading.memory_bytes = int64_t{1} << 20;
  RecordSource source({place.file}, {.reading = reading});
  Sample sample;
  int64_t bytes = 0, records = 0;
  while (place.goes_on_after(records, bytes)) {
    const auto record = source.read(place.first + records);
    if (!record) break;
    sample.tokens += static_cast<double>(tokens_of(*record, reading.text_field, encoder));
    bytes += std::ssize(record->bytes) + 1;
    ++records;
  }
  sample.stored = place.whole         ? place.bytes_of_part
                  : place.records > 0 ? static_cast<double>(records) * place.bytes_of_record
                                      : static_cast<double>(bytes);
  return sample;
}

// The place at byte `offset` of a file.
std::optional<Place> place_at(const SourceFile& file, int64_t offset, const ReadOptions& options) {
  const auto parts = file.format->parts(file, std::max(kTextOfPlace, file.size / 1024), options);
  const auto size = static_cast<double>(file.size);
  if (!parts || parts->empty()) {
    if (file.size > kWholeFile) return std::nullopt;
    return Place{.file = file, .whole = true, .bytes_of_part = size};
  }
  double sum = 0, before = 0;
  for (const FilePart& part : *parts) sum += static_cast<double>(part.bytes);
  const double scale = size / std::max(sum, 1.0);  // of a column, to the file
  size_t k = 0;
  const auto bytes_of = [&] { return static_cast<double>((*parts)[k].bytes) * scale; };
  while (k + 1 < parts->size() && before + bytes_of() <= static_cast<double>(offset)) before += bytes_of(), ++k;
  Place place{.file = file, .bytes_of_part = bytes_of()};
  const FilePart& part = place.file.part = (*parts)[k];
  const bool as_they_are = file.format == &json_lines_format();
  if (as_they_are) return place;
  place.whole = part.records <= 0;
  if (place.whole) return part.bytes <= kPassedOver ? std::optional(place) : std::nullopt;
  place.bytes_of_record = place.bytes_of_part / static_cast<double>(part.records);
  // A place that ended with a long record would count it for too few, so their lengths do not say how many are read.
  place.records = std::max<int64_t>(1, kTextOfPlace * part.records / std::max<int64_t>(1, part.bytes));
  const double share =
      std::clamp((static_cast<double>(offset) - before) / std::max(place.bytes_of_part, 1.0), 0.0, 1.0);
  if (part.bytes <= kPassedOver) place.first = static_cast<int64_t>(share * static_cast<double>(part.records));
  return place;
}

bool is_read_from_its_beginning(const SourceFile& file) {
  return file.compression != Compression::kNone && file.size > kWholeFile && file.format == &json_lines_format();
}

// The beginning of a compressed file: how much text is stored in how many bytes.
struct Beginning {
  int64_t text = 0;
  int64_t stored = 0;
};

Beginning decode_beginning(const SourceFile& file) {
  const auto stream = open_byte_stream(file.path, file.compression, {.end = kBeginning});
  std::vector<char> piece(kDecodedAtOnce);
  Beginning beginning;
  while (beginning.stored < kBeginning) {
    const size_t count = stream->read(piece.data(), piece.size());
    if (count == 0) break;
    beginning.text += static_cast<int64_t>(count);
    beginning.stored = stream->decoded_bytes();
  }
  return beginning;
}

// `count` places in the beginning of a compressed file.
std::vector<Sample> read_beginning(const SourceFile& file, int64_t count, ReadOptions reading, const Encoder& encoder) {
  const Beginning beginning = decode_beginning(file);
  const double stored_of_text = static_cast<double>(beginning.stored) / static_cast<double>(beginning.text);
  reading.memory_bytes = int64_t{1} << 20;
  RecordSource source({file}, {.reading = reading, .cache_bytes = kDecodedAtOnce});
  std::vector<Sample> samples;
  int64_t record = 0, text = 0;
  for (int64_t i = 0; i < count; ++i) {
    Sample sample;
    const int64_t begin = beginning.text / (2 * count) * (2 * i + 1);
    for (int64_t bytes = 0; bytes < kTextOfPlace && text < beginning.text;) {
      const auto found = source.read(record++);
      if (!found) break;
      const int64_t size = std::ssize(found->bytes) + 1;
      text += size;
      if (text < begin) continue;
      sample.tokens += static_cast<double>(tokens_of(*found, reading.text_field, encoder));
      sample.stored += static_cast<double>(size) * stored_of_text;
      bytes += size;
    }
    samples.push_back(sample);
  }
  return samples;
}

// Where to read.
struct Plan {
  std::vector<Place> places;
  std::map<size_t, int64_t> beginnings;  // of files by number, with how many places there are in each
};

Plan plan_for(const std::vector<SourceFile>& files, int64_t bytes, const ReadOptions& options) {
  Plan plan;
  size_t file = 0;
  int64_t before = 0;
  for (int64_t i = 0; i < kPlaces; ++i) {
    const int64_t offset = bytes / (2 * kPlaces) * (2 * i + 1);
    while (before + files[file].size <= offset) before += files[file++].size;
    if (is_read_from_its_beginning(files[file])) {
      ++plan.beginnings[file];
      continue;
    }
    auto place = place_at(files[file], offset - before, options);
    if (!place) return {};  // what is left out may be unlike the rest
    if (!plan.places.empty() && plan.places.back().key() == place->key()) {
      ++plan.places.back().times;
    } else {
      plan.places.push_back(*std::move(place));
    }
  }
  return plan;
}

// Places lie evenly in the stored bytes, so each weighs the same however much of it is read. Plain lines are weighed
// together: of a record longer than a place, the place where it begins has all and the others have nothing.
std::vector<Sample> read(const Plan& plan, const std::vector<SourceFile>& files, const ReadOptions& options,
                         const Encoder& encoder) {
  std::vector<Sample> samples, plain;
  int64_t plain_places = 0;
  const auto add = [&](std::vector<Sample> found, int64_t places) {
    for (const Sample& sample : weighed(std::move(found), places)) samples.push_back(sample);
  };
  for (const Place& place : plan.places) {
    const Sample sample = read(place, options, encoder);
    if (place.is_of_plain_lines()) {
      plain.push_back(sample);
      plain_places += place.times;
    } else {
      add({sample}, place.times);
    }
  }
  add(std::move(plain), plain_places);
  for (const auto& [file, count] : plan.beginnings) add(read_beginning(files[file], count, options, encoder), count);
  return samples;
}

double counted(const std::vector<SourceFile>& files, const ReadOptions& options, const Encoder& encoder) {
  RecordSource source(files, {.reading = options});
  double tokens = 0;
  for (int64_t i = 0;; ++i) {
    const auto record = source.read(i);
    if (!record) return tokens;
    tokens += static_cast<double>(tokens_of(*record, options.text_field, encoder));
  }
}

}  // namespace

std::optional<TokenEstimate> estimate_tokens(const std::vector<SourceFile>& files, const ReadOptions& options,
                                             const Encoder& encoder) {
  int64_t bytes = 0;
  for (const SourceFile& file : files) bytes += file.size;
  if (bytes <= kCounted) return TokenEstimate{.tokens = counted(files, options, encoder)};
  const Plan plan = plan_for(files, bytes, options);
  const std::vector<Sample> samples = read(plan, files, options, encoder);
  Sample sum;
  for (const Sample& sample : samples) {
    sum.tokens += sample.tokens;
    sum.stored += sample.stored;
  }
  const bool all_were_read = sum.stored > kPlaces - 0.5;  // what is left out may be unlike the rest
  if (samples.size() < kFewest || !all_were_read) return std::nullopt;
  const double quotient = sum.tokens / sum.stored;
  double squares = 0;
  for (const Sample& sample : samples) squares += std::pow(sample.tokens - quotient * sample.stored, 2);
  const auto count = static_cast<double>(samples.size());
  const double error = std::sqrt(squares * count / (count - 1)) / sum.stored;
  return TokenEstimate{.tokens = quotient * static_cast<double>(bytes),
                       .error = 2 * error * static_cast<double>(bytes),
                       .from_beginnings = !plan.beginnings.empty()};
}

}  // namespace titanium::data
