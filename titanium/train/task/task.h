// What a run trains on. A task owns its batches: what is read, how it is weighted, what its loss is, and what a
// checkpoint keeps of the data. Step, executors, validation, metrics and checkpoints know a task by this interface
// alone; the task knows the kind of its model. A model's specification names its task (models/model_spec.h), and
// train/task/tasks.cpp lists all of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "titanium/config/job_config.h"
#include "titanium/data/corpus.h"
#include "titanium/models/model.h"
#include "titanium/observe/shown_image.h"
#include "titanium/ops/sequence_share.h"
#include "titanium/parallel/pipeline_runner.h"
#include "titanium/train/memory_plan.h"

namespace titanium::train {

// Samples on the device, ready to run through the model.
class MicroBatch {
 public:
  virtual ~MicroBatch() = default;
  // What one stage of the model makes of the tensors of the stage before it: those for the next stage, or from the last
  // one the loss alone: scale * its sum over the samples, an fp64 scalar. The first stage gets no tensors. The backward
  // may come when the micro-batch is gone. Only queues work.
  virtual ops::Tensors run_stage(const models::ModelStage& stage, const ops::Tensors& inputs, double scale) const = 0;
  // The tensors that go from each stage to the next.
  virtual std::vector<parallel::HiddenStates> hidden_states() const = 0;
};

// The samples that a rank reads at a time, on the host.
class Batch {
 public:
  virtual ~Batch() = default;
  virtual int64_t samples() const = 0;
  // The tokens that rates and totals count: all that were read, in whole samples.
  virtual int64_t tokens() const = 0;
  // How much this rank's share of the batch counts: the number of values over which its loss is summed. The loss and
  // the gradients of a step are sums over all batches and ranks, divided by the sum of these weights.
  virtual int64_t weight() const = 0;
  // Samples [first, first + count). Only queues copies. Throws Error for what the model cannot take.
  virtual std::unique_ptr<MicroBatch> to_device(int64_t first, int64_t count) const = 0;
};
using BatchPtr = std::unique_ptr<const Batch>;

struct SourceTokens {
  std::string name;
  int64_t tokens = 0;
};

// Batches in their order. Ranks that differ only in their part of the model or of a sequence read the same ones.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual BatchPtr next() = 0;                   // null at the end of finite data
  virtual double last_wait_seconds() const = 0;  // that the last next() waited
  // A batch that weighs nothing, for a rank whose data has ended before that of others.
  virtual BatchPtr weightless() const = 0;
  virtual void rewind() = 0;  // begins again with the first sample
  // The tokens that this rank has read of each source since the beginning of the run, where data is mixed from several
  // sources; in the same order on all ranks.
  virtual std::vector<SourceTokens> tokens_by_source() const { return {}; }

  // How far this rank's share of the data has been read, as text, after the last batch that next() has returned.
  virtual std::string position() const = 0;
  // The position of all ranks from those of each of them.
  virtual std::string merge_positions(const std::vector<std::string>& positions) const = 0;
  // Goes on after a position of all ranks, of any number of them. Throws Error if it is damaged or of other data.
  virtual void load(const std::string& merged) = 0;
};

// A set to validate on. A run with several has a loss for each.
struct ValidationData {
  std::string name;  // empty: the only one
  std::unique_ptr<BatchSource> data;
};

class Task {
 public:
  virtual ~Task() = default;
  virtual std::unique_ptr<BatchSource> training_data() const = 0;
  // Data that ends, so that all of it can be read, unless validation.steps says how much of it to use.
  virtual std::unique_ptr<BatchSource> validation_data() const = 0;
  // All of them, the above being the first.
  virtual std::vector<ValidationData> validation_sets() const {
    std::vector<ValidationData> sets;
    sets.push_back({"", validation_data()});
    return sets;
  }
  // Called on all ranks after the validations of a step, for what the task shows of its model beside a loss. The
  // pictures that the rank of the metrics is to report; none on other ranks.
  virtual std::vector<observe::ShownImage> show_samples(int64_t /*step*/) const { return {}; }
  // Tokens that a batch counts for each image; 0 where samples are no images. Metrics then have images per second.
  virtual int64_t tokens_per_image() const { return 0; }
  // Operations of a training step for each token that a batch counts, as torchtitan counts them.
  virtual double flops_per_token() const = 0;
};

// What a task is made of. What is passed by reference outlives the task, and the task its sources and batches.
struct TaskContext {
  JobConfig config;
  models::Model& model;  // with a pipeline, the part that is on this rank
  const parallel::Mesh& mesh;
  ops::SequenceShare share;  // what this rank has of each sequence
  Device device;
};

// What the rest of the program knows of a task by name.
struct TaskSpec {
  std::string_view name;
  // Throws UsageError if the model is not of the task's kind, and Error for files that cannot be read.
  std::unique_ptr<Task> (*make)(const TaskContext& context) = nullptr;
  // What the first of `readers` ranks reads in training, in the order of training.sources; one data set without them.
  // Throws UsageError for what can be told of them without reading.
  std::vector<data::CorpusOptions> (*training_corpora)(const JobConfig& config, int64_t readers) = nullptr;
  // Looks for the files that the task will read, and returns a sentence for each that is missing or broken.
  std::vector<std::string> (*check_files)(const JobConfig& config) = nullptr;
  // How many tokens the blocks of the model get of one sample: the memory plan counts by them.
  int64_t (*tokens_of_sample)(const JobConfig& config, const models::Model& model) = nullptr;
  // What the task's own networks take of a rank's device; null: it has none.
  FrozenMemory (*frozen_memory)(const JobConfig& config, const models::Model& model,
                                const parallel::ParallelDims& dims) = nullptr;
};

}  // namespace titanium::train
