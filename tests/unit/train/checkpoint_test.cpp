// Runs that are saved, stopped and go on, on the same and on other layouts. Ranks are threads here;
// tests/distributed/checkpoints.py has whole programs.
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <fstream>
#include <latch>
#include <regex>

#include "tests/support/tensors.h"
#include "tests/support/test_folder.h"
#include "tests/support/tiny_run.h"
#include "tests/support/whole_tensor.h"
#include "titanium/base/error.h"
#include "titanium/checkpoint/dcp/reader.h"
#include "titanium/checkpoint/dcp/writer.h"
#include "titanium/checkpoint/step_folders.h"
#include "titanium/train/checkpointer.h"
#include "titanium/train/load_checkpoint.h"
#include "titanium/train/train_step.h"

namespace titanium::train {
namespace {

namespace fs = std::filesystem;
using test::Layout;
using test::test_folder;

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {{"one", 1, 1, 1},
                                          {"fsdp2", 1, 2, 1},
                                          {"fsdp4", 1, 4, 1},
                                          {"tp2", 1, 1, 2},
                                          {"fsdp2tp2", 1, 2, 2},
                                          {"hsdp2x2", 2, 2, 1},
                                          {"pp2tp2", 1, 1, 2, [](JobConfig&) {}, 1, 2},
                                          {"fsdp2cp2", 1, 2, 1, [](JobConfig&) {}, 2}};
  return all;
}

JobConfig saving_config(const Layout& layout, const fs::path& folder) {
  JobConfig config = test::configure(layout);
  config.job.dump_folder = folder.string();
  config.checkpoint.enable = true;
  config.checkpoint.interval = 2;
  config.checkpoint.last_save_model_only = false;
  config.checkpoint.keep_latest_k = 0;
  config.training.steps = 100;
  return config;
}

fs::path step_of(const fs::path& folder, int64_t step) { return checkpoint::step_folder(folder / "checkpoint", step); }

// What a run has to give back: all its tensors, whole, and its counters.
struct Snapshot {
  std::map<std::string, Tensor> tensors;
  int64_t step = 0, tokens_seen = 0, schedule_step = 0;
  std::map<int64_t, double> losses;  // by step
};

// Ranks that hold the same scalar store it one after the other.
std::mutex storing;

void store(const TrainState& run, Snapshot& snapshot) {
  const auto put = [&](const std::string& name, const Parameter& parameter, const Tensor& tensor) {
    if (tensor.dim() == 0) {
      const std::lock_guard lock(storing);
      snapshot.tensors[name] = tensor.clone();
      return;
    }
    box_of(snapshot.tensors.at(name), parameter.shard).copy_(tensor.detach());
  };
  for (const Parameter* parameter : run.parameters) put(parameter->fqn, *parameter, parameter->value);
  for (const auto& part : run.optimizer->state())
    put(part.parameter->fqn + "." + part.name, *part.parameter, part.tensor);
  if (run.world->rank() != 0) return;
  snapshot.step = run.step;
  snapshot.tokens_seen = run.tokens_seen;
  snapshot.schedule_step = run.schedule_step;
}

Snapshot empty_snapshot(const models::llama3::Args& args) {
  Snapshot snapshot;
  const models::llama3::Llama3 model(args);
  for (const Parameter* parameter : model.parameters()) {
    for (const char* kind : {"", ".exp_avg", ".exp_avg_sq"}) {
      snapshot.tensors[parameter->fqn + kind] = at::full(parameter->global_shape, NAN);
    }
    snapshot.tensors[parameter->fqn + ".step"] = Tensor();
  }
  return snapshot;
}

void expect_same_state(const Snapshot& a, const Snapshot& b) {
  for (const auto& [name, tensor] : a.tensors) EXPECT_TRUE(at::equal(tensor, b.tensors.at(name))) << name;
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.tokens_seen, b.tokens_seen);
  EXPECT_EQ(a.schedule_step, b.schedule_step);
}

struct Runs {
  Snapshot begin, end;
};

