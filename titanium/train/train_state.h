// Everything that a run consists of, built by named functions from its configuration.
#pragma once

#include <memory>
#include <vector>

#include "titanium/config/load_config.h"
#include "titanium/data/loader.h"
#include "titanium/data/tokenizer.h"
#include "titanium/models/language_model.h"
#include "titanium/optim/adam.h"
#include "titanium/optim/lr_schedule.h"

namespace titanium::train {

struct TrainState {
  JobConfig config;
  Device device;
  data::Tokenizer tokenizer;
  std::unique_ptr<models::LanguageModel> model;
  std::vector<Parameter*> parameters;
  std::unique_ptr<optim::Adam> optimizer;
  optim::LrSchedule schedule;
  std::unique_ptr<data::Loader> loader;
  int64_t accumulation_steps = 1;

  int64_t step = 0;         // finished
  int64_t tokens_seen = 0;  // by all ranks
};

// Builds all of it and logs the start-up lines. Throws UsageError for what the configuration asks and cannot be.
TrainState build_train_state(const config::LoadedConfig& loaded);

// The parts, for commands that need only some of them.
void apply_determinism(const config::Debug& debug);
uint64_t weight_seed(const config::Debug& debug);
// Materialised on `device` in training.dtype, with buffers, computing in `compute_dtype`; values are undefined.
std::unique_ptr<models::LanguageModel> materialize_model(const JobConfig& config, int64_t max_seq_len, Dtype dtype,
                                                         Dtype compute_dtype, Device device);
// `finite`: stops at the end of the data instead of starting again.
std::unique_ptr<data::Loader> build_loader(const config::Training& training, const data::Tokenizer& tokenizer);
std::unique_ptr<data::Loader> build_validation_loader(const config::Validation& validation,
                                                      const config::Training& training,
                                                      const data::Tokenizer& tokenizer);

}  // namespace titanium::train
