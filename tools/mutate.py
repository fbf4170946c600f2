"""Breaks load-bearing lines one at a time and asks whether a test notices.

  tools/mutate.py [--worktree FOLDER] [--only REGEX] [--rest] [--list]

Each entry of tools/mutations.toml changes one line: `from` stands exactly once in `file` and becomes `to`; then `target` is
built and run with `filter`. A test that fails or does not end has noticed. What nobody notices is a survivor: the missing test
has to be written, or the entry explains in `survives` why there can be none. Exit code 1 if there are survivors without an
explanation, explanations that are not true, or entries that do not fit the code or do not build.

All happens in a git worktree of its own with a build folder of its own, at the commit of this tree; it is kept for the next
time. What was noticed is remembered there: --rest leaves out entries that were noticed while their file, their change and their
tests' filter were what they are now, so that a run that was ended goes on. Run by hand: a mutation takes 10 to 60 seconds.
"""

import argparse
import collections
import hashlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASELINE_SECONDS = 3600  # for the tests without a mutation
# A mutant may wait for ever; how long its tests may take follows from what they take without it, because the machine may be busy.
LIMIT_FACTOR, LIMIT_SECONDS = 10, 60
FIELDS = {"file", "from", "to", "target", "filter", "survives"}


def read_list():
    with open(ROOT / "tools/mutations.toml", "rb") as file:
        mutations = tomllib.load(file)["mutation"]
    for number, mutation in enumerate(mutations, 1):
        unknown, missing = mutation.keys() - FIELDS, FIELDS - {"survives"} - mutation.keys()
        if unknown or missing:
            sys.exit(f"mutation {number}: unknown {sorted(unknown)}, missing {sorted(missing)}")
    return mutations


def describe(mutation):
    return f"{mutation['file']}: {mutation['from'].strip()}  ->  {mutation['to'].strip() or '(nothing)'}"


def misfits(mutations, tree):
    """Entries whose pattern does not stand in its file exactly once."""
    found = []
    for mutation in mutations:
        path = tree / mutation["file"]
        count = path.read_text().count(mutation["from"]) if path.exists() else 0
        if count != 1 or mutation["from"] == mutation["to"]:
            found.append(f"{describe(mutation)}: the pattern is there {count} times")
    return found


class Noticed:
    """The mutations that tests have noticed, in a file of the build folder."""

    def __init__(self, tree):
        self.tree, self.file = tree, tree / "build/noticed_mutations"

    def key(self, mutation):
        parts = [(self.tree / mutation["file"]).read_text(), *(mutation[field] for field in ("file", "from", "to", "target", "filter"))]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def __contains__(self, mutation):
        return self.file.exists() and self.key(mutation) in self.file.read_text().split()

    def add(self, mutation):
        with open(self.file, "a") as file:
            file.write(self.key(mutation) + "\n")


def call(command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def check_out(tree):
    """The worktree at this commit."""
    commit = call(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True).stdout.strip()
    if not tree.exists():
        call(["git", "worktree", "add", "--detach", tree, commit], cwd=ROOT, check=True)
    elif call(["git", "status", "--porcelain"], cwd=tree, check=True).stdout:
        sys.exit(f"{tree} has changes. Look at them, then: git -C {tree} checkout .")
    call(["git", "checkout", "--detach", commit], cwd=tree, check=True)


def build(tree, targets):
    """Everything that is going to be changed and run."""
    setup = "set -euo pipefail; source tools/setup.sh; titanium_setup test"
    for target in targets:
        done = call(["nice", "bash", "-c", f"{setup} {target}"], cwd=tree)
        if done.returncode != 0:
            sys.exit(f"{target} does not build:\n{done.stdout[-4000:]}")


def run_tests(tree, mutation, limit):
    """Whether they pass within `limit` seconds. All processes of a test that does not end are ended with it."""
    command = [tree / "build" / mutation["target"], f"--gtest_filter={mutation['filter']}", "--gtest_fail_fast"]
    process = subprocess.Popen(command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env=dict(os.environ, OMP_NUM_THREADS="1"), start_new_session=True)
    try:
        output = process.communicate(timeout=limit)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return False
    if "Running 0 tests" in output:
        sys.exit(f"{describe(mutation)}: no test of {mutation['target']} has a name that fits {mutation['filter']}")
    return process.returncode == 0


def try_mutation(tree, mutation, limit):
    """"killed", "does not build" or "survives"."""
    path = tree / mutation["file"]
    original = path.read_text()
    try:
        path.write_text(original.replace(mutation["from"], mutation["to"]))
        built = call(["nice", "ninja", "-C", tree / "build", mutation["target"]])
        if built.returncode != 0:
            return "does not build"
        return "survives" if run_tests(tree, mutation, limit) else "killed"
    finally:
        path.write_text(original)


def time_baseline(tree, mutations):
    """{(target, filter): seconds that a mutant's tests may take}. Tests that fail anyway would notice everything."""
    limits = {}
    pairs = {(mutation["target"], mutation["filter"]): mutation for mutation in mutations}
    for pair, mutation in pairs.items():
        begin = time.monotonic()
        if not run_tests(tree, mutation, BASELINE_SECONDS):
            sys.exit(f"{mutation['target']} --gtest_filter={mutation['filter']} fails without a mutation")
        limits[pair] = LIMIT_SECONDS + LIMIT_FACTOR * (time.monotonic() - begin)
    return limits


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worktree", type=pathlib.Path, default=ROOT.parent / f"{ROOT.name}-mutations")
    parser.add_argument("--only", default="", help="entries whose description or target matches")
    parser.add_argument("--rest", action="store_true", help="only entries that were not noticed before")
    parser.add_argument("--list", action="store_true", help="check that the entries fit this tree, and do nothing else")
    options = parser.parse_args()
    mutations = [m for m in read_list() if re.search(options.only, f"{m['target']} {describe(m)}")]
    if options.list:
        problems = misfits(mutations, ROOT)
        print("\n".join(problems) or f"{len(mutations)} mutations fit")
        sys.exit(bool(problems))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the file is restored
    mutations.sort(key=lambda m: (m["target"], m["file"]))
    check_out(options.worktree)
    problems = misfits(mutations, options.worktree)
    if problems:
        sys.exit("\n".join(problems))
    noticed = Noticed(options.worktree)
    if options.rest:
        mutations = [mutation for mutation in mutations if mutation not in noticed]
    build(options.worktree, sorted({m["target"] for m in mutations}))
    limits = time_baseline(options.worktree, mutations)
    counts = collections.Counter()
    wrong = []
    for number, mutation in enumerate(mutations, 1):
        begin = time.monotonic()
        outcome = try_mutation(options.worktree, mutation, limits[mutation["target"], mutation["filter"]])
        if outcome == "survives" and "survives" in mutation:
            outcome = "survives as explained"
        elif outcome != "killed" or "survives" in mutation:
            wrong.append(f"{outcome}: {describe(mutation)}")
        if outcome == "killed":
            noticed.add(mutation)
        counts[outcome] += 1
        print(f"[{number}/{len(mutations)}] {outcome} ({time.monotonic() - begin:.0f} s): {describe(mutation)}", flush=True)
    print(f"\n{len(mutations)} mutations: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    if wrong:
        sys.exit("\n".join(["", "To be mended:", *wrong]))


if __name__ == "__main__":
    main()
