// A second kind of model and a second task, which know no tokens. The step, all executors, validation and checkpoints
// see them by their interfaces alone.
#include "titanium/train/task/task.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include "tests/support/test_folder.h"
#include "tests/support/tiny_run.h"
#include "titanium/base/error.h"
#include "titanium/models/registry.h"
#include "titanium/nn/layers.h"
#include "titanium/ops/init.h"
#include "titanium/ops/linear/linear.h"
#include "titanium/train/checkpointer.h"
#include "titanium/train/load_checkpoint.h"
#include "titanium/train/task/tasks.h"
#include "titanium/train/train_step.h"
#include "titanium/train/validate.h"

namespace titanium::train {
namespace {

// Shapes: B batch, I inputs, H hidden, O outputs.
constexpr int64_t kInputs = 8, kHidden = 6, kOutputs = 4;

// Two matrices without blocks: numbers in, numbers out.
class TwoMatrices : public models::Model, public models::ModelCosts {
 public:
  explicit TwoMatrices(const std::vector<models::ModelStage>& stages = {models::whole_stage(0)}) {
    if (std::ranges::any_of(stages, &models::ModelStage::is_first)) fill(in_, "in", kInputs, kHidden);
    if (std::ranges::any_of(stages, &models::ModelStage::is_last)) fill(out_, "out", kHidden, kOutputs);
  }

  // The input is a leaf that needs a gradient, so that the products after it are recorded.
  Tensor hidden_of(const Tensor& x_BI) { return run(in_, x_BI.detach().requires_grad_()); }
  Tensor outputs_of(const Tensor& h_BH) { return run(out_, h_BH); }

  void init_weights(uint64_t seed) override {
    for (Parameter* parameter : parameters()) ops::init_normal(*parameter, seed, 0.5);
  }
  void build_buffers(Device) override {}
  std::unique_ptr<models::Model> part(const std::vector<models::ModelStage>& stages) const override {
    return std::make_unique<TwoMatrices>(stages);
  }
  Parameter* shared_by_ends() override { return nullptr; }
  schedule::ModelChildren children() const override { return {.before = {"in"}, .blocks = {}, .after = {"out"}}; }
  int64_t block_count() const override { return 0; }
  nn::Block* block(int64_t) override { return nullptr; }
  nn::SaveLevels levels_of(int64_t) const override { return {}; }
  std::vector<nn::Unit*> units() override {
    std::vector<nn::Unit*> units;
    for (const Layer* layer : {&in_, &out_}) {
      if (layer->unit) units.push_back(layer->unit.get());
    }
    return units;
  }
  parallel::TensorParallelPlan tensor_parallel_plan() const override { return {}; }
  void check_tensor_parallel(int64_t) const override { throw UsageError("this model is not cut"); }
  void set_row_exchange(ops::RowExchange&, bool) override {}
  void set_context_exchange(ops::ContextExchange&) override {}
  std::string description() const override { return "{}"; }
  const models::ModelCosts& costs() const override { return *this; }
  models::ModelSize size(int64_t) const override {
    return {.parameters = kHidden * (kInputs + kOutputs), .flops_per_token = 1};
  }
  int64_t head_bytes(int64_t, int64_t) const override { return 0; }
  int64_t key_value_width() const override { return 0; }

