"""What observing a run costs: the debug model with everything on against everything off, in alternating runs.

    source bench/torch_libraries.sh    # where the only torch is that of the system's Python
    python3 -u bench/observe_overhead.py [--device cpu] [--pairs 16] [--steps 600] [--out FILE] [-- options of titanium train]

On: metrics.jsonl, run.jsonl and files by rank, TensorBoard, Weights & Biases, the endpoint of metrics.port (scraped every second), the log as
JSON, the flight recorder, a profiler whose cycle has ended, on GPUs the history of memory, and `titanium watch`, which is asked for its data
every three seconds as an open page does. Off: none of these. Both log every 10 steps. It is checked that each tool has written its files.

The profiler's cycle ends in the middle of a run, and the next would begin after it: the steps from 20 later to the end are measured, with
the times that the device has stamped on them, of which the lines of steps tell the tokens per second. Runs alternate (off on, on off, ...), so
that a machine that becomes slower is slower for both. The cost is the median of the differences of pairs, with its 95 % bootstrap interval.

One rank has no collectives, so the flight recorder has nothing to record; with `-- --parallelism.fsdp_on_one_rank` it has those of FSDP. `--parts`
measures each tool alone instead, to see which one costs what.

Exit code 1: the cost is above the limit. 3: it is below, and the interval is not; more pairs decide.
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
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
ON = ["--metrics.enable_tensorboard", "--metrics.enable_wandb", "--metrics.save_for_all_ranks", "--log.format", "json"]
LINE = re.compile(r"step: *(\d+) .*?tps: *([\d,]+)")
SETTLED = 20      # steps after the profiler's cycle until the measurement begins


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def cycle(steps):
    """profiling.profile_freq such that one cycle ends inside the run and the warm-up of the next would begin after it."""
    return steps // 2 + 5


def profiling(steps):
    return ["--profiling.enable_profiling", "--profiling.profile_freq", str(cycle(steps))]


def parts(device, port):
    """Each tool alone: what is added to the options of a run without any, and to its environment."""
    quiet = OFF[1:]  # all but metrics.jsonl
    found = {"nothing": (OFF, {}), "metrics.jsonl and run.jsonl": (quiet, {}), "files by rank": ([*quiet, "--metrics.save_for_all_ranks"], {}),
             "TensorBoard": ([*OFF, "--metrics.enable_tensorboard"], {}), "Weights & Biases": ([*OFF, "--metrics.enable_wandb"], {}),
             "log as JSON": ([*OFF, "--log.format", "json"], {}), "endpoint, scraped": ([*OFF, "--metrics.port", str(port)], {}),
             "flight recorder": (OFF[:1], {}), "page": (quiet, {}), "profiler": ([*OFF, "--profiling.enable_profiling"], {})}
    if device != "cpu":
        for teardown in "01":  # whether Kineto unloads CUPTI after a cycle
            found[f"profiler, TEARDOWN_CUPTI={teardown}"] = ([*OFF, "--profiling.enable_profiling"], {"TEARDOWN_CUPTI": teardown})
        found["history of memory"] = ([*OFF, "--profiling.enable_memory_snapshot"], {})
    return found


class Asker(threading.Thread):
    """Asks for an address again and again, and keeps the last answer and the number of answers."""

    def __init__(self, url, every, ready=None):
        super().__init__()
        self.url, self.every, self.ready = url, every, ready
        self.ended, self.count, self.last = threading.Event(), 0, ""

    def run(self):
        while not self.ended.wait(self.every):
            try:
                with urllib.request.urlopen(self.url, timeout=5) as answer:
                    self.last = answer.read().decode()
                    self.count += 1
            except OSError:
                pass  # not open yet, or closed already

    def end(self):
        self.ended.set()
        self.join()


class Page:
    """`titanium watch` of a run, from the moment in which the run has files, with one reader."""

    def __init__(self, titanium, folder, environment, every):
        port = free_port()
        self.asker = Asker(f"http://127.0.0.1:{port}/data.json", every)
        self.process, self.ended = None, threading.Event()
        self.words, self.folder, self.environment = [titanium, "watch", folder, "--port", str(port)], pathlib.Path(folder), environment
        self.starter = threading.Thread(target=self.start)
        self.starter.start()

    def start(self):
        while not (self.folder / "metrics.jsonl").exists():
            if self.ended.wait(0.05):
                return
        self.process = subprocess.Popen(self.words, cwd=ROOT, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.asker.start()

    def end(self):
        """The last step that it has shown."""
        self.ended.set()
        self.starter.join()
        if self.process is None:
            return 0
        self.asker.end()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        return json.loads(self.asker.last)["runs"][0]["summary"]["step"] if self.asker.last else 0


def check(fact, what):
    if not fact:
        sys.exit(f"the observed run is not as it should be: {what}")


def check_files(folder, log, steps, snapshots):
    """Every tool has written what it is for."""
    def sizes(pattern):
        return [path.stat().st_size for path in folder.glob(pattern)]

    expected = {"metrics.jsonl": 1, "run.jsonl": 1, "metrics_by_rank/rank_0.jsonl": 1, "tb/*/rank_0/events.out.tfevents.*": 1,
                "tb/*/rank_0/wandb/offline-run-*/run-*.wandb": 1, f"profile_trace/iteration_{cycle(steps)}/rank0_trace.json": 1,
                "profile_trace/*/*": 1}
    if snapshots:
        expected[f"memory_snapshot/iteration_{cycle(steps)}/rank0_memory_snapshot.pickle"] = 1
    for pattern, count in expected.items():
        found = sizes(pattern)
        check(len(found) == count and all(found), f"{pattern} has the sizes {found}")
    check(json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["step"] == steps, "metrics.jsonl ends too early")
    for line in log.splitlines():
        check(line.startswith("{") and "message" in json.loads(line), f"a line of the log is no object: {line[:200]}")


class Bench:
    def __init__(self, args):
        self.args = args
        self.common = [*COMMON, "--training.device", args.device, *args.options]
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
        self.scrapes = self.readings = 0
        self.tokens = 0  # of a step
        self.hardware = ""

    def train(self, folder, steps, *options, **variables):
        words = [self.args.titanium, "train", *self.common, "--training.steps", str(steps), "--job.dump_folder", folder, *options]
        environment = {**self.environment, "MASTER_PORT": str(free_port()), **variables}
        result = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(f"titanium train failed:\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
        self.hardware = re.search(r"capacity: (.*?) with", result.stdout).group(1)
        return result.stdout

    def step_seconds(self, log, steps):
        """The mean over the steps that are measured, in tokens' time; times self.tokens it is seconds."""
        lines = [(int(step), float(tps.replace(",", ""))) for step, tps in LINE.findall(log)]
        begin = cycle(steps) + SETTLED
        measured = [1 / tps for step, tps in lines if step - 10 >= begin]  # a line is about the 10 steps before it
        if not measured:
            sys.exit(f"{steps} steps are too few: measured are those after {begin + 10}")
        return statistics.fmean(measured)

    def plain(self):
        with tempfile.TemporaryDirectory() as folder:
            log = self.train(folder, self.args.steps, *OFF)
            if list(pathlib.Path(folder).rglob("*.*")):
                sys.exit(f"the run without observation has written {list(pathlib.Path(folder).rglob('*'))}")
            return self.step_seconds(log, self.args.steps)

    def observed(self):
        steps = self.args.steps
        with tempfile.TemporaryDirectory() as folder:
            port = free_port()
            scraper = Asker(f"http://127.0.0.1:{port}/metrics", self.args.scrape_seconds)
            page = Page(self.args.titanium, folder, self.environment, self.args.page_seconds)
            scraper.start()
            snapshots = ["--profiling.enable_memory_snapshot"] if self.args.device != "cpu" and not self.args.no_snapshot else []
            try:
                log = self.train(folder, steps, *ON, *profiling(steps), *snapshots, "--metrics.port", str(port))
            finally:
                scraper.end()
                seen = page.end()
            check_files(pathlib.Path(folder), log, steps, snapshots)
            scraped = re.search(r"(?m)^titanium_step (\d+)", scraper.last)
            check(scraped and int(scraped[1]) > cycle(steps), "it was not scraped while it was measured")
            check(seen > 0, "the page has not shown a step")
            self.scrapes += scraper.count
            self.readings += page.asker.count
            last = json.loads((pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()[-1])
            self.tokens = last["tokens"] / last["step"]
            return self.step_seconds(log, steps)

    def part(self, name):
        """Milliseconds of a step with one tool alone."""
        port = free_port()
        options, environment = parts(self.args.device, port)[name]
        with tempfile.TemporaryDirectory() as folder:
            page = Page(self.args.titanium, folder, self.environment, self.args.page_seconds) if name == "page" else None
            scraper = Asker(f"http://127.0.0.1:{port}/metrics", self.args.scrape_seconds)
            scraper.start()
            try:
                log = self.train(folder, self.args.steps, *options, "--profiling.profile_freq", str(cycle(self.args.steps)), **environment)
            finally:
                scraper.end()
                if page:
                    page.end()
        self.tokens = float(re.search(r"local batch size (\d+)", log)[1]) * float(re.search(r"sequence length (\d+)", log)[1])
        return self.step_seconds(log, self.args.steps) * self.tokens * 1e3


def interval(differences, seed=0):
    """The 95 % bootstrap interval of their median."""
    choose = random.Random(seed)
    medians = sorted(statistics.median(choose.choices(differences, k=len(differences))) for _ in range(4000))
    return medians[100], medians[-101]


def measure_parts(bench, args):
    """A table of what each tool costs alone: rounds of all, each in another order."""
    names = list(parts(args.device, 0))
    times = {name: [] for name in names}
    for turn in range(args.pairs):
        for name in random.Random(turn).sample(names, len(names)):
            times[name].append(bench.part(name))
    without = statistics.median(times["nothing"])
    print(f"{bench.hardware}, commit {commit()}, `python3 {' '.join(sys.argv)}`\n\n| tool | ms, median of {args.pairs} | all | difference |\n|---|---|---|---|")
    for name in names:
        middle = statistics.median(times[name])
        each = ", ".join(f"{value:.3f}" for value in times[name])
        print(f"| {name} | {middle:.3f} | {each} | {100 * (middle / without - 1):+.2f} % |", flush=True)


def commit():
    known = os.environ.get("COMMIT")
    if known:
        return known
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return asked.stdout.strip() or "unknown; name it with COMMIT=..."


def describe(bench, args, rows, verdict):
    off = [without for without, _ in rows]
    differences = [with_all / without - 1 for without, with_all in rows]
    median, low, high = (100 * value for value in (statistics.median(differences), *interval(differences)))
    noise = [abs(b / a - 1) for a, b in zip(off, off[1:])] or [0]
    milliseconds = bench.tokens * 1e3
    code, words = verdict(median, high)
    table = "\n".join(f"| {i} | {without * milliseconds:.4f} | {with_all * milliseconds:.4f} | {100 * difference:+.3f} % |"
                      for i, ((without, with_all), difference) in enumerate(zip(rows, differences), 1))
    text = f"""# What observing costs a step of the debug model

- Machine: {bench.hardware}
- Commit: {commit()}
- Command: `python3 {' '.join(sys.argv)}`

| | |
|---|---|
| step without observation, {bench.tokens:.0f} tokens | {statistics.median(off) * milliseconds:.4f} ms |
| with everything, median of {len(rows)} pairs | {median:+.3f} % |
| its 95 % bootstrap interval | {low:+.3f} to {high:+.3f} % |
| limit | {args.limit} %: {words} |
| neighbouring runs without observation differ by | {100 * statistics.median(noise):.3f} % (median) |
| answered scrapes, readings of the page | {bench.scrapes}, {bench.readings} |

Pairs of {args.steps} steps, of which those after {cycle(args.steps) + SETTLED} are measured:

| pair | ms without | ms with | difference |
|---|---|---|---|
{table}
"""
    return text, code


def main():
    parser = argparse.ArgumentParser(description="What observing costs a step of the debug model.")
    parser.add_argument("--titanium", default=str(ROOT / "build/titanium"))
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--limit", type=float, default=0.5, help="percent")
    parser.add_argument("--scrape-seconds", type=float, default=1)
    parser.add_argument("--page-seconds", type=float, default=3)
    parser.add_argument("--parts", action="store_true", help="each tool alone; --pairs says how often")
    parser.add_argument("--no-snapshot", action="store_true", help="leave the history of memory off, to see what it takes of the cost")
    parser.add_argument("--out", help="also writes the result there, as Markdown")
    parser.add_argument("options", nargs="*")
    args = parser.parse_args()

    def verdict(median, high):
        return (1, "above") if median > args.limit else (3, "not decided") if high > args.limit else (0, "below")

    bench, rows = Bench(args), []
    if args.parts:
        return measure_parts(bench, args)
    for pair in range(args.pairs):
        runs = [bench.plain, bench.observed]
        times = [run() for run in (runs if pair % 2 == 0 else runs[::-1])]
        rows.append(tuple(times if pair % 2 == 0 else times[::-1]))
        print(f"pair {pair + 1:2}: {rows[-1][0] * bench.tokens * 1e3:.4f} ms without, {rows[-1][1] * bench.tokens * 1e3:.4f} ms with, "
              f"{100 * (rows[-1][1] / rows[-1][0] - 1):+.3f} %", flush=True)
    text, code = describe(bench, args, rows, verdict)
    print(text)
    if args.out:
        pathlib.Path(args.out).write_text(text)
    sys.exit(code)


if __name__ == "__main__":
    main()
