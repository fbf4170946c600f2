#!/usr/bin/env bash
# Parallel training on a machine with one GPU: GPU tests; several ranks that share the GPU over Gloo against one rank; and
# what cutting attention into parts and sharding 8B with one NCCL rank cost. Needs build/titanium, build/gpu_tests and
# build/bench_context_attention, and a Python with the same torch. Exit code 1 if anything fails.
#
#   bench/distributed_gpu_check.sh [RESULT_FOLDER]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
results=${1:-bench/results}
mkdir -p "$results"
source bench/torch_libraries.sh
source bench/failures.sh
titanium=build/titanium
common="--metrics.disable_color_printing --metrics.log_freq 1 --lr_scheduler.warmup_steps 2"

# train NAME RANKS OPTIONS...
train() { attempt "$1" run_training "$@"; }

# The same, and the losses are those of gpu_one; in bf16 they differed by 3e-5.
train_as_one() {
  train "$@"
  attempt "$1 against gpu_one" python3 bench/compare_losses.py "$results/gpu_one" "$results/$1" 1e-3
}

run_training() {
  local name=$1 ranks=$2
  shift 2
  echo "== $name: $ranks rank(s), titanium train $*"
  rm -rf "${results:?}/$name"
  timeout 90 "$titanium" launch --nproc-per-node "$ranks" -- train $common --job.dump_folder "$results/$name" "$@" >"$results/$name.log" 2>&1 ||
    { tail -15 "$results/$name.log"; return 1; }
  grep 'step:' "$results/$name.log" | tail -1 | sed 's/.*INFO - //'
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
attempt gpu_tests run_gpu_tests "$results"

small="--training.seq_len 512 --training.global_batch_size 8 --training.steps 10 --comm.backend gloo"
train gpu_one 1 $small --training.local_batch_size 8
train_as_one gpu_dp2 2 $small --training.local_batch_size 4 --parallelism.data_parallel_replicate_degree 2
train_as_one gpu_fsdp2 2 $small --training.local_batch_size 4
train_as_one gpu_fsdp2_offload 2 $small --training.local_batch_size 4 --training.enable_cpu_offload
train_as_one gpu_tp2 2 $small --training.local_batch_size 8 --parallelism.tensor_parallel_degree 2
train_as_one gpu_async_tp2 2 $small --training.local_batch_size 8 --parallelism.tensor_parallel_degree 2 --parallelism.enable_async_tensor_parallel
train_as_one gpu_fsdp2_tp2 4 $small --training.local_batch_size 4 --parallelism.tensor_parallel_degree 2
train_as_one gpu_cp2 2 $small --training.local_batch_size 8 --parallelism.context_parallel_degree 2
train_as_one gpu_cp2_ring 2 $small --training.local_batch_size 8 --parallelism.context_parallel_degree 2 --parallelism.context_parallel_rotate_method alltoall
train_as_one gpu_tp2_cp2 4 $small --training.local_batch_size 8 --parallelism.tensor_parallel_degree 2 --parallelism.context_parallel_degree 2
train gpu_cp2_documents 2 $small --training.local_batch_size 8 --parallelism.context_parallel_degree 2 --model.attn_type varlen
attempt bench_context_attention build/bench_context_attention > >(tee "$results/context_attention.log")

large="--model.flavor 8B --training.dtype bfloat16 --training.seq_len 8192 --training.local_batch_size 1 --optimizer.lr 3e-4 --training.steps 12 --activation_checkpoint.mode full"
for round in 1 2; do
  train "8b_plain_$round" 1 $large
  train "8b_fsdp_$round" 1 $large --parallelism.fsdp_on_one_rank
done
train 8b_fsdp_one_card 1 $large --training.dtype float32 --parallelism.fsdp_on_one_rank --training.enable_cpu_offload --training.steps 3
tell_failures
