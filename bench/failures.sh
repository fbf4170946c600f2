# Sourced by the checks beside it: what fails is remembered, so that one failure hides neither the rest nor itself.
failed=()

# attempt NAME COMMAND...: a command that fails is told of at once and remembered.
attempt() {
  local name=$1
  shift
  "$@" || { echo "FAILED: $name"; failed+=("$name"); }
}

# run_gpu_tests FOLDER: all of build/gpu_tests, with the whole output in FOLDER/gpu_tests.log.
run_gpu_tests() {
  local code=0
  timeout 600 build/gpu_tests >"$1/gpu_tests.log" 2>&1 || code=$?
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
