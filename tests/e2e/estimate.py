"""titanium estimate: what it prints and refuses."""

import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def estimate(*args):
    return subprocess.run([os.environ["TITANIUM"], "estimate", *args], cwd=ROOT, capture_output=True, text=True)


def rows(output):
    """The numbers of each row, by its name."""
    return {match[1].strip(): [float(x) for x in match[2].split()]
            for match in re.finditer(r"^([a-z ]+?)\s{2,}([\d. ]+)$", output, re.MULTILINE)}


class Estimate(unittest.TestCase):
    def test_parts_add_up_for_every_rank_of_a_pipeline(self):
        done = estimate("--ranks", "512", "--job.config_file", "configs/llama3/llama3_405b_512gpus_interleaved.toml")
        self.assertEqual(done.returncode, 0, done.stderr)
        table = rows(done.stdout)
        together = table.pop("together")
        self.assertEqual(len(together), 8)
        self.assertEqual(len(table), 7)
        for stage, total in enumerate(together):
            self.assertAlmostEqual(sum(row[stage] for row in table.values()), total, delta=0.05)
        self.assertEqual(sorted(table["activations"], reverse=True), table["activations"])  # later stages hold fewer

    def test_ranks_share_the_memory(self):
        options = ("--model.flavor=8B", "--training.seq_len=8192", "--training.local_batch_size=1")
        one, eight = (rows(estimate("--ranks", ranks, *options).stdout) for ranks in ("1", "8"))
        self.assertAlmostEqual(eight["parameters"][0], one["parameters"][0] / 8, delta=0.01)

    def test_a_run_that_does_not_fit_fails(self):
        options = ("--model.flavor=8B", "--training.dtype=bfloat16", "--training.seq_len=8192", "--training.local_batch_size=1")
        self.assertIn("fits into 141", estimate("--device-gib", "141", *options).stdout)
        done = estimate("--device-gib", "40", *options)
        self.assertEqual(done.returncode, 2)
        self.assertIn("but the device has 40.0 GiB", done.stderr)

    def test_wrong_options_are_refused(self):
        self.assertIn("there is no option --rnks", estimate("--rnks", "3").stderr)
        self.assertIn("the degrees ask for", estimate("--ranks", "3", "--parallelism.tensor_parallel_degree=2").stderr)


if __name__ == "__main__":
    unittest.main()
