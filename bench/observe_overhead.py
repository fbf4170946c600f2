"""What observing a run costs: the debug model with everything on against everything off, in alternating runs.

    source bench/torch_libraries.sh    # where the only torch is that of the system's Python
    python3 -u bench/observe_overhead.py [--device cpu] [--pairs 10] [--steps 800] [--out FILE] [-- options of titanium train]

On: metrics.jsonl, run.jsonl and files by rank, TensorBoard, Weights & Biases, the endpoint of metrics.port (scraped every second), the log as
JSON, the flight recorder, a profiler whose cycle has ended, on GPUs the history of memory, and `titanium watch`, which is asked for its data
every three seconds as an open page does. Off: none of these. Both log every 10 steps. It is checked that each tool has written its files.

The profiler's cycle ends in the middle of a run, and the next would begin after it: the steps from 20 later to the end are measured, with
the times that the device has stamped on them, of which the lines of steps tell the tokens per second. Runs alternate (off on, on off, ...), so
that a machine that becomes slower is slower for both. The cost is the median of the differences of pairs, with its 95 % bootstrap interval.

A run on one rank has no collectives, so what the flight recorder costs is measured apart and added: the time that it takes of a collective
(bench_flight_recorder: our own records, and how much longer a collective of the back end takes with its records), times the collectives of a
step of the same model whose parameters are sharded (counted in its trace), as a share of that step.

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
SHARDED = ["--parallelism.fsdp_on_one_rank"]
LINE = re.compile(r"step: *(\d+) .*?tps: *([\d,]+)")
COLLECTIVE = re.compile(r"(all_gather|reduce_scatter|all_reduce|all_to_all|broadcast|barrier|send|receive) ")
RECORDS = 20_000  # the default of comm.trace_buf_size
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
        result = subprocess.run(words, cwd=ROOT, env={**self.environment, **variables}, capture_output=True, text=True)
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

    def recorder(self):
        """Nanoseconds of a collective that the flight recorder takes; collectives of a step; seconds of that step."""
        def measure(capacity):
            words = [self.args.recorder, str(capacity), "cpu" if self.args.device == "cpu" else "cuda"]
            output = subprocess.run(words, check=True, capture_output=True, text=True, env=self.environment).stdout
            return [float(word) for word in output.splitlines()[-1].split()]

        pairs = [(measure(RECORDS), measure(0)) for _ in range(3)]
        own = statistics.median(on[0] for on, _ in pairs)
        back_end = max(0, statistics.median(on[1] - off[1] for on, off in pairs))
        steps = max(self.args.steps // 2, 100)
        with tempfile.TemporaryDirectory() as folder:
            log = self.train(folder, steps, *SHARDED, *profiling(steps), MASTER_PORT=str(free_port()), TORCH_FR_BUFFER_SIZE=str(RECORDS))
            trace = json.loads((pathlib.Path(folder) / f"profile_trace/iteration_{cycle(steps)}/rank0_trace.json").read_text())
            collectives = sum(event.get("cat") == "user_annotation" and COLLECTIVE.match(event["name"]) is not None
                              for event in trace["traceEvents"])
            if collectives == 0:
                sys.exit("the trace of the sharded model has no collectives")
            return own + back_end, collectives, self.step_seconds(log, steps) * self.tokens


def interval(differences, seed=0):
    """The 95 % bootstrap interval of their median."""
    choose = random.Random(seed)
    medians = sorted(statistics.median(choose.choices(differences, k=len(differences))) for _ in range(4000))
    return medians[100], medians[-101]


def commit():
    known = os.environ.get("COMMIT")
    if known:
        return known
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return asked.stdout.strip() or "unknown; name it with COMMIT=..."


def describe(bench, args, rows, recorder, verdict):
    off = [without for without, _ in rows]
    differences = [with_all / without - 1 for without, with_all in rows]
    low, high = interval(differences)
    cost, collectives, sharded = recorder
    share = collectives * cost * 1e-9 / sharded
    noise = [abs(b / a - 1) for a, b in zip(off, off[1:])] or [0]
    milliseconds = bench.tokens * 1e3
    table = "\n".join(f"| {i} | {without * milliseconds:.4f} | {with_all * milliseconds:.4f} | {100 * difference:+.3f} % |"
                      for i, ((without, with_all), difference) in enumerate(zip(rows, differences), 1))
    total = [100 * (value + share) for value in (statistics.median(differences), low, high)]
    text = f"""# What observing costs a step of the debug model

- Machine: {bench.hardware}
- Commit: {commit()}
- Command: `python3 {' '.join(sys.argv)}`

| | |
|---|---|
| step without observation, {bench.tokens:.0f} tokens | {statistics.median(off) * milliseconds:.4f} ms |
| with everything but the flight recorder, median of {len(rows)} pairs | {100 * statistics.median(differences):+.3f} % |
| its 95 % bootstrap interval | {100 * low:+.3f} to {100 * high:+.3f} % |
| flight recorder: {cost:.0f} ns a collective, {collectives} collectives, step of {sharded * 1e3:.4f} ms (sharded) | {100 * share:+.3f} % |
| all together | {total[0]:+.3f} % ({total[1]:+.3f} to {total[2]:+.3f} %) |
| limit | {args.limit} %: {verdict(*total)[1]} |
| neighbouring runs without observation differ by | {100 * statistics.median(noise):.3f} % (median) |
| answered scrapes, readings of the page | {bench.scrapes}, {bench.readings} |

Pairs of {args.steps} steps, of which those after {cycle(args.steps) + SETTLED} are measured:

| pair | ms without | ms with | difference |
|---|---|---|---|
{table}
"""
    return text, verdict(*total)[0]


def main():
    parser = argparse.ArgumentParser(description="What observing costs a step of the debug model.")
    parser.add_argument("--titanium", default=str(ROOT / "build/titanium"))
    parser.add_argument("--recorder", default=str(ROOT / "build/bench_flight_recorder"), help="ninja -C build bench_flight_recorder")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--limit", type=float, default=0.5, help="percent")
    parser.add_argument("--scrape-seconds", type=float, default=1)
    parser.add_argument("--page-seconds", type=float, default=3)
    parser.add_argument("--no-snapshot", action="store_true", help="leave the history of memory off, to see what it takes of the cost")
    parser.add_argument("--out", help="also writes the result there, as Markdown")
    parser.add_argument("options", nargs="*")
    args = parser.parse_args()

    def verdict(median, _, high):
        return (1, "above") if median > args.limit else (3, "not decided") if high > args.limit else (0, "below")

    bench, rows = Bench(args), []
    for pair in range(args.pairs):
        runs = [bench.plain, bench.observed]
        times = [run() for run in (runs if pair % 2 == 0 else runs[::-1])]
        rows.append(tuple(times if pair % 2 == 0 else times[::-1]))
        print(f"pair {pair + 1:2}: {rows[-1][0] * bench.tokens * 1e3:.4f} ms without, {rows[-1][1] * bench.tokens * 1e3:.4f} ms with, "
              f"{100 * (rows[-1][1] / rows[-1][0] - 1):+.3f} %", flush=True)
    text, code = describe(bench, args, rows, bench.recorder(), verdict)
    print(text)
    if args.out:
        pathlib.Path(args.out).write_text(text)
    sys.exit(code)


if __name__ == "__main__":
    main()
