#!/usr/bin/env bash
# Puts into a folder what an image of Titanium holds besides a base system: the program, the libraries of the torch and CUDA wheels,
# run_train.sh, the configurations and the debug model's data.
#
#   deploy/kubernetes/collect_image.sh FOLDER [BUILD]       BUILD is a build folder (default: build-release)
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

# Shared libraries alone: what the wheels hold of Python, headers and static libraries stays behind. LD_LIBRARY_PATH names the folder.
mkdir -p "$folder/app/lib"
readelf -d "$build/titanium" | sed -n 's/.*R\(UN\)\?PATH.*\[\(.*\)\]/\2/p' | tr ':' '\n' | sort -u | while read -r place; do
  [ -d "$place" ] || continue
  find "$place" -maxdepth 1 -name '*.so*' ! -name 'libtorch_python*' -exec cp -L {} "$folder/app/lib/" \;
done
