// Addresses in the options of a run.
#pragma once

#include "titanium/config/reading/load_config.h"

namespace titanium::train {

// `loaded` with model.hf_assets_path and checkpoint.initial_load_path as folders of this machine: what is at an address
// is fetched first (remote/reading/local_copy.h), weights only where the run begins with them. Data and distributed
// checkpoints stay where they are and are read from there. Throws UsageError or Error.
config::LoadedConfig with_local_assets(config::LoadedConfig loaded);

}  // namespace titanium::train
