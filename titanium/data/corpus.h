// A data set as canonical streams of token documents.
//
// Note [Canonical streams]
// Record d of the data set, bad records included, belongs to stream d mod S. S
// is fixed for a run (training.data_streams; a power of two has the most
// divisors), so it does not depend on how many ranks read. Each stream packs
// its own documents into samples, and sample i of the run is the next one of
// stream i mod S. Rank r of R owns the streams s with s mod R = r, for any R
// that divides S: it delivers samples r, r + R, r + 2R, ..., reads and
// tokenises only documents of its own, and a run may go on with another R
// because a position belongs to a stream, not to a rank.
//
// A data set with N < S records would leave streams without any. Then the
// number of streams is the largest divisor of S that is at most N. That follows
// from the data alone, so all ranks come to the same number. The sources of a
// mix have S streams in any case: one with N < S records is read as that many
// copies of it as are needed for S records.
//
// With a shuffle, d is a place in the order of records (record_order.h), and
// all else stays the same. Which number a record has is said in Note [Lanes].
#pragma once

#include <atomic>
#include <functional>

#include "titanium/data/lanes.h"
#include "titanium/data/record_order.h"

namespace titanium::data {

// Text to token ids, BOS and EOS included where the model wants them. Called
// from several threads at once.
using Encoder = std::function<std::vector<int32_t>(std::string_view text)>;

struct PreparedImages;  // image/prepared_images.h

struct CorpusOptions {
  std::string name;  // for messages
  std::filesystem::path path;
  std::string text_field = "text";
  bool skip_bad_records = false;
  int64_t streams = 256;
  int64_t rank = 0;
  int64_t ranks = 1;
  size_t cache_bytes = RecordSourceOptions{}.cache_bytes;  // with what is read ahead of an address
  int64_t max_record_bytes = ReadOptions{}.max_record_bytes;
  std::string token_dtype = ReadOptions{}.token_dtype;
  size_t max_readers = RecordSourceOptions{}.max_readers;
  int64_t held_bytes = RecordSourceOptions{}.held_bytes;
  bool in_mix = false;  // keeps the number of streams
  bool images = false;  // records are samples of archives, with a picture and a caption
  // With `images`: the folder whose archives are at `path`, with encodings instead of pictures. None: pictures.
  std::shared_ptr<const PreparedImages> prepared = nullptr;
  int64_t epochs = 0;  // passes until the data has ended; 0: no end of its own
  bool shuffle = false;
  int64_t shuffle_seed = 42;
  int64_t shuffle_window = 16384;
  StripingChoice striping = StripingChoice::kRecords;
  int64_t most_lanes = StripingLimits{}.lanes;
  int64_t block_bytes = 0;                            // of blocks inside files; 0: chosen
  std::optional<Striping> striped_as = std::nullopt;  // that a saved run has, instead of the choice
};

// Thread-safe.
class Corpus {
 public:
  struct Document {
    std::vector<int32_t> tokens;     // empty for a bad record that is skipped, and
                                     // for an empty place of the order
    std::optional<Anchor> entrance;  // where to begin reading to get here again;
                                     // none at an empty place
  };

  // The record at a place of the order.
  struct Found {
    std::optional<Record> record;          // none at an empty place of the order
    std::optional<Anchor> entrance;        // as in Document
    std::shared_ptr<RecordSource> source;  // whose file the record names
  };

  // Reads as far as is needed to know that every stream has a record. Throws
  // UsageError when `ranks` does not divide `streams`, Error when the data
  // cannot be read, has no records, too few for `ranks`, is no data of images
  // where it must be, or cannot be dealt by blocks where that was asked for.
  Corpus(CorpusOptions options, Encoder encoder);

  // The record at an owned place of the order of pass `pass`; nothing after the
  // last one.
  std::optional<Found> record(int64_t place, int64_t pass = 0, const std::stop_token& stop = {});

  // The tokens of the record at an owned place of the order of pass `pass`;
  // nothing after the last one. Throws BadRecord, also for what the encoder
  // throws Error for, unless bad records are skipped.
  std::optional<Document> document(int64_t place, int64_t pass = 0, const std::stop_token& stop = {});

  // Counts a bad record, and logs it if it is one of the first or a thousandth.
  // Throws BadRecord with `reason` unless bad records are skipped.
  void skip_bad_record(const std::string& reason);
  // The same for a picture that is too small, which is skipped in any case.
  void skip_small_image(const std::string& reason);

  // Whether the data ends with this pass.
  bool is_last_pass(int64_t pass) const { return options_.epochs > 0 && (pass + 1) * copies_ >= options_.epochs; }

  // A stream has come to its end and begins again. The first time is logged.
  void note_relooped();

  // Lets reading of a place of the order of pass `pass` begin where an earlier run was. Throws Error if the anchor does
  // not fit the files.
  void add_anchor(int64_t place, int64_t pass, const Anchor& anchor) { source_at(place, pass)->add_anchor(anchor); }

  const CorpusOptions& options() const { return options_; }
  const std::string& fingerprint() const { return fingerprint_; }
  int64_t streams() const { return streams_; }  // see Note [Canonical streams]
  std::vector<int64_t> owned_streams() const;
  const Striping& striping() const { return striping_; }
  // The same data, dealt as a saved run has it. Throws as the constructor does.
  std::unique_ptr<Corpus> striped_as(const Striping& striping) const;
  ReadingPlan reading_plan() const;
  const RecordOrder& order() const { return order_; }
  // The order that a saved position was counted in, by its name: this one, or another that the same options once meant
  // (sets with fewer records than a window were shuffled as a window that is not full). Nothing: it does not fit.
  std::optional<RecordOrder> order_of(const std::string& name) const;
  // Goes on in that order. No thread may read meanwhile.
  void set_order(const RecordOrder& order) { order_ = order; }
  int64_t bad_records() const { return bad_records_; }    // skipped so far by this rank, every pass counted
  int64_t small_images() const { return small_images_; }  // likewise

 private:
  RecordSourceOptions source_options() const;
  bool open_lanes();
  std::optional<uint64_t> shuffle_key() const;  // of the blocks of lanes
  std::optional<StripedFiles> choose_lanes(const RecordSourceOptions& source) const;
  void open_records();
  std::shared_ptr<RecordSource> open(bool keep_all) const;
  std::shared_ptr<RecordSource> source_at(int64_t place, int64_t pass);
  bool is_indexed() const;
  void settle_order();
  RecordOrder shuffled(std::optional<int64_t> records) const;
  std::vector<int32_t> encode(const Record& record) const;
  void check_formats() const;

  CorpusOptions options_;
  Encoder encoder_;
  std::vector<SourceFile> files_;
  std::string fingerprint_;
  std::unique_ptr<Lanes> lanes_;          // by blocks
  std::shared_ptr<RecordSource> source_;  // by records
  Striping striping_;
  RecordOrder order_;
  int64_t known_records_ = 0;  // of a source of a mix that has fewer than streams; 0: not known
  int64_t copies_ = 1;         // of those that make one pass
  int64_t streams_ = 0;
  std::atomic<bool> relooped_ = false;
  std::atomic<int64_t> bad_records_ = 0;
  std::atomic<int64_t> small_images_ = 0;
};

}  // namespace titanium::data
