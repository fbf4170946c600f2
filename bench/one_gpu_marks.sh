#!/usr/bin/env bash
# Training speed on one GPU, setting by setting: Llama 3 8B in bf16, 3B, 1B and the debug model in mixed precision. Prints one row
# of a table each: tokens per second and peak memory, the median of the last steps. Needs build/titanium and a Python with the
# same torch.
#
#   bench/one_gpu_marks.sh [RESULT_FOLDER]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
results=${1:-bench/results}
mkdir -p "$results"
source bench/torch_libraries.sh

# row NAME OPTIONS...
row() {
  local name=$1 folder
  shift
  folder=$(mktemp -d)
  if timeout 150 build/titanium train --metrics.log_freq 1 --lr_scheduler.warmup_steps 2 --optimizer.lr 3e-4 \
    --job.dump_folder "$folder" "$@" >"$folder/log" 2>&1; then
    python3 - "$name" "$folder/metrics.jsonl" <<'PYTHON'
import json, statistics, sys
lines = [json.loads(line) for line in open(sys.argv[2])]
late = lines[len(lines) // 2:]
print(f"| {sys.argv[1]} | {statistics.median(x['tps'] for x in late):,.0f} | {max(x['memory_gib'] for x in lines):.1f} | {statistics.median(x['tflops'] for x in late):.0f} |", flush=True)
PYTHON
  else
    echo "| $name | $(grep -v INFO "$folder/log" | tail -1 | cut -c1-160) | | |"
  fi
  rm -rf "$folder"
}

large="--model.flavor 8B --training.dtype bfloat16 --training.steps 10"
none="--activation_checkpoint.mode none"
by_operator="--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op"
every_second="--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option 2"
full="--activation_checkpoint.mode full"
budget="--activation_checkpoint.mode memory_budget --activation_checkpoint.memory_budget 0.72"

echo "| setting | tok/s | GiB | TFLOPS |"
echo "|---|---|---|---|"
row "8B, 8192, batch 1, none" $large --training.seq_len 8192 --training.local_batch_size 1 $none
row "8B, 8192, batch 1, selective op" $large --training.seq_len 8192 --training.local_batch_size 1 $by_operator
row "8B, 8192, batch 1, full" $large --training.seq_len 8192 --training.local_batch_size 1 $full
row "8B, 8192, batch 1, full, FSDP on one rank" $large --training.seq_len 8192 --training.local_batch_size 1 $full --parallelism.fsdp_on_one_rank
row "8B, 8192, batch 1, full (again)" $large --training.seq_len 8192 --training.local_batch_size 1 $full
row "8B, 8192, batch 1, full, FSDP on one rank (again)" $large --training.seq_len 8192 --training.local_batch_size 1 $full --parallelism.fsdp_on_one_rank
row "8B, 8192, batch 2, none" $large --training.seq_len 8192 --training.local_batch_size 2 $none
row "8B, 8192, batch 2, selective 2" $large --training.seq_len 8192 --training.local_batch_size 2 $every_second
row "8B, 8192, batch 2, memory_budget 0.72" $large --training.seq_len 8192 --training.local_batch_size 2 $budget
row "8B, 32768, full" $large --training.steps 5 --training.seq_len 32768 --training.local_batch_size 1 $full
row "8B, 65536, full" $large --training.steps 4 --training.seq_len 65536 --training.local_batch_size 1 $full
row "8B, 131072, full" $large --training.steps 3 --training.seq_len 131072 --training.local_batch_size 1 $full
row "8B, 1024, batch 16, 8 accumulation steps, none" $large --training.steps 4 --training.seq_len 1024 --training.local_batch_size 16 --training.global_batch_size 128 $none
row "3B, fp32 states, 8192, batch 2, none" --model.flavor 3B --training.steps 8 --training.seq_len 8192 --training.local_batch_size 2 $none
row "1B, fp32 states, 4096, batch 4, none" --model.flavor 1B --training.steps 8 --training.seq_len 4096 --training.local_batch_size 4 $none
row "debugmodel, fp32 states, 2048, batch 8, none" --job.config_file configs/llama3/debug_model.toml --training.steps 20 $none
