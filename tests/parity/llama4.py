"""Llama 4 against transformers' text model (logits, loss, gradients, generation, weights in and out) and torchtitan's
(training), in fp32 on the CPU."""

import re
import unittest

import decoder_parity
import llama4_folders
import moe_parity

FEED_FORWARD = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}


def from_hugging_face(name, tensor, config):
    found = re.fullmatch(r"model\.layers\.(\d+)\.feed_forward\.(.*)", name)
    if not found:
        return decoder_parity.from_hugging_face(name, tensor, config)
    layer, part = found.groups()
    prefix = f"layers.{layer}.moe"
    if part == "router.weight":
        return {f"{prefix}.router.gate.weight": tensor}
    if part == "experts.down_proj":
        return {f"{prefix}.experts.w2": tensor.transpose(1, 2)}
    if part == "experts.gate_up_proj":
        w1, w3 = tensor.transpose(1, 2).chunk(2, dim=1)
        return {f"{prefix}.experts.w1": w1, f"{prefix}.experts.w3": w3}
    weight = FEED_FORWARD[part.split(".")[-2]]
    if part.startswith("shared_expert."):
        return {f"{prefix}.shared_experts.{weight}.weight": tensor}
    return {f"layers.{layer}.feed_forward.{weight}.weight": tensor}


class AgainstTransformers(decoder_parity.AgainstTransformers):
    folders = llama4_folders
    from_hugging_face = staticmethod(from_hugging_face)
    PUBLISHED = ("plain", "all")
    POSITIONED = ("plain", "grouped")  # "all" has temperatures, which transformers counts from the start of the row

    def test_weights_go_out_as_they_came_in(self):
        decoder_parity.weights_go_round(self, llama4_folders, ("grouped", "all"))


class AgainstTorchtitan(moe_parity.AgainstTorchtitan):
    """torchtitan 0.2.2's chunked attention gets all its masks at once and fails, so its plain attention is compared."""

    NAME = "llama4"
    CONFIG = {"model_type": "llama4_text", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
              "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "intermediate_size_mlp": 176,
              "vocab_size": 2048, "rope_theta": 500000.0, "num_local_experts": 8, "num_experts_per_tok": 1,
              "interleave_moe_layer_step": 2, "no_rope_layers": [1, 1, 1, 1], "layer_types": 4 * ["full_attention"],
              "use_qk_norm": False, "attn_temperature_tuning": False,
              "rope_scaling": {"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
                               "original_max_position_embeddings": 8192}}

    def torchtitan_model(self, seq_len):
        import torchtitan_import  # noqa: F401
        from torchtitan.models.llama4.model.args import RoPEScalingArgs, TransformerModelArgs
        from torchtitan.models.llama4.model.model import Transformer
        from torchtitan.models.moe import MoEArgs

        return Transformer(TransformerModelArgs(
            dim=64, n_layers=4, n_heads=4, n_kv_heads=2, vocab_size=2048, multiple_of=16, rope_theta=500000,
            rope_scaling_args=RoPEScalingArgs(), moe_args=MoEArgs(use_grouped_mm=False), max_seq_len=seq_len))


if __name__ == "__main__":
    unittest.main()
