#!/usr/bin/env bash
# Cross-compiles the CPU build for aarch64 and tries it under qemu. By hand, or every night by `ninja -C build nightly`; no part of the tests. Needs root for
# apt-get, or the packages installed.
#
#   tools/cross_aarch64.sh [TARGET ...]     default: the unit tests of all layers without torch
#
#   unit_<layer>                            builds these unit tests and runs them
#   titanium                                builds the program and trains three steps of the debug model, whose losses have to be those of x86_64 to 1e-6
#   cuda, or the name of a kernel file      compiles all kernels, or this one, for compute capability 10.0 with NVIDIA's compiler for aarch64
#   all                                     the default, titanium and cuda
#
# A step that fails does not keep the others from being tried. Every step says how long it took, and the last line names those that failed.
#
#   TITANIUM                                the program of this machine whose losses are compared (default: build/titanium)
#   TITANIUM_AARCH64_DIR                    where Debian's arm64 packages and the wheels are kept (default: ~/.cache/titanium/aarch64)
#   JOBS                                    compilers at a time (default: all cores)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/setup.sh
kept=${TITANIUM_AARCH64_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/titanium/aarch64}
root=$kept/root
toolkit=$kept/compiler/nvidia/cu13
build=build-aarch64
jobs=${JOBS:-$(nproc)}
kernels=titanium/kernels/cuda
without_torch=(unit_base unit_config unit_kernels unit_schedule unit_remote unit_observe unit_data)

# Debian's packages of arm64 in a state of apt of its own, so that the machine's stays as it is. Only unpacked, never installed.
fetch_packages() {
  local state=$kept/apt apt packages package curl
  mapfile -t packages < <({ group "$packages_file" program; group "$packages_file" test; } | grep -e '-dev$' | grep -v -e libamdhip64 -e libclang)
  packages+=(libbenchmark1debian)
  [ "$(cat "$root/.complete" 2>/dev/null)" = "${packages[*]}" ] && return
  mkdir -p "$state/lists/partial" "$state/archives/partial" "$root"
  : >"$state/status"
  apt=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$state" -o Dir::State::Lists="$state/lists"
    -o Dir::State::status="$state/status" -o Dir::Cache="$state" -o APT::Sandbox::User=root)
  say "fetching arm64 packages into $root"
  apt-get "${apt[@]}" update >&2
  (cd "$state/archives" && apt-get "${apt[@]}" download "${packages[@]}" >&2)
  for package in "$state"/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
  # The program loads libcurl when there is an address. It comes with all that it needs, but for what the cross-compiler has.
  mapfile -t curl < <(apt-get "${apt[@]}" -s --no-install-recommends install libcurl4 | sed -n 's/^Inst \([^ ]*\) .*/\1/p' |
    grep -v -x -e 'libc6' -e 'libgcc-s1' -e 'gcc-[0-9]*-base' -e 'libcrypt1' -e 'debconf' -e 'perl-base' -e 'libc-bin')
  mkdir -p "$state/curl"
  (cd "$state/curl" && apt-get "${apt[@]}" download libcurl4 "${curl[@]}" >&2)
  for package in "$state"/curl/*.deb; do dpkg-deb -x "$package" "$kept/curl"; done
  echo "${packages[*]}" >"$root/.complete"
}

# Unpacks the aarch64 wheels of some groups of tools/requirements.txt into the folder $1 below $kept.
fetch_wheels() {
  local folder=$kept/$1 platforms=(--platform manylinux2014_aarch64) pins glibc wheel name
  shift
  pins=$(for name in "$@"; do group "$pins_file" "$name"; done)
  [ "$(cat "$folder/.complete" 2>/dev/null)" = "$pins" ] && return
  say "fetching the wheels of aarch64: $*"
  rm -rf "$folder" "$folder.wheels"
  for glibc in {17..28}; do platforms+=(--platform "manylinux_2_${glibc}_aarch64"); done
  "$(deps_dir)/bin/pip" download -q --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.11 "${platforms[@]}" -d "$folder.wheels" \
    -r <(echo "$pins") >&2
  for wheel in "$folder".wheels/*.whl; do python3 -m zipfile -e "$wheel" "$folder"; done
  rm -rf "$folder.wheels"
  echo "$pins" >"$folder/.complete"
}

run_aarch64() {
  local libraries
  libraries=$(printf '%s:' "$kept"/wheel/torch/lib "$kept"/wheel/nvidia/*/lib "$kept"/curl{/usr,}/lib/aarch64-linux-gnu)
  qemu-aarch64-static -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$libraries" "$@"
}

losses() { python3 -c 'import json, sys; print(*[json.loads(line)["loss"] for line in open(sys.argv[1])])' "$1/metrics.jsonl"; }

