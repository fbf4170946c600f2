// A tiny Flux on images that follow from their numbers, on any layout.
#include <ATen/ops/arange.h>
#include <c10/core/GradMode.h>

#include <numeric>

#include "tests/support/tiny_flux.h"
#include "tests/support/tiny_run.h"
#include "titanium/base/error.h"
#include "titanium/models/registry.h"
#include "titanium/ops/counter_normal.h"
#include "titanium/ops/init.h"
#include "titanium/train/checkpointer.h"
#include "titanium/train/inference/draw_images.h"
#include "titanium/train/load_checkpoint.h"
#include "titanium/train/task/image_batch.h"
#include "titanium/train/train_step.h"
#include "titanium/train/validate.h"

namespace titanium::train {
namespace {

// Ranks take samples in turns.
class NumberedImages : public BatchSource {
 public:
  NumberedImages(const ImagePlace& place, int64_t batch, const parallel::Mesh& mesh, std::optional<int64_t> end)
      : place_(place), batch_(batch), rank_(mesh.rank("batch")), ranks_(mesh.size("batch")), end_(end) {}

  BatchPtr next() override {
    std::vector<int64_t> numbers;
    for (int64_t i = 0; i < batch_; ++i) {
      const int64_t number = (read_ + i) * ranks_ + rank_;
      if (!end_ || number < *end_) numbers.push_back(number);
    }
    read_ += batch_;
    return numbers.empty() ? nullptr : make_image_batch(test::tiny_images(numbers, batch_), place_);
  }
  double last_wait_seconds() const override { return 0; }
  BatchPtr weightless() const override { return make_image_batch(test::tiny_images({}, batch_), place_); }
  void rewind() override { read_ = 0; }
  std::string position() const override { return std::to_string(read_); }
  std::string merge_positions(const std::vector<std::string>& positions) const override {
    return std::to_string(std::stoll(positions.at(0)) * ranks_);
  }
  void load(const std::string& merged) override { read_ = std::stoll(merged) / ranks_; }

 private:
  const ImagePlace& place_;
  int64_t batch_, rank_, ranks_;
  std::optional<int64_t> end_;
  int64_t read_ = 0;
};

constexpr int64_t kValidated = 13;  // samples, so that the shares of ranks end at different batches

class NumberedTask : public Task {
 public:
  explicit NumberedTask(const TaskContext& context)
      : mesh_(context.mesh),
        batch_(context.config.training.local_batch_size),
        encoders_(test::tiny_encoders(test::tiny_flux().autoencoder)),
        training_{models::as_image_model(context.model), encoders_, context.share, context.device, 1},
        validation_(training_) {
    validation_.times = FlowTimes::kStratified;
  }
  std::unique_ptr<BatchSource> training_data() const override {
    return std::make_unique<NumberedImages>(training_, batch_, mesh_, std::nullopt);
  }
  std::unique_ptr<BatchSource> validation_data() const override {
    return std::make_unique<NumberedImages>(validation_, batch_, mesh_, kValidated);
  }
  double flops_per_token() const override { return 1; }

