#!/usr/bin/env bash
# Puts into a folder what an image of Titanium holds besides a base system: the program and its plug-in for Parquet, the libraries of the
# torch, CUDA and pyarrow wheels, run_train.sh, the configurations and the debug model's data. The base system has to have the packages
# libcurl4 and ca-certificates, if data or checkpoints are at addresses.
#
#   deploy/kubernetes/collect_image.sh FOLDER [BUILD]       BUILD is a build folder (default: build-release)
#
#   LINK         not empty: libraries are symbolic links instead of copies, which is enough for a look at the folder
set -euo pipefail
folder=${1:?usage: collect_image.sh FOLDER [BUILD]}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${2:-build-release}

mkdir -p "$folder/app/tools" "$folder/app/tests"
cp "$build/titanium" "$folder/app/titanium"
cp run_train.sh LICENSE "$folder/app/"
cp tools/setup.sh tools/train_command.sh tools/requirements.txt tools/packages.txt "$folder/app/tools/"
cp -r configs "$folder/app/configs"
cp -r tests/assets "$folder/app/tests/assets"

take() { if [ -n "${LINK:-}" ]; then ln -sf "$1" "$folder/app/lib/"; else cp -L "$1" "$folder/app/lib/"; fi; }

# The folders in which a program looks for its libraries.
places_of() { readelf -d "$1" | sed -n 's/.*R\(UN\)\?PATH.*\[\(.*\)\]/\2/p' | tr ':' '\n' | sort -u; }

# The libraries in folder $2 that $1 needs, with those that they need.
take_needed() {
  local name
  for name in $(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    if [ ! -e "$2/$name" ] || [ -e "$folder/app/lib/$name" ]; then continue; fi
    take "$2/$name"
    take_needed "$2/$name" "$2"
  done
}

# Shared libraries alone: what the wheels hold of Python, headers and static libraries stays behind. LD_LIBRARY_PATH names the folder.
mkdir -p "$folder/app/lib"
places_of "$build/titanium" | while read -r place; do
  [ -d "$place" ] || continue
  find "$place" -maxdepth 1 -name '*.so*' ! -name 'libtorch_python*' | while read -r library; do take "$library"; done
done

# The plug-in lies beside the program. Most of the wheel that it is built with is Python's: only what it needs is taken.
plugin=$build/libtitanium_arrow.so
if [ -e "$plugin" ]; then
  cp "$plugin" "$folder/app/"
  places_of "$plugin" | while read -r place; do take_needed "$plugin" "$place"; done
else
  echo "$build has no plug-in libtitanium_arrow.so, so the image will not read Parquet and Arrow files" >&2
fi
