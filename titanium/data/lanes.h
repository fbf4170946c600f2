// The records of a data set that is dealt by blocks: see Note [Lanes].
#pragma once

#include "titanium/data/record_source.h"
#include "titanium/data/striping.h"

namespace titanium::data {

struct LanesOptions {
  RecordSourceOptions
      source{};  // of all lanes together: memory and readers are shared out; the ownership is the rank's
  int64_t streams = 256;
  std::optional<uint64_t> shuffle_key = std::nullopt;  // every pass deals the blocks in another order
};

// Thread-safe. A lane is opened when it is first asked for.
class Lanes {
 public:
  // `files` must outlive it.
  Lanes(const std::vector<SourceFile>& files, StripedFiles striped, LanesOptions options);

  // The records of the lane that stream `stream`, one of this rank, reads from in pass `pass`. A pass stays open until
  // all streams of the lane have gone on to others, and those that are open share the memory of the lane. Streams of
  // small data may be spread over many passes; of these the eight that were asked for last are open.
  std::shared_ptr<RecordSource> lane_of(int64_t stream, int64_t pass);

  int64_t count() const { return striped_.striping.lanes; }
  const Striping& striping() const { return striped_.striping; }
  ReadingPlan plan() const;

 private:
  struct Open {
    int64_t pass = 0;
    std::shared_ptr<RecordSource> source;
  };
  struct Lane {
    std::map<int64_t, int64_t> passes;  // that the streams were last at
    std::list<Open> open;               // most recently used first
  };
  using Dealt = std::vector<std::vector<int64_t>>;

  std::shared_ptr<const Dealt> dealt(int64_t pass);
  void share_cache(const Lane& lane) const;
  std::shared_ptr<RecordSource> open(int64_t lane, const std::vector<int64_t>& blocks) const;

  const std::vector<SourceFile>& files_;
  const StripedFiles striped_;
  const LanesOptions options_;

  std::mutex mutex_;                                                   // guards all below
  std::map<int64_t, Lane> lanes_;                                      // by number
  std::list<std::pair<int64_t, std::shared_ptr<const Dealt>>> dealt_;  // by pass, most recently used first
};

}  // namespace titanium::data
