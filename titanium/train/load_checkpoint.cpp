#include "titanium/train/load_checkpoint.h"

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/checkpoint/state_dict.h"
#include "titanium/checkpoint/step_folders.h"
#include "titanium/comm/text_collectives.h"
#include "titanium/models/registry.h"
#include "titanium/remote/reading/byte_source.h"
#include "titanium/remote/reading/local_copy.h"
#include "titanium/remote/stores/object_writer.h"
#include "titanium/remote/transport/url.h"

namespace titanium::train {
namespace {

namespace fs = std::filesystem;
using checkpoint::DcpReader;

constexpr int64_t kMostCounted = int64_t{1} << 50;  // steps or tokens of a run

bool is_hugging_face(const fs::path& folder) { return !remote::exists((folder / ".metadata").string()); }

// Rank 0 looks, so that all ranks see the same.
std::vector<int64_t> find_steps(const fs::path& root, const config::Checkpoint& options, comm::Group& world) {
  std::string found;
  if (world.rank() == 0) {
    if (!options.load_only) checkpoint::remove_unfinished(root);
    for (const int64_t step : checkpoint::saved_steps(root)) found += fmt::format(" {}", step);
  }
  std::istringstream shared(comm::broadcast_text(world, found));
  return {std::istream_iterator<int64_t>(shared), {}};
}

// The step to go on from; -1 when there is none.
int64_t choose_step(const fs::path& root, const config::Checkpoint& options, const std::vector<int64_t>& steps) {
  if (options.load_step == -1) return steps.empty() ? -1 : steps.back();
  if (std::ranges::find(steps, options.load_step) != steps.end()) return options.load_step;
  throw UsageError(fmt::format("checkpoint.load_step = {}: {} is not there, or not whole. {} has {}.",
                               options.load_step, checkpoint::step_folder(root, options.load_step).string(),
                               root.string(),
                               steps.empty() ? "no checkpoints" : fmt::format("steps {}", fmt::join(steps, ", "))));
}

// For a checkpoint that holds the model alone. A run that has finished has nothing to go on with; any other cannot.
bool is_end_of_run(const JobConfig& config, const LoadSource& source) {
  if (*source.step >= config.training.steps) return true;
  throw UsageError(
      fmt::format("{} holds only the model, so training cannot go on from it. To go on, use an earlier step with "
                  "checkpoint.load_step; to begin with these weights, use checkpoint.initial_load_path and another "
                  "checkpoint.folder.",
                  source.folder.string()));
}

void warn_of_unused_weights(const config::Checkpoint& options, const fs::path& root) {
  if (options.initial_load_path) {
    log_warning(
        "checkpoint.initial_load_path is provided but the checkpoint.folder has checkpoints. Those of the "
        "checkpoint.folder {} are used.",
        root.string());
  }
  if (options.initial_load_in_hf) {
    log_warning(
        "checkpoint.initial_load_in_hf is True but the checkpoint.folder has checkpoints. Hugging Face weights are not "
        "loaded.");
  }
}

LoadSource resume_source(const JobConfig& config, const fs::path& root, int64_t step) {
  LoadSource source{.folder = checkpoint::step_folder(root, step), .model_only = step == 0, .step = step};
  source.hugging_face = is_hugging_face(source.folder);
  if (source.hugging_face && !source.model_only) source.model_only = is_end_of_run(config, source);
  return source;
}

std::optional<LoadSource> initial_source(const JobConfig& config) {
  const config::Checkpoint& options = config.checkpoint;
  if (!options.initial_load_path && !options.initial_load_in_hf) return std::nullopt;
  LoadSource source{.folder = options.initial_load_path.value_or(config.model.hf_assets_path),
                    .hugging_face = options.initial_load_in_hf,
                    .model_only = options.initial_load_model_only};
  if (remote::is_url(source.folder.string()) || fs::is_directory(source.folder)) return source;
  throw UsageError(fmt::format("{} = {} is not a folder. Name one with {}.",
                               options.initial_load_path ? "checkpoint.initial_load_path"
                                                         : "checkpoint.initial_load_in_hf: model.hf_assets_path",
                               source.folder.string(),
                               source.hugging_face ? "Hugging Face weights" : "a distributed checkpoint"));
}

bool loads(const config::Checkpoint& options) { return options.enable && !options.create_seed_checkpoint; }

// What cannot be done where checkpoint.folder is an address.
void check_folder_address(const config::Checkpoint& options) {
  if (!options.enable || !remote::is_url(options.folder)) return;
  if (!remote::is_writable_address(options.folder)) {
    throw UsageError(fmt::format(
        "checkpoint.folder = {} cannot be written: only s3:// and gs:// can. Name one of them, or a folder.",
        options.folder));
  }
}

std::optional<LoadSource> choose_source(const JobConfig& config, const fs::path& root, int64_t step) {
  return step >= 0 ? resume_source(config, root, step) : initial_source(config);
}

class Loading {
 public:
  Loading(TrainState& run, const LoadSource& source)
      : run_(run), source_(source), reader_(source.folder), model_only_(source.model_only) {
    if (source.step && !model_only_ && !checkpoint::has_state(reader_, "train_state")) {
      model_only_ = is_end_of_run(run.config, source);
    }
  }

  void run() {
    if (wants("model")) load_model();
    if (wants("optimizer")) checkpoint::load_optimizer(reader_, *run_.optimizer);
    if (wants("lr_scheduler")) load_schedule();
    if (wants("dataloader")) load_data_position();
    if (wants("train_state")) load_progress();
    if (model_only_ && source_.step) run_.step = *source_.step;
  }