 private:
  const parallel::Mesh& mesh_;
  int64_t batch_;
  ImageEncoders encoders_;
  ImagePlace training_, validation_;
};

TaskSpec numbered_task() {
  return {.name = "numbered images",
          .make = [](const TaskContext& context) -> std::unique_ptr<Task> {
            return std::make_unique<NumberedTask>(context);
          },
          .check_files = [](const JobConfig&) { return std::vector<std::string>(); },
          .tokens_of_sample = [](const JobConfig&, const models::Model&) { return 4 + test::kTinyTextTokens; }};
}

TrainState build_run(const JobConfig& config, comm::World& world) {
  ModelPlan plan =
      plan_model(config, world.size(), world.rank(), std::make_unique<models::flux::Flux>(test::tiny_flux()));
  plan.task = numbered_task();
  return build_train_state(config, at::kCPU, std::shared_ptr<comm::World>(&world, [](comm::World*) {}),
                           std::move(plan));
}

struct Outcome {
  std::vector<double> losses, norms;
  double before = 0, after = 0;  // losses of validation
};

Outcome train(const test::Layout& layout, const std::function<void(JobConfig&)>& change = [](JobConfig&) {}) {
  SCOPED_TRACE(layout.name);
  JobConfig config = test::configure(layout);
  config.optimizer.lr = 2e-3;
  config.training.steps = 4;
  config.validation.steps = -1;
  change(config);
  Outcome outcome;
  test::run_ranks(layout.ranks(), [&](comm::World& world) {
    TrainState run = build_run(config, world);
    Checkpointer checkpointer(run);
    const auto data = run.task->validation_data();
    Outcome seen{.before = validate(run, *data).loss};
    while (run.step < config.training.steps) {
      const StepReport report = train_step(run).value();
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

void expect_near(const Outcome& found, const Outcome& expected, size_t first = 0) {
  ASSERT_EQ(found.losses.size() + first, expected.losses.size());
  for (size_t i = 0; i < found.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], expected.losses[first + i], 1e-5 * expected.losses[first + i]);
    EXPECT_NEAR(found.norms[i], expected.norms[first + i], 1e-5 * expected.norms[first + i]);
  }
  EXPECT_NEAR(found.after, expected.after, 1e-5 * expected.after);
}

TEST(ImageTask, TrainsAlikeOnEveryLayout) {
  const Outcome one = train(kOne);
  EXPECT_LT(one.after, one.before);
  const std::vector<test::Layout> layouts = {
      {"recompute", 1, 1, 1, [](JobConfig& c) { c.activation_checkpoint.mode = "full"; }},
      {"accumulation", 1, 1, 1, [](JobConfig& c) { c.training.local_batch_size = 3; }},
      {"fsdp2", 1, 2, 1},
      {"hsdp2x2", 2, 2, 1, [](JobConfig& c) { c.activation_checkpoint.mode = "full"; }},
      {"cp2", 1, 1, 1, [](JobConfig&) {}, /*context=*/2},
      {"fsdp2 cp2 in order", 1, 2, 1, [](JobConfig& c) { c.parallelism.context_parallel_load_balancer = std::nullopt; },
       /*context=*/2},
      {"hsdp2x2 cp2", 2, 2, 1, [](JobConfig&) {}, /*context=*/2},
      {"dp3", 3, 1, 1},
  };
  for (const test::Layout& layout : layouts) {
    SCOPED_TRACE(layout.name);
    expect_near(train(layout), one);
  }
}

TEST(ImageTask, ACheckpointGoesOnOnAnotherLayout) {
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
  const Outcome through = train(kOne, [](JobConfig& config) { config.lr_scheduler.total_steps = 4; });
  train({"fsdp2", 1, 2, 1}, until(2));
  expect_near(train({"cp2", 1, 1, 1, [](JobConfig&) {}, /*context=*/2}, until(4)), through, 2);
}

TEST(ImageTask, InBfloat16ItLearnsAsMuch) {
  const Outcome precise = train(kOne);
  const Outcome rounded = train(kOne, [](JobConfig& config) { config.training.mixed_precision_param = "bfloat16"; });
  for (size_t i = 0; i < precise.losses.size(); ++i) EXPECT_NEAR(rounded.losses[i], precise.losses[i], 2e-2);
  EXPECT_NE(rounded.losses, precise.losses);
  EXPECT_LT(rounded.after, rounded.before);
}

// What one sample becomes, and what the loss is, from the formulas.
TEST(ImageTask, NoiseAndTimesFollowFromSeedAndNumberAlone) {
  models::flux::Flux model(test::tiny_flux());
  const ImageEncoders encoders = test::tiny_encoders(model.autoencoder());
  const ImagePlace place{model, encoders, {}, at::kCPU, 5};
  const ImageMicroBatch together(test::tiny_images({4, 9}, 2), place), alone(test::tiny_images({9}, 1), place);
  EXPECT_TRUE(together.inputs().latents_BSP.narrow(0, 1, 1).allclose(alone.inputs().latents_BSP, 1e-5, 1e-5));
  EXPECT_TRUE(together.inputs().times_B.narrow(0, 1, 1).equal(alone.inputs().times_B));
  EXPECT_TRUE(together.target().narrow(0, 1, 1).allclose(alone.target(), 1e-5, 1e-5));
  EXPECT_FALSE(together.inputs().times_B[0].equal(together.inputs().times_B[1]));
  const ImagePlace other{model, encoders, {}, at::kCPU, 6};
  EXPECT_FALSE(ImageMicroBatch(test::tiny_images({9}, 1), other).target().allclose(alone.target()));
  // z + (1 - t) (e - x) = e is standard normal.
  const Tensor rest = 1 - together.inputs().times_B.view({-1, 1, 1});
  const Tensor noise = together.inputs().latents_BSP + rest * together.target();
  EXPECT_NEAR(noise.mean().item<double>(), 0, 0.2);
  EXPECT_NEAR(noise.std().item<double>(), 1, 0.2);
}

TEST(ImageTask, LogitsOfTimesAreStandardNormalWhenAskedFor) {
  models::flux::Flux model(test::tiny_flux());
  const ImageEncoders encoders = test::tiny_encoders(model.autoencoder());
  const ImagePlace place{model, encoders, {}, at::kCPU, 5, FlowTimes::kLogitNormal};
  std::vector<int64_t> numbers(400);
  std::iota(numbers.begin(), numbers.end(), 7);
  const Tensor times = ImageMicroBatch(test::tiny_images(numbers, 400), place).inputs().times_B.to(at::kDouble);
  const Tensor logits = (times / (1 - times)).log();
  EXPECT_NEAR(logits.mean().item<double>(), 0, 0.15);  // three standard errors
  EXPECT_NEAR(logits.std().item<double>(), 1, 0.11);   // it is 1.8 for uniform times
  const ImageMicroBatch alone(test::tiny_images({9}, 1), place);
  EXPECT_EQ(alone.inputs().times_B[0].item<float>(), times[2].item<float>());
}

TEST(ImageTask, ValidationSeesTheMiddlesOfEightStretches) {
  models::flux::Flux model(test::tiny_flux());
  const ImageEncoders encoders = test::tiny_encoders(model.autoencoder());
  const ImagePlace in_turns{model, encoders, {}, at::kCPU, 5, FlowTimes::kStratified};
  const ImageMicroBatch turns(test::tiny_images({8, 3}, 2), in_turns);
  EXPECT_FLOAT_EQ(turns.inputs().times_B[0].item<float>(), 1.0F / 16);
  EXPECT_FLOAT_EQ(turns.inputs().times_B[1].item<float>(), 7.0F / 16);
  const ImagePlace all{model, encoders, {}, at::kCPU, 5, FlowTimes::kAll};
  const ImageMicroBatch every(test::tiny_images({8, 3}, 2), all);
  EXPECT_EQ(every.inputs().latents_BSP.size(0), 16);
  EXPECT_TRUE(every.inputs().times_B.narrow(0, 8, 8).allclose((at::arange(8) + 0.5) / 8));
  EXPECT_EQ(make_image_batch(test::tiny_images({8, 3}, 2), all)->weight(), 2 * 8 * 4 * 16);
}

TEST(DrawImages, TimesAreShiftedTowardsNoise) {
  const std::vector<double> few = flow_times(4, 256), many = flow_times(2, 4096);
  const double half = std::exp(0.5), more = std::exp(1.15);
  ASSERT_EQ(few.size(), 5U);
  EXPECT_DOUBLE_EQ(few[0], 1);
  EXPECT_NEAR(few[1], half / (half + 1 / 0.75 - 1), 1e-12);
  EXPECT_NEAR(few[2], half / (half + 1), 1e-12);
  EXPECT_DOUBLE_EQ(few[4], 0);
  EXPECT_NEAR(many[1], more / (more + 1), 1e-12);
}

TEST(DrawImages, StepsFollowTheVelocityFromNoiseToTheImage) {
  models::flux::Flux model(test::tiny_flux());
  model.materialize(at::kFloat, at::kCPU);
  model.build_buffers(at::kCPU);
  model.init_weights(1);  // the last layer is zero, so the velocity is its bias
  for (Parameter* parameter : model.parameters()) {
    if (parameter->fqn == "final_layer.linear.bias") ops::init_constant(*parameter, 0.25);
  }
  const ImageEncoders encoders = test::tiny_encoders(model.autoencoder());
  const data::ImageBatch batch = test::tiny_images({3, 9}, 2);
  const std::vector<int32_t> empty(test::kTinyTextTokens, 0);
  const DrawnCaptions captions{encode_captions(encoders, batch.tokens, 2, at::kCPU),
                               encode_captions(encoders, {empty, empty}, 1, at::kCPU),
                               {3, 9}};
  DrawOptions options{.pixels = test::kTinyPixels, .steps = 3, .guidance = {}, .seed = 2};
  const Tensor noise = ops::counter_normal(ops::parameter_key("drawn.noise", 2), captions.numbers, 4 * 4 * 4, at::kCPU);
  const Tensor expected = encoders.autoencoder->decode(noise.view({2, 4, 4, 4}) - 0.25).clamp(-1, 1);
  EXPECT_TRUE(draw_images(model, *encoders.autoencoder, captions, options, at::kCPU).allclose(expected, 1e-4, 1e-4));
  options.guidance = 4;  // between velocities that are the same
  EXPECT_TRUE(draw_images(model, *encoders.autoencoder, captions, options, at::kCPU).allclose(expected, 1e-4, 1e-4));
}

TEST(ImageTask, EveryRecomputationButNoneAndABudgetIsOfWholeBlocksAsInTorchtitan) {
  const auto levels = [](const char* mode, const char* option) {
    JobConfig config = test::configure(kOne);
    config.encoder.offline = true;  // so that no encoder is counted
    config.activation_checkpoint.mode = mode;
    config.activation_checkpoint.selective_ac_option = option;
    config.activation_checkpoint.memory_budget = 0.6;
    return plan_model(config, 1, 0, std::make_unique<models::flux::Flux>(test::tiny_flux()),
                      models::find_model("flux").training)
        .levels;
  };
  const auto whole = levels("full", "2");
  EXPECT_EQ(whole, std::vector<size_t>(4, 1));
  EXPECT_EQ(levels("selective", "2"), whole);
  EXPECT_EQ(levels("selective", "op"), whole);
  EXPECT_EQ(levels("none", "2"), std::vector<size_t>(4, 0));
  const auto within = levels("memory_budget", "2");
  EXPECT_NE(within, whole);
  EXPECT_NE(within, std::vector<size_t>(4, 0));
}

TEST(ImageTask, AFluxIsCutNeitherIntoStagesNorIntoParts) {
  const auto complaint = [](const test::Layout& layout) -> std::string {
    JobConfig config = test::configure(layout);
    try {
      plan_model(config, layout.ranks(), 0, std::make_unique<models::flux::Flux>(test::tiny_flux()));
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(complaint({"tp2", 1, 1, 2}),
            "parallelism.tensor_parallel_degree = 2 cuts weights, and those of a Flux model are not cut. Use 1, with "
            "more shards instead.");
  EXPECT_EQ(complaint({"pp2", 1, 1, 1, [](JobConfig&) {}, 1, /*pipeline=*/2}),
            "a Flux model is not cut into the stages of a pipeline. Use parallelism.pipeline_parallel_degree = 1, with "
            "more shards instead.");
}

}  // namespace
}  // namespace titanium::train
