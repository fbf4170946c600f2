"""titanium tune: what it refuses without a GPU, and what training makes of it with one."""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def titanium(*args, cache):
    return subprocess.run([os.environ["TITANIUM"], *args, "--job.dump_folder", cache], cwd=ROOT, capture_output=True, text=True,
                          env=os.environ | {"TITANIUM_CACHE_DIR": cache})


class Tune(unittest.TestCase):
    def test_choices_are_kept_and_used_or_a_missing_gpu_is_named(self):
        with tempfile.TemporaryDirectory() as cache:
            done = titanium("tune", "--steps", "3", "--training.seq_len", "256", cache=cache)
            if "there is none here" in done.stderr:
                self.assertEqual(done.returncode, 2)
                self.assertRegex(done.stderr, r"^titanium: titanium tune measures a GPU, and there is none here \(.*\)\.\n$")
                self.assertEqual(os.listdir(cache), [])
                return
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r"together [-\d.]+% less time than .*\n\d+ choices are in ")
            run = titanium("train", "--training.seq_len", "256", "--training.steps", "2", cache=cache)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn("tuned matrix products of " + cache, run.stdout)

    def test_a_wrong_option_is_refused(self):
        with tempfile.TemporaryDirectory() as cache:
            done = titanium("tune", "--steps", "0", cache=cache)
            self.assertEqual(done.returncode, 2)
            self.assertIn("--steps", done.stderr)
            done = titanium("tune", "--by", "cycles", cache=cache)
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, r"^titanium: tune: --by: cycles not in \{sustained,step\}")

    def test_either_stage_may_have_the_last_word(self):
        with tempfile.TemporaryDirectory() as cache:
            for stage in "sustained", "step":
                done = titanium("tune", "--by", stage, "--steps", "2", "--training.seq_len", "256", cache=cache)
                if done.returncode == 2:
                    self.assertIn("there is none here", done.stderr)
                    continue
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stdout, r"\d+ choices are in ")


if __name__ == "__main__":
    unittest.main()
