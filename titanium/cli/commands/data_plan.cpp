// titanium data plan: what a run will read.
#include <cmath>

#include "titanium/base/bundled.h"
#include "titanium/base/text/thousands.h"
#include "titanium/cli/command_line.h"
#include "titanium/cli/commands/data_commands.h"
#include "titanium/config/reading/load_config.h"
#include "titanium/config/validate.h"
#include "titanium/data/image/prepared_images.h"
#include "titanium/data/inspection.h"
#include "titanium/data/token_estimate.h"
#include "titanium/models/registry.h"
#include "titanium/parallel/parallel_dims.h"
#include "titanium/remote/transport/url.h"
#include "titanium/train/task/tasks.h"
#include "titanium/train/task/text_data.h"

namespace titanium::cli {
namespace {

constexpr const char* kDescription =
    "Says what a run will read of each source: tokens or images, epochs, files, and the bytes of each rank. Takes the "
    "options of a run (--job.config_file FILE, --section.key value).";

struct PlannedSource {
  data::CorpusOptions corpus;
  data::Inspection found;
  // Tokens or images of one epoch; none: to know them would mean reading everything.
  std::optional<data::TokenEstimate> size = std::nullopt;
};

data::TokenEstimate exactly(int64_t count) { return {.tokens = static_cast<double>(count)}; }

// Without an encoder, tokens are known only where the files say how many they have.
PlannedSource plan_texts(const data::CorpusOptions& corpus, const data::Encoder& encoder) {
  const data::ReadOptions reading{.text_field = corpus.text_field, .token_dtype = corpus.token_dtype};
  PlannedSource planned{corpus, data::inspect(corpus.path, {.reading = reading, .samples = 0})};
  if (planned.found.tokens) {
    planned.size = exactly(*planned.found.tokens);
  } else if (encoder) {
    planned.size =
        data::estimate_tokens(data::find_source_files(corpus.path, /*allow_empty_files=*/true), reading, encoder);
  }
  return planned;
}

PlannedSource plan_images(const data::CorpusOptions& corpus) {
  data::Inspection found = data::inspect(corpus.path, {.reading = {.whole_samples = true}, .samples = 0});
  if (corpus.prepared) found.records = corpus.prepared->description.samples;
  PlannedSource planned{corpus, found};
  if (found.records) planned.size = exactly(*found.records);
  return planned;
}

// Of the run's tokenizer, where there is one.
data::Encoder encoder_of_run(const JobConfig& config) {
  const std::string& folder = config.model.hf_assets_path;
  if (!remote::is_url(folder) && !std::filesystem::exists(bundled(folder))) return nullptr;
  return train::encoder_of(train::load_tokenizer(config));
}

// A run and what it counts.
struct Plan {
  const config::Training& training;
  int64_t readers;  // data-parallel ranks
  std::vector<PlannedSource> sources;