// Builds a run, which loads what there is, and trains it up to step `until`, saving on the way.
Runs train_until(const JobConfig& config, int ranks, int64_t until,
                 const models::llama3::Args& args = test::tiny_args(/*tied=*/false)) {
  Runs runs{empty_snapshot(args), empty_snapshot(args)};
  test::run_ranks(ranks, [&](comm::World& world) {
    TrainState run = test::build_run(config, args, world);
    store(run, runs.begin);
    Checkpointer checkpointer(run);
    while (run.step < until) {
      const StepReport report = train_step(run).value();
      const double loss = loss_of_all_ranks(run, report).mean.item<double>();
      if (world.rank() == 0) runs.end.losses[run.step] = loss;
      checkpointer.after_step({});
    }
    checkpointer.finish();
    store(run, runs.end);
    run.mesh->host_group("world")->barrier();
  });
  return runs;
}

const Snapshot& one_rank_run() {
  static const Snapshot run = [] {
    JobConfig config = saving_config(layouts()[0], "");
    config.checkpoint.enable = false;
    return train_until(config, 1, 8).end;
  }();
  return run;
}

std::string error_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

class Checkpoints : public testing::TestWithParam<Layout> {};

TEST_P(Checkpoints, LoadOnEveryLayout) {
  const fs::path folder = test_folder();
  const Snapshot saved = train_until(saving_config(GetParam(), folder), GetParam().ranks(), 4).end;
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(layout.name);
    JobConfig config = saving_config(layout, folder);
    config.checkpoint.load_only = true;
    const Runs runs = train_until(config, layout.ranks(), 6);
    expect_same_state(runs.begin, saved);
    for (const int64_t step : {5, 6}) {
      EXPECT_NEAR(runs.end.losses.at(step), one_rank_run().losses.at(step), 1e-6 * one_rank_run().losses.at(step));
    }
  }
}

TEST_P(Checkpoints, ResumeWithTheSameBits) {
  const fs::path folder = test_folder();
  const JobConfig config = saving_config(GetParam(), folder);
  train_until(config, GetParam().ranks(), 4);
  const Snapshot resumed = train_until(config, GetParam().ranks(), 8).end;
  JobConfig undisturbed = config;
  undisturbed.checkpoint.enable = false;
  const Snapshot whole = train_until(undisturbed, GetParam().ranks(), 8).end;
  expect_same_state(resumed, whole);
  for (const auto& [step, loss] : resumed.losses) EXPECT_EQ(loss, whole.losses.at(step)) << "step " << step;
  for (const auto& [name, tensor] : one_rank_run().tensors) EXPECT_CLOSE(resumed.tensors.at(name), tensor, 2e-5);
}

TEST_P(Checkpoints, ASavedTensorIsWrittenOnceAndByAllInTurn) {
  const Layout& layout = GetParam();
  models::llama3::Args args = test::tiny_args(/*tied=*/false);
  args.vocab_size = 40000;  // large enough to be cut
  std::map<std::string, int64_t> covered;
  std::vector<int64_t> bytes;
  const auto dims = parallel::parallel_dims(test::configure(layout).parallelism, layout.ranks());
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const ModelPlan plan =
        plan_model(test::configure(layout), layout.ranks(), rank, std::make_unique<models::llama3::Llama3>(args));
    const std::vector<Parameter*> parameters = plan.model->parameters();
    int64_t here = 0;
    for (size_t turn = 0; turn < parameters.size(); ++turn) {
      const auto share =
          checkpoint::Shares(dims, rank).of(*parameters[turn], turn, 4 * volume(parameters[turn]->shard.shape));
      if (!share) continue;
      covered[parameters[turn]->fqn] += volume(share->shape);
      here += volume(share->shape);
    }
    bytes.push_back(here);
  }
  const models::llama3::Llama3 whole(args);
  for (const Parameter* parameter : whole.parameters()) {
    EXPECT_EQ(covered[parameter->fqn], volume(parameter->global_shape)) << parameter->fqn;
  }
  EXPECT_LE(std::ranges::max(bytes), 1.1 * std::ranges::min(bytes));
}

