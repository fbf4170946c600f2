#include "titanium/train/task/text_task.h"

#include "titanium/base/error.h"
#include "titanium/models/language_model.h"
#include "titanium/tensor/host_copy.h"
#include "titanium/train/task/loader_source.h"
#include "titanium/train/task/text_data.h"

namespace titanium::train {
namespace {

// What batches need to run through the model.
struct Place {
  models::LanguageModel& model;
  ops::SequenceShare share;
  int64_t tensor_ranks;    // that divide the rows of hidden states
  bool restart_positions;  // at each document
  Device device;
};

void check_vocabulary(const data::Batch& batch, int64_t vocabulary) {
  const int64_t largest = *std::max_element(batch.inputs.begin(), batch.inputs.end());
  TI_CHECK(largest < vocabulary,
           "the tokenizer made id {}, but the model's vocabulary has {} entries. Use the tokenizer that belongs to the "
           "model (model.hf_assets_path), or a flavor with a larger vocabulary.",
           largest, vocabulary);
}

class TextMicroBatch : public MicroBatch {
 public:
  // Copies this rank's share of each sequence, of the positions if they start again with each document, and of the
  // documents if the model attends inside them.
  TextMicroBatch(const data::Batch& batch, const Place& place) : place_(place) {
    check_vocabulary(batch, place.model.vocabulary());
    const auto share_to_device = [&](std::span<const int64_t> tokens) {
      return copy_to_device(ops::share_of(tokens, batch.seq_len, place.share), place.device)
          .view({-1, batch.seq_len / place.share.ranks});
    };
    inputs_.tokens_BS = share_to_device(batch.inputs);
    labels_BS_ = share_to_device(batch.labels);
    if (place.restart_positions) inputs_.positions_BS = share_to_device(data::positions_in_documents(batch));
    if (place.model.attends_inside_documents()) {
      inputs_.documents =
          ops::make_documents(batch.document_starts, batch.batch, batch.seq_len, place.device, place.share);
    }
  }

  ops::Tensors run_stage(const models::ModelStage& stage, const ops::Tensors& inputs, double scale) const override {
    const Tensor x_tD = inputs.empty() ? Tensor() : inputs[0];
    return {place_.model.run_stage(stage, x_tD, inputs_, labels_BS_, scale)};
  }

  std::vector<parallel::HiddenStates> hidden_states() const override {
    return {{.shape = {labels_BS_.numel() / place_.tensor_ranks, place_.model.hidden_size()},
             .dtype = place_.model.compute_dtype,
             .device = place_.device}};
  }

 private:
  const Place& place_;
  models::TokenBatch inputs_;
  Tensor labels_BS_;
};

class TextBatch : public Batch {
 public:
  TextBatch(data::Batch batch, const Place& place) : batch_(std::move(batch)), place_(place) {}

  int64_t samples() const override { return batch_.batch; }
  int64_t tokens() const override { return batch_.batch * batch_.seq_len; }
  int64_t weight() const override {
    const std::vector<int64_t> labels = ops::share_of(batch_.labels, batch_.seq_len, place_.share);
    return std::count_if(labels.begin(), labels.end(), [](int64_t label) { return label != data::kIgnoreIndex; });
  }
  std::unique_ptr<MicroBatch> to_device(int64_t first, int64_t count) const override {
    if (count == samples()) return std::make_unique<TextMicroBatch>(batch_, place_);
    return std::make_unique<TextMicroBatch>(data::rows_of(batch_, first, count), place_);
  }

 private:
  data::Batch batch_;
  const Place& place_;
};

class TextSource : public LoaderSource<data::Loader> {
 public:
  TextSource(std::unique_ptr<data::Loader> loader, const Place& place)
      : LoaderSource(std::move(loader)), place_(place) {}

  BatchPtr next() override {
    std::optional<data::Batch> batch = loader().next();
    return batch ? std::make_unique<const TextBatch>(*std::move(batch), place_) : nullptr;
  }
  BatchPtr weightless() const override {
    const data::LoaderOptions& options = loader().options();
    return std::make_unique<const TextBatch>(data::ignored_batch(options.batch, options.packing.seq_len), place_);
  }
  std::vector<SourceTokens> tokens_by_source() const override {
    std::vector<SourceTokens> tokens;
    const auto samples = loader().samples_by_source();
    if (samples.size() == 1) return tokens;
    for (const auto& [name, count] : samples) tokens.push_back({name, count * loader().options().packing.seq_len});
    return tokens;
  }

 private:
  const Place& place_;
};

class TextTask : public Task {
 public:
  explicit TextTask(const TaskContext& context)
      : config_(context.config),
        tokenizer_(load_tokenizer(context.config)),
        reader_{context.mesh.rank("batch"), context.mesh.size("batch")},
        place_{as_language_model(context.model), context.share, context.mesh.size("tp"),
               context.config.training.positions == "document", context.device} {}

  std::unique_ptr<BatchSource> training_data() const override {
    return std::make_unique<TextSource>(build_loader(config_.training, tokenizer_, reader_), place_);
  }
  std::unique_ptr<BatchSource> validation_data() const override { return std::move(validation_sets().front().data); }
  std::vector<ValidationData> validation_sets() const override {
    std::vector<ValidationData> sets;
    for (auto& [name, loader] : build_validation_loaders(config_.validation, config_.training, tokenizer_, reader_))
      sets.push_back({name, std::make_unique<TextSource>(std::move(loader), place_)});
    return sets;
  }
  double flops_per_token() const override {
    return place_.model.costs().size(config_.training.seq_len).flops_per_token;
  }

 private:
  JobConfig config_;
  std::optional<data::Tokenizer> tokenizer_;
  Reader reader_;
  Place place_;
};

std::unique_ptr<Task> make_text_task(const TaskContext& context) { return std::make_unique<TextTask>(context); }

}  // namespace

TaskSpec text_task() {
  return {.name = "text",
          .make = make_text_task,
          .training_corpora =
              [](const JobConfig& config, int64_t readers) {
                return training_corpora(config.training, {.rank = 0, .ranks = readers}, data::DatasetKind::kTexts);
              },
          .check_files = check_text_files,
          .tokens_of_sample = [](const JobConfig& config, const models::Model&) { return config.training.seq_len; }};
}

}  // namespace titanium::train
