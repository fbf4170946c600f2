#!/usr/bin/env bash
# Trains: sets the machine up and builds on first use, then starts `titanium train`.
#
#   ./run_train.sh [--section.key value ...]
#
#   NGPU          ranks to start (default: 1)
#   LOG_RANK      ranks whose output is shown, comma separated (default: 0)
#   CONFIG_FILE   TOML file (default: configs/llama3/debug_model.toml, without a GPU debug_model_cpu.toml)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source tools/setup.sh
titanium_setup program titanium

export LOG_RANK=${LOG_RANK:-0}
export PYTORCH_ALLOC_CONF=${PYTORCH_ALLOC_CONF:-expandable_segments:True}
if has_gpu_driver; then default_config=debug_model; else default_config=debug_model_cpu; fi
config_file=${CONFIG_FILE:-configs/llama3/$default_config.toml}
[ "${NGPU:-1}" = 1 ] || fail "NGPU=$NGPU: several ranks are not available yet. Use NGPU=1"
exec "$TITANIUM_BUILD/titanium" train --job.config_file "$config_file" "$@"