INSTANTIATE_TEST_SUITE_P(Layouts, Checkpoints, testing::ValuesIn(layouts()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Checkpoint, OfARunThatRoundsStochasticallyResumesWithTheSameBits) {
  const Layout& layout = layouts()[4];
  JobConfig config = saving_config(layout, test_folder());
  config.training.dtype = "bfloat16";
  config.optimizer.bf16_stochastic_rounding = true;
  train_until(config, layout.ranks(), 4);
  const Snapshot resumed = train_until(config, layout.ranks(), 6).end;
  config.checkpoint.enable = false;
  const Snapshot whole = train_until(config, layout.ranks(), 6).end;
  expect_same_state(resumed, whole);
  config.debug.seed = 1;
  config.checkpoint.enable = true;
  config.checkpoint.load_step = 4;
  const Snapshot rounded_otherwise = train_until(config, layout.ranks(), 6).end;
  EXPECT_FALSE(at::equal(rounded_otherwise.tensors.at("norm.weight"), whole.tensors.at("norm.weight")));
}

TEST(Checkpoint, OfTiedEmbeddingsGoesThroughAPipelineAndBack) {
  const fs::path folder = test_folder();
  const models::llama3::Args tied = test::tiny_args(/*tied=*/true);
  Snapshot saved;
  int64_t step = 0;
  for (const Layout& layout : {layouts()[6], layouts()[2], layouts()[0], layouts()[6]}) {
    step += 2;
    const Runs runs = train_until(saving_config(layout, folder), layout.ranks(), step, tied);
    if (step > 2) expect_same_state(runs.begin, saved);
    saved = runs.end;
  }
}

// Saves step 2 and makes two more updates before the thread that writes may begin.
void save_and_update_before_it_is_written(const JobConfig& config, int ranks) {
  test::run_ranks(ranks, [&](comm::World& world) {
    TrainState run = test::build_run(config, test::tiny_args(/*tied=*/false), world);
    std::latch updates(2);
    Checkpointer checkpointer(run, [&] { updates.wait(); });
    const auto step = [&] { train_step(run); };
    step();
    step();
    checkpointer.after_step({.asked = true});
    for (int i = 0; i < 2; ++i) {
      step();
      updates.count_down();
    }
    checkpointer.finish();
    run.mesh->host_group("world")->barrier();
  });
}

TEST(Checkpoint, InTheBackgroundHoldsTheStateOfItsStep) {
  const fs::path folder = test_folder();
  const Layout& layout = layouts()[1];
  std::map<std::string, Snapshot> loaded;
  for (const std::string mode : {"disabled", "async", "async_with_pinned_mem"}) {
    JobConfig config = saving_config(layout, folder / mode);
    config.checkpoint.async_mode = mode;
    save_and_update_before_it_is_written(config, 2);
    loaded[mode] = train_until(config, 2, 2).begin;
    EXPECT_EQ(loaded[mode].step, 2);
  }
  expect_same_state(loaded["async"], loaded["disabled"]);
  expect_same_state(loaded["async_with_pinned_mem"], loaded["disabled"]);
}

// As a run that fails does: nobody has waited for what is written when its checkpointer goes. With threads, the last
// checkpoint is not begun before the checkpointer goes. Without them, only what is waited for is done at all, and the
// removal is there to be waited for only after the write.
TEST(Checkpoint, ACheckpointerThatGoesWaitsForWhatItWritesAndRemoves) {
  constexpr int64_t kSteps = 3;
  for (const std::launch background : {std::launch::async, std::launch::deferred}) {
    SCOPED_TRACE(background == std::launch::async ? "threads" : "no threads");
    const fs::path folder = test_folder() / std::to_string(static_cast<int>(background));
    JobConfig config = saving_config(layouts()[0], folder);
    config.checkpoint.async_mode = "async";
    config.checkpoint.keep_latest_k = 2;
    test::run_ranks(1, [&](comm::World& world) {
      TrainState run = test::build_run(config, test::tiny_args(/*tied=*/false), world);
      std::latch going(1);
      int64_t begun = 0;
      {
        const auto hold_the_last = [&] {
          if (++begun == kSteps) going.wait();
        };
        Checkpointer checkpointer(run, hold_the_last, /*on_saved=*/{}, background);
        while (run.step < kSteps) {
          train_step(run);
          checkpointer.after_step({.asked = true});
        }
        going.count_down();
      }
      EXPECT_EQ(begun, kSteps);
      EXPECT_EQ(checkpoint::saved_steps(folder / "checkpoint"), (std::vector<int64_t>{2, 3}));
      EXPECT_EQ(std::distance(fs::directory_iterator(folder / "checkpoint"), {}), 2);
    });
  }
}

TEST(Checkpoint, IsDueAtTheIntervalTheFirstStepTheEndAndOnRequest) {
  const fs::path folder = test_folder();
  JobConfig config = saving_config(layouts()[0], folder);
  config.checkpoint.interval = 3;
  config.training.steps = 5;
  train_until(config, 1, 5);
  EXPECT_EQ(checkpoint::saved_steps(folder / "checkpoint"), (std::vector<int64_t>{3, 5}));

  config.job.dump_folder = (folder / "first").string();
  config.checkpoint.enable_first_step_checkpoint = true;
  train_until(config, 1, 2);
  EXPECT_EQ(checkpoint::saved_steps(folder / "first/checkpoint"), (std::vector<int64_t>{1}));

  test::run_ranks(1, [&](comm::World& world) {
    TrainState run = test::build_run(config, test::tiny_args(false), world);
    Checkpointer checkpointer(run);
    train_step(run);
    checkpointer.after_step({.asked = true});
    checkpointer.after_step({.stopping = true});  // it is saved already
  });
  EXPECT_EQ(checkpoint::saved_steps(folder / "first/checkpoint"), (std::vector<int64_t>{1, 2}));
}

TEST(Checkpoint, OnlyTheLatestAreKept) {
  const fs::path folder = test_folder();
  JobConfig config = saving_config(layouts()[0], folder);
  config.checkpoint.interval = 1;
  config.checkpoint.keep_latest_k = 2;
  train_until(config, 1, 5);
  EXPECT_EQ(checkpoint::saved_steps(folder / "checkpoint"), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "checkpoint"), {}), 2);
}

