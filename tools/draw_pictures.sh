#!/usr/bin/env bash
# Draws pictures of README and docs again, from the program and from files of the repository: the chart of speeds from bench/results and the
# pipeline schedule; with the folder of a run (job.dump_folder) and chromium also its page, as it looks on a screen and on a phone.
#
#   tools/draw_pictures.sh [RUN_FOLDER]
#
# Loss curves are drawn by tools/plot_loss.py from metrics.jsonl of the runs that their pages name, the images of Flux by
# tools/draw_flux_picture.sh, and the step of a trace by bench/trace_picture.py; none of them is touched here.
#
#   OUT        folder for the pictures (default: docs/images)
#   TITANIUM   the program (default: build/titanium)
set -euo pipefail
run=${1:+$(realpath "$1")}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
titanium=${TITANIUM:-build/titanium}
out=${OUT:-docs/images}
mkdir -p "$out"

python3 tools/draw_speed_chart.py --out "$out/speed_8b.svg"
"$titanium" schedule show --schedule DualPipeV --pp 4 --microbatches 8 --svg "$out/dual_pipe_v.svg" >/dev/null
[ -n "$run" ] || exit 0

browser=$(command -v chromium-headless-shell || command -v chromium || command -v chromium-browser || command -v google-chrome || true)
[ -n "$browser" ] || { echo "no chromium: the page of the run is not drawn" >&2; exit 0; }
page=$(mktemp --suffix .html)
trap 'rm -f "$page"' EXIT
"$titanium" report "$run" --out "$page"
photograph() { # PICTURE WIDTH,HEIGHT THEME
  "$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --virtual-time-budget=8000 --window-size="$2" --screenshot="$out/$1" "file://$page?theme=$3" 2>/dev/null
}
photograph report_light.png 1440,900 light
photograph report_phone.png 500,1000 dark
