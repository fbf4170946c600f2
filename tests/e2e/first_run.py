"""The first run of README.md: the program prints the lines that are printed there, with the same losses."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["TITANIUM"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
STEP = re.compile(r"step: +(\d+)  loss: +([\d.]+)  grad_norm: +([\d.]+)  memory: ")


def messages(text):
    """What the lines of a log say, without their time."""
    return [line.split(" - root - ", 1)[1] for line in text.splitlines() if line.startswith("[titan] ")]


def without_machine(message):
    """A message without what belongs to the machine, the build or the hour."""
    message = re.sub(r"titanium with torch .*", "titanium with torch", message)
    message = re.sub(r"CPU capacity: .* with [\d.]+GiB", "CPU capacity:", message)
    return re.sub(r'{"dim":256,.*}', '{"dim":256, ...}', message)


class FirstRun(unittest.TestCase):
    def test_the_log_of_the_readme_is_what_the_program_prints(self):
        readme = (ROOT / "README.md").read_text()
        command = re.search(r"`\./run_train\.sh` starts `titanium (train [^`]*)`", readme).group(1).split()
        shown = messages(re.search(r"^```\n(\[titan\].*?)^```", readme, re.M | re.S).group(1))
        with tempfile.TemporaryDirectory() as folder:
            ran = subprocess.run([PROGRAM, *command, "--metrics.disable_color_printing", "--job.dump_folder", folder, "--training.device", "cpu"], cwd=ROOT,
                                 capture_output=True, text=True, timeout=300)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        printed = messages(ran.stdout + ran.stderr)
        kinds = [[STEP.sub("step", re.sub(r"memory: .*", "memory: ", without_machine(message))) for message in log] for log in (shown, printed)]
        self.assertEqual(kinds[0], kinds[1])
        steps = [[tuple(map(float, match.groups())) for match in map(STEP.search, log) if match] for log in (shown, printed)]
        self.assertEqual(len(steps[0]), 10)
        for (step, loss, norm), (same_step, same_loss, same_norm) in zip(*steps):
            self.assertEqual(step, same_step)
            self.assertAlmostEqual(loss, same_loss, delta=1e-4, msg=f"loss of step {step}")
            self.assertAlmostEqual(norm, same_norm, delta=1e-3, msg=f"gradient norm of step {step}")


if __name__ == "__main__":
    unittest.main()
