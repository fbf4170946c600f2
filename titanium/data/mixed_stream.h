// One canonical stream of a mix: at each turn the next sample of the source
// that Note [Choice of sources] names.
#pragma once

#include "titanium/data/mixture.h"
#include "titanium/data/stream.h"

namespace titanium::data {

// Where a stream of the mix is: its turn, and its place in each source.
struct MixedPosition {
  int64_t samples = 0;  // delivered, from all sources
  std::vector<StreamPosition> sources;

  bool operator==(const MixedPosition&) const = default;
};

template <typename Sample>
struct MixedSample {
  Sample sample;
  size_t source = 0;
  std::vector<size_t> ended;  // sources that have turned out to be at their end in this stream
};

// What happens when a source is at its end in a stream.
enum class AtEnd {
  kDrop,  // the other sources share its turns there
  kStop,  // the stream ends
};

struct MixedSource {
  Corpus* corpus = nullptr;
  AtEnd at_end = AtEnd::kDrop;
};

// Not thread-safe; different streams may be used from different threads. For `Stream` see stream_loader.h.
template <typename Stream>
class MixedStream {
 public:
  using Sample = typename Stream::Sample;

  // `mixture` must outlive the stream. `position` has an entry for each source.
  MixedStream(const std::vector<MixedSource>& sources, const Mixture& mixture, const typename Stream::Options& options,
              int64_t stream, const MixedPosition& position)
      : mixture_(mixture), stream_(stream), turn_(position.samples) {
    for (size_t k = 0; k < sources.size(); ++k) {
      at_end_.push_back(sources[k].at_end);
      streams_.emplace_back(*sources[k].corpus, options, stream, position.sources[k]);
      ended_.push_back(position.sources[k].ended);
    }
  }

  // The next sample; nothing at the end. Throws as Stream does.
  std::optional<MixedSample<Sample>> next(const std::stop_token& stop = {}) {
    MixedSample<Sample> mixed;
    for (;;) {
      const size_t source = mixture_.choose(turn_, stream_, ended_);
      if (source == streams_.size()) return std::nullopt;
      if (auto sample = streams_[source].next(stop)) {
        ++turn_;
        mixed.sample = *std::move(sample);
        mixed.source = source;
        return mixed;
      }
      if (at_end_[source] == AtEnd::kStop) return std::nullopt;
      ended_[source] = true;
      mixed.ended.push_back(source);
    }
  }

 private:
  const Mixture& mixture_;
  int64_t stream_;
  int64_t turn_;
  std::vector<AtEnd> at_end_;
  std::vector<Stream> streams_;  // one for each source
  std::vector<bool> ended_;
};

}  // namespace titanium::data
