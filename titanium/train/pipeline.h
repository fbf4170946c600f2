// The model in stages on several ranks.
#pragma once

#include <memory>
#include <optional>

#include "titanium/data/loader.h"
#include "titanium/data/tokenizer.h"
#include "titanium/models/language_model.h"
#include "titanium/parallel/mesh.h"
#include "titanium/parallel/pipeline_runner.h"

namespace titanium::train {

struct PipelinePlan {
  schedule::Table table;
  std::vector<models::ModelStage> stages;
  int64_t micro_batch_size = 1;

  std::vector<models::ModelStage> stages_of(int64_t pipeline_rank) const;
  // For how many samples, on average over its stages, a rank keeps activations at a time.
  int64_t live_samples(int64_t pipeline_rank) const;
};

// The stages and the order of work that the options ask for. Nothing is allocated. Throws UsageError for what does not
// go together, and logs a warning if the micro-batches do not fill the pipeline. Nothing with one pipeline rank.
std::optional<PipelinePlan> plan_pipeline(const JobConfig& config, const parallel::ParallelDims& dims,
                                          const schedule::ModelChildren& children);

// Runs batches through the stages, a micro-batch at a time.
class Pipeline {
 public:
  // `model` has the stages of this rank.
  Pipeline(PipelinePlan plan, models::LanguageModel& model, const data::Tokenizer& tokenizer,
           const parallel::Mesh& mesh, const ops::SequenceShare& share, Device device);
  // The pipeline rank that makes the loss.
  int64_t last_rank() const { return plan_.table.owner.back(); }

  // A parameter that the first and the last stage share has two copies if these are on different ranks. Both get the
  // sum of the gradients. The copy of the last stage, for those who count or save every parameter once; else null.
  void sum_shared_grads();
  const Parameter* second_copy() const;

  // scale * the summed cross-entropy of the batch, as LanguageModel::loss, on ranks that have the last stage; zero on
  // the others. With gradients switched on, all of them have been added when it returns.
  Tensor loss(const data::Batch& batch, double scale);

 private:
  const parallel::PipelineRunner& runner_for(int64_t micro_batches);

  PipelinePlan plan_;
  models::LanguageModel& model_;
  const data::Tokenizer& tokenizer_;
  const parallel::Mesh& mesh_;
  ops::SequenceShare share_;
  Device device_;
  parallel::PipelineRunner training_;
  std::map<int64_t, parallel::PipelineRunner> validation_;  // by the number of micro-batches
};

}  // namespace titanium::train
