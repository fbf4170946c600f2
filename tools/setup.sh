# Makes a machine ready and builds Titanium. Sourced by run_train.sh and run_tests.sh:
#
#   titanium_setup program|test
#   titanium_install program|test     only installs: for a layer of an image, which does not change with the sources
#
# `program` installs what the program needs, `test` also what the tests need. Afterwards build/titanium is up to date.
# A stamp in build/ remembers a finished set-up, so that later calls only ask Ninja whether something changed. A second
# set-up of the same build folder waits until the first has ended. The caller has set -euo pipefail.
#
#   TITANIUM_DEPS_DIR    where the wheels are kept (default: ~/.cache/titanium)
#   TITANIUM_TORCH_DIR   an installed torch 2.11.0 (the folder that holds lib/ and include/) to use instead of our own
#   TITANIUM_CUDA        off: a CPU build even where there is a CUDA compiler; on: a CUDA build even where there is neither a
#                        compiler nor a driver, as for an image (default: auto)
#   TITANIUM_CUDA_ARCHS  compute capabilities to build kernels for, such as "90;100" (default: the preset's)
#   TITANIUM_QUIET       not empty: says nothing but errors and what compilers say
#   TITANIUM_PRESET      native (default), release, debug, asan or tsan

TITANIUM_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly TITANIUM_ROOT

say() { if [ -n "${TITANIUM_QUIET:-}" ]; then return 0; elif [ -n "${NO_COLOR:-}" ] || [ ! -t 2 ]; then printf '[setup] %s\n' "$*"; else printf '\033[1m[setup]\033[0m %s\n' "$*"; fi >&2; }
fail() { printf '[setup] error: %s\n' "$*" >&2; exit 1; }

# Passes the lines of a tool on, counting those that match $3: with the count of $2 (0: not known yet), the rate and the time left on one line of a
# terminal, else as a line every 10 s. Lines that match $3 (regular expression) are only counted; one that matches $4 has the total as its first
# group. Of others, those that match $5 are left out. $1 says what is done. Tests do not wait as long: SETUP_LINE_SECONDS.
show_progress() {
  local label=$1 total=$2 counted=$3 totals=$4 dropped=$5 line part= done=0 begin=$SECONDS wait=${SETUP_LINE_SECONDS:-10} open=0 status
  local next=$((begin + wait))
  while true; do
    if IFS= read -r -t 1 line; then status=0; else status=$?; fi
    line=$part$line part=
    if [ "$status" -gt 128 ]; then part=$line line=; fi # a second without the end of a line
    if [ "$status" -ne 0 ] && [ "$status" -le 128 ] && [ -z "$line" ]; then break; fi
    if [[ -n $totals && $line =~ $totals ]]; then total=${BASH_REMATCH[1]}; fi
    if [[ $line =~ $counted ]]; then
      done=$((done + 1))
    elif [ -n "$line" ] && ! [[ -n $dropped && $line =~ $dropped ]]; then
      [ "$open" -eq 0 ] || printf '\r\033[K' >&2
      open=0
      printf '%s\n' "$line" >&2
    fi
    [ -z "${TITANIUM_QUIET:-}" ] || continue
    if [ -t 2 ]; then
      [ "$done" -eq 0 ] || { printf '\r%s\033[K' "$(progress_line "$label" "$done" "$total" $((SECONDS - begin)))" >&2; open=1; }
    elif [ "$SECONDS" -ge "$next" ]; then
      say "$(progress_line "$label" "$done" "$total" $((SECONDS - begin)))"
      next=$((SECONDS + wait))
    fi
  done
  [ "$open" -eq 0 ] || printf '\n' >&2
}

# Runs a tool that draws its own progress: on a terminal it does, else its lines go to show_progress.
shows_itself() {
  if [ -t 2 ] && [ -z "${TITANIUM_QUIET:-}" ]; then "$@" >&2; else "$@" 2>&1; fi
}

# "compiling: 120 of 480, 2.4/s, 150 s left"; with what is known.
progress_line() {
  local label=$1 done=$2 total=$3 seconds=$4
  printf '%s: %d' "$label" "$done"
  [ "$total" -eq 0 ] || printf ' of %d' "$total"
  if [ "$done" -gt 0 ] && [ "$seconds" -gt 0 ]; then
    printf ', %d.%d/s' $((done / seconds)) $((10 * done / seconds % 10))
    [ "$total" -lt "$done" ] || printf ', %d s left' $(((total - done) * seconds / done))
  else
    printf ', %d s' "$seconds"
  fi
}

