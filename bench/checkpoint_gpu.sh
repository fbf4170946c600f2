#!/usr/bin/env bash
# What saving costs a run on one GPU: Llama 3 8B in bf16 with Adam states (48 GB), one checkpoint at a time. Prints for each mode the
# median step before the save, the step after it, the steps while it is written, and the log lines about saving; then how long loading
# takes, and the same disk with PyTorch's DCP and dd. Needs build/titanium and a Python with the same torch.
#
#   bench/checkpoint_gpu.sh [SCRATCH_FOLDER]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scratch=${1:-$(mktemp -d)}
mkdir -p "$scratch"
source bench/torch_libraries.sh
source bench/failures.sh

train() { attempt "$1 to step $2" run_training "$@"; }

run_training() {  # MODE STEPS
  timeout "${LIMIT:-200}" build/titanium train --model.flavor 8B --training.dtype bfloat16 --training.seq_len 8192 \
    --training.local_batch_size 1 --activation_checkpoint.mode full --lr_scheduler.warmup_steps 2 --metrics.log_freq 1 \
    --training.steps "$2" --job.dump_folder "$scratch/run" --checkpoint.enable --checkpoint.interval 30 \
    --checkpoint.keep_latest_k 0 --checkpoint.async_mode "$1" --checkpoint.export_dtype bfloat16 >"$scratch/log" 2>&1 || { tail -3 "$scratch/log"; return 1; }
  grep -iE "(saving|saved|loading|loaded).*checkpoint" "$scratch/log" | sed 's/.* INFO - //' | cut -c1-160 || true
}

stall() {  # MODE
  python3 - "$1" "$scratch/run/metrics.jsonl" <<'PYTHON'
import json, statistics, sys
lines = [json.loads(line) for line in open(sys.argv[2])]
times = {after["step"]: after["time_s"] - before["time_s"] for before, after in zip(lines, lines[1:])}
usual = statistics.median(times[step] for step in range(11, 31))
later = [times[step] for step in sorted(times) if step > 30]
print(f"{sys.argv[1]}: usual step {usual:.3f} s; the step after the save {later[0]:.3f} s (stall {later[0] - usual:.3f} s); "
      f"the next ones {', '.join(f'{t:.3f}' for t in later[1:])}")
PYTHON
}

for mode in async; do
  rm -rf "$scratch/run"
  train "$mode" 59
  attempt "stall of $mode" stall "$mode"
done
echo "loading what was saved at step 30, then 1 step and a synchronous save of the weights (16 GB)"
rm -rf "$scratch/run/checkpoint/step-59"
PYTHONPATH=bench python3 -c 'import checkpoint_io, pathlib, sys; checkpoint_io.forget_cached_files(pathlib.Path(sys.argv[1]))' "$scratch/run"
train disabled 31
rm -rf "$scratch/run"
PYTHONPATH=bench attempt torch python3 bench/checkpoint_torch.py "$scratch/torch"
tell_failures
