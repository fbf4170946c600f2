#!/usr/bin/env bash
# Cross-compiles parts of the CPU build for aarch64 and tries them under qemu. By hand or every night; no part of the tests. Needs root for apt-get, or the
# packages installed.
#
#   tools/cross_aarch64.sh [TARGET ...]     unit tests (default: unit_base unit_kernels unit_schedule), or titanium: trains three steps of the
#                                           debug model, whose losses have to be those of build/titanium to 1e-6
#   TITANIUM_AARCH64_DIR                    where Debian's arm64 packages and the torch wheel are kept (default: ~/.cache/titanium/aarch64)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/setup.sh
kept=${TITANIUM_AARCH64_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/titanium/aarch64}
root=$kept/root
build=build-aarch64
targets=("$@")
[ $# -gt 0 ] || targets=(unit_base unit_kernels unit_schedule)

# Debian's packages of arm64 in a state of apt of its own, so that the machine's stays as it is. Only unpacked, never installed.
fetch_packages() {
  [ -e "$root/.complete" ] && return
  local state=$kept/apt apt
  mkdir -p "$state/lists/partial" "$state/archives/partial" "$root"
  : >"$state/status"
  apt=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$state" -o Dir::State::Lists="$state/lists"
    -o Dir::State::status="$state/status" -o Dir::Cache="$state" -o APT::Sandbox::User=root)
  say "fetching arm64 packages into $root"
  apt-get "${apt[@]}" update >&2
  (cd "$state/archives" && apt-get "${apt[@]}" download libbenchmark-dev libbenchmark1debian libcli11-dev libcurl4-openssl-dev libfmt-dev libgloo-dev libgtest-dev libpcre2-dev \
    libspdlog-dev libtomlplusplus-dev libutf8proc-dev libzstd-dev nlohmann-json3-dev rapidjson-dev zlib1g-dev >&2)
  for package in "$state"/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
  touch "$root/.complete"
}

# The wheels of aarch64 that the program needs: of torch, headers and libraries alone.
fetch_wheels() {
  [ -e "$kept/wheel/.complete" ] && return
  say "fetching the wheels of aarch64"
  local platforms=(--platform manylinux2014_aarch64) glibc
  for glibc in {17..28}; do platforms+=(--platform "manylinux_2_${glibc}_aarch64"); done
  "$(deps_dir)/bin/pip" download -q --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.11 "${platforms[@]}" -d "$kept/wheels" \
    -r <(group "$pins_file" program) >&2
  for wheel in "$kept"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$kept/wheel"; done
  touch "$kept/wheel/.complete"
}

run_aarch64() {
  local libraries
  libraries=$(printf '%s:' "$kept"/wheel/torch/lib "$kept"/wheel/nvidia/*/lib)
  qemu-aarch64-static -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$libraries" "$@"
}

losses() { python3 -c 'import json, sys; print(*[json.loads(line)["loss"] for line in open(sys.argv[1])])' "$1/metrics.jsonl"; }

compare_steps() {
  local scratch options
  scratch=$(mktemp -d)
  options=(--job.config_file configs/llama3/debug_model_cpu.toml --training.steps 3 --training.seq_len 32 --training.local_batch_size 2
    --training.mixed_precision_param float32 --metrics.log_freq 1 --metrics.disable_color_printing)
  OMP_NUM_THREADS=1 build/titanium train "${options[@]}" --job.dump_folder "$scratch/here" >"$scratch/here.log" 2>&1 || { tail -3 "$scratch/here.log"; return 1; }
  OMP_NUM_THREADS=1 run_aarch64 "$build/titanium" train "${options[@]}" --job.dump_folder "$scratch/there" >"$scratch/there.log" 2>&1 || { tail -3 "$scratch/there.log"; return 1; }
  echo "x86_64  $(losses "$scratch/here")"
  echo "aarch64 $(losses "$scratch/there")"
  python3 - $(losses "$scratch/here") $(losses "$scratch/there") <<'PY'
import sys
values = [float(word) for word in sys.argv[1:]]
here, there = values[:3], values[3:]
worst = max(abs(a - b) / abs(a) for a, b in zip(here, there, strict=True))
print(f"losses differ by at most {worst:.1e}")
sys.exit(worst > 1e-6)
PY
  rm -rf "$scratch"
}

install_packages g++-aarch64-linux-gnu qemu-user-static
fetch_packages
fetch_wheels
# The cross-compiler finds its own linker alone.
cmake -G Ninja -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DTITANIUM_AARCH64_ROOT="$root" \
  -DTITANIUM_TORCH_DIR="$kept/wheel/torch" -DTITANIUM_NVCC= -DMOLD=OFF -DTITANIUM_PYTHON="$(deps_dir)/bin/python" >"$kept/cmake.log" || { tail -5 "$kept/cmake.log"; exit 1; }
ninja -C "$build" "${targets[@]}"
for target in "${targets[@]}"; do
  if [[ $target == unit_* ]]; then run_aarch64 "$build/$target" --gtest_brief=1; else compare_steps; fi
done
