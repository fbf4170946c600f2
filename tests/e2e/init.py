"""`titanium init` writes files that pass `config check` and fit, and says why it chose so."""

import os
import pathlib
import re
import subprocess
import tempfile
import tomllib
import unittest

PROGRAM = os.environ["TITANIUM"]
ROOT = pathlib.Path(__file__).resolve().parents[2]

# Arguments, ranks of the run, GiB of a GPU, and what the file must say.
CASES = [
    (["--flavor", "debugmodel", "--gpus", "1", "--gpu-memory", "16", "--seq-len", "2048"], 1, 16, {"mode": "none", "dtype": "float32"}),
    (["--gpus", "8", "--gpu-memory", "80"], 8, 80, {"tensor_parallel_degree": 1}),
    (["--gpus", "1", "--gpu", "H200"], 1, 139.7, {"dtype": "bfloat16"}),
    (["--flavor", "70B", "--gpus", "64", "--gpu", "H100"], 64, 79.1, {}),
    (["--flavor", "405B", "--gpus", "512", "--gpu", "H100"], 512, 79.1, {}),
    (["--model", "flux", "--flavor", "flux-dev", "--gpus", "8", "--gpu", "H100"], 8, 79.1, {"t5_encoder": "google/t5-v1_1-xxl", "img_size": 256}),
    (["--model", "qwen3", "--flavor", "30B-A3B", "--gpus", "16", "--gpu-memory", "80"], 16, 80, {}),
]


def program(*args):
    return subprocess.run([PROGRAM, *args], cwd=ROOT, capture_output=True, text=True, timeout=120)


class Init(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = str(pathlib.Path(folder.name) / "run.toml")

    def test_what_it_writes_passes_check_and_fits(self):
        for args, ranks, gib, expected in CASES:
            with self.subTest(args):
                made = program("init", *args, "--out", self.file, "--force")
                self.assertEqual(made.returncode, 0, made.stderr)
                for word in ("layout:", "precision:", "recomputation:", "batch:"):
                    self.assertIn(word, made.stdout)
                text = pathlib.Path(self.file).read_text()
                values = {key: value for table in tomllib.loads(text).values() for key, value in table.items()}
                self.assertEqual(values.get("last_save_in_hf", False), "flux" not in args)
                for key, value in expected.items():
                    self.assertEqual(values[key], value, key)
                advice = re.search(r"Next: titanium (config check .* --ranks \d+ --gpu-memory [\d.]+), then", made.stdout).group(1)
                checked = program(*advice.split())
                self.assertEqual(checked.returncode, 0, checked.stderr)
                self.assertIn(f" on {ranks} rank", checked.stdout)
                planned = float(re.search(r"at most ([\d.]+) GiB", checked.stdout).group(1))
                said = re.search(r"([\d.]+) of ([\d.]+) GiB per GPU", text)
                self.assertAlmostEqual(float(said.group(1)), planned, delta=0.06)
                self.assertEqual(float(said.group(2)), gib)
                self.assertLessEqual(planned, 0.94 * gib)

    def test_less_memory_means_more_recomputation_or_a_smaller_batch(self):
        def choice(memory):
            made = program("init", "--flavor", "8B", "--gpus", "8", "--gpu-memory", memory, "--out", self.file, "--force")
            self.assertEqual(made.returncode, 0, made.stderr)
            values = tomllib.loads(pathlib.Path(self.file).read_text())
            return ["none", "selective", "full"].index(values["activation_checkpoint"]["mode"]), values["training"]["local_batch_size"]
        (roomy, large), (tight, small) = choice("180"), choice("32")
        self.assertTrue(tight > roomy or small < large, ((roomy, large), (tight, small)))

    def test_sentences(self):
        for args, part in [
            (["--flavor", "405B", "--gpus", "8"], "llama3 405B with samples of 8192 tokens does not fit on 8 GPUs of 80.0 GiB in any layout: the least was"),
            (["--flavor", "405B", "--gpus", "8"], "can be used. Give more GPUs, larger ones, or a smaller --seq-len."),
            (["--model", "flux", "--flavor", "flux-dev", "--gpus", "1", "--gpu-memory", "16"], "can be used. Give more or larger GPUs."),
            (["--flavor", "9B"], "is not a flavor of llama3"),
            (["--model", "lama"], "lama"),
            (["--gpu", "H300"], "--gpu H300 is not a GPU whose memory is known"),
        ]:
            refused = program("init", *args, "--out", self.file)
            self.assertEqual(refused.returncode, 2, refused.stdout)
            self.assertIn(part, refused.stderr)
            self.assertFalse(os.path.exists(self.file))
        pathlib.Path(self.file).write_text("mine")
        refused = program("init", "--out", self.file)
        self.assertEqual((refused.returncode, pathlib.Path(self.file).read_text()), (2, "mine"))
        self.assertIn("exists. Name another file with --out, or replace it with --force.", refused.stderr)

    def test_own_data_and_tokenizer_are_named(self):
        made = program("init", "--flavor", "debugmodel", "--gpus", "1", "--seq-len", "128", "--out", self.file, "--data", "tests/assets/c4_test",
                       "--tokenizer", "tests/assets/tokenizer")
        self.assertEqual(made.returncode, 0, made.stderr)
        values = tomllib.loads(pathlib.Path(self.file).read_text())
        self.assertEqual((values["training"]["dataset_path"], values["model"]["hf_assets_path"]), ("tests/assets/c4_test", "tests/assets/tokenizer"))
        self.assertEqual(program("config", "check", self.file).returncode, 0)


if __name__ == "__main__":
    unittest.main()