TEST(Checkpoint, WhatAKilledRunLeftIsNeverLoadedAndGoesAway) {
  const fs::path folder = test_folder();
  const JobConfig config = saving_config(layouts()[0], folder);
  train_until(config, 1, 4);
  fs::copy(step_of(folder, 4), checkpoint::writing_folder(folder / "checkpoint", 9));  // killed before the rename
  fs::copy(step_of(folder, 4), step_of(folder, 8));
  fs::remove(step_of(folder, 8) / ".metadata");
  EXPECT_EQ(train_until(config, 1, 4).begin.step, 4);
  EXPECT_FALSE(fs::exists(checkpoint::writing_folder(folder / "checkpoint", 9)));
  EXPECT_TRUE(fs::exists(step_of(folder, 8)));
}

TEST(Checkpoint, OfTheSameStepIsReplaced) {
  const fs::path folder = test_folder();
  JobConfig config = saving_config(layouts()[0], folder);
  train_until(config, 1, 4);
  const auto before = fs::last_write_time(step_of(folder, 4) / ".metadata");
  config.checkpoint.load_step = 2;
  EXPECT_EQ(train_until(config, 1, 4).begin.step, 2);
  EXPECT_NE(fs::last_write_time(step_of(folder, 4) / ".metadata"), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "checkpoint"), {}), 2);
}