# Lines of group $2 in file $1, comments dropped.
group() { sed -e 's/ *#.*//' "$1" | awk -v want="[$2]" '/^\[/ { inside = ($1 == want); next } inside && NF' ; }

pins_file="$TITANIUM_ROOT/tools/requirements.txt"
packages_file="$TITANIUM_ROOT/tools/packages.txt"

install_packages() {
  command -v dpkg-query >/dev/null || fail "this is not Debian or Ubuntu: install the equivalents of $packages_file by hand"
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  local apt_line="apt-get install -y --no-install-recommends ${missing[*]}" sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || [ -t 0 ] && command -v sudo >/dev/null || fail "packages are missing and there is no root access. Ask an administrator to run: $apt_line"
    sudo=(sudo)
  fi
  say "installing ${#missing[@]} packages: ${missing[*]}"
  "${sudo[@]}" apt-get update -qq || say "apt-get update failed; trying with the lists at hand"
  DEBIAN_FRONTEND=noninteractive shows_itself "${sudo[@]}" $apt_line |
    show_progress "packages" 0 '^Setting up ' '([0-9]+) newly installed' '^(Get:|Selecting|Preparing|Unpacking|Reading|Building|\(Reading|Processing|Fetched|Created symlink|The following|  |Need to get|After this|[0-9]+ upgraded|debconf)' ||
    fail "apt-get failed. Install by hand: $apt_line"
}

# The venv is shared by all checkouts that compile against the same wheels: its name is a checksum of their pins. Other
# groups can change without a new path to every header, and so without compiling everything again.
deps_dir() {
  local pins
  pins=$(for name in program arrow cuda compiler; do group "$pins_file" "$name"; done | sha256sum | cut -c1-12)
  echo "${TITANIUM_DEPS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/titanium}/venv-$pins"
}