  bool of_images() const { return sources[0].corpus.images; }
  const char* unit() const { return of_images() ? "images" : "tokens"; }
  int64_t units_of_sample() const { return of_images() ? 1 : training.seq_len; }
  int64_t batch() const {
    return training.global_batch_size > 0 ? training.global_batch_size : training.local_batch_size * readers;
  }
  double samples() const { return static_cast<double>(training.steps) * static_cast<double>(batch()); }
};

Plan plan_of(const JobConfig& config, int64_t readers) {
  Plan plan{.training = config.training, .readers = readers, .sources = {}};
  const train::TaskSpec& task = train::find_task(models::find_model(config.model.name).training.task);
  const std::vector<data::CorpusOptions> corpora = task.training_corpora(config, readers);
  const data::Encoder encoder = corpora[0].images ? nullptr : encoder_of_run(config);
  for (const data::CorpusOptions& corpus : corpora)
    plan.sources.push_back(corpus.images ? plan_images(corpus) : plan_texts(corpus, encoder));
  return plan;
}

// Samples of each source in the run, by shares: the choice is exact but for a few.
std::vector<double> samples_by_source(const Plan& plan) {
  if (plan.training.sources.empty()) return {plan.samples()};
  std::vector<int64_t> sizes;
  for (const PlannedSource& source : plan.sources) sizes.push_back(source.found.bytes);
  const std::vector<data::MixturePiece> pieces = train::mixture_pieces(plan.training, sizes, plan.batch());
  const double samples = plan.samples();
  std::vector<double> counts(sizes.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    const double begin = std::min(static_cast<double>(pieces[i].first), samples);
    const double end = i + 1 < pieces.size() ? std::min(static_cast<double>(pieces[i + 1].first), samples) : samples;
    double total = 0;
    for (const double weight : pieces[i].weights) total += weight;
    for (size_t k = 0; k < counts.size(); ++k) counts[k] += (end - begin) * pieces[i].weights[k] / total;
  }
  return counts;
}

std::string number(double value) { return with_thousands_separators(std::llround(value)); }

std::string epochs_of(const Plan& plan, const PlannedSource& source, double samples) {
  if (source.size && source.size->tokens == 0)
    return fmt::format("no {} in it: all records are bad or empty", plan.unit());
  // A sample of a text takes one token more than it has labels.
  const double taken = samples * static_cast<double>(plan.units_of_sample() + (plan.of_images() ? 0 : 1));
  if (source.size && source.size->error > 0)
    return fmt::format("about {:.3g} epochs of {} tokens (more or less {:.2g}%{})", taken / source.size->tokens,
                       number(source.size->tokens), 100 * source.size->error / source.size->tokens,
                       source.size->from_beginnings ? ", if compressed files go on as they begin" : "");
  if (source.size)
    return fmt::format("{:.3g} epochs of {} {}", taken / source.size->tokens, number(source.size->tokens), plan.unit());
  return plan.of_images() ? "epochs not known before the archives are read (titanium data inspect --all counts images)"
                          : "epochs not known before the text is tokenised";
}

void print(const Plan& plan, const PlannedSource& source, double samples) {
  const data::Inspection& found = source.found;
  const double units = samples * static_cast<double>(plan.units_of_sample());
  fmt::print("{}: {} {} ({:.3g}%), {}\n", source.corpus.name, number(units), plan.unit(),
             100 * samples / plan.samples(), epochs_of(plan, source, samples));
  const data::ReadingPlan reading = data::Corpus(source.corpus, nullptr).reading_plan();
  fmt::print("  {}: {} files, {} bytes{}; {}\n", source.corpus.path.string(), with_thousands_separators(found.files),
             with_thousands_separators(found.bytes),
             found.records ? fmt::format(", {} records", with_thousands_separators(*found.records)) : "",
             data::describe(reading, source.corpus.ranks));
}

void print_run(const Plan& plan) {
  const config::Training& training = plan.training;
  const std::string steps = with_thousands_separators(training.steps);
  if (plan.of_images()) {
    fmt::print("{} steps of {} images: {} images, {} for each of {} data-parallel ranks\n", steps, plan.batch(),
               number(plan.samples()), number(plan.samples() / static_cast<double>(plan.readers)), plan.readers);
  } else {
    fmt::print("{} steps of {} samples of {} tokens: {} tokens\n", steps, plan.batch(), training.seq_len,
               number(plan.samples() * static_cast<double>(training.seq_len)));
  }
}

void print_remarks(const Plan& plan) {
  const config::Training& training = plan.training;
  if (plan.of_images() && !plan.sources[0].corpus.prepared)
    fmt::print(
        "Images with a side below training.img_size = {} are skipped when they are read; each makes an epoch "
        "shorter.\n",
        training.img_size);
  if (training.global_batch_size <= 0)
    fmt::print("training.global_batch_size is not set, so a step has {} samples of each of {} data-parallel ranks.\n",
               training.local_batch_size, plan.readers);
}

}  // namespace

int plan_data(Arguments args) {
  int64_t ranks = 0;
  CommandLine app(kDescription, "titanium data plan");
  app.take_run_options();
  app.option("--ranks", ranks, "Ranks of the run (default: as few as the degrees ask for)").positive();
  if (!app.parse(args)) return 0;
  const JobConfig config = config::load_config(app.run_options()).config;
  if (ranks == 0) ranks = config::fewest_ranks(config.parallelism);
  const Plan plan = plan_of(config, parallel::parallel_dims(config.parallelism, ranks).batch());
  const std::vector<double> samples = samples_by_source(plan);
  print_run(plan);
  for (size_t k = 0; k < samples.size(); ++k) print(plan, plan.sources[k], samples[k]);
  print_remarks(plan);
  return 0;
}

}  // namespace titanium::cli
