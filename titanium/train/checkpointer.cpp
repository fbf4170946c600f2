#include "titanium/train/checkpointer.h"

#include <numeric>

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/base/terminal/progress.h"
#include "titanium/checkpoint/step_objects.h"
#include "titanium/comm/text_collectives.h"
#include "titanium/models/hugging_face_upload.h"
#include "titanium/remote/transport/url.h"
#include "titanium/tensor/trace_scope.h"
#include "titanium/train/load_checkpoint.h"

namespace titanium::train {
namespace {

namespace fs = std::filesystem;
using checkpoint::PickleValue;
using checkpoint::Shares;
using checkpoint::StateDict;

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

comm::GroupPtr make_group(comm::World& world, const config::Checkpoint& options) {
  std::vector<int> all(static_cast<size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  return world.patient_host_group("checkpoint", all, std::chrono::seconds(options.timeout_seconds),
                                  "checkpoint.timeout_seconds");
}

Shares shares_of(const TrainState& run) { return {run.mesh->dims(), run.world->rank(), run.executor->second_copy()}; }

double next_lr(const TrainState& run) {
  return run.config.optimizer.lr * optim::lr_factor(run.schedule, run.schedule_step);
}

// The model and the optimizer.
StateDict tensors_of(const TrainState& run) {
  StateDict state;
  add_model(state, *run.model, shares_of(run));
  add_optimizer(state, *run.optimizer, {.now = next_lr(run), .initial = run.config.optimizer.lr}, shares_of(run));
  return state;
}

void add_schedule(StateDict& state, const TrainState& run) {
  const std::vector<std::pair<const char*, PickleValue>> values = {
      {"base_lrs", PickleValue::list({run.config.optimizer.lr})},
      {"last_epoch", run.schedule_step},
      {"_step_count", run.schedule_step + 1},
      {"_is_initial", false},
      {"_get_lr_called_within_step", false},
      {"_last_lr", PickleValue::list({next_lr(run)})},
  };
  for (const auto& [name, value] : values) add_object(state, "lr_scheduler", name, value);
}

void add_progress(StateDict& state, const TrainState& run) {
  add_object(state, "train_state", "step", run.step);
  // torchtitan counts the tokens of one data-parallel rank here.
  add_object(state, "train_state", "ntokens_seen", run.tokens_seen / run.mesh->size("batch"));
  add_object(state, "train_state", "ntokens_seen_by_all", run.tokens_seen);
}

// How far the data of all ranks has been read, on rank 0.
std::string data_position(const TrainState& run, comm::Group& group) {
  const bool reads = reads_for_others(*run.mesh);
  std::vector<std::string> positions = comm::gather_texts(group, reads ? run.data->position() : "");
  std::erase(positions, "");
  return group.rank() == 0 ? run.data->merge_positions(positions) : "";
}

std::map<std::string, std::string> facts_of(const TrainState& run, int64_t step) {
  return {{"step", std::to_string(step)},
          {"layout", describe(run.mesh->dims())},
          {"model", run.config.model.name + " " + run.config.model.flavor}};
}

}  // namespace

Checkpointer::Checkpointer(TrainState& run, std::function<void()> before_writing, OnSaved on_saved,
                           std::launch background)
    : run_(run),
      before_writing_(std::move(before_writing)),
      on_saved_(std::move(on_saved)),
      root_(checkpoint_root(run.config)),
      how_(background) {
  const config::Checkpoint& options = run.config.checkpoint;
  if (!options.enable || options.load_only) return;
  group_ = make_group(*run.world, options);
  if (options.async_mode == "disabled" || options.create_seed_checkpoint) return;
  run.staging = std::make_unique<checkpoint::Staging>(run.device, tensors_of(run));
}

// What writes begins a removal, so no further one begins once it has ended.
Checkpointer::~Checkpointer() {
  if (background_.valid()) background_.wait();
  if (removal_.valid()) removal_.wait();
}

bool Checkpointer::is_due(const Reasons& reasons) const {
  const config::Checkpoint& options = run_.config.checkpoint;
  if (group_ == nullptr || last_saved_ == run_.step || run_.step == 0) return false;
  return reasons.asked || reasons.stopping || run_.step == run_.config.training.steps ||
         run_.step % options.interval == 0 || (run_.step == 1 && options.enable_first_step_checkpoint);
}

void Checkpointer::after_step(const Reasons& reasons) {
  const bool last = run_.step == run_.config.training.steps || reasons.stopping;
  report_background(/*wait=*/last);  // the last one has to be good
  if (!is_due(reasons)) return;
  const TraceScope scope("checkpoint");
  log_info("Saving the checkpoint (or staging if async is enabled).");
  report_background(/*wait=*/true);
  const Stopwatch watch;
  last ? save_last() : save_in_turn();
  if (last_saved_ != run_.step) return;  // it failed
  log_info("Finished saving the checkpoint (or staging if async is enabled) in {:.2f} seconds.", watch.seconds());
}

void Checkpointer::save_in_turn() {
  const int64_t step = run_.step;
  if (!run_.staging) {
    try {
      write(full_state(), step);
      last_saved_ = step;
      remove_old();
    } catch (const Error& error) {
      log_error("The checkpoint of step {} could not be saved, and training goes on: {}", step, error.what());
    }
    return;
  }
  last_saved_ = step;
  background_ = std::async(how_, [this, step, state = run_.staging->copy(full_state())] {
    if (before_writing_) before_writing_();
    run_.staging->wait();
    write(state, step);
    remove_old();
  });
}

void Checkpointer::save_last() {
  const config::Checkpoint& options = run_.config.checkpoint;
  if (run_.step < run_.config.training.steps || !options.last_save_model_only) {
    log_info("Saving a full checkpoint at last step, step {}.", run_.step);
    write(full_state(), run_.step);
  } else {
    log_info("Saving a model only checkpoint in {} at last step, step {}.", options.export_dtype, run_.step);
    options.last_save_in_hf ? save_hugging_face() : save_model(run_.step);
  }
  last_saved_ = run_.step;
}

// As torchtitan has it: float32 leaves the weights as they are.
std::optional<Dtype> Checkpointer::export_dtype() const {
  const Dtype dtype = parse_dtype(run_.config.checkpoint.export_dtype);
  return dtype == at::kFloat ? std::nullopt : std::optional(dtype);
}

void Checkpointer::save_model(int64_t step) {
  StateDict state;
  add_model(state, *run_.model, shares_of(run_), export_dtype());
  write(state, step);
}

void Checkpointer::report_saved(int64_t step, std::chrono::steady_clock::time_point begin) const {
  if (on_saved_) on_saved_(step, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

void Checkpointer::save_hugging_face() {
  const auto begin = std::chrono::steady_clock::now();
  const Dtype dtype = export_dtype().value_or(parse_dtype(run_.config.training.dtype));
  const auto whole = run_.model->whole();
  const models::HuggingFaceExport out(*whole, dtype, run_.config.model.hf_assets_path);
  StateDict state;
  add_model(state, *run_.model, shares_of(run_));
  if (remote::is_url(root_.string())) {
    upload_hugging_face(out, state);
    return report_saved(run_.step, begin);
  }
  checkpoint::save_together(
      *group_, root_, run_.step,
      {.prepare = [&](const fs::path& folder) { out.create_files(folder); },
       .write =
           [&](const fs::path& folder) {
             int64_t bytes = 0;
             for (const auto& item : state.tensors) bytes += static_cast<int64_t>(item.tensor.nbytes());
             Progress progress("saving the weights", bytes, ProgressUnit::kBytes);
             for (const auto& item : state.tensors) {
               out.write(folder, item.name, item.box, item.tensor);
               progress.add(static_cast<int64_t>(item.tensor.nbytes()));
             }
             out.finish(folder);
             return std::string();
           },
       .complete = [&](const fs::path& folder, const std::vector<std::string>&) { out.seal(folder); }});
  report_saved(run_.step, begin);
}

void Checkpointer::upload_hugging_face(const models::HuggingFaceExport& out, const StateDict& state) {
  models::HuggingFaceUpload upload(out, *group_, checkpoint::writing_folder(root_, run_.step));
  checkpoint::save_together(*group_, root_, run_.step,
                            {.prepare = [](const fs::path& folder) { checkpoint::mark_unfinished(folder); },
                             .write = [&](const fs::path&) { return upload.write(state.tensors); },
                             .complete =
                                 [&](const fs::path& folder, const std::vector<std::string>& parts) {
                                   upload.complete(parts);
                                   checkpoint::unmark_unfinished(folder);
                                 }});
}

void Checkpointer::save_seed() {
  TI_ASSERT(group_ != nullptr && run_.step == 0);
  save_model(0);
  log_info("Created seed checkpoint");
}

StateDict Checkpointer::full_state() {
  StateDict state = tensors_of(run_);
  const std::string position = data_position(run_, *group_);
  if (group_->rank() != 0) return state;
  add_object(state, "dataloader", "streams", position);
  add_schedule(state, run_);
  add_progress(state, run_);
  return state;
}

void Checkpointer::write(const StateDict& state, int64_t step) {
  const auto begin = std::chrono::steady_clock::now();
  // What is written in the background would cross the lines of the steps.
  const std::string label = run_.staging ? "" : "saving the checkpoint";
  checkpoint::save_together(
      *group_, root_, step,
      {.write =
           [&](const fs::path& folder) {
             return format_dcp_part(
                 checkpoint::write_dcp_files(folder, group_->rank(), state.tensors, state.objects, /*files=*/4, label));
           },
       .complete =
           [&](const fs::path& folder, const std::vector<std::string>& texts) {
             std::vector<checkpoint::DcpPart> parts;
             for (const std::string& text : texts) {
               parts.push_back(checkpoint::parse_dcp_part(std::as_bytes(std::span(text)), "a rank's part"));
             }
             publish_dcp(folder, parts, facts_of(run_, step));
           }});
  report_saved(step, begin);
}

void Checkpointer::remove_old() {
  const int64_t keep = run_.config.checkpoint.keep_latest_k;
  if (keep == 0 || group_->rank() != 0) return;
  removal_ = std::async(how_, [root = root_, keep] { checkpoint::remove_old_steps(root, keep); });
}

void Checkpointer::report_background(bool wait) {
  using namespace std::chrono_literals;
  if (!background_.valid() || (!wait && background_.wait_for(0s) != std::future_status::ready)) return;
  try {
    background_.get();
  } catch (const Error& error) {
    log_error("The checkpoint of step {} could not be saved, and training goes on: {}", *last_saved_, error.what());
    last_saved_.reset();
  }
}

void Checkpointer::finish() { report_background(/*wait=*/true); }

}  // namespace titanium::train
