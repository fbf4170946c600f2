"""Llama against transformers' Llama (logits, loss, gradients, generation) and torchtitan's (training), in fp32 on the CPU."""

import dataclasses
import math
import re
import unittest

import decoder_parity
import llama_folders
import torch
from decoder_parity import DRIVER, call, documents, relative
from safetensors.torch import load_file


def from_hugging_face(name, tensor, config):
    """A tensor of transformers' model with our name and row order: reference formula, not our adapter."""
    [(ours, tensor)] = decoder_parity.from_hugging_face(name, tensor, config).items()
    heads = {"wq": config.num_attention_heads, "wk": config.num_key_value_heads}.get(ours.split(".")[-2])
    if heads:
        half = tensor.shape[0] // heads // 2
        tensor = tensor.view(heads, 2, half, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)
    return {ours: tensor}


class AgainstTransformers(decoder_parity.AgainstTransformers):
    folders = llama_folders
    from_hugging_face = staticmethod(from_hugging_face)
    PUBLISHED = ("scaled_rope", "plain")


class AgainstTorchtitan(decoder_parity.WithPositions, decoder_parity.AgainstTorchtitan):
    NAME = "llama3"

    def torchtitan_model(self, seq_len):
        import torchtitan_import  # noqa: F401
        from torchtitan.models.llama3 import llama3_args
        from torchtitan.models.llama3.model.model import Transformer

        return Transformer(dataclasses.replace(llama3_args["debugmodel"], max_seq_len=seq_len))

    def test_attention_inside_documents_equals_an_explicit_mask(self):
        ours = self.our_run(1, "--training.seq_len=1024", "--training.local_batch_size=2",
                            "--model.flavor=debugmodel_varlen_attn")
        self.assertGreater(documents(ours["tokens"][0]).max().item(), 1)
        model, losses, norms = self.torch_run(ours, inside_documents=True)
        self.assertGreater(norms[0], self.MAX_NORM)  # so that the gradients below are clipped ones
        self.assertLess(abs(ours["loss"][0].item() / losses[0] - 1), 1e-6)
        for name, parameter in model.named_parameters():
            with self.subTest(name=name):
                # Clipping divides all of them by a norm that torch sums up in fp32.
                self.assertLess(relative(ours[f"grad.{name}"], parameter.grad), 1e-4)
        _, causal_losses, _ = self.torch_run(ours)
        self.assertGreater(abs(ours["loss"][0].item() / causal_losses[0] - 1), 1e-5)


class InitialWeights(decoder_parity.Folder):
    def expected(self, name, layers_done):
        """Standard deviation and cut-off of reference 2.2."""
        if name == "tok_embeddings.weight":
            return 1.0, math.inf
        if name == "output.weight":
            return 256**-0.5, 3 * 256**-0.5
        if re.search(r"(wo|w2|w3)\.weight$", name):
            return 0.02 / math.sqrt(2 * (layers_done + 1)), 2.0
        return 0.02, 2.0

    def test_follow_the_formula_within_sampling_error(self):
        out = self.folder / "initial.safetensors"
        call(DRIVER, "train", 0, out, "--training.seq_len=64", "--debug.seed=7",
             f"--model.hf_assets_path={llama_folders.TOKENIZER}")
        for key, value in load_file(out).items():
            name = key.removeprefix("initial.")
            with self.subTest(name=name):
                if "norm" in name:
                    self.assertTrue(torch.equal(value, torch.ones_like(value)))
                    continue
                layer = re.match(r"layers\.(\d+)", name)
                std, cut = self.expected(name, int(layer.group(1)) if layer else 0)
                value = value.double()
                bound = cut / std
                # A normal distribution that is cut at +-3 std has a smaller deviation.
                if bound < 10:
                    density = math.exp(-bound**2 / 2) / math.sqrt(2 * math.pi)
                    std *= math.sqrt(1 - 2 * bound * density / math.erf(bound / math.sqrt(2)))
                self.assertLess(value.mean().abs().item(), 5 * std / math.sqrt(value.numel()))
                self.assertLess(abs(value.std().item() / std - 1), 5 / math.sqrt(2 * value.numel()))
                self.assertLessEqual(value.abs().max().item(), cut)
                self.assertGreater(value.abs().max().item(), min(cut * 0.99, 3.5 * std))


if __name__ == "__main__":
    unittest.main()
