#!/usr/bin/env bash
# Submits a training run to NVIDIA Run:ai as a PyTorch job: NODES pods with NGPU GPUs each. The variables are those of
# run_train.sh, as torchtitan's Run:ai users know them.
#
#   docker build -f deploy/kubernetes/Dockerfile -t REGISTRY/titanium . && docker push REGISTRY/titanium
#   IMAGE=REGISTRY/titanium NODES=4 deploy/kubernetes/runai_submit.sh my-run [--section.key value ...]
#
# CLAIM is a persistent volume claim that all pods can write to (ReadWriteMany). A pod that is stopped has 30 s, Kubernetes' default: checkpoint.grace_seconds is
# less. It ends with STOP_CODE, since with 0 it would count as complete.
set -euo pipefail
name=${1:?usage: runai_submit.sh NAME [--section.key value ...]}
shift
NODES=${NODES:-2}
NGPU=${NGPU:-8}

# Run:ai counts the workers beside the master.
exec runai submit-dist pytorch --name "$name" \
  --image "${IMAGE:?set IMAGE to the image that you have built}" \
  --workers $((NODES - 1)) -g "$NGPU" --large-shm \
  --existing-pvc "claimname=${CLAIM:-titanium-checkpoints},path=/checkpoints" \
  -e NGPU="$NGPU" \
  -e OVERRIDE_PET_NNODES="$NODES" \
  -e CONFIG_FILE="${CONFIG_FILE:-configs/llama3/llama3_8b.toml}" \
  -e MAX_RESTARTS="${MAX_RESTARTS:-1}" \
  -e STOP_CODE=143 \
  -e RDZV_TIMEOUT="${RDZV_TIMEOUT:-600}" \
  -e LOG_RANK="${LOG_RANK:-0}" \
  -e LOG_DIR=/checkpoints/logs \
  -e NCCL_DEBUG="${NCCL_DEBUG:-INFO}" \
  -e NCCL_IGNORE_CPU_AFFINITY=1 \
  --command -- ./run_train.sh --checkpoint.enable --checkpoint.folder=/checkpoints --checkpoint.grace_seconds=25 --job.dump_folder=/checkpoints/outputs "$@"
