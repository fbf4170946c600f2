"""Fails when the losses of a run are not those of another, step by step.

  compare_losses.py REFERENCE_FOLDER FOLDER LARGEST_RELATIVE_DIFFERENCE
"""

import json
import pathlib
import sys


def losses(folder):
    lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
    return {row["step"]: row["loss"] for row in map(json.loads, lines) if "loss" in row}


def main(reference, folder, limit):
    expected, found = losses(reference), losses(folder)
    if not expected or expected.keys() != found.keys():
        sys.exit(f"{folder} has the steps {sorted(found)}, {reference} {sorted(expected)}")
    worst = max(abs(found[step] / expected[step] - 1) for step in expected)
    print(f"   losses differ from those of {pathlib.Path(reference).name} by at most {worst:.1e}")
    if not worst <= float(limit):
        sys.exit(f"that is more than {limit}")


if __name__ == "__main__":
    main(*sys.argv[1:])
