#include "titanium/cli/data.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "titanium/base/printable.h"
#include "titanium/base/thousands.h"
#include "titanium/cli/arguments.h"
#include "titanium/data/inspection.h"

namespace titanium::cli {
namespace {

constexpr size_t kTextBytesToShow = 300;
constexpr size_t kTokensToShow = 24;

struct InspectOptions {
  std::string path;
  data::InspectionOptions inspection;
  bool json = false;
};

void add_reading_options(CLI::App& app, data::ReadOptions& reading) {
  app.add_option("--text-field", reading.text_field, "Field or column that holds the text or the tokens")
      ->capture_default_str();
  app.add_option("--token-dtype", reading.token_dtype, "Type of the tokens in raw arrays")
      ->capture_default_str()
      ->check(CLI::IsMember({"uint16", "uint32", "int32", "int64"}));
}

std::string count_text(const std::optional<int64_t>& count, const char* otherwise) {
  return count ? with_thousands_separators(*count) : otherwise;
}

std::string sample_text(const data::Inspection::Sample& sample) {
  if (!sample.problem.empty()) return sample.problem;
  if (sample.text) return printable(*sample.text, kTextBytesToShow);
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

void declare_inspect(CLI::App& app, InspectOptions& options) {
  app.add_option("path", options.path, "A file or a folder")->required();
  add_reading_options(app, options.inspection.reading);
  app.add_option("--records", options.inspection.samples, "Records to show")
      ->capture_default_str()
      ->check(CLI::Range(0, 1'000'000));
  app.add_flag("--all", options.inspection.count_all, "Count the records of large files without an index, too");
  app.add_flag("--json", options.json, "Write one JSON object");
}

}  // namespace

int run_data(Arguments args) {
  CLI::App app("Training data.", "data");
  app.require_subcommand(1);
  InspectOptions inspect;
  CLI::App* inspecting = app.add_subcommand("inspect", "Tells format, size and first records of a file or folder");
  declare_inspect(*inspecting, inspect);
  if (!parse_arguments(app, args)) return 0;
  const data::Inspection found = data::inspect(inspect.path, inspect.inspection);
  if (inspect.json) {
    print_json(found);
  } else {
    print_text(inspect, found);
  }
  return 0;
}

}  // namespace titanium::cli