 private:
  struct Layer {
    std::unique_ptr<nn::Linear> linear;
    std::unique_ptr<nn::Unit> unit;
  };
  void fill(Layer& layer, const std::string& name, int64_t in, int64_t out) {
    layer.linear = std::make_unique<nn::Linear>(name, in, out);
    layer.unit = std::make_unique<nn::Unit>(name, nn::UnitRole::kHead, layer.linear->parameters());
    add(*layer.linear);
  }
  static Tensor run(Layer& layer, const Tensor& x) {
    return layer.unit->run(x, [&](const Tensor& input) { return ops::linear(input, layer.linear->weight); });
  }
  Layer in_, out_;
};

// Samples follow from their numbers. The first 1 + number % kOutputs targets of a sample count, the others do not.
struct Samples {
  Tensor numbers_B, x_BI, target_BO, counts_BO;
};
Samples samples_of(const std::vector<int64_t>& numbers) {
  const Tensor numbers_B = at::tensor(numbers, at::kLong);
  const Tensor column = numbers_B.unsqueeze(1);
  return {.numbers_B = numbers_B,
          .x_BI = at::sin(column * 0.7 + at::arange(kInputs) * 1.3),
          .target_BO = at::cos(column * 0.3 + at::arange(kOutputs) * 0.9),
          .counts_BO = (at::arange(kOutputs) <= column.remainder(kOutputs)).to(at::kFloat)};
}
int64_t weight_of(int64_t number) { return 1 + number % kOutputs; }

// The sum of squared errors over the targets that count.
Tensor loss_of(const Tensor& y_BO, const Samples& samples) {
  return ((y_BO - samples.target_BO) * samples.counts_BO).square().sum(at::kDouble);
}

class NumbersMicroBatch : public MicroBatch {
 public:
  NumbersMicroBatch(TwoMatrices& model, Samples samples) : model_(model), samples_(std::move(samples)) {}

  // The numbers of the samples travel with the hidden states.
  ops::Tensors run_stage(const models::ModelStage& stage, const ops::Tensors& inputs, double scale) const override {
    const ops::Tensors hidden =
        stage.is_first ? ops::Tensors{model_.hidden_of(samples_.x_BI), samples_.numbers_B} : inputs;
    if (!stage.is_last) return hidden;
    EXPECT_TRUE(hidden.at(1).equal(samples_.numbers_B));
    return {loss_of(model_.outputs_of(hidden.at(0)), samples_) * scale};
  }
  std::vector<parallel::HiddenStates> hidden_states() const override {
    return {{.shape = {samples_.numbers_B.numel(), kHidden}, .dtype = model_.compute_dtype},
            {.shape = {samples_.numbers_B.numel()}, .dtype = at::kLong}};
  }

 private:
  TwoMatrices& model_;
  Samples samples_;
};

class NumbersBatch : public Batch {
 public:
  NumbersBatch(TwoMatrices& model, std::vector<int64_t> numbers, bool counts = true)
      : model_(model), numbers_(std::move(numbers)), counts_(counts) {}

  int64_t samples() const override { return static_cast<int64_t>(numbers_.size()); }
  int64_t tokens() const override { return samples() * kInputs; }
  int64_t weight() const override {
    int64_t weight = 0;
    for (const int64_t number : numbers_) weight += counts_ ? weight_of(number) : 0;
    return weight;
  }
  std::unique_ptr<MicroBatch> to_device(int64_t first, int64_t count) const override {
    Samples samples = samples_of({numbers_.begin() + first, numbers_.begin() + first + count});
    if (!counts_) samples.counts_BO = at::zeros_like(samples.counts_BO);
    return std::make_unique<NumbersMicroBatch>(model_, std::move(samples));
  }

 private:
  TwoMatrices& model_;
  std::vector<int64_t> numbers_;
  bool counts_;
};

// Ranks take samples in turns.
class NumbersSource : public BatchSource {
 public:
  NumbersSource(TwoMatrices& model, int64_t batch, const parallel::Mesh& mesh, std::optional<int64_t> end)
      : model_(model), batch_(batch), rank_(mesh.rank("batch")), ranks_(mesh.size("batch")), end_(end) {}

  BatchPtr next() override {
    std::vector<int64_t> numbers;
    for (int64_t i = 0; i < batch_; ++i) {
      const int64_t number = (read_ + i) * ranks_ + rank_;
      if (!end_ || number < *end_) numbers.push_back(number);
    }
    read_ += batch_;
    return numbers.empty() ? nullptr : std::make_unique<const NumbersBatch>(model_, std::move(numbers));
  }
  double last_wait_seconds() const override { return 0; }
  BatchPtr weightless() const override {
    return std::make_unique<const NumbersBatch>(model_, std::vector<int64_t>{0}, /*counts=*/false);
  }
  void rewind() override { read_ = 0; }
  std::string position() const override { return std::to_string(read_); }
  std::string merge_positions(const std::vector<std::string>& positions) const override {
    EXPECT_EQ(static_cast<int64_t>(positions.size()), ranks_);
    return std::to_string(std::stoll(positions.at(0)) * ranks_);
  }
  void load(const std::string& merged) override { read_ = std::stoll(merged) / ranks_; }

