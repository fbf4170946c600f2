"""Qwen 3 against transformers' Qwen 3 (logits, loss, gradients, generation, weights in and out) and torchtitan's
(training), in fp32 on the CPU."""

import dataclasses
import unittest

import decoder_parity
import qwen3_folders
import torch
import transformers
from decoder_parity import PROGRAM, call


class AgainstTransformers(decoder_parity.AgainstTransformers):
    folders = qwen3_folders

    def test_weights_go_out_as_they_came_in(self):
        for kind in ("grouped", "all"):
            with self.subTest(kind=kind):
                model = qwen3_folders.make(self.folder / kind / "hf", kind)
                call(PROGRAM, "convert", self.folder / kind / "hf", self.folder / kind / "dcp", "--to", "dcp")
                call(PROGRAM, "convert", self.folder / kind / "dcp", self.folder / kind / "back", "--to", "hf",
                     "--hf-assets", self.folder / kind / "hf")
                back = transformers.Qwen3ForCausalLM.from_pretrained(self.folder / kind / "back", dtype=torch.float32)
                self.assertEqual(back.config.head_dim, model.config.head_dim)
                self.assertEqual(back.config.rope_parameters["rope_theta"], model.config.rope_parameters["rope_theta"])
                expected = dict(model.named_parameters())
                for name, parameter in back.named_parameters():
                    self.assertTrue(torch.equal(parameter, expected.pop(name)), name)
                self.assertEqual(expected, {})


class AgainstTorchtitan(decoder_parity.AgainstTorchtitan):
    """torchtitan 0.2.2's model has none of its known defects in the dense flavors: its experts' bias and its missing
    pipeline do not matter here."""

    NAME = "qwen3"

    def torchtitan_model(self, seq_len):
        import torchtitan_import  # noqa: F401
        from torchtitan.models.qwen3 import qwen3_args
        from torchtitan.models.qwen3.model.model import Qwen3Model

        return Qwen3Model(dataclasses.replace(qwen3_args["debugmodel"], max_seq_len=seq_len))


if __name__ == "__main__":
    unittest.main()
