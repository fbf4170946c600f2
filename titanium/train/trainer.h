// A whole run: build, train, validate, report.
#pragma once

#include <atomic>

#include "titanium/config/load_config.h"

namespace titanium::train {

// Trains as the configuration says. Ends after training.steps, at the end of the data, or after the current step once
// `stop_requested` is set. With memory_estimation.enable it logs the memory plan and returns. Throws UsageError before
// anything is built for options that are not available, and Error when the loss stops being finite.
void train(const config::LoadedConfig& loaded, const std::atomic<bool>& stop_requested);

}  // namespace titanium::train
