// titanium tokenizer train: learns a tokenizer from text.
#include <CLI/CLI.hpp>
#include <optional>

#include "titanium/base/progress.h"
#include "titanium/cli/arguments.h"
#include "titanium/data/tokenizer/training/tokenizer_training.h"

namespace titanium::cli {

int run_tokenizer(Arguments args) {
  std::vector<std::string> inputs;
  std::string out;
  data::TokenizerTraining training;
  CLI::App app("Makes tokenizers.", "tokenizer");
  app.require_subcommand(1);
  CLI::App* train = app.add_subcommand("train", "Learns a byte-level BPE tokenizer and writes it as tokenizer.json");
  train
      ->add_option("--input", inputs, "A .jsonl file with a field \"text\", or a text file; may be given several times")
      ->required()
      ->expected(-1)
      ->allow_extra_args(false);
  train->add_option("--vocab-size", training.vocab_size, "Number of tokens, special tokens included")->required();
  train->add_option("--out", out, "Folder for tokenizer.json and tokenizer_config.json")->required();
  train->add_option("--min-pair-count", training.min_pair_count, "Leave pairs alone that are rarer")
      ->capture_default_str();
  train->add_option("--threads", training.threads, "Threads that count words")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  if (!parse_arguments(app, args)) return 0;

  training.inputs.assign(inputs.begin(), inputs.end());
  std::optional<Progress> bar;
  std::string current;
  const int64_t size = data::train_tokenizer(training, out, [&](std::string_view phase, int64_t done, int64_t total) {
    if (phase != current) bar.emplace(current = std::string(phase), total);
    bar->update(done);
  });
  bar.reset();
  fmt::print("{}/tokenizer.json has {} tokens.\n", out, size);
  if (size < training.vocab_size) {
    fmt::print(stderr, "titanium: the text has too few pairs for the {} tokens asked for.\n", training.vocab_size);
  }
  return 0;
}

}  // namespace titanium::cli
