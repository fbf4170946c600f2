"""Whole programs that are saved, stopped, killed and started again.

KILLS=100 python tests/distributed/checkpoints.py Kills     kills more often than the tests do
"""

import filecmp
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import tiny_assets

ROOT = pathlib.Path(__file__).resolve().parents[2]
TITANIUM = os.environ["TITANIUM"]


class Run:
    """The command line of a run, whose files lie in `folder`."""

    def __init__(self, folder, *options):
        self.folder = pathlib.Path(folder)
        self.options = [*tiny_assets.make(self.folder / "assets"), f"--job.dump_folder={self.folder}",
                        "--training.global_batch_size=4", "--training.max_norm=0.1", "--checkpoint.enable", "--checkpoint.no_last_save_model_only",
                        "--lr_scheduler.total_steps=1000", *options]

    def start(self, *options, ranks=1):
        launcher = ["launch", "--nproc-per-node", str(ranks), "--"] if ranks > 1 else []
        return subprocess.Popen([TITANIUM, *launcher, "train", *self.options, f"--training.local_batch_size={4 // ranks}",
                                 *options], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                start_new_session=True)

    def finish(self, *options, ranks=1):
        job = self.start(*options, ranks=ranks)
        output = job.communicate(timeout=600)[0]
        assert job.returncode == 0, output
        return output

    def losses(self):
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        return {line["step"]: line["loss"] for line in map(json.loads, lines) if "loss" in line}

    def checkpoint(self, step):
        return self.folder / f"checkpoint/step-{step}"

    def saved_steps(self):
        return sorted(int(path.name.removeprefix("step-")) for path in (self.folder / "checkpoint").glob("step-*"))


def read_until(job, pattern):
    output = ""
    for line in job.stdout:
        output += line
        if re.search(pattern, line):
            return output
    raise AssertionError(f"{pattern} did not come:\n{output}")


class WithFolder(unittest.TestCase):
    def setUp(self):
        self.folder_ = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.folder_.name)

    def tearDown(self):
        self.folder_.cleanup()


class Resume(WithFolder):
    def test_twenty_steps_are_ten_and_ten(self):
        for ranks, mode in ((1, "async"), (2, "disabled")):
            with self.subTest(ranks=ranks):
                options = ["--debug.deterministic", "--checkpoint.interval=5", f"--checkpoint.async_mode={mode}"]
                whole = Run(self.folder / f"whole{ranks}", *options)
                whole.finish("--training.steps=20", ranks=ranks)
                parts = Run(self.folder / f"parts{ranks}", *options)
                parts.finish("--training.steps=10", ranks=ranks)
                output = parts.finish("--training.steps=20", ranks=ranks)
                self.assertIn("Training starts at step 11", output)
                self.assertEqual(parts.losses(), whole.losses())
                self.assertEqual(len(whole.losses()), 20)
                # The bits of parameters, moments and data position are the same, and so are the files.
                names = [path.name for path in whole.checkpoint(20).glob("*.distcp")]
                self.assertEqual(len(names), 4 * ranks)
                same, *different = filecmp.cmpfiles(whole.checkpoint(20), parts.checkpoint(20), names, shallow=False)
                self.assertEqual((sorted(same), different), (sorted(names), [[], []]))

    def test_a_seed_checkpoint_is_what_every_run_begins_with_anyway(self):
        seeded, plain = Run(self.folder / "seeded"), Run(self.folder / "plain")
        output = seeded.finish("--checkpoint.create_seed_checkpoint")
        self.assertIn("Created seed checkpoint", output)
        self.assertEqual(seeded.saved_steps(), [0])
        output = seeded.finish("--training.steps=3", ranks=2)
        self.assertIn(f"Loading the checkpoint from {seeded.checkpoint(0)}", output)
        plain.finish("--training.steps=3", ranks=2)
        self.assertEqual(seeded.losses(), plain.losses())