 private:
  TwoMatrices& model_;
  int64_t batch_, rank_, ranks_;
  std::optional<int64_t> end_;
  int64_t read_ = 0;
};

constexpr int64_t kValidated = 25;  // samples, so that the shares of ranks end at different batches

class NumbersTask : public Task {
 public:
  explicit NumbersTask(const TaskContext& context)
      : model_(dynamic_cast<TwoMatrices&>(context.model)),
        mesh_(context.mesh),
        batch_(context.config.training.local_batch_size) {}
  std::unique_ptr<BatchSource> training_data() const override {
    return std::make_unique<NumbersSource>(model_, batch_, mesh_, std::nullopt);
  }
  std::unique_ptr<BatchSource> validation_data() const override {
    return std::make_unique<NumbersSource>(model_, batch_, mesh_, kValidated);
  }
  double flops_per_token() const override { return 1; }

 private:
  TwoMatrices& model_;
  const parallel::Mesh& mesh_;
  int64_t batch_;
};

TaskSpec numbers_task() {
  return {.name = "numbers",
          .make = [](const TaskContext& context) -> std::unique_ptr<Task> {
            return std::make_unique<NumbersTask>(context);
          },
          .check_files = [](const JobConfig&) { return std::vector<std::string>(); }};
}

JobConfig numbers_config(const test::Layout& layout) {
  JobConfig config = test::configure(layout);
  config.optimizer.lr = 1e-2;
  config.training.max_norm = 1;
  config.validation.steps = -1;
  config.parallelism.pipeline_parallel_schedule = "1F1B";
  if (layout.pipeline == 2) config.parallelism.module_fqns_per_model_part = {{"in"}, {"out"}};
  return config;
}

TrainState build_run(const JobConfig& config, comm::World& world) {
  ModelPlan plan = plan_model(config, world.size(), world.rank(), std::make_unique<TwoMatrices>());
  plan.task = numbers_task();
  return build_train_state(config, at::kCPU, std::shared_ptr<comm::World>(&world, [](comm::World*) {}),
                           std::move(plan));
}

struct Outcome {
  std::vector<double> losses, norms;
  double before = 0, after = 0;  // losses of validation
};

Outcome train(const test::Layout& layout, const std::function<void(JobConfig&)>& change = [](JobConfig&) {}) {
  SCOPED_TRACE(layout.name);
  JobConfig config = numbers_config(layout);
  change(config);
  Outcome outcome;
  test::run_ranks(layout.ranks(), [&](comm::World& world) {
    TrainState run = build_run(config, world);
    Checkpointer checkpointer(run);
    const auto data = run.task->validation_data();
    Outcome seen{.before = validate(run, *data).loss};
    while (run.step < config.training.steps) {
      const StepReport report = train_step(run).value();
      EXPECT_EQ(report.tokens, config.training.local_batch_size * run.accumulation_steps * kInputs);
      seen.losses.push_back(loss_of_all_ranks(run, report).mean.item<double>());
      seen.norms.push_back(report.grad_norm.item<double>());
      checkpointer.after_step({});
    }
    checkpointer.finish();
    seen.after = validate(run, *data).loss;
    if (world.rank() == 0) outcome = seen;
    run.mesh->host_group("world")->barrier();
  });
  return outcome;
}

const test::Layout kOne{"one", 1, 1, 1};
const std::vector<test::Layout>& other_layouts() {
  static const std::vector<test::Layout> layouts = {
      {"fsdp2", 1, 2, 1},
      {"dp3", 3, 1, 1},
      {"accumulation", 1, 1, 1, [](JobConfig& c) { c.training.local_batch_size = 3; }},
      {"pp2", 1, 1, 1, [](JobConfig&) {}, /*context=*/1, /*pipeline=*/2},
  };
  return layouts;
}

// What the samples before `end` give with the initial weights: the loss, and the norm of its gradient.
std::pair<double, double> expected_at_start(int64_t end) {
  TwoMatrices model;
  model.materialize(at::kFloat, at::kCPU);
  model.init_weights(weight_seed({}));
  const Tensor in = model.parameters()[0]->value.detach().requires_grad_();
  const Tensor out = model.parameters()[1]->value.detach().requires_grad_();
  std::vector<int64_t> numbers;
  int64_t weight = 0;
  for (int64_t number = 0; number < end; ++number) {
    numbers.push_back(number);
    weight += weight_of(number);
  }
  const Samples samples = samples_of(numbers);
  const Tensor loss = loss_of(samples.x_BI.matmul(in.t()).matmul(out.t()), samples) / static_cast<double>(weight);
  loss.backward();
  const Tensor squares = in.grad().square().sum(at::kDouble) + out.grad().square().sum(at::kDouble);
  return {loss.item<double>(), squares.sqrt().item<double>()};
}

TEST(Task, TheWeightOfItsBatchesDividesLossAndGradients) {
  const auto [loss, norm] = expected_at_start(12);
  const double validation = expected_at_start(kValidated).first;
  std::vector<test::Layout> layouts = other_layouts();
  layouts.push_back(kOne);
  for (const test::Layout& layout : layouts) {
    SCOPED_TRACE(layout.name);
    const Outcome outcome = train(layout, [](JobConfig& config) { config.training.steps = 1; });
    EXPECT_NEAR(outcome.losses.at(0), loss, 1e-5 * loss);
    EXPECT_NEAR(outcome.norms.at(0), norm, 1e-5 * norm);
    EXPECT_NEAR(outcome.before, validation, 1e-5 * validation);
  }
}

TEST(Task, AnotherOneTrainsAlikeOnEveryLayout) {
  const Outcome one = train(kOne);
  EXPECT_LT(one.after, one.before);
  for (const test::Layout& layout : other_layouts()) {
    SCOPED_TRACE(layout.name);
    const Outcome found = train(layout);
    ASSERT_EQ(found.losses.size(), one.losses.size());
    for (size_t i = 0; i < one.losses.size(); ++i) {
      EXPECT_NEAR(found.losses[i], one.losses[i], 1e-5 * one.losses[i]);
      EXPECT_NEAR(found.norms[i], one.norms[i], 1e-5 * one.norms[i]);
    }
    EXPECT_NEAR(found.after, one.after, 1e-5 * one.after);
  }
}

TEST(Task, WhatItSavesOfItsDataIsLoadedOnAnotherLayout) {
  const Outcome through = train(kOne, [](JobConfig& config) { config.training.steps = 4; });
  const auto until = [folder = test::test_folder()](int64_t steps) {
    return [=](JobConfig& config) {
      config.job.dump_folder = folder.string();
      config.checkpoint.enable = true;
      config.checkpoint.interval = 2;
      config.checkpoint.last_save_model_only = false;
      config.lr_scheduler.total_steps = 4;
      config.training.steps = steps;
    };
  };
  train({"fsdp2", 1, 2, 1}, until(2));
  const Outcome rest = train(kOne, until(4));
  ASSERT_EQ(rest.losses.size(), 2U);
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(rest.losses[i], through.losses[2 + i], 1e-5 * through.losses[2 + i]);
}

TEST(Task, EveryModelOfTheRegistryNamesOne) {
  for (const std::string& name : models::model_names()) {
    const std::string& task = models::find_model(name).training.task;
    EXPECT_EQ(find_task(task).name, task);
  }
  EXPECT_THROW(find_task("nothing"), std::logic_error);
}

TEST(Task, TextsAreForModelsThatReadThem) {
  const JobConfig config = numbers_config(kOne);
  try {
    build_train_state(config, at::kCPU, nullptr, plan_model(config, 1, 0, std::make_unique<TwoMatrices>()));
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "this model does not read texts, as training on them, evaluation and generation need. Use a language "
                 "model.");
  }
}

}  // namespace
}  // namespace titanium::train
