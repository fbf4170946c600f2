"""Pipeline schedules against torch.distributed.pipelining, CSV files in both directions, and the split of a model into
stages against torchtitan."""

import csv
import itertools
import json
import logging
import os
import pathlib
import subprocess
import tempfile
import types

import torchtitan_import  # noqa: F401
from torch.distributed.pipelining.schedules import (
    PipelineScheduleSingle,
    _Action,
    _PipelineScheduleRuntime,
    _simulate_comms_compute,
    get_schedule_class,
)
from torchtitan.distributed.pipeline_parallel import generate_llm_fqn_per_model_part

DRIVER = pathlib.Path(os.environ["TITANIUM_BUILD"]) / "pipeline_schedules_driver"
RANKS = [1, 2, 3, 4, 6, 8]
MICRO_BATCHES = [1, 2, 3, 4, 6, 8, 10, 12, 16, 24]
SCHEDULES = {  # stages per rank
    "GPipe": [1],
    "1F1B": [1],
    "Interleaved1F1B": [2, 3, 4],
    "LoopedBFS": [2, 3],
    "InterleavedZeroBubble": [2, 3, 4],
    "ZBVZeroBubble": [2],
    "DualPipeV": [2],
}


class Driver:
    def __init__(self):
        self.process = subprocess.Popen([DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def stages(ranks, stages_per_rank):
    """What the schedule classes read of a stage."""
    fields = dict(group_rank=0, group_size=ranks, num_stages=ranks * stages_per_rank, submod=None)
    return [types.SimpleNamespace(**fields) for _ in range(stages_per_rank)]


def rows(text):
    return [[cell for cell in line.split(",") if cell] for line in text.splitlines()]


def torch_csv(name, ranks, stages_per_rank, micro_batches, path):
    """Writes PyTorch's table to the file; False where PyTorch does not have this combination."""
    schedule_class = get_schedule_class(name)
    single = issubclass(schedule_class, PipelineScheduleSingle)
    parts = stages(ranks, stages_per_rank)
    try:
        schedule = schedule_class(parts[0] if single else parts, micro_batches)
    except ValueError:
        return False
    if not single:
        schedule._dump_csv(path, format="compute_only")
        return True
    order = {rank: [a for a in actions if a is None or a.is_compute_op] for rank, actions in schedule.pipeline_order.items()}
    if name == "1F1B":
        # PyTorch's listing of the last rank counts its forwards from 1 (its runtime does not): count them from 0.
        last = [a for a in order[ranks - 1] if a is not None]
        assert [a.microbatch_index for a in last if a.computation_type == "F"] == list(range(1, micro_batches + 1))
        order[ranks - 1] = [a._replace(microbatch_index=a.microbatch_index - 1) if a.computation_type == "F" else a for a in last]
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(order.values())
    return True


def load_into_torch(ours, ranks, stages_per_rank, micro_batches, folder):
    """PyTorch validates our table, infers the same transfers, and runs our programs to the end."""
    path = folder / "ours.csv"
    path.write_text(ours["csv"])
    runtime = _PipelineScheduleRuntime(stages(ranks, stages_per_rank), micro_batches)
    runtime._load_csv(path)
    programs = {rank: [_Action.from_str(cell) for cell in row] for rank, row in enumerate(rows(ours["programs"]))}
    for rank, program in programs.items():
        is_transfer = lambda a: a.computation_type.value.startswith(("SEND", "RECV"))
        expected = {a for a in runtime.pipeline_order_with_comms[rank] if is_transfer(a)}
        found = [a for a in program if is_transfer(a)]
        assert len(found) == len(set(found)) and set(found) == expected, f"rank {rank}"
        reduced = [a.stage_index for a in program if a.computation_type.value == "REDUCE_GRAD"]
        assert sorted(reduced) == sorted(s for s, owner in runtime.stage_index_to_group_rank.items() if owner == rank)
        programs[rank] = [a for a in program if a.computation_type.value != "REDUCE_GRAD"]
    _simulate_comms_compute(programs, lambda s: runtime.stage_index_to_group_rank[s], ranks * stages_per_rank)


def compare_schedules(driver, folder):
    same, better, ours_alone = 0, 0, 0
    for name in SCHEDULES:
        for ranks, stages_per_rank, micro_batches in itertools.product(RANKS, SCHEDULES[name], MICRO_BATCHES):
            shape = (ranks, stages_per_rank, micro_batches)
            ours = driver("table", name, *shape)
            assert "error" not in ours, f"{name} {shape}: {ours}"
            path = folder / "theirs.csv"
            if not torch_csv(name, *shape, path):
                ours_alone += 1
                continue
            theirs = driver("csv", path)
            assert "error" not in theirs, f"{name} {shape}: {theirs}"
            if rows(ours["csv"]) == rows(theirs["csv"]) == rows(path.read_text()):
                same += 1
            else:
                assert ours["makespan"] <= theirs["makespan"], f"{name} {shape}: more idle slots"
                assert all(a <= b for a, b in zip(ours["peaks"], theirs["peaks"])), f"{name} {shape}: more memory"
                better += 1
            load_into_torch(ours, *shape, folder)
    print(f"{same} tables equal PyTorch's, {better} are no worse, {ours_alone} PyTorch does not have")
    assert same == 665  # docs/pipeline.md


def compare_splits(driver):
    count, refused = 0, 0
    for num_stages, layers, first, last in itertools.product(range(1, 13), range(1, 34), range(4), range(4)):
        ours = driver("split", num_stages, layers, first, last)
        try:
            theirs = generate_llm_fqn_per_model_part(num_stages, layers, first, last)
        except ValueError:
            assert "error" in ours, (num_stages, layers, first, last)
            refused += 1
            continue
        assert ours == theirs, f"{(num_stages, layers, first, last)}: {ours}"
        count += 1
    print(f"{count} splits equal torchtitan's, {refused} are refused by both")
    assert count == 4342  # docs/pipeline.md


def main():
    logging.disable(logging.WARNING)
    driver = Driver()
    with tempfile.TemporaryDirectory() as folder:
        compare_schedules(driver, pathlib.Path(folder))
    compare_splits(driver)


if __name__ == "__main__":
    main()
