// The model in stages on several ranks.
#pragma once

#include <memory>
#include <optional>

#include "titanium/parallel/mesh.h"
#include "titanium/parallel/pipeline_runner.h"
#include "titanium/train/executor.h"

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

// Runs batches through the stages, a micro-batch at a time. A parameter that the first and the last stage share has two
// copies if these are on different ranks: both get the sum of the gradients, and that of the last stage is the second.
class Pipeline : public Executor {
 public:
  // `model` has the stages of this rank. All that is passed by reference outlives it.
  Pipeline(PipelinePlan plan, models::Model& model, parallel::DataParallel& data_parallel, const parallel::Mesh& mesh,
           Device device, parallel::RunPair run_pair = {});

  Tensor forward_backward(const std::vector<BatchPtr>& batches, double scale) override;
  Tensor loss(const Batch& batch) override { return run(batch, 1.0); }
  int64_t loss_rank() const override { return plan_.table.owner.back(); }
  const Parameter* second_copy() const override;

 private:
  Tensor run(const Batch& batch, double scale);
  void sum_shared_grads();
  const parallel::PipelineRunner& runner_for(int64_t micro_batches);

  PipelinePlan plan_;
  models::Model& model_;
  parallel::DataParallel& data_parallel_;
  const parallel::Mesh& mesh_;
  Device device_;
  parallel::PipelineRunner training_;
  std::map<int64_t, parallel::PipelineRunner> validation_;  // by the number of micro-batches
};

}  // namespace titanium::train