TEST(Checkpoint, PartsCanBeLeftOutWhenLoading) {
  const fs::path folder = test_folder();
  JobConfig config = saving_config(layouts()[0], folder);
  const Snapshot saved = train_until(config, 1, 4).end;
  const auto load_without = [&](std::vector<std::string> names) {
    config.checkpoint.exclude_from_loading = std::move(names);
    return train_until(config, 1, 0).begin;
  };
  const std::string weight = "layers.0.attention.wq.weight";
  const Snapshot no_moments = load_without({"optimizer", "dataloader"});
  EXPECT_TRUE(at::equal(no_moments.tensors.at(weight), saved.tensors.at(weight)));
  EXPECT_EQ(no_moments.tensors.at(weight + ".exp_avg").abs().max().item<float>(), 0);
  EXPECT_EQ(no_moments.step, 4);
  const Snapshot from_zero = load_without({"train_state", "lr_scheduler"});
  EXPECT_EQ(from_zero.step, 0);
  EXPECT_EQ(from_zero.schedule_step, 0);
  const Snapshot no_model = load_without({"model"});
  EXPECT_FALSE(at::equal(no_model.tensors.at(weight), saved.tensors.at(weight)));
  EXPECT_TRUE(at::equal(no_model.tensors.at(weight + ".exp_avg"), saved.tensors.at(weight + ".exp_avg")));
}

TEST(Checkpoint, AnotherRunCanBeginWithItsModelOrWithAllOfIt) {
  const fs::path folder = test_folder();
  const Snapshot saved = train_until(saving_config(layouts()[0], folder / "a"), 1, 4).end;
  JobConfig config = saving_config(layouts()[4], folder / "b");
  config.checkpoint.initial_load_path = step_of(folder / "a", 4).string();
  const Snapshot model = train_until(config, 4, 0).begin;
  EXPECT_TRUE(at::equal(model.tensors.at("norm.weight"), saved.tensors.at("norm.weight")));
  EXPECT_EQ(model.step, 0);
  config.checkpoint.initial_load_model_only = false;
  expect_same_state(train_until(config, 4, 6).begin, saved);
  // From now on it goes on from its own.
  config.checkpoint.initial_load_path = (folder / "nowhere").string();
  EXPECT_EQ(train_until(config, 4, 0).begin.step, 6);
}

TEST(Checkpoint, OfAFinishedRunMayHaveTheModelAlone) {
  const fs::path folder = test_folder();
  JobConfig config = saving_config(layouts()[1], folder);
  config.training.steps = 3;
  config.checkpoint.last_save_model_only = true;
  config.checkpoint.export_dtype = "bfloat16";
  train_until(config, 2, 3);
  const checkpoint::DcpReader reader(step_of(folder, 3));
  EXPECT_EQ(reader.tensor("norm.weight").dtype, at::kBFloat16);
  EXPECT_FALSE(checkpoint::has_state(reader, "optimizer"));
  EXPECT_EQ(train_until(config, 2, 3).begin.step, 3);  // nothing is left to do
  config.training.steps = 6;
  const std::string error = error_of([&] { train_until(config, 2, 6); });
  EXPECT_NE(error.find("holds only the model, so training cannot go on from it"), std::string::npos) << error;
}

TEST(Checkpoint, OfAFinishedRunMayBeAHuggingFaceFolder) {
  const fs::path folder = test_folder();
  for (const Layout& layout : {layouts()[0], layouts()[4], layouts()[5], layouts()[6]}) {
    JobConfig config = saving_config(layout, folder / layout.name);
    config.training.steps = 3;
    config.checkpoint.last_save_model_only = config.checkpoint.last_save_in_hf = true;
    const Snapshot saved = train_until(config, layout.ranks(), 3).end;
    EXPECT_FALSE(fs::exists(step_of(folder / layout.name, 3) / ".metadata"));
    JobConfig other = saving_config(layouts()[2], folder / (layout.name + std::string("_next")));
    other.checkpoint.initial_load_in_hf = true;
    other.checkpoint.initial_load_path = step_of(folder / layout.name, 3).string();
    other.parallelism.pipeline_parallel_degree = 2;  // of 4 ranks
    other.parallelism.data_parallel_shard_degree = 2;
    const Snapshot loaded = train_until(other, 4, 0).begin;
    for (const auto& [name, tensor] : loaded.tensors) {
      if (!name.ends_with(".weight")) continue;
      EXPECT_TRUE(at::equal(tensor, saved.tensors.at(name))) << layout.name << " " << name;
    }
    EXPECT_EQ(train_until(config, layout.ranks(), 3).begin.step, 3);  // nothing is left to do
  }
}

