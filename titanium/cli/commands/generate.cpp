// titanium generate: continues a text with a checkpoint.
#include "titanium/train/inference/generate.h"

#include <cmath>
#include <cstdio>

#include "titanium/base/error.h"
#include "titanium/cli/command_line.h"
#include "titanium/data/tokenizer.h"
#include "titanium/train/inference/load_model.h"

namespace titanium::cli {
namespace {

void check_numbers(const train::GenerateOptions& options) {
  const auto require = [](bool good, const char* name, auto value, const char* expectation) {
    if (!good) throw UsageError(fmt::format("generate: --{} {} should be {}.", name, value, expectation));
  };
  require(std::isfinite(options.temperature) && options.temperature >= 0, "temperature", options.temperature,
          "a number from 0 (always the most likely token) upwards");
  require(options.top_k >= 0, "top-k", options.top_k, "positive, or 0 for all tokens");
  require(options.max_new_tokens >= 1, "max-new-tokens", options.max_new_tokens, "at least 1");
  require(options.batch >= 1, "batch", options.batch, "at least 1");
}

std::vector<int64_t> encode_prompt(const data::Tokenizer& tokenizer, const std::string& prompt) {
  const auto ids = tokenizer.encode(prompt, /*add_bos=*/true, /*add_eos=*/false);
  if (ids.empty()) {
    throw UsageError(
        "generate: --prompt is empty and the tokenizer has no begin-of-sequence token to start with. Give a text.");
  }
  return {ids.begin(), ids.end()};
}

void check_length(int64_t prompt_tokens, int64_t new_tokens, int64_t positions) {
  if (new_tokens <= positions - prompt_tokens) return;
  throw UsageError(
      fmt::format("generate: {} tokens of prompt and {} new ones are more than the model's {} positions. Use a shorter "
                  "--prompt or a smaller --max-new-tokens.",
                  prompt_tokens, new_tokens, positions));
}

std::string text_of(const data::Tokenizer& tokenizer, const std::vector<int64_t>& prompt,
                    const std::vector<int64_t>& continuation) {
  std::vector<data::TokenId> ids(prompt.begin(), prompt.end());
  ids.insert(ids.end(), continuation.begin(), continuation.end());
  return tokenizer.decode(ids, /*skip_special_tokens=*/true);
}

void generate(const train::CheckpointRun& run, const std::string& prompt, train::GenerateOptions options) {
  check_numbers(options);
  const auto tokenizer = data::Tokenizer::load(run.tokenizer);
  const std::vector<int64_t> ids = encode_prompt(tokenizer, prompt);
  const auto prompt_tokens = static_cast<int64_t>(ids.size());
  check_length(prompt_tokens, options.max_new_tokens, train::model_positions(run));
  const Device device = parse_device(run.config.training.device, /*local_rank=*/0);
  const auto model = train::load_model(run, prompt_tokens + options.max_new_tokens, device);
  options.eos_id = tokenizer.eos_id();
  for (const auto& continuation : train::generate(*model, ids, options, device)) {
    fmt::print("{}\n", text_of(tokenizer, ids, continuation));
  }
}

}  // namespace

int run_generate(Arguments args) {
  std::string checkpoint, prompt;
  train::GenerateOptions options;
  CommandLine app(
      "Continues a prompt with the model of a checkpoint. Prints the prompt with its continuation, once for each of "
      "the\n"
      "batch, without special tokens; a continuation ends at the end-of-sequence token. All options of titanium train\n"
      "are taken too; the computation is in float32 unless --training.mixed_precision_param says otherwise, the sizes\n"
      "come from config.json in the checkpoint or in --model.hf_assets_path unless --model.flavor is given, and so "
      "does\n"
      "the tokenizer.",
      "generate");
  app.take_run_options();
  app.option("--checkpoint", checkpoint,
             "Distributed checkpoint, Hugging Face weights, torch.save file or Meta's shards")
      .required();
  app.option("--prompt", prompt, "Text to continue; BOS is put in front").required();
  app.option("--temperature", options.temperature, "0: always the most likely token").shows_default();
  app.option("--top-k", options.top_k, "Only the k most likely tokens; 0: all").shows_default();
  app.option("--max-new-tokens", options.max_new_tokens, "Length of the continuation").shows_default();
  app.option("--seed", options.seed, "The same seed gives the same text").shows_default();
  app.option("--batch", options.batch, "Number of continuations").shows_default();
  if (!app.parse(args)) return 0;

  generate(train::plan_checkpoint_run(config::load_config(app.run_options()), checkpoint), prompt, options);
  return 0;
}

}  // namespace titanium::cli
