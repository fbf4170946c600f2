"""Qwen 3 against transformers' Qwen 3 (logits, loss, gradients, generation, weights in and out) and torchtitan's
(training), in fp32 on the CPU."""

import dataclasses
import unittest

import decoder_parity
import qwen3_folders


class AgainstTransformers(decoder_parity.AgainstTransformers):
    folders = qwen3_folders

    def test_weights_go_out_as_they_came_in(self):
        decoder_parity.weights_go_round(self, qwen3_folders, ("grouped", "all"))


class AgainstTorchtitan(decoder_parity.AgainstTorchtitan):
    """torchtitan 0.2.2's model has none of its known defects in the dense flavors: its experts' bias and its missing
    pipeline do not matter here."""

    NAME = "qwen3"
    SEQ_LEN, BATCH = 128, 2  # its head has 151,936 rows

    def torchtitan_model(self, seq_len):
        import torchtitan_import  # noqa: F401
        from torchtitan.models.qwen3 import qwen3_args
        from torchtitan.models.qwen3.model.model import Qwen3Model

        return Qwen3Model(dataclasses.replace(qwen3_args["debugmodel"], max_seq_len=seq_len))


if __name__ == "__main__":
    unittest.main()
