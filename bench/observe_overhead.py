"""What observing a run costs: the debug model with everything on against everything off, in alternating runs.

    python3 bench/observe_overhead.py [--titanium build/titanium] [--pairs 12] [--steps 1500] [--out FILE] [-- options of titanium train]

On: metrics.jsonl and run.jsonl, TensorBoard, Weights & Biases, the endpoint of metrics.port (scraped every second), the flight recorder and
a profiler that waits for its cycle. Off: none of these. Both log every 10 steps. Runs alternate (off on, on off, ...), so that a machine that
becomes slower is slower for both. The time of a step is the mean of the second half of a run, from the tokens per second of its lines. The
cost is the median of the differences of pairs; differences between neighbouring runs without observation show what the machine itself does.
"""

import argparse
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMON = ["--job.config_file", "configs/llama3/debug_model.toml", "--metrics.log_freq", "10", "--metrics.disable_color_printing"]
OFF = ["--metrics.no_enable_jsonl", "--comm.trace_buf_size", "0"]
ON = ["--metrics.enable_tensorboard", "--metrics.enable_wandb", "--profiling.enable_profiling", "--profiling.profile_freq", "1000000"]
LINE = re.compile(r"step: *(\d+) .*?tps: *([\d,]+)")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def scrape(port, ended, counts):
    """Asks for the metrics every second until `ended`, and counts the answers."""
    while not ended.wait(1):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                counts.append(len(answer.read()))
        except OSError:
            pass  # not open yet, or closed already


def times_per_token(log):
    """Seconds per token, 1 / tps, of the lines in the second half of the run."""
    lines = [(int(step), float(tps.replace(",", ""))) for step, tps in LINE.findall(log)]
    last = lines[-1][0]
    return [1 / tps for step, tps in lines if step > last / 2]


def run(titanium, options, observed, steps):
    """Seconds per token, and the number of answered scrapes."""
    with tempfile.TemporaryDirectory() as folder:
        words = [titanium, "train", *COMMON, "--training.steps", str(steps), "--job.dump_folder", folder, *(ON if observed else OFF), *options]
        ended, counts, port = threading.Event(), [], free_port()
        if observed:
            words += ["--metrics.port", str(port)]
            scraper = threading.Thread(target=scrape, args=(port, ended, counts))
            scraper.start()
        environment = {**os.environ, "WANDB_DIR": ""}
        result = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
        ended.set()
        if observed:
            scraper.join()
        if result.returncode != 0:
            sys.exit(f"titanium train failed:\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
        written = {path.name.split(".")[0] for path in pathlib.Path(folder).rglob("*") if path.is_file()}
        if observed and not {"metrics", "run", "events"} <= written:
            sys.exit(f"the observed run has written only {sorted(written)}")
        return statistics.fmean(times_per_token(result.stdout + result.stderr)), len(counts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--titanium", default=str(ROOT / "build/titanium"))
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--tokens", type=int, default=16384, help="of a step, to print milliseconds")
    parser.add_argument("--out", help="also writes the result there, as Markdown")
    parser.add_argument("options", nargs="*")
    args = parser.parse_args()

    off, differences, scrapes = [], [], 0
    for pair in range(args.pairs):
        times = {}
        for observed in ((False, True) if pair % 2 == 0 else (True, False)):
            times[observed], answered = run(args.titanium, args.options, observed, args.steps)
            scrapes += answered
        off.append(times[False])
        differences.append(times[True] / times[False] - 1)
        print(f"pair {pair + 1:2}: {times[False] * args.tokens * 1e3:.3f} ms without, {times[True] * args.tokens * 1e3:.3f} ms with, "
              f"{100 * differences[-1]:+.2f} %", flush=True)
    noise = [abs(b / a - 1) for a, b in zip(off, off[1:])] or [0]
    spread = statistics.quantiles(differences, n=4) if len(differences) > 1 else [differences[0]] * 3
    text = (f"Step of the debug model {statistics.median(off) * args.tokens * 1e3:.3f} ms without observation; with all of it "
            f"{100 * statistics.median(differences):+.2f} % (median of {args.pairs} pairs of {args.steps} steps; quartiles {100 * spread[0]:+.2f} and "
            f"{100 * spread[2]:+.2f} %). Neighbouring runs without observation differ by {100 * statistics.median(noise):.2f} % (median). "
            f"{scrapes} scrapes were answered.\n")
    print(text)
    if args.out:
        pathlib.Path(args.out).write_text(text)


if __name__ == "__main__":
    main()