TEST(CheckpointFlaws, AFlippedByteIsFoundAndNamed) {
  const fs::path folder = test_folder();
  const JobConfig config = saving_config(layouts()[0], folder);
  train_until(config, 1, 4);
  const fs::path file = step_of(folder, 4) / "__0_1.distcp";
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<int64_t>(fs::file_size(file) / 2));
  const int byte = stream.peek();
  stream.put(static_cast<char>(byte ^ 1));
  stream.close();
  const std::string error = error_of([&] { train_until(config, 1, 4); });
  EXPECT_NE(error.find("is damaged"), std::string::npos) << error;
  EXPECT_NE(error.find("use it with --checkpoint.load_step 2."), std::string::npos) << error;
}

TEST(CheckpointFlaws, AFailedSaveLeavesNothingAndOnlyTheLastEndsTheRun) {
  const fs::path folder = test_folder();
  for (const std::string mode : {"disabled", "async"}) {
    JobConfig config = saving_config(layouts()[1], folder / mode);
    config.checkpoint.async_mode = mode;
    train_until(config, 2, 2);
    fs::rename(folder / mode / "checkpoint", folder / mode / "kept");
    std::ofstream(folder / mode / "checkpoint") << "a file where the folder should be";
    config.training.steps = 5;
    const std::string error = error_of([&] { train_until(config, 2, 5); });
    EXPECT_NE(error.find("cannot be made: Not a directory"), std::string::npos) << error;
    fs::remove(folder / mode / "checkpoint");
    fs::rename(folder / mode / "kept", folder / mode / "checkpoint");
    EXPECT_EQ(train_until(config, 2, 5).begin.step, 2);  // the one before is still there
  }
}

