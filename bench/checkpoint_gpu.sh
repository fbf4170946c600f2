#!/usr/bin/env bash
# What saving costs a run on one GPU: Llama 3 8B in bf16 with Adam states (48 GB). One checkpoint at a time fits the disk. Prints for
# each mode the median step before the save, the step after it, the steps while it is written, and the log lines about saving. PyTorch's
# DCP on the same disk: bench/checkpoint_io.py. Needs build/titanium and a Python with the same torch.
#
#   bench/checkpoint_gpu.sh [SCRATCH_FOLDER]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scratch=${1:-$(mktemp -d)}
mkdir -p "$scratch"
source bench/torch_libraries.sh

echo "disk: $(dd if=/dev/zero of="$scratch/probe" bs=64M count=64 oflag=direct 2>&1 | awk 'END { print $(NF-1), $NF }')"
rm -f "$scratch/probe"

run() {  # MODE STEPS
  rm -rf "$scratch/run"
  timeout "${LIMIT:-200}" build/titanium train --model.flavor 8B --training.dtype bfloat16 --training.seq_len 8192 \
    --training.local_batch_size 1 --activation_checkpoint.mode full --lr_scheduler.warmup_steps 2 --metrics.log_freq 1 \
    --training.steps "$2" --job.dump_folder "$scratch/run" --checkpoint.enable --checkpoint.interval 30 \
    --checkpoint.keep_latest_k 0 --checkpoint.async_mode "$1" >"$scratch/log" 2>&1 || true
  python3 - "$1" "$scratch/run/metrics.jsonl" <<'PYTHON'
import json, statistics, sys
lines = [json.loads(line) for line in open(sys.argv[2])]
times = {after["step"]: after["time_s"] - before["time_s"] for before, after in zip(lines, lines[1:])}
usual = statistics.median(times[step] for step in range(11, 31) if step in times)
later = [times[step] for step in sorted(times) if step > 30]
print(f"{sys.argv[1]}: usual step {usual:.3f} s; the step after the save {later[0]:.3f} s (stall {later[0] - usual:.3f} s); "
      f"the next ones {', '.join(f'{t:.3f}' for t in later[1:])}")
PYTHON
  grep -i "checkpoint" "$scratch/log" | cut -c1-200 || true
}

for mode in ${MODES:-async_with_pinned_mem async}; do run "$mode" 59; done
