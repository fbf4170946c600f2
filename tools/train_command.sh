# Which command trains, as the environment asks for it. Sourced by run_train.sh, which explains the variables; needs `fail`.
#
#   train_command PROGRAM ARGUMENTS...      fills the array `command` with PROGRAM train ARGUMENTS, started as asked for

is_number() { [[ $1 =~ ^[0-9]+$ ]]; }

train_command() {
  local program=$1 ranks=${NGPU:-${PET_NPROC_PER_NODE:-1}} nodes node_rank restarts=${MAX_RESTARTS:-${PET_MAX_RESTARTS:-0}} pods=1
  local address=${MASTER_ADDR:-${PET_MASTER_ADDR:-}} port=${MASTER_PORT:-${PET_MASTER_PORT:-29500}} stop_code=${STOP_CODE:-0}
  shift

  if [ -n "${COMM_MODE:-}" ]; then
    # One process plays one of NGPU ranks; no peers, no launcher.
    export NGPU=$ranks
    command=("$program" train "--comm.mode=$COMM_MODE" --training.steps=1 "$@")
    return
  fi

  if [ "$ranks" = auto ]; then if has_gpu_driver; then ranks=gpu; else ranks=1; fi; fi
  # Older PyTorchJob operators give a pod WORLD_SIZE and RANK and nothing else. With LOCAL_RANK they are a process's own.
  [ -n "${LOCAL_RANK:-}" ] || pods=${WORLD_SIZE:-1}
  nodes=${NNODES:-${OVERRIDE_PET_NNODES:-${PET_NNODES:-$pods}}}
  node_rank=${NODE_RANK:-${PET_NODE_RANK:-${RANK:-0}}}
  is_number "$nodes" || fail "the number of nodes is '$nodes', but it has to be fixed for a run. Set NNODES to a number"

  # One rank needs no launcher, unless somebody is to restart it or to give it another exit code.
  if [ "$ranks" = 1 ] && [ "$nodes" = 1 ] && [ "$restarts" = 0 ] && [ "$stop_code" = 0 ]; then
    command=("$program" train "$@")
    return
  fi
  command=("$program" launch --nproc-per-node "$ranks" --max-restarts "$restarts")
  [ -z "${RDZV_TIMEOUT:-}" ] || command+=(--rdzv-timeout "$RDZV_TIMEOUT")
  if [ "$nodes" -gt 1 ]; then
    [ -n "$address" ] || fail "NNODES=$nodes: MASTER_ADDR is missing. Set it to the host of node 0"
    [[ $address != *:* ]] || address="[$address]" # IPv6
    command+=(--nnodes "$nodes" --node-rank "$node_rank" --rdzv-endpoint "$address:$port")
  fi
  [ "$stop_code" = 0 ] || command+=(--stop-code "$stop_code")
  [ -z "${LOG_DIR:-}" ] || command+=(--log-dir "$LOG_DIR")
  [ -z "${RUN_ID:-}" ] || command+=(--run-id "$RUN_ID")
  command+=(-- train "$@")
}