TEST(CheckpointFlaws, OneRankThatFailsIsNamedToAll) {
  const fs::path folder = test_folder();
  std::array<std::string, 3> errors;
  test::run_ranks(3, [&](comm::World& world) {
    const comm::GroupPtr group = world.host_group("checkpoint", {0, 1, 2});
    errors[static_cast<size_t>(world.rank())] = error_of([&] {
      checkpoint::save_together(*group, folder, 7,
                                {.write = [&](const fs::path& place) -> std::string {
                                   std::ofstream(place / std::to_string(world.rank())) << "share";
                                   TI_CHECK(world.rank() != 1, "the disk of this rank is full");
                                   return "";
                                 },
                                 .complete = [](const fs::path&, const auto&) { FAIL(); }});
    });
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "rank 1: the disk of this rank is full");
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST(CheckpointFlaws, AnErrorNamesTheNewestUndamagedCheckpoint) {
  const fs::path folder = test_folder();
  const JobConfig config = saving_config(layouts()[0], folder);
  train_until(config, 1, 6);
  fs::remove(step_of(folder, 4) / "__0_1.distcp");
  for (const char* damaged : {"__0_0.distcp", ".metadata"}) {
    SCOPED_TRACE(damaged);
    fs::resize_file(step_of(folder, 6) / damaged, 1000);
    const std::string error = error_of([&] { train_until(config, 1, 6); });
    EXPECT_NE(error.find("step-6"), std::string::npos) << error;
    EXPECT_NE(error.find("use it with --checkpoint.load_step 2."), std::string::npos) << error;
  }
}

TEST(CheckpointFlaws, AnotherModelIsRefused) {
  const fs::path folder = test_folder();
  const JobConfig config = saving_config(layouts()[0], folder);
  train_until(config, 1, 2);
  const auto load = [&](const std::function<void(models::llama3::Args&)>& change) {
    models::llama3::Args args = test::tiny_args(false);
    change(args);
    return error_of([&] { train_until(config, 1, 2, args); });
  };
  EXPECT_NE(load([](auto& args) { args.n_layers = 4; }).find("such as \"layers.3.attention.wq.weight\""),
            std::string::npos);
  EXPECT_NE(load([](auto& args) { args.n_layers = 2; }).find("tensors that the model does not have, such as \""),
            std::string::npos);
  EXPECT_NE(load([](auto& args) { args.ffn_hidden_dim = 96; }).find("has shape [64, 32], but [96, 32] is expected"),
            std::string::npos);
}

// Writes the checkpoint again with other values.
void replace_values(const fs::path& folder, const std::map<std::string, checkpoint::PickleValue>& values) {
  std::vector<checkpoint::DcpTensorItem> tensors;
  std::vector<checkpoint::DcpObjectItem> objects;
  const checkpoint::DcpReader reader(folder);
  for (const auto& [name, entry] : reader.metadata().entries) {
    const auto& path = reader.metadata().paths.at(name);
    if (const auto* tensor = std::get_if<checkpoint::DcpTensor>(&entry)) {
      const Box whole{Shape(tensor->shape.size(), 0), tensor->shape};
      tensors.push_back({name, tensor->shape, whole, test::whole_tensor(reader, name), tensor->requires_grad, path});
    } else {
      const auto other = values.find(name);
      objects.push_back({name, other == values.end() ? reader.read_object(name) : other->second, path});
    }
  }
  const std::vector parts = {checkpoint::write_dcp_files(folder, 9, tensors, objects)};
  checkpoint::publish_dcp(folder, parts, reader.facts());
}

TEST(CheckpointFlaws, SenselessProgressIsRefusedWithFolderAndName) {
  using checkpoint::PickleValue;
  const fs::path folder = test_folder();
  const JobConfig config = saving_config(layouts()[0], folder);
  train_until(config, 1, 2);
  const std::string step = step_of(folder, 2).string(), number = "a number from 0 to 1125899906842624 is expected.";
  const auto error_with = [&](const std::string& name, const PickleValue& value) {
    fs::remove_all(folder / "copy");
    fs::copy(step, folder / "copy", fs::copy_options::recursive);
    replace_values(step, {{name, value}});
    const std::string error = error_of([&] { train_until(config, 1, 2); });
    fs::remove_all(step);
    fs::rename(folder / "copy", step);
    return error;
  };
  const auto expect = [&](const std::string& name, const PickleValue& value, const std::string& sentence) {
    const std::string error = error_with(name, value);
    EXPECT_EQ(error.find(fmt::format("{}: \"{}\" = {}: {}", step, name, value.repr(), sentence)), 0U) << error;
  };
  expect("train_state.step", -1, number);
  expect("train_state.step", int64_t{1} << 62, number);
  expect("lr_scheduler.last_epoch", -5, number);
  expect("lr_scheduler.base_lrs", PickleValue::list({}), "a list of learning rates is expected.");
  expect("lr_scheduler.base_lrs", PickleValue::list({"fast"}), "a float is expected where the file has a str.");
  expect("train_state.step", "two", "an int is expected where the file has a str.");
  expect("dataloader.streams", PickleValue("{"), "The saved data position is not valid JSON (at byte 2).");
}

TEST(CheckpointFlaws, AStepThatIsNotThereIsNamedWithThoseThatAre) {
  const fs::path folder = test_folder();
  JobConfig config = saving_config(layouts()[0], folder);
  train_until(config, 1, 4);
  config.checkpoint.load_step = 3;
  const std::string error = error_of([&] { train_until(config, 1, 4); });
  EXPECT_TRUE(std::regex_search(error, std::regex("load_step = 3: .*step-3 is not there.* has steps 2, 4\\.")))
      << error;
  config.checkpoint.load_step = -1;
  config.checkpoint.folder = "other";
  config.checkpoint.initial_load_path = "/nowhere";
  EXPECT_NE(error_of([&] { train_until(config, 1, 4); }).find("initial_load_path = /nowhere is not a folder"),
            std::string::npos);
}

}  // namespace
}  // namespace titanium::train
