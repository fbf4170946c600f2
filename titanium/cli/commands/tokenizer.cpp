// titanium tokenizer train: learns a tokenizer from text.
#include <optional>

#include "titanium/base/terminal/progress.h"
#include "titanium/cli/command_line.h"
#include "titanium/data/tokenizer/training/tokenizer_training.h"

namespace titanium::cli {

int run_tokenizer(Arguments args) {
  std::vector<std::string> inputs;
  std::string out;
  data::TokenizerTraining training;
  CommandLine app("Makes tokenizers.", "tokenizer");
  CommandLine& train = app.subcommand("train", "Learns a byte-level BPE tokenizer and writes it as tokenizer.json");
  train.option("--input", inputs, "A .jsonl file with a field \"text\", or a text file; may be given several times")
      .required()
      .repeated();
  train.option("--vocab-size", training.vocab_size, "Number of tokens, special tokens included").required();
  train.option("--out", out, "Folder for tokenizer.json and tokenizer_config.json").required();
  train.option("--min-pair-count", training.min_pair_count, "Leave pairs alone that are rarer").shows_default();
  train.option("--threads", training.threads, "Threads that count words").shows_default().between(1, 256);
  if (!app.parse(args)) return 0;

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
