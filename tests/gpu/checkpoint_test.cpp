// Checkpoints of a run on a GPU.
#include <ATen/ops/equal.h>

#include <latch>

#include "tests/gpu/gpu_test.h"
#include "tests/support/test_folder.h"
#include "tests/support/whole_tensor.h"
#include "titanium/checkpoint/dcp/reader.h"
#include "titanium/checkpoint/step_folders.h"
#include "titanium/train/checkpointer.h"
#include "titanium/train/load_checkpoint.h"
#include "titanium/train/train_step.h"

namespace titanium::train {
namespace {

class GpuCheckpoint : public test::GpuTest {
 protected:
  JobConfig config(const std::string& mode) const {
    JobConfig config;
    config.training.local_batch_size = 2;
    config.training.seq_len = 128;
    config.lr_scheduler.warmup_steps = 2;
    config.debug.deterministic = true;
    config.job.dump_folder = (folder_ / mode).string();
    config.checkpoint.enable = true;
    config.checkpoint.interval = 2;
    config.checkpoint.async_mode = mode;
    return config;
  }

  // Trains up to `until` and returns the losses.
  std::vector<double> train(const JobConfig& config, int64_t until) const {
    TrainState run = build_train_state(config, gpu_);
    Checkpointer checkpointer(run);
    std::vector<double> losses;
    while (run.step < until) {
      losses.push_back(train_step(run)->loss.item<double>());
      checkpointer.after_step({});
    }
    checkpointer.finish();
    return losses;
  }

  // Saves step 2 and makes two more updates before the thread that writes may begin.
  void save_and_update_before_it_is_written(const JobConfig& config) const {
    TrainState run = build_train_state(config, gpu_);
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
  }

  std::filesystem::path folder_ = test::test_folder();
};

TEST_F(GpuCheckpoint, InTheBackgroundHoldsTheStateOfItsStep) {
  for (const std::string mode : {"disabled", "async", "async_with_pinned_mem"}) {
    save_and_update_before_it_is_written(config(mode));
  }
  const auto saved = [&](const std::string& mode) {
    return checkpoint::DcpReader(checkpoint::step_folder(checkpoint_root(config(mode)), 2));
  };
  const checkpoint::DcpReader expected = saved("disabled");
  for (const std::string mode : {"async", "async_with_pinned_mem"}) {
    const checkpoint::DcpReader reader = saved(mode);
    EXPECT_TRUE(reader.verify().empty());
    for (const auto& [name, entry] : expected.metadata().entries) {
      if (!std::holds_alternative<checkpoint::DcpTensor>(entry)) continue;
      EXPECT_TRUE(at::equal(test::whole_tensor(reader, name), test::whole_tensor(expected, name)))
          << mode << " " << name;
    }
  }
}

TEST_F(GpuCheckpoint, ResumesWithTheSameBits) {
  const JobConfig saving = config("async_with_pinned_mem");
  const std::vector<double> first = train(saving, 4), second = train(saving, 8);
  JobConfig undisturbed = saving;
  undisturbed.checkpoint.enable = false;
  std::vector<double> parts = first;
  parts.insert(parts.end(), second.begin(), second.end());
  EXPECT_EQ(parts, train(undisturbed, 8));
}

TEST_F(GpuCheckpoint, StagingDoesNotMakeTheHostWait) {
  TrainState run = build_train_state(config("async_with_pinned_mem"), gpu_);
  Checkpointer checkpointer(run);
  const auto step = [&] {
    train_step(run);
    checkpointer.after_step({});
  };
  for (int i = 0; i < 3; ++i) step();  // the first checkpoint waits for its memory
  checkpointer.finish();
  synchronize_gpu();
  const ForbidGpuWaits no_waits;
  EXPECT_NO_THROW(step());
}

}  // namespace
}  // namespace titanium::train
