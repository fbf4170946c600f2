#include "titanium/data/mixed_stream.h"

namespace titanium::data {

MixedStream::MixedStream(const std::vector<MixedSource>& sources, const Mixture& mixture, const PackingOptions& options,
                         int64_t stream, const MixedPosition& position)
    : mixture_(mixture), stream_(stream), turn_(position.samples) {
  for (size_t k = 0; k < sources.size(); ++k) {
    at_end_.push_back(sources[k].at_end);
    streams_.emplace_back(*sources[k].corpus, options, stream, position.sources[k]);
    ended_.push_back(position.sources[k].ended);
  }
}

std::optional<MixedSample> MixedStream::next(const std::stop_token& stop) {
  MixedSample mixed;
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

}  // namespace titanium::data
