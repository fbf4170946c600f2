#include "titanium/data/loader.h"

#include "titanium/base/error.h"

namespace titanium::data {
namespace {

// Leaves `document_starts` unsorted.
void write_row(const Sample& sample, int64_t row, Batch& batch) {
  const auto first = static_cast<size_t>(row * batch.seq_len);
  for (size_t i = 0; i + 1 < sample.tokens.size(); ++i) {
    batch.inputs[first + i] = sample.tokens[i];
    batch.labels[first + i] = sample.tokens[i + 1];
  }
  for (const int32_t start : sample.document_starts) {
    if (start < batch.seq_len) batch.document_starts.push_back(static_cast<int32_t>(first) + start);
  }
}

LoaderOptions checked(const LoaderOptions& options) {
  TI_CHECK(options.batch >= 1, "A batch of {} samples is not possible. Use at least 1.", options.batch);
  TI_CHECK(options.packing.seq_len >= 1, "training.seq_len = {} must be at least 1.", options.packing.seq_len);
  TI_CHECK(options.prefetch_factor >= 1, "dataloader.prefetch_factor = {} must be at least 1.",
           options.prefetch_factor);
  return options;
}

}  // namespace

Batch ignored_batch(int64_t batch, int64_t seq_len) {
  const auto size = static_cast<size_t>(batch * seq_len);
  Batch ignored{.batch = batch,
                .seq_len = seq_len,
                .inputs = std::vector<int64_t>(size, 0),
                .labels = std::vector<int64_t>(size, kIgnoreIndex),
                .document_starts = {}};
  for (int64_t row = 0; row < batch; ++row) ignored.document_starts.push_back(static_cast<int32_t>(row * seq_len));
  return ignored;
}

Batch rows_of(const Batch& batch, int64_t first, int64_t count) {
  const int64_t begin = first * batch.seq_len, end = begin + count * batch.seq_len;
  const auto cut = [&](const std::vector<int64_t>& tokens) {
    return std::vector<int64_t>(tokens.begin() + begin, tokens.begin() + end);
  };
  Batch rows{.batch = count,
             .seq_len = batch.seq_len,
             .inputs = cut(batch.inputs),
             .labels = cut(batch.labels),
             .document_starts = {}};
  for (const int32_t start : batch.document_starts) {
    if (start >= begin && start < end) rows.document_starts.push_back(static_cast<int32_t>(start - begin));
  }
  return rows;
}

std::vector<int64_t> positions_in_documents(const Batch& batch) {
  std::vector<int64_t> positions(batch.inputs.size());
  auto next = batch.document_starts.begin();
  int64_t start = 0;
  for (int64_t i = 0; i < std::ssize(positions); ++i) {
    if (next != batch.document_starts.end() && *next == i) start = *next++;
    positions[static_cast<size_t>(i)] = i - start;
  }
  return positions;
}

Loader::Loader(CorpusOptions corpus, const Encoder& encoder, const LoaderOptions& options)
    : Loader(LoaderSources::single(std::move(corpus), encoder), checked(options)) {}

Loader::Loader(const std::vector<MixEntry>& sources, std::vector<MixturePiece> weights, const Encoder& encoder,
               const LoaderOptions& options)
    : Loader(LoaderSources::mix(sources, std::move(weights), encoder), checked(options)) {}

Loader::Loader(LoaderSources sources, const LoaderOptions& options)
    : StreamLoader(std::move(sources), {.stream = options.packing,
                                        .seq_len = options.packing.seq_len,
                                        .num_workers = options.num_workers,
                                        .ahead = options.prefetch_factor * options.batch}),
      options_(options) {}

std::optional<Batch> Loader::next() {
  const auto taken = take(options_.batch);
  if (taken.empty()) return std::nullopt;
  Batch batch = ignored_batch(options_.batch, options_.packing.seq_len);
  for (size_t row = 0; row < taken.size(); ++row) write_row(taken[row].sample, static_cast<int64_t>(row), batch);
  std::ranges::sort(batch.document_starts);
  return batch;
}

std::string Loader::why_no_sample() const {
  return fmt::format(
      "each of its {} data streams has fewer than {} tokens. Use a shorter seq_len or fewer data_streams", streams(),
      options_.packing.seq_len + 1);
}

}  // namespace titanium::data
