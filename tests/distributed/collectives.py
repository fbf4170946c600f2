"""Four processes over Gloo: every collective against torch, and every way in which a job can fail.

The C++ half is comm_driver.cpp.
"""

import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import torch

DRIVER = pathlib.Path(os.environ["TITANIUM_BUILD"]) / "comm_driver"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int64": torch.int64}
LIMIT = 30  # seconds in which a failure must have ended every process


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Job:
    """Processes that are gone when the test is, whatever happens."""

    def __init__(self, arguments, ranks=range(4), world_size=4, port=None, **variables):
        self.port = port or free_port()
        self.folder = tempfile.TemporaryDirectory()
        self.processes = {}
        for rank in ranks:
            environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world_size), MASTER_ADDR="127.0.0.1",
                               MASTER_PORT=str(self.port), **{name: str(value) for name, value in variables.items()})
            with open(self.log(rank), "w") as log:
                self.processes[rank] = subprocess.Popen([DRIVER, *map(str, arguments)], env=environment,
                                                        stdout=subprocess.DEVNULL, stderr=log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.folder.cleanup()

    def log(self, rank):
        return pathlib.Path(self.folder.name) / f"rank_{rank}.log"

    def text(self, rank):
        return self.log(rank).read_text()

    def wait_until_running(self):
        deadline = time.monotonic() + 120
        while "running" not in self.text(0):
            assert time.monotonic() < deadline, f"rank 0 did not start:\n{self.text(0)}"
            time.sleep(0.05)

    def signal(self, rank, number):
        self.processes[rank].send_signal(number)

    def expect_all_fail(self, ranks):
        """Every rank ends by itself, in time, with a code that is not 0. Returns their last lines."""
        lines = {}
        for rank in ranks:
            code = self.processes[rank].wait(timeout=LIMIT)
            assert code > 0, f"rank {rank} ended with {code}:\n{self.text(rank)}"
            lines[rank] = [line for line in self.text(rank).splitlines() if line.startswith("rank ")][-1]
        return lines


def values(rank, count, dtype):
    return ((torch.arange(count) * 5 + rank * 3) % 11).to(dtype)


def reduce_all(parts, op, dtype):
    stacked = torch.stack(parts).double()
    if op == "max":
        return stacked.amax(0)
    total = stacked.sum(0)
    if op == "avg":
        total = total / len(parts)
    # Integers round towards zero; bfloat16 once, at the end.
    return total.to(dtype).double()


def expected_results(size, count):
    """name -> one tensor per rank of a group."""
    results = {}
    for name, dtype in DTYPES.items():
        for op in ("sum", "max", "avg"):
            whole = reduce_all([values(rank, count * size, dtype) for rank in range(size)], op, dtype)
            results[f"all_reduce-{name}-{op}"] = [whole] * size
            results[f"reduce_scatter-{name}-{op}"] = list(whole.chunk(size))
        parts = [values(rank, count, dtype) for rank in range(size)]
        results[f"all_gather-{name}"] = results[f"in_place-{name}"] = [torch.stack(parts)] * size
        results[f"broadcast-{name}"] = [parts[-1]] * size
        results[f"receive-{name}"] = [parts[rank - 1] for rank in range(size)]
        rows = [[rank + peer for peer in range(size)] for rank in range(size)]
        sent = [values(rank, 2 * sum(rows[rank]), dtype).view(-1, 2).split(rows[rank]) for rank in range(size)]
        results[f"all_to_all-{name}"] = [torch.cat([sent[peer][rank] for peer in range(size)]) for rank in range(size)]
    return results


class Collectives(unittest.TestCase):
    def test_every_collective_gives_what_torch_computes(self):
        with tempfile.TemporaryDirectory() as folder, Job(["collectives", folder]) as job:
            for rank, process in job.processes.items():
                assert process.wait(timeout=120) == 0, job.text(rank)
            checked = 0
            for label, count, groups in (("all", 6, [[0, 1, 2, 3]]), ("large", 20000, [[0, 1, 2, 3]]), ("pair", 5, [[0, 2], [1, 3]]),
                                         ("three", 3, [[1, 2, 3]])):
                for members in groups:
                    for name, tensors in expected_results(len(members), count).items():
                        for rank, expected in zip(members, tensors):
                            path = pathlib.Path(folder) / f"{label}-{name}.{rank}"
                            actual = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float64)
                            assert torch.equal(actual, expected.double().flatten()), f"{path.name}: {actual} is not {expected}"
                            checked += 1
            assert checked == len(list(pathlib.Path(folder).iterdir())), "results that nobody checked"

    def test_ranks_that_never_arrive_are_named(self):
        with Job(["steps", -1], ranks=[0, 2], INIT_TIMEOUT=3) as job:
            lines = job.expect_all_fail([0, 2])
            sentence = f"ranks 1 and 3 of 4 did not arrive at 127.0.0.1:{job.port} within 3 s (comm.init_timeout_seconds)"
            assert any(sentence in line for line in lines.values()), lines
            assert sentence in lines[0] and (sentence in lines[2] or "store" in lines[2]), lines

    def test_a_store_that_cannot_be_reached_is_named(self):
        with Job(["steps", -1], ranks=[1], INIT_TIMEOUT=2) as job:
            line = job.expect_all_fail([1])[1]
            assert f"rank 1: no store answers at 127.0.0.1:{job.port} within 2 s" in line, line

    def test_a_port_in_use_is_named(self):
        with socket.socket() as other:
            other.bind(("", 0))
            other.listen()
            port = other.getsockname()[1]
            with Job(["steps", -1], ranks=[0], port=port, INIT_TIMEOUT=2) as job:
                line = job.expect_all_fail([0])[0]
                assert f"rank 0: cannot open the store at 127.0.0.1:{port}" in line and "in use" in line, line

    def check_death(self, victim):
        survivors = [rank for rank in range(4) if rank != victim]
        with Job(["steps", -1]) as job:
            job.wait_until_running()
            job.signal(victim, signal.SIGKILL)
            for rank, line in job.expect_all_fail(survivors).items():
                pattern = rf"rank {rank}: stopped in .*all_gather on axis fsdp.* in step \d+, because rank {victim} died"
                assert re.fullmatch(pattern, line), line

    def test_a_killed_rank_ends_all_others(self):
        self.check_death(2)

    def test_a_killed_rank_0_ends_all_others(self):
        self.check_death(0)

    def test_an_exception_ends_all_others(self):
        with Job(["steps", 1]) as job:
            lines = job.expect_all_fail(range(4))
            assert lines[1] == "rank 1 ends: no data for step 5", lines[1]
            for rank in (0, 2, 3):
                pattern = rf"rank {rank}: stopped in .* in step [45], because rank 1 failed: no data for step 5"
                assert re.fullmatch(pattern, lines[rank]), lines[rank]

    def test_an_exception_that_unwinds_the_world_ends_all_others(self):
        with Job(["unwind", 1]) as job:
            lines = job.expect_all_fail(range(4))
            for rank in (0, 2, 3):
                assert lines[rank].endswith("because rank 1 failed: it ended with an exception"), lines[rank]

    def test_an_interface_that_does_not_exist_is_named(self):
        with Job(["steps", -1], ranks=[0, 1], world_size=2, GLOO_SOCKET_IFNAME="nosuch0") as job:
            lines = job.expect_all_fail([0, 1])
            assert any("Gloo finds no network interface (GLOO_SOCKET_IFNAME is nosuch0)" in line for line in lines.values()), lines

    def test_a_stopped_rank_is_named_after_the_timeout(self):
        with Job(["steps", -1], TRAIN_TIMEOUT=3) as job:
            job.wait_until_running()
            job.signal(3, signal.SIGSTOP)
            lines = job.expect_all_fail(range(3))
            cause = "no answer from rank 3 within 3 s (comm.train_timeout_seconds)"
            assert all(cause in line for line in lines.values()), lines
            first = re.compile(r"rank (\d) ends: rank \1: all_gather on axis fsdp failed in step \d+: no answer")
            assert any(first.search(job.text(rank)) for rank in range(3)), lines


if __name__ == "__main__":
    unittest.main(verbosity=2)
