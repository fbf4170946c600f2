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

  // The records of lane `lane`, one that this rank reads from, in pass `pass`. The two passes of each lane that were
  // asked for last stay open.
  std::shared_ptr<RecordSource> lane(int64_t lane, int64_t pass);

  int64_t count() const { return striped_.striping.lanes; }
  const Striping& striping() const { return striped_.striping; }
  ReadingPlan plan() const;

 private:
  struct Open {
    int64_t pass = 0;
    std::shared_ptr<RecordSource> source;
  };
  using Dealt = std::vector<std::vector<int64_t>>;

  std::shared_ptr<const Dealt> dealt(int64_t pass);
  std::shared_ptr<RecordSource> open(int64_t lane, const std::vector<int64_t>& blocks) const;

  const std::vector<SourceFile>& files_;
  const StripedFiles striped_;
  const LanesOptions options_;

  std::mutex mutex_;                                                   // guards all below
  std::map<int64_t, std::list<Open>> open_;                            // by lane, most recently used first
  std::list<std::pair<int64_t, std::shared_ptr<const Dealt>>> dealt_;  // by pass, likewise
};

}  // namespace titanium::data