class Signals(WithFolder):
    def stop_and_go_on(self, ranks, number):
        run = Run(self.folder / f"{ranks}", "--training.steps=100000", "--checkpoint.interval=100000")
        job = run.start(ranks=ranks)
        read_until(job, "step:  3")
        job.send_signal(number)
        output = job.communicate(timeout=60)[0]
        self.assertEqual(job.returncode, 0, output)
        step = int(re.search(r"Stopped by a signal after step (\d+)", output)[1])
        self.assertEqual(run.saved_steps(), [step])
        job = run.start(ranks=3 - ranks)
        read_until(job, f"Training starts at step {step + 1}")
        read_until(job, rf"step:\s+{step + 3}")
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
        whole = Run(self.folder / f"whole{ranks}")
        whole.finish(f"--training.steps={step + 2}", "--checkpoint.no_enable")
        for number, loss in whole.losses().items():
            self.assertAlmostEqual(run.losses()[number], loss, delta=1e-6 * loss)

    def test_sigterm_saves_and_the_next_start_goes_on(self):
        self.stop_and_go_on(1, signal.SIGTERM)
        self.stop_and_go_on(2, signal.SIGINT)

    def test_many_sigterms_to_everybody_are_one_request(self):
        """As SLURM does it: every process of the step, the launcher and the ranks, and more than once."""
        run = Run(self.folder, "--training.steps=100000", "--checkpoint.interval=100000")
        job = run.start(ranks=2)
        output = read_until(job, "step:  3")
        ranks = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        self.assertEqual(len(ranks), 2)
        everybody = [os.pidfd_open(int(process)) for process in (job.pid, *ranks)]
        while job.poll() is None:
            for process in everybody:
                try:
                    signal.pidfd_send_signal(process, signal.SIGTERM)
                except ProcessLookupError:
                    pass  # it has ended
            time.sleep(0.02)
        for process in everybody:
            os.close(process)
        output += job.communicate()[0]
        self.assertEqual(job.returncode, 0, output)
        step = int(re.search(r"Stopped by a signal after step (\d+)", output)[1])
        self.assertEqual(run.saved_steps(), [step])

    def test_sigusr1_saves_and_goes_on(self):
        for ranks in (1, 2):
            run = Run(self.folder / f"{ranks}", "--training.steps=100000", "--checkpoint.interval=100000")
            job = run.start(ranks=ranks)
            read_until(job, "step:  3")
            job.send_signal(signal.SIGUSR1)
            output = read_until(job, "Finished saving the checkpoint")
            self.assertEqual(len(run.saved_steps()), 1, output)
            read_until(job, rf"step:\s+{run.saved_steps()[0] + 1}")
            os.killpg(job.pid, signal.SIGKILL)
            job.communicate()

    def test_the_time_after_the_signal_is_limited(self):
        run = Run(self.folder, "--training.steps=2", "--checkpoint.grace_seconds=1")
        job = run.start("--model.flavor=debugmodel", "--training.seq_len=2048", "--training.global_batch_size=64")
        read_until(job, "Training starts at step 1")
        job.send_signal(signal.SIGTERM)
        output = job.communicate(timeout=60)[0]
        self.assertEqual(job.returncode, 1, output)
        self.assertIn("did not end within checkpoint.grace_seconds after the signal", output)


class Kills(WithFolder):
    def test_every_restart_loads_and_the_losses_are_those_of_an_undisturbed_run(self):
        seed = int(os.environ.get("SEED", time.time_ns() % 100000))
        choose = random.Random(seed)
        run = Run(self.folder / "killed", "--training.steps=100000", "--checkpoint.interval=1", "--checkpoint.keep_latest_k=3")
        loaded = 0
        for kill in range(int(os.environ.get("KILLS", "10"))):
            ranks, mode = choose.choice((1, 2)), choose.choice(("disabled", "async"))
            job = run.start(f"--checkpoint.async_mode={mode}", ranks=ranks)
            output = read_until(job, "Finished saving" if kill == 0 else "Training starts at step")
            loaded += "Finished loading the checkpoint" in output
            time.sleep(choose.uniform(0.0, 1.0))
            os.killpg(job.pid, signal.SIGKILL)  # the ranks of a launcher end with it
            output += job.communicate(timeout=60)[0]
            self.assertNotIn("ERROR", output, f"seed {seed}, kill {kill}")
            self.assertNotIn("titanium:", output, f"seed {seed}, kill {kill}")
        self.assertGreater(loaded, 0, f"seed {seed}")
        done = run.saved_steps()[-1] + 2
        output = run.finish(f"--training.steps={done}")
        self.assertEqual([path for path in (run.folder / "checkpoint").iterdir() if path.name.startswith(".")], [])
        whole = Run(self.folder / "whole", "--checkpoint.no_enable")
        whole.finish(f"--training.steps={done}")
        self.assertEqual(sorted(run.losses()), sorted(whole.losses()))
        for step, loss in whole.losses().items():
            self.assertAlmostEqual(run.losses()[step], loss, delta=1e-5 * loss, msg=f"step {step}, seed {seed}")
        print(f"{kill + 1} kills, {loaded} restarts from a checkpoint, {done} steps, seed {seed}", file=sys.stderr)


if __name__ == "__main__":
    unittest.main()
