"""A rank that dies, throws or stops takes its job down in time, and everybody says why.

Real jobs under `titanium launch`; the fault happens inside a chosen phase of a chosen step (failure_driver.cpp).
"""

import os
import pathlib
import re
import socket
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TITANIUM = os.environ["TITANIUM"]
DRIVER = pathlib.Path(os.environ["TITANIUM_BUILD"]) / "failure_driver"
LIMIT_SECONDS = 30  # of the promise, counted from the fault

OPTIONS = f"""
--model.hf_assets_path={ROOT}/tests/assets/tokenizer --training.dataset=c4_test
--training.dataset_path={ROOT}/tests/assets/c4_test --training.seq_len=16 --training.local_batch_size=1
--training.steps=4 --training.mixed_precision_param=float32 --activation_checkpoint.mode=none
--metrics.log_freq=1 --metrics.disable_color_printing --training.device=cpu --comm.init_timeout_seconds=60
""".split()

LAYOUTS = {
    "dp2": (2, ["--parallelism.data_parallel_replicate_degree=2"]),
    "fsdp2": (2, []),
    "tp2": (2, ["--parallelism.tensor_parallel_degree=2"]),
    "hsdp2x2": (4, ["--parallelism.data_parallel_replicate_degree=2"]),
    "fsdp2xtp2": (4, ["--parallelism.tensor_parallel_degree=2"]),
}
# The simplest schedule, and the one with most messages under way.
LAYOUTS |= {schedule: (2, ["--parallelism.pipeline_parallel_degree=2", "--training.local_batch_size=4",
                           f"--parallelism.pipeline_parallel_schedule={schedule}"]) for schedule in ("1F1B", "DualPipeV")}
LAYOUTS["ep2"] = (2, ["--parallelism.expert_parallel_degree=2", "--model.name=deepseek_v3", "--model.flavor=debugmodel",
                      "--model.attn_type=sdpa"])


class Job:
    def __init__(self, fault, layout, *launch_options, options=()):
        self.ranks, degrees = LAYOUTS[layout]
        self.folder = tempfile.TemporaryDirectory()
        self.logs = pathlib.Path(self.folder.name) / "logs"
        command = [TITANIUM, "launch", "--nproc-per-node", str(self.ranks), "--log-dir", self.logs, "--run-id", "run",
                   "--program", DRIVER, *launch_options, "--", *OPTIONS, *degrees, *options,
                   f"--job.dump_folder={self.folder.name}"]
        marker = f"TITANIUM_TEST_JOB={self.folder.name}"
        begin = time.monotonic()
        done = subprocess.run(command, env=dict(os.environ, FAULT=fault, TITANIUM_TEST_JOB=self.folder.name),
                              cwd=ROOT, capture_output=True, text=True, timeout=180)
        self.seconds = time.monotonic() - begin
        self.code, self.output = done.returncode, done.stdout + done.stderr
        left = [entry for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit() and runs(entry, marker)]
        assert not left, f"processes left: {left}"

    def error_of(self, rank, attempt=0):
        return next(self.logs.glob(f"run/attempt_{attempt}*/{rank}/stderr.log")).read_text()

    def blame(self):
        return subprocess.run([TITANIUM, "flight", "analyze", f"{self.folder.name}/comm_traces"], capture_output=True, text=True).stdout

    def expect(self, condition, what):
        logs = "\n".join(f"--- rank {rank}\n{self.error_of(rank)}" for rank in range(self.ranks))
        assert condition, f"{what}\n--- launcher (exit code {self.code})\n{self.output}\n{logs}"


def runs(process, marker):
    try:
        return marker.encode() in (process / "environ").read_bytes()
    except OSError:
        return False


def expect_survivors_to_explain(job, failed, pattern):
    for rank in range(job.ranks):
        if rank != failed:
            job.expect(re.search(pattern.format(rank=rank), job.error_of(rank)), f"rank {rank} does not say why")


COLLECTIVES = "all_gather|reduce_scatter|all_reduce|broadcast|barrier|send|receive|no collective"


