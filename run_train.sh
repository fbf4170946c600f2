#!/usr/bin/env bash
# Trains: sets the machine up and builds on first use, then starts `titanium train`, through `titanium launch` where there are
# several ranks. docs/launching.md has recipes.
#
#   ./run_train.sh [--section.key value ...]
#
#   CONFIG_FILE         TOML file (default: configs/llama3/debug_model.toml, without a GPU debug_model_cpu.toml)
#   NGPU                ranks on this node: a number, gpu or cpu (default: PET_NPROC_PER_NODE, else 1); without a GPU they run
#                       on the CPU
#   LOG_RANK            ranks whose output is shown, comma separated (default: 0)
#   LOG_DIR, RUN_ID     folder for the output of all ranks, and the run's name in it (default: no files)
#   MAX_RESTARTS        how often all ranks are started again after a failure (default: 0)
#   STOP_CODE           exit code when the run was asked to stop before its end (default: 0)
#   NNODES, NODE_RANK   number of nodes, number of this one (default: OVERRIDE_PET_NNODES or PET_NNODES, PET_NODE_RANK, else 1
#                       node); with several, MASTER_ADDR and MASTER_PORT (default: PET_MASTER_ADDR and PET_MASTER_PORT, 29500) are
#                       those of node 0
#   RDZV_TIMEOUT        seconds to wait for the other nodes (default: 600, but 30 while the host of node 0 cannot be reached)
#   TITANIUM            this program is started and nothing is built, as in an image
#   COMM_MODE           fake_backend: one step in one process that plays rank 0 of NGPU ranks
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source tools/setup.sh
case " $* " in *" --quiet "*) TITANIUM_QUIET=1 ;; esac
source tools/train_command.sh
if [ -z "${TITANIUM:-}" ]; then
  titanium_setup program titanium
  TITANIUM=$TITANIUM_BUILD/titanium
fi

export LOG_RANK=${LOG_RANK:-0}
if has_gpu_driver; then default_config=debug_model; else default_config=debug_model_cpu; fi
train_command "$TITANIUM" --job.config_file "${CONFIG_FILE:-configs/llama3/$default_config.toml}" "$@"
exec "${command[@]}"
