"""Trains the debug model on a GPU, and PyTorch's own reader (torch/cuda/_memory_viz.py) opens the snapshot of its memory.

    source bench/torch_libraries.sh    # where the only torch is that of the system's Python
    python3 bench/open_snapshot.py [--titanium build/titanium] [--keep FILE]

Checks that the reader accounts for all memory and for each allocation and free, and that it draws them; --keep keeps the snapshot. Exit code 1
when something is not as it should be.
"""

import argparse
import collections
import pathlib
import pickle
import re
import shutil
import subprocess
import sys
import tempfile

from torch.cuda import _memory_viz

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEPS = 3


def check(fact, what):
    if not fact:
        sys.exit(f"the snapshot is not as it should be: {what}")


def open_snapshot(path):
    """Raises, or ends the program, unless the reader understands all of it; a line about what it has."""
    snapshot = pickle.loads(path.read_bytes())
    reserved = sum(segment["total_size"] for segment in snapshot["segments"])
    summary = _memory_viz.segsum(snapshot)
    check(f"total_reserved: {_memory_viz.Bytes(reserved)}" in summary, f"the summary says\n{summary[-400:]}")
    (events,) = [trace for trace in snapshot["device_traces"] if trace]
    actions = collections.Counter(event["action"] for event in events)
    check(actions["alloc"] > 100 and actions["free_completed"] > 100, f"it has the actions {dict(actions)}")
    told = _memory_viz.trace(snapshot)
    check(f"{len(events)} entries" in told, f"the list of events begins with\n{told[:400]}")
    for action, line in {"alloc": r"(?m)^\w+ = \w+\[\d+:", "free_completed": r"(?m)^# free completed for ", "segment_alloc": r"(?m)^\w+ = cudaMalloc"}.items():
        check(len(re.findall(line, told)) == actions[action], f"{actions[action]} times {action} are listed {len(re.findall(line, told))} times")
    page = _memory_viz.trace_plot(snapshot)
    check("<script" in page and len(page) > 1000, "its page is empty")
    return f"{len(snapshot['segments'])} segments of {reserved} bytes, {len(events)} events: {dict(actions)}"


def main():
    parser = argparse.ArgumentParser(description="PyTorch's reader opens a snapshot of memory.")
    parser.add_argument("--titanium", default=str(ROOT / "build/titanium"))
    parser.add_argument("--keep", help="copies the snapshot there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([args.titanium, "train", "--job.config_file", "configs/llama3/debug_model.toml", "--training.seq_len", "128",
                        "--training.steps", str(STEPS), "--profiling.profile_freq", str(STEPS), "--profiling.enable_memory_snapshot",
                        "--job.dump_folder", folder], cwd=ROOT, check=True)
        snapshot = pathlib.Path(folder) / f"memory_snapshot/iteration_{STEPS}/rank0_memory_snapshot.pickle"
        print(open_snapshot(snapshot))
        if args.keep:
            shutil.copy(snapshot, args.keep)


if __name__ == "__main__":
    main()
