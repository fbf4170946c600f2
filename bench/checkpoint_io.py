"""Distributed checkpoints on this disk: Titanium, torch.distributed.checkpoint and dd, in turns. Needs build/bench_dcp.

    python bench/checkpoint_io.py FOLDER [--rounds 5]

2 GiB in 64 tensors. Writing ends with fsync for all three. Before reading, the files are dropped from the page cache.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import time
import warnings

import torch
import torch.distributed.checkpoint as dcp

BENCH = pathlib.Path(__file__).resolve().parent.parent / "build" / "bench_dcp"
TENSORS, SHAPE = 64, (2048, 4096)
BYTES = TENSORS * SHAPE[0] * SHAPE[1] * 4


def forget_cached_files(folder):
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def dd(streams, *arguments):
    """Seconds of so many at a time; "#" in an argument becomes the number of the stream."""
    commands = [["dd", "bs=16M", *(text.replace("#", str(i)) for text in arguments)] for i in range(streams)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={"LC_ALL": "C"}) for command in commands]
    return max(float(re.search(r"copied, ([0-9.e-]+) s", process.communicate()[1]).group(1)) for process in running)


def titanium(folder, name):
    """Seconds of that benchmark, once. It works in folder/bench_dcp.tmp."""
    command = [BENCH, f"--benchmark_filter=^{name}", "--benchmark_format=json", "--benchmark_min_time=0.001"]
    output = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, env=os.environ | {"BENCH_KEEP": "1"}).stdout
    return json.loads(output)["benchmarks"][0]["real_time"] / 1000


def seconds(function, *arguments, **options):
    begin = time.perf_counter()
    function(*arguments, **options)
    return time.perf_counter() - begin


def one_round(folder, state):
    ours, theirs, times = folder / "ours", folder / "theirs", {}
    shutil.rmtree(folder, ignore_errors=True)
    for path in (ours, theirs):
        path.mkdir(parents=True)
    os.sync()
    saved = theirs / "bench_dcp.tmp"

    for streams in (4, 1):
        times[f"write: {streams} dd, direct"] = dd(streams, "if=/dev/zero", f"of={folder}/dd_{streams}_#",
                                                   f"count={(BYTES >> 24) // streams}", "oflag=direct", "conv=fsync")
    times["save: Titanium"] = titanium(ours, "bench_save/files:4")
    times["save: torch"] = seconds(dcp.save, state, storage_writer=dcp.FileSystemWriter(saved), no_dist=True)
    shutil.rmtree(saved)
    os.sync()
    times["save: torch, 4 threads"] = seconds(dcp.save, state, storage_writer=dcp.FileSystemWriter(saved, thread_count=4), no_dist=True)

    forget_cached_files(folder)
    for streams in (4, 1):
        times[f"read: {streams} dd, direct"] = dd(streams, f"if={folder}/dd_{streams}_#", "of=/dev/null", "iflag=direct")
    times["load: Titanium"] = titanium(ours, "bench_load/float32/threads:0")
    times["load: Titanium, to bfloat16"] = titanium(ours, "bench_load/bfloat16/threads:0")
    times["load: Titanium, torch's files"] = titanium(theirs, "bench_load/float32/threads:0")
    forget_cached_files(folder)
    times["load: torch"] = seconds(dcp.load, state, checkpoint_id=saved, no_dist=True)
    times["verify: Titanium"] = titanium(ours, "bench_verify")
    times["verify: Titanium, torch's files"] = titanium(theirs, "bench_verify")
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="on the disk in question; what it makes there is removed")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    state = {str(i): torch.randint(2**31 - 1, SHAPE, dtype=torch.int32).view(torch.float32) for i in range(TENSORS)}
    folder = arguments.folder / "checkpoint_io.tmp"
    rounds = []
    try:
        for _ in range(arguments.rounds):
            rounds.append(one_round(folder, state))
            print(json.dumps({name: round(BYTES / 1e9 / time, 2) for name, time in rounds[-1].items()}), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n| | median GB/s | best GB/s | of 1 dd in the same round, median | best of that dd's best |\n|---|---|---|---|---|")
    for name in rounds[0]:
        base = "write: 1 dd, direct" if name.startswith(("save", "write")) else "read: 1 dd, direct"
        rates = [BYTES / 1e9 / times[name] for times in rounds]
        best_dd = max(BYTES / 1e9 / times[base] for times in rounds)
        ratio = statistics.median(times[base] / times[name] for times in rounds)
        print(f"| {name} | {statistics.median(rates):.2f} | {max(rates):.2f} | {ratio:.2f} | {max(rates) / best_dd:.2f} |")


if __name__ == "__main__":
    main()
