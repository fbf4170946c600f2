"""Files of the safetensors package and of transformers, read and written back by us."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

DRIVER = os.path.join(os.environ["TITANIUM_BUILD"], "safetensors_files_driver")
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int64,
          torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8, torch.bool]


def rewrite(source, target):
    return subprocess.run([DRIVER, source, target], capture_output=True, text=True)


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


class Safetensors(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def assert_same(self, found, expected):
        self.assertEqual(sorted(found), sorted(expected))
        for name in expected:
            self.assertEqual(found[name].dtype, expected[name].dtype, name)
            self.assertEqual(found[name].shape, expected[name].shape, name)
            self.assertTrue(torch.equal(bits(found[name]), bits(expected[name])), name)

    def test_every_dtype_survives_the_round_trip(self):
        noise = torch.randint(0, 256, (3, 5, 8), dtype=torch.uint8)
        tensors = {str(dtype): noise.clone().view(dtype) if dtype is not torch.bool else noise > 100 for dtype in DTYPES}
        tensors |= {"scalar": torch.tensor(3.5), "empty": torch.empty(0, 4), "名前 \"quoted\"\n": torch.ones(2)}
        save_file(tensors, self.folder / "in.safetensors", metadata={"format": "pt", "note": "über"})
        result = rewrite(self.folder / "in.safetensors", self.folder / "out.safetensors")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assert_same(load_file(self.folder / "out.safetensors"), tensors)
        with safe_open(self.folder / "out.safetensors", "pt") as file:
            self.assertEqual(file.metadata(), {"format": "pt", "note": "über"})

    def test_shards_of_transformers_are_read_through_their_index(self):
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(vocab_size=300, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
                             num_key_value_heads=2)
        model = LlamaForCausalLM(config)
        model.save_pretrained(self.folder / "model", max_shard_size="150KB")
        self.assertTrue((self.folder / "model" / "model.safetensors.index.json").exists())
        result = rewrite(self.folder / "model", self.folder / "out.safetensors")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assert_same(load_file(self.folder / "out.safetensors"), model.state_dict())

    def test_damage_that_the_package_refuses_is_refused(self):
        save_file({"a": torch.ones(4), "b": torch.ones(2, 2)}, self.folder / "good.safetensors")
        good = (self.folder / "good.safetensors").read_bytes()
        damaged = {"truncated": good[:-1], "trailing bytes": good + b"x", "no header": good[:4],
                   "overlap": good.replace(b"[16,32]", b"[12,28]"), "size": good.replace(b"[2,2]", b"[2,3]"),
                   "dtype": good.replace(b"F32", b"F33"), "length": b"\xff" * 8 + good[8:]}
        for kind, content in damaged.items():
            with self.subTest(kind=kind):
                self.assertNotEqual(content, good)
                path = self.folder / "bad.safetensors"
                path.write_bytes(content)
                with self.assertRaises(Exception):
                    load_file(path)
                result = rewrite(path, self.folder / "out.safetensors")
                self.assertEqual(result.returncode, 1)
                self.assertIn("bad.safetensors", result.stderr)


if __name__ == "__main__":
    unittest.main()
