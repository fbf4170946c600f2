"""How long the page of a long run takes: `titanium report` of a run with a line a step, and its drawing in a browser.

    python3 bench/page_speed.py [--titanium build/titanium] [--steps 1000000] [--draws 20]

Needs a Chromium (tests/support/browser.py). The run's folder, some 400 bytes a step, is made in the temporary folder and removed.
"""

import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))

import browser  # noqa: E402
import run_folders  # noqa: E402

SCRIPT = """
const script = [], painted = [];
for (let i = 0; i < DRAWS; i++) {
  const begin = performance.now();
  plots.forEach(draw);
  script.push(performance.now() - begin);
  plots.forEach((plot) => plot.canvas.getContext('2d').getImageData(0, 0, 1, 1)); // waits for the pixels
  painted.push(performance.now() - begin);
}
document.body.dataset.times = JSON.stringify({ script, painted });"""


def main():
    parser = argparse.ArgumentParser(description="The page of a long run.")
    parser.add_argument("--titanium", default=str(ROOT / "build/titanium"))
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--draws", type=int, default=20)
    args = parser.parse_args()
    if browser.find_browser() is None:
        sys.exit("there is no Chromium on this machine")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        run = run_folders.write_run(folder / "run", steps=args.steps, total=args.steps, log_freq=1)
        page = folder / "page.html"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([args.titanium, "report", run, "--out", page], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        size = (run / "metrics.jsonl").stat().st_size
        print(f"metrics.jsonl of {args.steps} steps: {size / 1e6:.0f} MB; report: {seconds:.1f} s of processor time, {after.ru_maxrss / 1e3:.0f} MB of memory; "
              f"page: {page.stat().st_size / 1e6:.1f} MB")
        text = page.read_text()
        page.write_text(text.replace("</body>", "<script>" + SCRIPT.replace("DRAWS", str(args.draws)) + "</script></body>"))
        dom = browser.Browser(None, folder).dom(f"file://{page}", until="data-times")
        times = json.loads(dom.one("body").attributes["data-times"])
        plots = len(dom.all("article", class_="plot"))
        print(f"drawing {plots} plots, median of {args.draws}: {statistics.median(times['script']):.1f} ms in the script, "
              f"{statistics.median(times['painted']):.1f} ms until processor and readback have given the pixels")


if __name__ == "__main__":
    main()
