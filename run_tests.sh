#!/usr/bin/env bash
# Runs every test that this machine can run: sets the machine up and builds on first use. Tells at the end which tests were
# skipped and why; fails when one should have run here, or has left files behind.
#
#   ./run_tests.sh [-R name-regex] [-L unit|distributed|cluster|parity|gpu|e2e] [other ctest options]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source tools/setup.sh
titanium_setup test all

scratch=$(mktemp -d "${TMPDIR:-/tmp}/titanium_tests.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/files"
chmod 755 "$scratch" # tests that give up root's rights come here too
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY # servers of tests are on this machine
export TMPDIR="$scratch/files" TEST_TMPDIR="$scratch/files" TITANIUM_SKIPPED="$scratch/skipped"

code=0
# Two more at a time than there are cores: jobs, servers and clusters wait as much as they compute.
ctest --test-dir "$TITANIUM_BUILD" --output-on-failure --no-tests=error -j "$(($(nproc) + 2))" "$@" || code=$?
python=$(sed -n 's/^TITANIUM_PYTHON:[^=]*=//p' "$TITANIUM_BUILD/CMakeCache.txt")
"$python" tools/check_test_run.py "$scratch/skipped" "$scratch/files" || code=$((code == 0 ? 1 : code))
exit "$code"
