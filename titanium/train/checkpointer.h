// Saves a run as [checkpoint] says.
#pragma once

#include <chrono>
#include <functional>
#include <future>

#include "titanium/checkpoint/save_together.h"
#include "titanium/train/train_state.h"

namespace titanium::models {
class HuggingFaceExport;
}

namespace titanium::train {

// All ranks call the same functions in the same order.
class Checkpointer {
 public:
  // `run` outlives it. Without checkpoint.enable, or with load_only, nothing is ever saved. Fills `run.staging` if
  // checkpoints are written in the background. `before_writing` is called on the thread that writes, before it reads
  // anything; `on_saved` on a thread that has saved a checkpoint, with its step and how long writing it
  // took. `background` says how writing and removing begin: with std::launch::deferred there are no threads, and each
  // is done by whoever waits for it.
  using OnSaved = std::function<void(int64_t step, double seconds)>;
  explicit Checkpointer(TrainState& run, std::function<void()> before_writing = {}, OnSaved on_saved = {},
                        std::launch background = std::launch::async);
  // Waits for what is written and removed in the background, as when a run fails and nobody has called finish().
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Why a checkpoint is due after a step.
  struct Reasons {
    bool asked = false;     // requested from outside
    bool stopping = false;  // the run ends early: everything is saved, so that it can go on
  };
  // Whether the step that has just been finished, or a reason, asks for one.
  bool is_due(const Reasons& reasons) const;
  // Saves if one is due. The last checkpoint is written before this returns, and an Error thrown if that fails. Others
  // may be written in the background; when one fails, that is logged and the run goes on.
  void after_step(const Reasons& reasons);
  // Waits for what is written in the background.
  void finish();

  // The run as it is, as step-0, for other runs to begin with.
  void save_seed();

 private:
  void save_in_turn();
  void save_last();
  std::optional<Dtype> export_dtype() const;
  void save_model(int64_t step);
  void save_hugging_face();
  void upload_hugging_face(const models::HuggingFaceExport& out, const checkpoint::StateDict& state);
  void report_saved(int64_t step, std::chrono::steady_clock::time_point begin) const;
  checkpoint::StateDict full_state();
  void write(const checkpoint::StateDict& state, int64_t step);
  void remove_old();
  void report_background(bool wait);

  TrainState& run_;
  std::function<void()> before_writing_;
  OnSaved on_saved_;
  std::filesystem::path root_;
  comm::GroupPtr group_;               // of its own, because a thread of its own uses it
  std::optional<int64_t> last_saved_;  // or being saved
  std::launch how_;
  std::future<void> background_;
  std::future<void> removal_;  // assigned by what writes in the background
};

}  // namespace titanium::train