def check_death(layout, failed, phase, waiting_in=COLLECTIVES):
    job = Job(f"kill:{failed}:{phase}:2", layout)
    job.expect(job.code == 128 + 9, "the exit code is not that of the killed rank")
    job.expect(re.search(rf"rank {failed}\b.*SIGKILL", job.output), "the launcher does not name who failed first")
    job.expect(job.seconds < LIMIT_SECONDS + 5, f"it took {job.seconds:.0f} s")
    # Whoever notices first: the lifeline, or the collective whose connection broke.
    expect_survivors_to_explain(
        job, failed, rf"rank {{rank}}: .*\b({waiting_in})\b.*step 2")
    dumps = list(pathlib.Path(job.folder.name).glob("comm_traces/rank_*"))
    job.expect(len(dumps) == job.ranks - 1, f"flight recorder of {len(dumps)} ranks")
    print(f"kill in {phase}, {layout}: {job.seconds:.1f} s")


def check_exception():
    job = Job("throw:1:backward:2", "fsdp2xtp2")
    job.expect(job.code == 1, "the exit code is not 1")
    job.expect("the fault of this test" in job.error_of(1), "the failed rank does not say why")
    expect_survivors_to_explain(job, 1, r"rank {rank}: .*step 2")
    job.expect(any("rank 1 failed: the fault of this test" in job.error_of(rank) for rank in (0, 2, 3)),
               "nobody names rank 1 and its reason")
    print(f"exception: {job.seconds:.1f} s")


def check_stop():
    job = Job("stop:1:forward:3", "fsdp2", options=["--comm.train_timeout_seconds=3"])
    job.expect(job.code != 0, "the job succeeded")
    job.expect(job.seconds < LIMIT_SECONDS + 5, f"it took {job.seconds:.0f} s")
    expect_survivors_to_explain(job, 1, r"rank {rank}: .*axis \w+.*step 3.*comm.train_timeout_seconds")
    job.expect(re.match(r"rank 1 did not join .*, step 3 .* for which rank 0 waits; rank 1 left no dump", job.blame()), job.blame())
    print(f"stopped rank: {job.seconds:.1f} s")


def check_start():
    job = Job("kill:1:start:0", "tp2")
    job.expect(job.code == 128 + 9, "the exit code is not that of the killed rank")
    job.expect(job.seconds < LIMIT_SECONDS + 5, f"it took {job.seconds:.0f} s")
    print(f"kill at start: {job.seconds:.1f} s")


def check_missing_peer():
    environment = dict(os.environ, RANK="0", WORLD_SIZE="4", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([TITANIUM, "train", *OPTIONS, "--comm.init_timeout_seconds=2",
                               f"--job.dump_folder={folder}"],
                              env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert re.search(r"ranks 1, 2 and 3 of 4 did not arrive.*comm.init_timeout_seconds", done.stderr), done.stderr
    print("missing peers are named")


def check_unreachable_master():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        for host, cause in (("no-such-host.invalid", "the host name cannot be resolved"),
                            ("127.0.0.1", r"what listens there is no store \(it answers with nothing\)")):
            environment = dict(os.environ, RANK="1", WORLD_SIZE="2", MASTER_ADDR=host, MASTER_PORT=str(port))
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run([TITANIUM, "train", *OPTIONS, "--comm.init_timeout_seconds=2",
                                       f"--job.dump_folder={folder}"],
                                      env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60)
            assert done.returncode == 1, done.stderr
            assert re.fullmatch(rf"titanium: rank 1: no store answers at {host}:{port} within 2 s: {cause}.*\n", done.stderr), done.stderr
    print("a master that cannot be reached is one sentence")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def check_restart():
    job = Job("kill:1:backward:2", "fsdp2", "--max-restarts", "1")
    job.expect(job.code == 0, "the second attempt did not finish")
    job.expect("Training completed" in job.output, "the run did not complete")
    print(f"restart: {job.seconds:.1f} s")


def main():
    check_death("fsdp2xtp2", 3, "forward")
    check_death("hsdp2x2", 0, "backward")
    check_death("dp2", 1, "optimizer")
    check_death("1F1B", 0, "forward")
    check_death("DualPipeV", 1, "backward")
    check_death("ep2", 1, "experts", waiting_in="all_to_all")
    check_start()
    check_exception()
    check_stop()
    check_missing_peer()
    check_unreachable_master()
    check_restart()


if __name__ == "__main__":
    main()
