// titanium data plan: what a run will read.
#include <algorithm>

#include "titanium/base/log.h"
#include "titanium/base/thousands.h"
#include "titanium/cli/commands/data_commands.h"
#include "titanium/cli/help.h"
#include "titanium/config/data_sources.h"
#include "titanium/config/load_config.h"
#include "titanium/data/dataset_registry.h"
#include "titanium/data/inspection.h"
#include "titanium/train/task/text_data.h"

namespace titanium::cli {
namespace {

struct PlannedSource {
  std::string name;
  std::string text_field;
  std::filesystem::path path;
};

std::vector<PlannedSource> sources_of(const config::Training& training) {
  std::vector<PlannedSource> planned;
  for (const auto& source : config::data_sources(training.sources, "training.sources"))
    planned.push_back({source.name, source.text_field.value_or(training.text_field),
                       data::locate_dataset(source.dataset.value_or(source.name), source.path).path});
  if (planned.empty()) {
    const data::Dataset dataset = data::locate_dataset(training.dataset, training.dataset_path);
    planned.push_back({dataset.name, training.text_field, dataset.path});
  }
  return planned;
}

// Samples of each source in the first `samples` of the run, by shares: the choice is exact but for a few.
std::vector<double> samples_of(const std::vector<data::MixturePiece>& pieces, double samples) {
  std::vector<double> counts(pieces[0].weights.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    const double begin = std::min(static_cast<double>(pieces[i].first), samples);
    const double end = i + 1 < pieces.size() ? std::min(static_cast<double>(pieces[i + 1].first), samples) : samples;
    double total = 0;
    for (const double weight : pieces[i].weights) total += weight;
    for (size_t k = 0; k < counts.size(); ++k) counts[k] += (end - begin) * pieces[i].weights[k] / total;
  }
  return counts;
}

std::string number(double value) { return with_thousands_separators(static_cast<int64_t>(value + 0.5)); }

}  // namespace

int plan_data(Arguments args) {
  if (std::ranges::any_of(args, [](const std::string& arg) { return arg == "--help" || arg == "-h"; })) {
    show_help(
        "Says what a run will read of each source: tokens, epochs, files.\n"
        "Usage: titanium data plan [--job.config_file FILE] [--section.key value ...]\n");
    return 0;
  }
  const JobConfig config = config::load_config(args).config;
  const config::Training& training = config.training;
  const std::vector<PlannedSource> sources = sources_of(training);
  std::vector<data::Inspection> found;
  std::vector<int64_t> sizes;
  for (const PlannedSource& source : sources) {
    found.push_back(data::inspect(
        source.path,
        {.reading = {.text_field = source.text_field, .token_dtype = training.token_dtype}, .samples = 0}));
    sizes.push_back(found.back().bytes);
  }
  const int64_t batch = training.global_batch_size > 0 ? training.global_batch_size : training.local_batch_size;
  const std::vector<data::MixturePiece> pieces = training.sources.empty()
                                                     ? std::vector<data::MixturePiece>{{.weights = {1}}}
                                                     : train::mixture_pieces(training, sizes, batch);
  const double samples = static_cast<double>(training.steps) * static_cast<double>(batch);
  const std::vector<double> counts = samples_of(pieces, samples);
  fmt::print("{} steps of {} samples of {} tokens: {} tokens\n", with_thousands_separators(training.steps), batch,
             training.seq_len, number(samples * static_cast<double>(training.seq_len)));
  for (size_t k = 0; k < sources.size(); ++k) {
    const double tokens = counts[k] * static_cast<double>(training.seq_len);
    const data::Inspection& source = found[k];
    const bool indexed = source.tokens.has_value();
    fmt::print("{}: {} tokens ({:.3g}%), {}\n", sources[k].name, number(tokens), 100 * counts[k] / samples,
               source.tokens ? fmt::format("{:.3g} epochs of {} tokens", tokens / static_cast<double>(*source.tokens),
                                           with_thousands_separators(*source.tokens))
                             : "epochs not known before the text is tokenised");
    fmt::print("  {}: {} files, {} bytes{}; a rank reads {}\n", sources[k].path.string(),
               with_thousands_separators(source.files), with_thousands_separators(source.bytes),
               source.records ? fmt::format(", {} records", with_thousands_separators(*source.records)) : "",
               indexed ? "its share of an epoch" : "all of an epoch and keeps its share");
  }
  if (training.global_batch_size <= 0)
    fmt::print("training.global_batch_size is not set: with R data-parallel ranks all numbers are R times as large.\n");
  return 0;
}

}  // namespace titanium::cli