 private:
  bool wants(const std::string& state) const {
    if (model_only_) return state == "model";
    const auto& excluded = run_.config.checkpoint.exclude_from_loading;
    return std::ranges::find(excluded, state) == excluded.end();
  }

  void load_model() {
    const auto whole = run_.model->whole();
    checkpoint::load_model(reader_, *run_.model, *whole);
  }

  // Reads a value of the checkpoint; what is wrong with it is said with folder and name.
  template <typename Read>
  auto value_of(const std::string& name, const Read& read) const {
    const checkpoint::PickleValue value = reader_.read_object(name);
    try {
      return read(value);
    } catch (const Error& error) {
      throw Error(fmt::format("{}: \"{}\" = {}: {}", source_.folder.string(), name, value.short_repr(), error.what()));
    }
  }

  // A number of steps or tokens.
  int64_t count_of(const std::string& name) const {
    return value_of(name, [](const checkpoint::PickleValue& value) {
      const int64_t count = value.as_int();
      TI_CHECK(count >= 0 && count <= kMostCounted,
               "a number from 0 to {} is expected. The file is damaged or of another format.", kMostCounted);
      return count;
    });
  }

  void load_schedule() {
    run_.schedule_step = count_of("lr_scheduler.last_epoch");
    const double saved = value_of("lr_scheduler.base_lrs", [](const checkpoint::PickleValue& rates) {
      TI_CHECK(!rates.items().empty(),
               "a list of learning rates is expected. The file is damaged or of another format.");
      return rates.items()[0].as_real();
    });
    const double wanted = run_.config.optimizer.lr;
    if (saved == wanted) return;
    log_warning("optimizer.lr = {} is used; the checkpoint was trained with {}", wanted, saved);
  }

  void load_data_position() {
    TI_CHECK(reader_.contains("dataloader.streams"),
             "{} has no data position of Titanium; torchtitan counts its samples in another way. Add dataloader to "
             "checkpoint.exclude_from_loading to begin the data anew.",
             source_.folder.string());
    value_of("dataloader.streams",
             [&](const checkpoint::PickleValue& position) { run_.data->load(position.as_string()); });
  }

  void load_progress() {
    run_.step = count_of("train_state.step");
    const bool by_all = reader_.contains("train_state.ntokens_seen_by_all");
    run_.tokens_seen = by_all ? count_of("train_state.ntokens_seen_by_all")
                              : count_of("train_state.ntokens_seen") * run_.mesh->size("batch");
  }

  TrainState& run_;
  const LoadSource& source_;
  DcpReader reader_;
  bool model_only_;
};

bool is_undamaged(const fs::path& folder) {
  try {
    return DcpReader(folder).verify().empty();
  } catch (const std::exception&) {
    return false;
  }
}

// Names the newest undamaged checkpoint of the run other than that of `step`, and the option that loads it.
std::string advice(const fs::path& root, int64_t step) {
  std::vector<int64_t> steps = checkpoint::saved_steps(root);
  std::ranges::reverse(steps);
  for (const int64_t other : steps) {
    if (other == step || !is_undamaged(checkpoint::step_folder(root, other))) continue;
    return fmt::format("The newest undamaged checkpoint is that of step {}: use it with --checkpoint.load_step {}.",
                       other, other);
  }
  return fmt::format("{} has no other undamaged checkpoint.", root.string());
}

void load(TrainState& run, const LoadSource& source) {
  try {
    Loading(run, source).run();
  } catch (const Error& error) {
    if (!source.step || is_undamaged(source.folder)) throw;
    throw Error(fmt::format("{} {}", error.what(), advice(source.folder.parent_path(), *source.step)));
  }
}

}  // namespace

fs::path checkpoint_root(const JobConfig& config) {
  if (remote::is_url(config.checkpoint.folder)) return config.checkpoint.folder;
  return fs::path(config.job.dump_folder) / config.checkpoint.folder;
}

std::optional<LoadSource> find_load_source(const JobConfig& config, comm::Group& world) {
  if (!loads(config.checkpoint)) return std::nullopt;
  const fs::path root = checkpoint_root(config);
  log_info("Checkpointing active. Checkpoints will be loaded from and saved to {}", root.string());
  const int64_t step = choose_step(root, config.checkpoint, find_steps(root, config.checkpoint, world));
  if (step >= 0) warn_of_unused_weights(config.checkpoint, root);
  return choose_source(config, root, step);
}

void check_load_source(const JobConfig& config) {
  check_folder_address(config.checkpoint);
  if (!loads(config.checkpoint)) return;
  const fs::path root = checkpoint_root(config);
  choose_source(config, root, choose_step(root, config.checkpoint, checkpoint::saved_steps(root)));
}

bool fills_model(const LoadSource& source, const config::Checkpoint& options) {
  const auto& excluded = options.exclude_from_loading;
  return source.model_only || std::ranges::find(excluded, "model") == excluded.end();
}

void load_checkpoint(TrainState& run, const LoadSource& source) {
  log_info("Loading the checkpoint from {}.", source.folder.string());
  const auto begin = std::chrono::steady_clock::now();
  if (source.hugging_face) {
    const fs::path folder = remote::local_copy(source.folder.string());
    models::load_hugging_face_weights(*run.model, folder, run.config.checkpoint.initial_load_in_hf_quantized);
    run.step = source.step.value_or(0);
  } else {
    load(run, source);
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  log_info("Finished loading the checkpoint in {:.2f} seconds.", elapsed.count());
}

}  // namespace titanium::train
