#!/usr/bin/env bash
# Runs every test that this machine can run: sets the machine up and builds on first use.
#
#   ./run_tests.sh [-R name-regex] [-L unit|distributed|parity|gpu|e2e] [other ctest options]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source tools/setup.sh
titanium_setup test all
exec ctest --test-dir "$TITANIUM_BUILD" --output-on-failure --no-tests=error -j "$(nproc)" "$@"
