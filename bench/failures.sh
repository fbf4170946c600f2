# Sourced by the checks beside it: what fails is remembered, so that one failure hides neither the rest nor itself.
failed=()

# attempt NAME COMMAND...: a command that fails is told of at once and remembered.
attempt() {
  local name=$1
  shift
  "$@" || { echo "FAILED: $name"; failed+=("$name"); }
}

# run_gpu_tests FOLDER: all of build/gpu_tests, dealt out to GPU_TEST_PROCESSES (8) at once, which share the cores; their output is in FOLDER/gpu_tests.log.
run_gpu_tests() {
  local processes=${GPU_TEST_PROCESSES:-8} threads code=0 running=() i
  threads=$(($(nproc) > processes ? $(nproc) / processes : 1))
  rm -f "$1"/gpu_tests_*.log # of a check that was ended
  for ((i = 0; i < processes; i++)); do
    OMP_NUM_THREADS=$threads GTEST_TOTAL_SHARDS=$processes GTEST_SHARD_INDEX=$i timeout 600 build/gpu_tests >"$1/gpu_tests_$i.log" 2>&1 &
    running+=($!)
  done
  for i in "${running[@]}"; do wait "$i" || code=$?; done
  cat "$1"/gpu_tests_*.log >"$1/gpu_tests.log"
  rm "$1"/gpu_tests_*.log
  grep -E '^\[  (PASSED|FAILED|SKIPPED)|Failure|Error|error' "$1/gpu_tests.log" || true
  return "$code"
}

# The last line of a check: its exit code is 1 if something has failed.
tell_failures() {
  if ((${#failed[@]} > 0)); then
    local names
    printf -v names "%s, " "${failed[@]}"
    echo "${#failed[@]} failed: ${names%, }"
    exit 1
  fi
  echo "All passed"
}
