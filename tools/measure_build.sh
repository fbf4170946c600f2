#!/usr/bin/env bash
# Measures how long builds take and prints the table of CONTRIBUTING.md. Needs a set-up machine (./run_tests.sh, once), takes
# as long as a clean build and all tests, and works in build-measure/, without ccache, so build/ stays as it is.
#
#   tools/measure_build.sh [--no-tests] [jobs]
#
# `jobs` is the number of parallel jobs (default: all cores). Measure on a machine that does nothing else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
run_all_tests=1
if [ "${1:-}" = --no-tests ]; then run_all_tests=0; shift; fi
readonly jobs=${1:-$(nproc)} build=build-measure
export CCACHE_DISABLE=1

# A variable of the finished set-up in build/.
cached() { sed -n "s/^$1:[A-Z]*=//p" build/CMakeCache.txt; }

if [ ! -e build/CMakeCache.txt ] || [ "$(cached TITANIUM_TESTS)" != ON ]; then
  echo "build/ is not set up with tests. Run ./run_tests.sh once." >&2
  exit 1
fi

now() { date +%s.%N; }

# Runs the command and leaves the seconds that it took in `seconds`; on failure shows what it said.
timed() {
  local begin log
  log=$(mktemp)
  echo "$*" >&2
  begin=$(now)
  "$@" >"$log" 2>&1 || { tail -30 "$log" >&2; echo "failed: $*" >&2; exit 1; }
  seconds=$(awk -v begin="$begin" -v end="$(now)" 'BEGIN { printf "%.1f", end - begin }')
  rm -f "$log"
}

# 75.3 -> "1 min 15 s", 4.26 -> "4.3 s".
readable() { awk -v s="$1" 'BEGIN { if (s < 60) printf "%.1f s", s; else printf "%d min %02d s", s / 60, s % 60 }'; }

rows=""
row() { rows+="| $1 | $(readable "$2") |"$'\n'; }

# Touches a file, builds `target` and starts the program that it is in.
rebuild() {
  local what=$1 file=$2 target=$3
  shift 3
  touch "$file"
  timed bash -c 'ninja -C "$1" -j "$2" "$3" && shift 3 && "$@"' rebuild "$build" "$jobs" "$target" "$@"
  row "$what (\`$file\`)" "$seconds"
}

rm -rf "$build"
timed cmake --preset native -B "$build" -DTITANIUM_TORCH_DIR="$(cached TITANIUM_TORCH_DIR)" -DTITANIUM_NVCC="$(cached TITANIUM_NVCC)" \
  -DTITANIUM_CUDA_ARCHS="$(cached TITANIUM_CUDA_ARCHS)" -DTITANIUM_PYTHON="$(cached TITANIUM_PYTHON)" -DTITANIUM_TESTS=ON
configure=$seconds
row "configure" "$configure"

timed ninja -C "$build" -j "$jobs" titanium
program=$seconds
row "clean build of the program" "$program"

timed ninja -C "$build" -j "$jobs" all
tests=$seconds
row "then the tests" "$tests"

if [ "$run_all_tests" = 1 ]; then
  timed ctest --test-dir "$build" --output-on-failure -j "$((jobs + 1))" # as run_tests.sh
  row "then all tests run" "$seconds"
  row "clean build and all tests, together" "$(awk "BEGIN { print $configure + $program + $tests + $seconds }")"
fi

kernel=titanium/kernels/cuda/fill_normal.cu
[ -n "$(cached TITANIUM_NVCC)" ] || kernel=titanium/kernels/fill_normal.cpp
rebuild "nothing to build, program started" README.md titanium "$build/titanium" --version
rebuild "a model file changed, program started" titanium/models/llama3/model.cpp titanium "$build/titanium" --version
rebuild "a kernel changed, program started" "$kernel" titanium "$build/titanium" --version
rebuild "a test changed, test program started" tests/unit/ops/attention_test.cpp unit_ops "$build/unit_ops" --gtest_list_tests

cpu=$(awk -F': ' '/^model name/ { name = $2 } END { print name }' /proc/cpuinfo)
cat <<TABLE
$jobs jobs on ${cpu:-$(uname -m)}, $(awk '/MemTotal/ { printf "%.0f", $2 / 1048576 }' /proc/meminfo) GiB, commit $(git rev-parse --short HEAD), without ccache, CUDA compiler: $([ -n "$(cached TITANIUM_NVCC)" ] && echo yes || echo no)

| what | time |
|---|---|
$rows
TABLE