install_wheels() {
  local venv=$1 name wheels pins
  shift
  mkdir -p "$venv"
  exec 9>"$venv/.lock"
  flock 9
  [ -x "$venv/bin/pip" ] || python3 -m venv "$venv" >&2 || fail "python3 -m venv failed. Install by hand: apt-get install -y python3-venv"
  for name in "$@"; do
    pins=$(group "$pins_file" "$name")
    [ "$pins" = "$(cat "$venv/.group-$name" 2>/dev/null)" ] && continue
    mapfile -t wheels <<<"$pins"
    say "downloading ${#wheels[@]} wheels of group '$name' into $venv"
    printf '%s\n' "${wheels[@]}" >"$venv/.wanted"
    shows_itself "$venv/bin/pip" install --disable-pip-version-check --no-deps --no-compile -r "$venv/.wanted" |
      show_progress "wheels of group '$name'" ${#wheels[@]} '^Collecting ' '' '^(  |Downloading|Using cached|Installing collected|Successfully installed|Looking in)' ||
      fail "pip failed. Install by hand: $venv/bin/pip install --no-deps ${wheels[*]%% *}"
    printf '%s\n' "$pins" >"$venv/.group-$name"
  done
  exec 9>&-
}

# Path of a CUDA 13 compiler, or nothing.
find_nvcc() {
  local nvcc
  for nvcc in "${CUDACXX:-}" "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" "$(command -v nvcc || true)"; do
    [ -n "$nvcc" ] && [ -x "$nvcc" ] || continue
    if "$nvcc" --version | grep -q 'release 13\.'; then echo "$nvcc"; return; fi
    say "ignoring $nvcc: torch 2.11.0 needs CUDA 13"
  done
}

is_debian() { grep -qx 'ID=debian' /etc/os-release; }

has_gpu_driver() { [ -e /dev/nvidiactl ] || [ -e /proc/driver/nvidia/version ]; }

# Folder of a torch 2.11.0 that this machine already has, or nothing.
find_torch() {
  if [ -n "${TITANIUM_TORCH_DIR:-}" ]; then
    [ -e "$TITANIUM_TORCH_DIR/lib/libtorch_cpu.so" ] ||
      fail "TITANIUM_TORCH_DIR=$TITANIUM_TORCH_DIR has no lib/libtorch_cpu.so. Point it to the torch folder in site-packages, or unset it"
    echo "$TITANIUM_TORCH_DIR"
    return
  fi
  python3 - <<'PY' 2>/dev/null || true
import importlib.metadata, pathlib
if importlib.metadata.version("torch").split("+")[0] == "2.11.0":
    folder = pathlib.Path(importlib.metadata.distribution("torch").locate_file("torch"))
    if (folder / "lib/libtorch_cuda.so").exists(): print(folder)
PY
}

# What makes a finished set-up stale.
setup_key() {
  { cat "$pins_file" "$packages_file" "$TITANIUM_ROOT/tools/setup.sh"
    echo "$1 ${TITANIUM_DEPS_DIR:-} ${TITANIUM_TORCH_DIR:-} ${TITANIUM_CUDA:-auto} ${CUDACXX:-} ${CUDA_HOME:-} ${TITANIUM_CUDA_ARCHS:-}"; } | sha256sum
}

# Installs the packages and wheels that `purpose` of the caller needs, and tells its `venv`, `torch` and `nvcc` where they are.
install_needs() {
  local wheel_groups=() package_groups=(program) packages
  [ "$purpose" = test ] && package_groups+=(test)
  [ "$purpose" = test ] && is_debian && package_groups+=(browser)
  mapfile -t packages < <(for name in "${package_groups[@]}"; do group "$packages_file" "$name"; done)
  install_packages "${packages[@]}"

  venv=$(deps_dir)
  torch=$(find_torch)
  if [ "${TITANIUM_CUDA:-auto}" != off ]; then
    nvcc=$(find_nvcc)
    if [ -z "$nvcc" ] && { has_gpu_driver || [ "${TITANIUM_CUDA:-auto}" = on ]; }; then
      wheel_groups+=(compiler)
      nvcc="$venv/lib/$(python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')/site-packages/nvidia/cu13/bin/nvcc"
    fi
  fi
  [ -n "$torch" ] && [ "$purpose" = program ] || wheel_groups+=(program)
  wheel_groups+=(arrow)
  [ "$purpose" = test ] && wheel_groups+=(cuda test vocabularies stores)
  [ -n "$nvcc" ] && [ -z "$torch" ] && wheel_groups+=(cuda)
  [ ${#wheel_groups[@]} -eq 0 ] || install_wheels "$venv" "${wheel_groups[@]}"
  [ -n "$torch" ] || torch=$(echo "$venv"/lib/python3*/site-packages/torch)
}

titanium_install() {
  local purpose=$1 torch nvcc="" venv
  install_needs
}

configure() {
  local purpose=$1 build=$2 preset=$3 torch nvcc="" venv
  install_needs
  say "configuring $build (preset $preset, torch $torch, CUDA compiler ${nvcc:-none})"
  cmake --preset "$preset" -B "$build" -S "$TITANIUM_ROOT" -DTITANIUM_TORCH_DIR="$torch" -DTITANIUM_NVCC="$nvcc" \
    ${TITANIUM_CUDA_ARCHS:+-DTITANIUM_CUDA_ARCHS="$TITANIUM_CUDA_ARCHS"} -DTITANIUM_TESTS="$([ "$purpose" = test ] && echo ON || echo OFF)" -DTITANIUM_PYTHON="$venv/bin/python" >&2 ||
    fail "cmake failed; its message above says why. Removing $build and trying again starts afresh"
}

# Whether the build folder $2 is set up for $1. The stamp alone does not say so: whoever configures by hand leaves it.
is_set_up() {
  local tests=OFF
  [ "$1" = test ] && tests=ON
  [ "$(cat "$2/.setup" 2>/dev/null)" = "$(setup_key "$1")" ] && grep -qx "TITANIUM_TESTS:BOOL=$tests" "$2/CMakeCache.txt"
}

# Holds the build folder $1 until unlock_build: CMake and Ninja do not expect a second one beside them.
lock_build() {
  mkdir -p "$1"
  exec 8>"$1/.setup.lock"
  flock --nonblock 8 && return
  say "waiting for another set-up of $1"
  flock 8
}

unlock_build() { exec 8>&-; }

titanium_setup() {
  local purpose=$1 preset=${TITANIUM_PRESET:-native} build
  build="$TITANIUM_ROOT/build"
  [ "$preset" = native ] || build="$build-$preset"
  TITANIUM_BUILD=$build
  lock_build "$build"
  # A tree that has tests keeps them: run_train.sh after run_tests.sh must not reconfigure.
  if [ "$purpose" = program ] && is_set_up test "$build"; then purpose=test; fi
  if ! is_set_up "$purpose" "$build"; then
    rm -f "$build/.setup"
    configure "$purpose" "$build" "$preset"
    setup_key "$purpose" >"$build/.setup"
  fi
  # Silent when there is nothing to do.
  NINJA_STATUS='[step of %t] ' ninja -C "$build" "${2:-all}" 2>&1 | show_progress "building" 0 '^\[step of ' '^\[step of ([0-9]+)\]' '^ninja: (Entering|no work)|Re-checking globbed' ||
    fail "the build failed; the compiler's message above says why"
  unlock_build
}
