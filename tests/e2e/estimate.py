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
            for match in re.finditer(r"^([a-z ]+?)\s{2,}([-\d. ]+)$", output, re.MULTILINE)}


class Estimate(unittest.TestCase):
    def test_parts_add_up_for_every_rank_of_a_pipeline(self):
        done = estimate("--ranks", "512", "--job.config_file", "configs/llama3/llama3_405b_512gpus_interleaved.toml")
        self.assertEqual(done.returncode, 0, done.stderr)
        table = rows(done.stdout)
        together = table.pop("together")
        self.assertEqual(len(together), 8)
        self.assertEqual(len(table), 8)
        for stage, total in enumerate(together):
            self.assertAlmostEqual(sum(row[stage] for row in table.values()), total, delta=0.05)
        self.assertEqual(sorted(table["activations"], reverse=True), table["activations"])  # later stages hold fewer

    def test_rows_of_experts_are_shown_as_expected_and_at_worst(self):
        for ranks, spread, file in ((512, 32, "deepseek_v3/deepseek_v3_671b_512gpus"), (256, 8, "qwen3/qwen3_235b_a22b_256gpus")):
            done = estimate("--ranks", str(ranks), "--device-gib", "74.5", "--job.config_file", f"configs/{file}.toml")
            self.assertEqual(done.returncode, 0, done.stderr)
            table = rows(done.stdout)
            for stage, together in enumerate(table["together"]):
                expected, worst = table["of that with equal loads"][stage], table["all tokens to one rank"][stage]
                # Every rank of the group may send all its rows to one; there they choose 8 of as many experts or more.
                self.assertAlmostEqual(worst, spread * expected, delta=0.01 * spread)
                self.assertAlmostEqual(table["together in that case"][stage], together + worst - expected, delta=0.03)
            self.assertGreater(table["of that with equal loads"][-1], 1)
        one = estimate("--model.name=deepseek_v3", "--model.flavor=16B").stdout
        self.assertNotIn("Rows of experts", one)

    def test_networks_that_are_not_trained_are_counted(self):
        def frozen(*options):
            done = estimate("--ranks", "8", "--job.config_file", "configs/flux/flux_dev.toml", "--validation.no_enable", *options)
            self.assertEqual(done.returncode, 0, done.stderr)
            table = rows(done.stdout)
            together = table.pop("together")
            self.assertAlmostEqual(sum(row[0] for row in table.values()), together[0], delta=0.05)
            return table.get("frozen networks", [0])[0]

        self.assertEqual([frozen(), frozen("--encoder.sharded"), frozen("--encoder.on_cpu"), frozen("--encoder.offline")], [9.26, 1.71, 0.16, 0])
        done = estimate("--ranks", "8", "--device-gib", "35", "--job.config_file", "configs/flux/flux_dev.toml")
        self.assertEqual(done.returncode, 2)
        self.assertIn("; networks that are not trained take 9.26 GiB of that", done.stderr)
        self.assertIn("or leave networks that are not trained out of it with encoder.sharded, encoder.on_cpu or encoder.offline.", done.stderr)

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
        self.assertIn("was not expected: --rnks. See titanium estimate --help.", estimate("--rnks", "3").stderr)
        self.assertIn("the degrees ask for", estimate("--ranks", "3", "--parallelism.tensor_parallel_degree=2").stderr)


if __name__ == "__main__":
    unittest.main()