compare_steps() {
  local scratch options status=0 here=${TITANIUM:-build/titanium}
  [ -x "$here" ] || fail "there is no $here to compare with: build it, or name another program by TITANIUM"
  scratch=$(mktemp -d)
  options=(--job.config_file configs/llama3/debug_model_cpu.toml --training.steps 3 --training.seq_len 32 --training.local_batch_size 2
    --training.mixed_precision_param float32 --metrics.log_freq 1 --metrics.disable_color_printing)
  OMP_NUM_THREADS=1 "$here" train "${options[@]}" --job.dump_folder "$scratch/here" >"$scratch/here.log" 2>&1 || { tail -3 "$scratch/here.log"; return 1; }
  OMP_NUM_THREADS=1 run_aarch64 "$build/titanium" train "${options[@]}" --job.dump_folder "$scratch/there" >"$scratch/there.log" 2>&1 || { tail -3 "$scratch/there.log"; return 1; }
  echo "x86_64  $(losses "$scratch/here")"
  echo "aarch64 $(losses "$scratch/there")"
  python3 - $(losses "$scratch/here") $(losses "$scratch/there") <<'PY' || status=1
import sys
values = [float(word) for word in sys.argv[1:]]
here, there = values[:3], values[3:]
worst = max(abs(a - b) / abs(a) for a, b in zip(here, there, strict=True))
print(f"losses differ by at most {worst:.1e}")
sys.exit(worst > 1e-6)
PY
  rm -rf "$scratch"
  return "$status"
}

# NVIDIA's compiler of the aarch64 wheels. It starts its parts by name, so each of them becomes a script that starts it under qemu; the host's compiler is the
# cross-compiler, which runs as it is.
prepare_nvcc() {
  [ -x "$toolkit/bin/nvcc.aarch64" ] && return
  local part
  for part in "$toolkit"/bin/{nvcc,cudafe++,fatbinary,ptxas,nvlink,bin2c} "$toolkit"/nvvm/bin/cicc; do
    mv "$part" "$part.aarch64"
    chmod +x "$part.aarch64"
    printf '#!/bin/sh\nexec qemu-aarch64-static -0 "$0" -L /usr/aarch64-linux-gnu "%s" "$@"\n' "$part.aarch64" >"$part"
    chmod +x "$part"
  done
}

# One kernel file becomes an object of aarch64 with code for compute capability 10.0.
compile_kernel() {
  local object=$build/cuda/$1.o
  "$toolkit/bin/nvcc" -ccbin aarch64-linux-gnu-g++ -std=c++17 -O3 --expt-relaxed-constexpr -Xcompiler=-fPIC,-Wall -gencode=arch=compute_100,code=sm_100 -I. -I"$toolkit/include" \
    -I"$kept/wheel/nvidia/cu13/include" -c "$kernels/$1.cu" -o "$object"
  file_is_aarch64 "$object" || fail "$object is no object of aarch64"
  echo "$1: $(stat -c %s "$object") bytes for aarch64 and sm_100"
}

# e_machine of the ELF header is 183.
file_is_aarch64() { [ "$(od -An -t u2 -j 18 -N 2 "$1" | tr -d ' ')" = 183 ]; }

compile_kernels() {
  fetch_wheels compiler compiler
  prepare_nvcc
  mkdir -p "$build/cuda"
  export -f compile_kernel file_is_aarch64 fail
  export toolkit build kept kernels
  printf '%s\n' "$@" | xargs -P "$jobs" -I{} bash -euo pipefail -c 'compile_kernel {}'
}

build_targets() {
  fetch_packages
  # The cross-compiler finds its own linker alone.
  cmake -G Ninja -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DTITANIUM_AARCH64_ROOT="$root" \
    -DTITANIUM_TORCH_DIR="$kept/wheel/torch" -DTITANIUM_NVCC= -DMOLD=OFF -DTITANIUM_PYTHON="$(deps_dir)/bin/python" >"$kept/cmake.log" || { tail -5 "$kept/cmake.log"; exit 1; }
  ninja -C "$build" -j "$jobs" -k 0 "$@"
}

failed=()
# Runs the rest of the words as the step $1.
step() {
  local name=$1 begin=$SECONDS status
  shift
  set +e
  (set -e; "$@")
  status=$?
  set -e
  if [ "$status" -eq 0 ]; then
    echo "$name: $((SECONDS - begin)) s"
  else
    failed+=("$name")
    echo "$name: failed after $((SECONDS - begin)) s"
  fi
}

compiled=()
cuda=()
# Sorts the words of the command line.
add_target() {
  local source
  if [[ $1 == unit_* || $1 == titanium ]]; then
    compiled+=("$1")
  elif [ "$1" = cuda ]; then
    for source in "$kernels"/*.cu; do cuda+=("$(basename "$source" .cu)"); done
  elif [ -e "$kernels/$1.cu" ]; then
    cuda+=("$1")
  elif [ "$1" = all ]; then
    for source in "${without_torch[@]}" titanium cuda; do add_target "$source"; done
  else
    fail "$1 is no target. Name unit_<layer>, titanium, cuda, all, or a kernel of $kernels without its ending"
  fi
}
[ $# -gt 0 ] || set -- "${without_torch[@]}"
for target in "$@"; do add_target "$target"; done

install_packages g++-aarch64-linux-gnu qemu-user-static
step "wheels" fetch_wheels wheel program arrow
[ ${#compiled[@]} -eq 0 ] || step "build of ${compiled[*]}" build_targets "${compiled[@]}"
for target in "${compiled[@]}"; do
  if [ "$target" = titanium ]; then step "three steps" compare_steps; else step "$target" run_aarch64 "$build/$target" --gtest_brief=1; fi
done
[ ${#cuda[@]} -eq 0 ] || step "kernels" compile_kernels "${cuda[@]}"
if [ ${#failed[@]} -gt 0 ]; then
  names=$(printf ', %s' "${failed[@]}")
  fail "these steps failed: ${names:2}"
fi
