#!/usr/bin/env bash
# Runs clang-tidy over the library (or the files given) with the flags of build/compile_commands.json.
#
#   tools/run_clang_tidy.sh [titanium/ops/linear/linear.cpp ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ -e build/compile_commands.json ] || { echo "build first: ./run_tests.sh" >&2; exit 1; }
if [ $# -eq 0 ]; then
  mapfile -t files < <(python3 -c 'import json; print("\n".join(sorted({c["file"] for c in json.load(open("build/compile_commands.json"))})))' |
    grep "^$PWD/titanium/")
  set -- "${files[@]}"
fi
# clang does not read gcc's precompiled headers; it takes the header itself, which stands beside them.
printf '%s\n' "$@" | xargs -P "$(nproc)" -n 1 clang-tidy-19 -p build --quiet \
  --extra-arg=-Wno-ignored-gch --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-ignored-optimization-argument --extra-arg=-Wno-unused-command-line-argument
