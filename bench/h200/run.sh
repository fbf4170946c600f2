#!/usr/bin/env bash
# Training speed on one GPU against its ceilings and PyTorch, all in one run: matrix products, attention and copies as fast as the
# GPU does them; an eager PyTorch step of Llama 3 8B; then Titanium, setting by setting, with the products tuned. Writes a table with
# tokens per second, MFU, peak memory, and the ratio to the floor that follows from the ceilings. Takes build/titanium, or builds it
# where torch is not in the system's Python.
#
#   bench/h200/run.sh [RESULT_FILE]         about 18 minutes on an H200
#   ROWS='8B batch|1B' bench/h200/run.sh    only the settings that match
#   ninja -C build bench_image_step         before, for the rows of image models
#   AGAINST=older/titanium                  measures an older build before and after each setting
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [[ ! -x build/titanium ]]; then
  source tools/setup.sh
  titanium_setup program titanium
  PATH="$(deps_dir)/bin:$PATH"
fi
source bench/torch_libraries.sh
result=${1:-bench/results/$(date +%F)_h200_run.md}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TITANIUM_CACHE_DIR=${TITANIUM_CACHE_DIR:-$work/cache}
python3 bench/h200/run.py --work "$work" --result "$result" --rows "${ROWS:-.}" ${NO_PEER:+--no-peer} ${AGAINST:+--against "$AGAINST"}
