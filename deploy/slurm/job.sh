# What the job scripts of this folder have in common. They source it in the folder from which the job was submitted, the checkout.
#
#   read_site                reads the site's settings
#   prepare_job WORDS...     does so; sets head_address, port, profiler, step options, and `arguments`: the words for the program, in which
#                            %a is the number of a job of an array (sbatch --array=0-3 ... --job.dump_folder outputs/run_%a)
#   run_step COMMAND...      runs COMMAND on the job's nodes by srun; waits; requeues the job if its time was over
#
# Variables of a job, as on sbatch's line or in its environment:
#   CONFIG_FILE              TOML file
#   SITE                     file in deploy/slurm/sites without .sh (default: generic)
#   NGPU, MAX_RESTARTS       ranks per node (default: the site's, else 8), restarts after a failure; for launchers
#   LOG_DIR, LOG_RANK        folder for logs (default: outputs/logs), ranks whose output is shown
#   MASTER_ADDR, MASTER_PORT where the ranks meet (default: the address of the first node, a port that follows from the job's number)
#   TITANIUM                 the program (default: build/titanium)

read_site() {
  export TITANIUM=${TITANIUM:-build/titanium}
  export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1} # srun does not take it from sbatch by itself
  local site=deploy/slurm/sites/${SITE:-generic}.sh
  [ -e "$site" ] || { echo "SITE=${SITE:-generic}: there is no $site. Copy deploy/slurm/sites/generic.sh to it, or name one of: $(basename -s .sh deploy/slurm/sites/*.sh | paste -sd ' ')" >&2; exit 1; }
  source "$site"
}

prepare_job() {
  requeue=no
  trap stop_and_requeue USR1 # from here on: without it the signal would end this shell, and the job with it
  export LOG_RANK=${LOG_RANK:-0} LOG_DIR=${LOG_DIR:-outputs/logs}
  export CONFIG_FILE=${CONFIG_FILE:-configs/llama3/llama3_8b.toml}
  read_site
  export NGPU=${NGPU:-8}
  arguments=("$@")
  [ -z "${SLURM_ARRAY_TASK_ID:-}" ] || arguments=("${@//%a/$SLURM_ARRAY_TASK_ID}")

  # A heterogeneous job is one step over all its parts; tasks are numbered through.
  step_options=("${SRUN_OPTIONS[@]}")
  [ -z "${SLURM_HET_SIZE:-}" ] || step_options+=("--het-group=0-$((SLURM_HET_SIZE - 1))")
  if [ -n "$CONTAINER_IMAGE" ]; then
    step_options+=("--container-image=$CONTAINER_IMAGE" "--container-mounts=$CONTAINER_MOUNTS" "--container-workdir=$PWD" --no-container-mount-home)
  fi
  profiler=()
  [ -z "$NSYS" ] || read -ra profiler <<<"nsys profile $NSYS --output $LOG_DIR/$SLURM_JOB_ID/nsys_%q{SLURM_PROCID} --force-overwrite true"
  mkdir -p "$LOG_DIR/$SLURM_JOB_ID"

  local head_node
  head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | awk 'NR == 1') # reads to the end: head would break the pipe
  # By address, because the names of nodes need not resolve on all of them, nor a node's own name there. IPv4 where there is one.
  head_address=${MASTER_ADDR:-$(srun --nodes=1 --ntasks=1 -w "$head_node" sh -c 'hostname --ip-address 2>/dev/null || hostname --all-ip-addresses' |
    awk '{ found = $1; for (i = NF; i > 0; --i) if ($i !~ /:/) found = $i; print found }')}
  port=${MASTER_PORT:-$((15000 + SLURM_JOB_ID * 8 % 16000))}
}

# Asks all ranks to end their step and to save it; the job goes on in its next run. SLURM sends the signal to this shell alone
# (--signal=B:USR1@...), which knows then that the job has not ended by itself.
stop_and_requeue() {
  requeue=yes
  scancel --signal=TERM "$SLURM_JOB_ID"
}

run_step() {
  local code=0
  if [ "$requeue" = no ]; then wait_for_step "$@" || code=$?; fi
  if [ "$requeue" = yes ]; then
    echo "The time is over: the step ended with code $code; the job goes on in its next run"
    scontrol requeue "$SLURM_JOB_ID"
  fi
  exit "$code"
}

wait_for_step() {
  local code=0 step
  # The monitoring of DCGM and profilers want the same counters.
  if command -v dcgmi >/dev/null; then srun --ntasks-per-node=1 dcgmi profile --pause || true; fi
  srun "${step_options[@]}" "$@" &
  step=$!
  while kill -0 "$step" 2>/dev/null; do wait "$step" || true; done # a signal ends `wait`, not the step
  wait "$step" || code=$?
  if command -v dcgmi >/dev/null; then srun --ntasks-per-node=1 dcgmi profile --resume || true; fi
  return "$code"
}
