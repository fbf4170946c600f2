#!/usr/bin/env bash
# The whole check on a machine with a GPU: tests, debug model against the CPU, Llama 3 8B, with the GEMM ceiling of the same
# run beside it. Needs build/titanium and build/gpu_tests, and a Python with the same torch. Exit code 1 if anything fails.
#
#   bench/gpu_check.sh [RESULT_FOLDER]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
results=${1:-bench/results}
mkdir -p "$results"
source bench/torch_libraries.sh
source bench/failures.sh
titanium=build/titanium

train() {
  local name=$1
  shift
  echo "== $name: titanium train $*"
  rm -rf "${results:?}/$name"
  "$titanium" train --metrics.disable_color_printing --metrics.log_freq 1 --job.dump_folder "$results/$name" "$@" >"$results/$name.log" 2>&1 ||
    { tail -5 "$results/$name.log"; return 1; }
  grep 'step:' "$results/$name.log" | tail -2 | sed 's/.*INFO - //'
}

"$titanium" --version
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
attempt gpu_tests run_gpu_tests "$results"

debug="--job.config_file configs/llama3/debug_model.toml"
attempt debug_gpu train debug_gpu $debug --training.steps 20
attempt debug_cpu train debug_cpu $debug --training.steps 20 --training.device cpu
attempt llama3_8b train llama3_8b --model.flavor 8B --training.dtype bfloat16 --training.seq_len 8192 --training.local_batch_size 1 \
  --activation_checkpoint.mode full --training.steps 12 --lr_scheduler.warmup_steps 2 --optimizer.lr 3e-4
attempt llama3_1b train llama3_1b --model.flavor 1B --training.seq_len 4096 --training.local_batch_size 4 \
  --activation_checkpoint.mode none --training.steps 8 --lr_scheduler.warmup_steps 2 --optimizer.lr 3e-4

attempt report python3 bench/gpu_report.py "$results" > >(tee "$results/report.md")
tell_failures
