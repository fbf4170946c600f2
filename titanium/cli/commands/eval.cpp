// titanium eval: the loss of a checkpoint.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/base/text/json.h"
#include "titanium/checkpoint/safetensors/writer.h"
#include "titanium/cli/command_line.h"
#include "titanium/data/document.h"
#include "titanium/data/tokenizer.h"
#include "titanium/train/inference/evaluate.h"
#include "titanium/train/inference/load_model.h"

namespace titanium::cli {
namespace {

using Sequences = std::vector<std::vector<int64_t>>;

struct Options {
  std::string checkpoint, text, tokens, logits;
};

// An array of arrays of ids.
Sequences read_tokens(const std::string& file) {
  const auto refuse = [&](const std::string& what) {
    throw UsageError(fmt::format("{} {}. Write an array of arrays of token ids: [[1, 15, 7], [1, 4]].", file, what));
  };
  nlohmann::json json;
  try {
    json = parse_json(read_file(file, "token file"));
  } catch (const JsonError& error) {
    refuse(error.what());
  }
  if (!json.is_array()) refuse("is not a JSON array");
  Sequences sequences;
  for (size_t i = 0; i < json.size(); ++i) {
    if (!json[i].is_array()) refuse(fmt::format("holds at [{}] something else than an array", i));
    std::vector<int64_t>& ids = sequences.emplace_back();
    for (const auto& id : json[i]) {
      if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<int32_t>::max()) {
        refuse(fmt::format("holds at [{}][{}] something else than a token id", i, ids.size()));
      }
      ids.push_back(id.get<int64_t>());
    }
  }
  return sequences;
}

// The documents of a file or folder, each as the training data has it.
Sequences read_text(const std::string& path, const train::CheckpointRun& run) {
  const auto tokenizer =
      data::Tokenizer::load(run.tokenizer, data::parse_special_in_text(run.config.model.special_tokens_in_text));
  data::RecordSource source(path, {.reading = {.text_field = run.config.training.text_field,
                                               .token_dtype = run.config.training.token_dtype}});
  Sequences sequences;
  for (int64_t i = 0; const auto record = source.read(i); ++i) {
    const auto ids = data::has_tokens(*record)
                         ? data::document_tokens(*record)
                         : tokenizer.encode(data::document_text(*record, run.config.training.text_field),
                                            /*add_bos=*/true, /*add_eos=*/true);
    sequences.emplace_back(ids.begin(), ids.end());
  }
  return sequences;
}

int64_t longest(const Sequences& sequences) {
  size_t length = 1;
  for (const auto& sequence : sequences) length = std::max(length, sequence.size());
  return static_cast<int64_t>(length);
}

train::Evaluation evaluate(const Options& options, const train::CheckpointRun& run) {
  const Sequences sequences = options.text.empty() ? read_tokens(options.tokens) : read_text(options.text, run);
  const int64_t max_seq_len = std::min(longest(sequences), run.seq_len ? *run.seq_len : train::model_positions(run));
  const Device device = parse_device(run.config.training.device, /*local_rank=*/0);
  const auto model = train::load_model(run, max_seq_len, device);
  if (options.logits.empty()) return train::evaluate(*model, sequences, max_seq_len, device);
  std::vector<checkpoint::NamedTensor> logits;
  const auto result = train::evaluate(*model, sequences, max_seq_len, device, [&](size_t i, const Tensor& logits_SV) {
    logits.push_back({fmt::format("logits.{}", i), logits_SV});
  });
  checkpoint::write_safetensors(options.logits, logits);
  return result;
}

}  // namespace

int run_eval(Arguments args) {
  Options options;
  CommandLine app(
      "Loss and perplexity of a checkpoint, as one JSON object: {\"loss\": ..., \"perplexity\": ..., \"tokens\": "
      "...}.\n"
      "Every sequence stands for itself; its first token is not predicted. Sequences longer than training.seq_len, or\n"
      "than the model's positions where that is not given, are cut into pieces. All options of titanium train are "
      "taken\n"
      "too; the computation is in float32 unless --training.mixed_precision_param says otherwise, the sizes come from\n"
      "config.json in the checkpoint or in --model.hf_assets_path unless --model.flavor is given, and so does the\n"
      "tokenizer.",
      "eval");
  app.take_run_options();
  app.option("--checkpoint", options.checkpoint,
             "Distributed checkpoint, Hugging Face weights, torch.save file or Meta's shards")
      .required();
  CommandLine& input = app.alternatives("input", "One of these");
  input.option("--text", options.text, "JSON lines or text: each document with BOS and EOS is a sequence");
  input.option("--tokens", options.tokens, "JSON file: an array of arrays of token ids");
  app.option("--logits", options.logits, "Also write the logits: tensors logits.<i> [tokens, vocabulary] in fp32");
  if (!app.parse(args)) return 0;

  const config::LoadedConfig loaded = config::load_config(app.run_options());
  const train::Evaluation result = evaluate(options, train::plan_checkpoint_run(loaded, options.checkpoint));
  const nlohmann::ordered_json json = {
      {"loss", result.loss}, {"perplexity", result.perplexity}, {"tokens", result.tokens}};
  fmt::print("{}\n", json.dump());
  return 0;
}

}  // namespace titanium::cli
