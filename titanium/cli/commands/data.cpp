// titanium data: looks at training data, tokenises it, and says what a run will read.
#include <nlohmann/json.hpp>

#include "titanium/base/machine/usable_cores.h"
#include "titanium/base/terminal/progress.h"
#include "titanium/base/text/printable.h"
#include "titanium/base/text/thousands.h"
#include "titanium/cli/command_line.h"
#include "titanium/cli/commands/data_commands.h"
#include "titanium/data/inspection.h"
#include "titanium/data/preparation.h"
#include "titanium/data/tokenizer.h"

namespace titanium::cli {
namespace {

constexpr size_t kTextBytesToShow = 300;
constexpr size_t kTokensToShow = 24;

struct InspectOptions {
  std::string path;
  data::InspectionOptions inspection;
  bool json = false;
};

void add_reading_options(CommandLine& app, data::ReadOptions& reading) {
  app.option("--text-field", reading.text_field, "Field or column that holds the text or the tokens").shows_default();
  app.option("--token-dtype", reading.token_dtype, "Type of the tokens in raw arrays")
      .shows_default()
      .one_of({"uint16", "uint32", "int32", "int64"});
}

std::string count_text(const std::optional<int64_t>& count, const char* otherwise) {
  return count ? with_thousands_separators(*count) : otherwise;
}

std::string sample_text(const data::Inspection::Sample& sample) {
  if (!sample.problem.empty()) return sample.problem;
  const std::string image = sample.image.empty() ? "" : sample.image + ": ";
  if (sample.text) return image + printable(*sample.text, kTextBytesToShow);
  const auto shown = std::span(sample.tokens).first(std::min(sample.tokens.size(), kTokensToShow));
  return fmt::format("{} tokens: {}{}", sample.tokens.size(), fmt::join(shown, " "),
                     shown.size() < sample.tokens.size() ? " ..." : "");
}

void print_text(const InspectOptions& options, const data::Inspection& found) {
  std::vector<std::string> formats;
  for (const auto& [name, files] : found.formats) formats.push_back(fmt::format("{} ({})", name, files));
  fmt::print("{}: {} files, {} bytes\n", options.path, with_thousands_separators(found.files),
             with_thousands_separators(found.bytes));
  fmt::print("  format   {}\n", fmt::join(formats, ", "));
  fmt::print("  records  {}\n", count_text(found.records, "not counted; --all reads everything and counts them"));
  fmt::print("  tokens   {}\n", count_text(found.tokens, "not known before the text is tokenised"));
  for (const auto& sample : found.samples) fmt::print("{}\n  {}\n", sample.place, sample_text(sample));
}

void print_json(const data::Inspection& found) {
  const auto number = [](const std::optional<int64_t>& count) {
    return count ? nlohmann::json(*count) : nlohmann::json();
  };
  nlohmann::json samples = nlohmann::json::array();
  for (const auto& sample : found.samples) {
    nlohmann::json entry = {{"place", sample.place}};
    if (!sample.image.empty()) entry["image"] = sample.image;
    if (!sample.problem.empty()) {
      entry["problem"] = sample.problem;
    } else if (sample.text) {
      entry["text"] = *sample.text;
    } else {
      entry["tokens"] = sample.tokens;
    }
    samples.push_back(std::move(entry));
  }
  const nlohmann::json object = {{"files", found.files},           {"bytes", found.bytes},
                                 {"formats", found.formats},       {"records", number(found.records)},
                                 {"tokens", number(found.tokens)}, {"samples", std::move(samples)}};
  fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

Action declare_inspect(CommandLine& app) {
  const auto options = std::make_shared<InspectOptions>();
  app.option("path", options->path, "A file or a folder").required();
  add_reading_options(app, options->inspection.reading);
  app.option("--records", options->inspection.samples, "Records to show").shows_default().between(0, 1'000'000);
  app.flag("--all", options->inspection.count_all, "Count the records of large files without an index, too");
  app.flag("--json", options->json, "Write one JSON object");
  return [options] {
    const data::Inspection found = data::inspect(options->path, options->inspection);
    options->json ? print_json(found) : print_text(*options, found);
    return 0;
  };
}

Action declare_prepare(CommandLine& app) {
  struct Options {
    std::string path, tokenizer, out;
    std::string special = "token";
    data::Preparation preparation;
  };
  const auto options = std::make_shared<Options>();
  data::Preparation& preparation = options->preparation;
  preparation.threads = usable_cores();
  app.option("path", options->path, "A file or a folder").required();
  app.option("--tokenizer", options->tokenizer, "Folder with the files of a tokenizer, or its address").required();
  app.option("--out", options->out, "Folder for the shards").required();
  add_reading_options(app, preparation.reading);
  app.option("--special-tokens-in-text", options->special, "What a special token that stands in a text becomes")
      .shows_default()
      .one_of({"token", "text", "error"});
  app.flag("--skip-bad-records", preparation.skip_bad_records, "Leave records out that cannot be used");
  app.option("--threads", preparation.threads, "Threads that tokenise").shows_default().between(1, 1024);
  app.option("--shard-records", preparation.shard_records, "Records of a shard")
      .shows_default()
      .between(1, 100'000'000);
  return [options] {
    data::Preparation& preparation = options->preparation;
    const auto tokenizer = data::Tokenizer::load(options->tokenizer, data::parse_special_in_text(options->special));
    preparation.path = options->path;
    preparation.out = options->out;
    preparation.tokenizer = data::tokenizer_digest(options->tokenizer) + " " + options->special;
    preparation.vocab_size = tokenizer.vocab_size();
    std::optional<Progress> bar;
    const data::PreparedCounts counts = data::prepare(
        preparation, [&](std::string_view text) { return tokenizer.encode(text, /*add_bos=*/true, /*add_eos=*/true); },
        [&](int64_t done, int64_t total) {
          if (!bar) bar.emplace("tokenising", total, ProgressUnit::kBytes);
          bar->update(done);
        });
    bar.reset();
    fmt::print(
        "{} has {} shards, {} of them from before: {} documents and {} tokens were added, {} records were bad.\n",
        options->out, counts.shards, counts.kept_shards, with_thousands_separators(counts.documents),
        with_thousands_separators(counts.tokens), with_thousands_separators(counts.bad_records));
    return 0;
  };
}

int run_data(Arguments args) {
  if (!args.empty() && args[0] == "plan") return plan_data(args.subspan(1));
  if (!args.empty() && args[0] == "prepare-images") return prepare_image_data(args.subspan(1));
  CommandLine app("Training data.", "data");
  CommandLine& inspect = app.subcommand("inspect", "Tells format, size and first records of a file or folder");
  const Action inspecting = declare_inspect(inspect);
  CommandLine& prepare = app.subcommand("prepare", "Tokenises a file or folder into shards to train from");
  const Action preparing = declare_prepare(prepare);
  app.subcommand("prepare-images",
                 "Encodes images and captions once, to train from without encoders; takes the options of a run");
  app.subcommand("plan", "Says what a run will read; takes the options of a run");
  if (!app.parse(args)) return 0;
  return inspect.chosen() ? inspecting() : preparing();
}

}  // namespace titanium::cli
