"""How long the page of a long run takes: `titanium report` of a run with a line a step, and its drawing in a browser.

    python3 bench/page_speed.py [--titanium build/titanium] [--steps 1000000] [--draws 20]

Needs a Chromium (tests/support/browser.py). The run's folder, some 400 bytes a step, is made in the temporary folder and removed.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))

import browser  # noqa: E402
import run_folders  # noqa: E402

SCRIPT = """
const script = [], painted = []; // the time of the script alone, and until the pixels are there
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
        run, page = folder / "run", folder / "page.html"
        # In a process of its own: the memory of this one would count as the program's.
        writer = multiprocessing.Process(target=run_folders.write_run, args=(run,), kwargs={"steps": args.steps, "total": args.steps, "log_freq": 1})
        writer.start()
        writer.join()
        reporting = subprocess.Popen([args.titanium, "report", run, "--out", page])
        _, status, used = os.wait4(reporting.pid, 0)
        if status != 0:
            sys.exit("titanium report failed")
        seconds = used.ru_utime + used.ru_stime
        size = (run / "metrics.jsonl").stat().st_size
        print(f"metrics.jsonl of {args.steps} steps: {size / 1e6:.0f} MB; report: {seconds:.1f} s of processor time, {used.ru_maxrss / 1e3:.0f} MB of memory; "
              f"page: {page.stat().st_size / 1e6:.1f} MB")
        text = page.read_text()
        page.write_text(text.replace("</body>", "<script>" + SCRIPT.replace("DRAWS", str(args.draws)) + "</script></body>"))
        dom = browser.Browser(None, folder).dom(f"file://{page}", until="data-times")
        times = json.loads(dom.one("body").attributes["data-times"])
        plots = len(dom.all("article", class_="plot"))
        for what, taken in times.items():
            print(f"drawing {plots} plots, {what}: median {statistics.median(taken):.1f} ms, least {min(taken):.1f} ms of {len(taken)}")


if __name__ == "__main__":
    main()
