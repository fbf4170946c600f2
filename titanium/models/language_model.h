// A model that reads texts and predicts each token from those before it. models/decoder/ implements all of it for
// decoder-only transformers.
#pragma once

#include "titanium/models/decoding.h"
#include "titanium/models/model.h"
#include "titanium/models/token_batch.h"

namespace titanium::models {

class LanguageModel : public Model {
 public:
  // What one stage makes of this rank's rows of hidden states [t, D], or of the tokens: hidden states, or the loss.
  virtual Tensor run_stage(const ModelStage& stage, const Tensor& x_tD, const TokenBatch& batch,
                           const Tensor& labels_BS, double scale) = 0;
  // scale * the summed cross-entropy of labels [B, S] (ops::kIgnoreIndex does not count), fp64. See ops::head_loss.
  Tensor loss(const TokenBatch& batch, const Tensor& labels_BS, double scale) {
    return run_stage(whole_stage(block_count()), {}, batch, labels_BS, scale);
  }

  virtual int64_t hidden_size() const = 0;
  virtual int64_t vocabulary() const = 0;
  virtual int64_t max_seq_len() const = 0;  // the longest sequence that it takes
  virtual bool attends_inside_documents() const = 0;

  virtual Decoding* decoding() { return nullptr; }  // null: it cannot
};

// The model as one that reads texts. Throws UsageError if it does not.
LanguageModel& as_language_model(Model& model);
std::unique_ptr<LanguageModel> as_language_model(std::unique_ptr<Model> model);

// The decoding of a model that must have one. Throws UsageError that says what the model cannot do.
Decoding& decoding_of(LanguageModel& model);

}  // namespace titanium::models
