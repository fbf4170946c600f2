"""Tests that submit the files of deploy/slurm to a real SLURM (slurm_cluster.py) with the debug model on the CPU."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import slurm_cluster

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.path.abspath(os.environ["TITANIUM"])


def note_skip(name, reason):
    """Says so where run_tests.sh looks."""
    if "TITANIUM_SKIPPED" in os.environ:
        with open(os.environ["TITANIUM_SKIPPED"], "a") as file:
            file.write(f"{name}: {reason}\n")
    raise unittest.SkipTest(reason)


class SlurmCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        reason = slurm_cluster.missing_reason()
        if reason:
            note_skip(cls.__name__, reason)
        cls.cluster = slurm_cluster.SlurmCluster()
        cls.addClassCleanup(cls.cluster.stop)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def options(self, name, steps, ranks=4):
        """Arguments of `titanium train`: four samples in each step, whatever the number of ranks."""
        return ["--training.steps", steps, "--training.seq_len", 32, "--training.local_batch_size", 4 // ranks if ranks < 4 else 1,
                "--training.global_batch_size", 4, "--job.dump_folder", self.folder / name, "--lr_scheduler.warmup_steps", 1]

    def submit(self, script, *arguments, sbatch=(), name="run", **environment):
        variables = {"NGPU": "2", "TITANIUM": PROGRAM, "OMP_NUM_THREADS": "1", "CONFIG_FILE": "configs/llama3/debug_model_cpu.toml",
                     "LOG_DIR": str(self.folder / "logs")}
        return self.cluster.submit("--nodes=2", "--gpus-per-node=2", "--cpus-per-task=1", f"--output={self.folder}/{name}.out", *sbatch,
                                   ROOT / "deploy/slurm" / script, *arguments, cwd=ROOT, **variables | environment)

    def output(self, name="run"):
        path = self.folder / f"{name}.out"
        return path.read_text() if path.exists() else ""

    def logs(self):
        return "\n".join(f"== {path}\n{path.read_text()[-20000:]}" for path in sorted(self.folder.rglob("*.log")))

    def completed(self, job, name="run"):
        record = self.cluster.wait_for_end(job)
        self.assertEqual((record["JobState"], record["ExitCode"]), ("COMPLETED", "0:0"), self.output(name) + self.logs())
        return record

    def steps(self, name="run"):
        """Step -> loss, as metrics.jsonl has it."""
        path = self.folder / name / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        records = [json.loads(line) for line in lines if line.endswith("}")]
        return {record["step"]: record["loss"] for record in records if "loss" in record}

    def wait_for_step(self, step, job, name="run"):
        self.cluster.wait_until(lambda: max(self.steps(name), default=0) >= step or self.cluster.state(job) in ("FAILED", "COMPLETED"),
                                f"step {step}")
        self.assertEqual(self.cluster.state(job), "RUNNING", self.output(name) + self.logs())

    def goes_on_after(self, step, job, name="run"):
        """The run has resumed after `step` and goes on, without a gap; it would not end by itself, so it is cancelled."""
        self.cluster.wait_until(lambda: "Loading the checkpoint" in self.output(name) + self.logs() and max(self.steps(name)) > step + 1,
                                f"steps after {step}")
        self.cluster.command("scancel", job)
        self.assertEqual(self.cluster.wait_for_end(job)["JobState"], "CANCELLED")
        steps = list(self.steps(name))
        self.assertEqual(steps, list(range(1, len(steps) + 1)))

    def train_alone(self, steps):
        """The losses of one rank, outside of SLURM."""
        words = [PROGRAM, "train", "--job.config_file", "configs/llama3/debug_model_cpu.toml", *self.options("alone", steps, ranks=1)]
        subprocess.run(list(map(str, words)), check=True, cwd=ROOT, stdout=subprocess.DEVNULL, env=self.cluster.environment | {"OMP_NUM_THREADS": "1"})
        return self.steps("alone")

    def assert_same_losses(self, losses, expected):
        self.assertEqual(sorted(losses), sorted(expected))
        for step, loss in expected.items():
            self.assertAlmostEqual(losses[step], loss, delta=1e-4 * loss, msg=f"step {step}")

    def ranks_of_job(self, job):
        """Rank -> process, of ranks that a launcher has started."""
        found = {}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                variables = dict(item.split("=", 1) for item in (folder / "environ").read_bytes().decode(errors="replace").split("\0") if "=" in item)
            except OSError:
                continue
            if variables.get("SLURM_JOB_ID") == job and "TORCHELASTIC_RESTART_COUNT" in variables:
                found[int(variables["RANK"])] = int(folder.name)
        return found
