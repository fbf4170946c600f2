"""titanium convert, inspect and checkpoint verify: what they print, refuse and leave behind. Bits are compared in
parity/convert.py."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

import llama_folders
import torch
import torch.distributed.checkpoint as dcp

PROGRAM = os.environ["TITANIUM"]


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.shared.cleanup)
        cls.model = pathlib.Path(cls.shared.name) / "hf"
        llama_folders.make(cls.model, "grouped", max_shard_size="300KB")

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def run_program(self, *arguments):
        return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120)

    def succeeds(self, *arguments):
        finished = self.run_program(*arguments)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        return finished.stdout

    def refused(self, message, *arguments, code=2):
        finished = self.run_program(*arguments)
        self.assertEqual(finished.returncode, code, finished.stdout + finished.stderr)
        self.assertIn(message, finished.stderr)
        self.assertLessEqual(len(finished.stderr.splitlines()), 1)


class Convert(Commands):
    def test_what_exists_is_replaced_only_by_force(self):
        target = self.folder / "dcp"
        self.succeeds("convert", self.model, target, "--to", "dcp")
        self.refused("exists. Name another place, or give --force", "convert", self.model, target, "--to", "dcp")
        self.succeeds("convert", self.model, f"{target}/", "--to", "dcp", "--force", "--export-dtype", "bfloat16")
        self.assertIn("bfloat16", self.succeeds("inspect", target))
        (self.folder / "precious").mkdir()
        (self.folder / "precious" / "letter.txt").write_text("dear")
        self.refused("is a folder that holds something else", "convert", self.model, self.folder / "precious", "--to", "dcp",
                     "--force")
        self.refused("is a folder that holds something else", "convert", self.model, target, "--to", "torch", "--force")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["dcp", "precious"])

    def test_a_failure_leaves_nothing_behind(self):
        damaged = self.folder / "damaged"
        shutil.copytree(self.model, damaged)
        self.succeeds("convert", self.model, self.folder / "dcp", "--to", "dcp")
        part = max((self.folder / "dcp").glob("*.distcp"), key=lambda path: path.stat().st_size)
        content = bytearray(part.read_bytes())
        content[len(content) // 2] ^= 1
        part.write_bytes(content)
        for to in ("hf", "torch", "dcp"):
            finished = self.run_program("convert", self.folder / "dcp", self.folder / "out", "--to", to, "--hf-assets", self.model)
            self.assertEqual(finished.returncode, 1, finished.stderr)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["damaged", "dcp"])

    def test_sizes_that_are_unknown_or_wrong_are_named(self):
        self.succeeds("convert", self.model, self.folder / "dcp", "--to", "dcp")
        self.refused("the sizes of the model in", "convert", self.folder / "dcp", self.folder / "out", "--to", "hf")
        self.refused("model.flavor = \"9B\" is not a flavor of llama3", "convert", self.folder / "dcp", self.folder / "out",
                     "--to", "hf", "--model.flavor", "9B")
        self.refused("lacks 27 of the model's 57 tensors, such as \"layers.3.attention.wk.weight\"", "convert",
                     self.folder / "dcp", self.folder / "out", "--to", "hf", "--model.flavor", "debugmodel", code=1)
        self.refused("'float64' is not a dtype", "convert", self.folder / "dcp", self.folder / "out", "--to", "torch",
                     "--export-dtype", "float64")
        self.refused("--to: zip not in", "convert", self.folder / "dcp", self.folder / "out", "--to", "zip")
        self.refused("nowhere does not exist. Name a distributed checkpoint", "convert", "nowhere", "out", "--to", "dcp")
        (self.folder / "step-7").mkdir()
        self.refused("holds no weights", "convert", self.folder, self.folder / "out", "--to", "dcp")
        self.refused("step-7?", "inspect", self.folder)

    def test_other_sizes_of_the_same_names_are_refused(self):
        torch.save({"tok_embeddings.weight": torch.zeros(3, 4)}, self.folder / "odd.pt")
        self.refused("lacks 29 of the model's 30 tensors", "convert", self.folder / "odd.pt", self.folder / "out", "--to",
                     "hf", "--hf-assets", self.model, code=1)

    def test_memory_does_not_grow_with_the_weights(self):
        """Peak of memory that is no mapped file, while 600 MB pass through."""
        tensors = {f"layers.{i}.weight": torch.zeros(4096, 6144) for i in range(6)}
        torch.save(tensors, self.folder / "big.pt")
        size = sum(tensor.nbytes for tensor in tensors.values())
        del tensors
        source = self.folder / "big.pt"
        for to, target in (("dcp", "dcp"), ("torch", "again.pt")):
            process = subprocess.Popen([PROGRAM, "convert", source, self.folder / target, "--to", to])
            peak = 0
            while process.poll() is None:
                try:
                    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
                except (FileNotFoundError, ProcessLookupError):
                    continue
                lines = dict(line.split(":", 1) for line in status.splitlines())
                peak = max(peak, int(lines.get("RssAnon", "0 kB").split()[0]) * 1024)
                time.sleep(0.01)
            self.assertEqual(process.returncode, 0)
            self.assertGreater(peak, 10e6)
            self.assertLess(peak, 0.8 * size, to)
            source = self.folder / target
        self.assertIn(f'"bytes": {size}', self.succeeds("inspect", self.folder / "again.pt", "--json"))


class Inspect(Commands):
    def test_all_formats_tell_the_same_tensors(self):
        self.succeeds("convert", self.model, self.folder / "step-12", "--to", "dcp")
        self.succeeds("convert", self.model, self.folder / "w.pt", "--to", "torch")
        found = {}
        for path in (self.folder / "step-12", self.folder / "w.pt"):
            found[path] = json.loads(self.succeeds("inspect", path, "--json", "--stats"))
        distributed, file = found.values()
        self.assertEqual((distributed["step"], file["step"]), (12, None))
        for one, other in zip(distributed["tensors"], file["tensors"], strict=True):
            self.assertEqual({**one, "pieces": 0}, {**other, "pieces": 0})
        weights = json.loads(self.succeeds("inspect", self.model, "--json"))
        self.assertEqual(weights["total"], file["total"])
        self.assertEqual(weights["format"], "Hugging Face weights")
        self.assertIn("model-00001-of-", self.succeeds("inspect", self.model))

    def test_numbers_are_those_of_torch(self):
        values = torch.randn(1000, 7, generator=torch.Generator().manual_seed(0))
        values[3, 2], values[4, 4], values[5, 5] = float("nan"), float("inf"), -float("inf")
        torch.save({"w": values, "ids": torch.arange(10), "empty": torch.zeros(0), "bad": torch.full((3,), float("nan")),
                    "note": "text"}, self.folder / "w.pt")
        report = json.loads(self.succeeds("inspect", self.folder / "w.pt", "--stats", "--json"))
        tensors = {tensor["name"]: tensor for tensor in report["tensors"]}
        finite = values[values.isfinite()].double()
        self.assertEqual((tensors["w"]["min"], tensors["w"]["max"]), (finite.min().item(), finite.max().item()))
        self.assertAlmostEqual(tensors["w"]["mean"], finite.mean().item(), places=12)
        self.assertEqual((tensors["w"]["nan"], tensors["w"]["inf"]), (1, 2))
        self.assertEqual([tensors["ids"][key] for key in ("min", "max", "mean")], [0, 9, 4.5])
        self.assertEqual((tensors["bad"]["nan"], tensors["bad"]["min"], tensors["empty"]["max"]), (3, None, None))
        self.assertEqual(report["values"], {"note": "'text'"})
        text = self.succeeds("inspect", self.folder / "w.pt", "--stats", "--tensor", "w")
        self.assertIn("nan 1  inf 2", text)
        self.assertIn("[0:1000, 0:7] in w.pt", text)
        self.refused('has no tensor "q"', "inspect", self.folder / "w.pt", "--tensor", "q", code=1)

    def test_the_step_of_a_training_state(self):
        dcp.save({"w": torch.zeros(2), "train_state": {"step": torch.tensor(31, dtype=torch.int32)}},
                 checkpoint_id=self.folder / "dcp", no_dist=True)
        self.assertIn("distributed checkpoint, step 31", self.succeeds("inspect", self.folder / "dcp"))


    def test_small_files_with_huge_tensors_are_refused(self):
        for shape in ((10**12,), (2**31, 2**31)):
            torch.save({"w": torch.zeros(1).expand(shape)}, self.folder / "w.pt")
            self.refused("is larger than the file: an expanded tensor. Save it with contiguous().", "inspect",
                         self.folder / "w.pt", code=1)


    def test_names_cannot_steer_the_terminal(self):
        name = "a\x1b[31m\nb"
        header = json.dumps({name: {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
        file = self.folder / "names.safetensors"
        file.write_bytes(len(header).to_bytes(8, "little") + header + b"x")
        self.assertIn(r"a\x1b[31m\nb  ", self.succeeds("inspect", file))
        self.assertEqual(json.loads(self.succeeds("inspect", file, "--json"))["tensors"][0]["name"], name)

    def test_many_values_are_listed(self):
        torch.save({f"value{i}": i for i in range(200_000)}, self.folder / "many.pt")
        self.assertEqual(self.succeeds("inspect", self.folder / "many.pt").count("\n"), 200_002)


class Verify(Commands):
    def flip(self, path):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)

    def test_whole_checkpoints_pass_and_damage_is_listed(self):
        self.succeeds("convert", self.model, self.folder / "dcp", "--to", "dcp")
        self.succeeds("convert", self.model, self.folder / "w.pt", "--to", "torch")
        shutil.copytree(self.model, self.folder / "hf")
        claims = {
            "dcp": "and all bytes agree with the checksums of titanium.json.",
            "w.pt": "and tensors and values agree with the checksums that torch wrote with them.",
            "hf": "but without checksums, so that changed bytes would not be noticed.",
        }
        for name, claim in claims.items():
            self.assertIn(f"tensors, complete, {claim}", self.succeeds("checkpoint", "verify", self.folder / name))
        self.flip(self.folder / "w.pt")
        part = max((self.folder / "dcp").glob("*.distcp"), key=lambda path: path.stat().st_size)
        self.flip(part)
        shard = sorted((self.folder / "hf").glob("*.safetensors"))[1]
        os.truncate(shard, shard.stat().st_size - 1)
        for name, file in (("dcp", part.name), ("w.pt", "w.pt"), ("hf", shard.name)):
            finished = self.run_program("checkpoint", "verify", self.folder / name)
            self.assertEqual(finished.returncode, 1)
            self.assertIn(file, finished.stdout)
        shard.unlink()
        self.assertIn(shard.name, self.run_program("checkpoint", "verify", self.folder / "hf").stdout)

    def test_our_hugging_face_weights_have_checksums(self):
        self.succeeds("convert", self.model, self.folder / "ours", "--to", "hf")
        self.assertIn("and all bytes agree with the checksums of titanium.json.",
                      self.succeeds("checkpoint", "verify", self.folder / "ours"))
        weights = next((self.folder / "ours").glob("*.safetensors")).name
        for name in (weights, "config.json"):
            with self.subTest(name):
                copy = self.folder / f"damaged_{name}"
                shutil.copytree(self.folder / "ours", copy)
                self.flip(copy / name)
                finished = self.run_program("checkpoint", "verify", copy)
                self.assertEqual(finished.returncode, 1)
                self.assertIn(f"{name} is damaged (checksum of bytes 0 to", finished.stdout)
        (self.folder / "ours" / "config.json").unlink()
        self.assertIn("config.json is missing or does not have the", self.run_program("checkpoint", "verify", self.folder / "ours").stdout)
        self.refused("does not exist", "checkpoint", "verify", "nowhere")
        self.refused("A subcommand is required", "checkpoint")


if __name__ == "__main__":
    unittest.main()
