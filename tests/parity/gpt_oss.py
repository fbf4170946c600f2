"""GPT-OSS against transformers' model (logits, loss, gradients, generation, weights in and out, MXFP4 weights) and
torchtitan's (training), in fp32 on the CPU."""

import re
import unittest

import decoder_parity
import gpt_oss_folders
import moe_parity
import torch
from safetensors.torch import load_file, save_file

EXPERTS = {"gate_up_proj": "mlp1_weight", "gate_up_proj_bias": "mlp1_bias", "down_proj": "mlp2_weight",
           "down_proj_bias": "mlp2_bias"}


def from_hugging_face(name, tensor, config):
    found = re.fullmatch(r"model\.layers\.(\d+)\.(self_attn\.sinks|mlp\.router\.\w+|mlp\.experts\.\w+)", name)
    if not found:
        return decoder_parity.from_hugging_face(name, tensor, config)
    layer, part = found.groups()
    if part == "self_attn.sinks":
        return {f"layers.{layer}.attention.sinks": tensor}
    kind = part.rsplit(".", 1)[1]
    if part.startswith("mlp.router"):
        return {f"layers.{layer}.moe.router.gate.{kind}": tensor}
    return {f"layers.{layer}.moe.experts.{EXPERTS[kind]}": tensor if kind.endswith("bias") else tensor.transpose(1, 2)}


class AgainstTransformers(decoder_parity.AgainstTransformers):
    folders = gpt_oss_folders
    from_hugging_face = staticmethod(from_hugging_face)
    PUBLISHED = ("all",)
    MASKS = (False,)  # transformers does not look for documents here

    def test_weights_go_out_as_they_came_in(self):
        decoder_parity.weights_go_round(self, gpt_oss_folders, ("grouped", "all"))

    def test_four_bit_experts_are_expanded(self):
        from transformers.integrations.mxfp4 import convert_moe_packed_tensors

        model = gpt_oss_folders.make(self.folder, "plain")
        tensors = load_file(self.folder / "model.safetensors")
        state = model.state_dict()
        for name in [name for name in tensors if re.search(r"experts\.(gate_up|down)_proj$", name)]:
            experts, columns, rows = tensors.pop(name).shape
            blocks = torch.randint(0, 256, (experts, rows, columns // 32, 16), dtype=torch.uint8)
            scales = torch.randint(120, 126, (experts, rows, columns // 32), dtype=torch.uint8)
            tensors[f"{name}_blocks"], tensors[f"{name}_scales"] = blocks, scales
            state[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
        save_file(tensors, self.folder / "model.safetensors")
        model.load_state_dict(state)
        self.compare_logits(model)


class AgainstTorchtitan(moe_parity.AgainstTorchtitan):
    """torchtitan 0.2.2 computes its blocks in bf16 and with flex attention, which has no backward on a CPU: its model is
    cast to fp32 and gets plain attention. It leaves the bias of its router uninitialised; ours is copied."""

    NAME = "gpt_oss"
    CONFIG = {"model_type": "gpt_oss", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
              "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 48, "vocab_size": 2048, "rope_theta": 150000,
              "num_local_experts": 8, "num_experts_per_tok": 3, "sliding_window": 16, "max_position_embeddings": 131072,
              "rope_scaling": {"rope_type": "yarn", "factor": 32, "beta_fast": 32, "beta_slow": 1, "truncate": False,
                               "original_max_position_embeddings": 4096}}

    def torchtitan_model(self, seq_len):
        import torchtitan_import  # noqa: F401
        from torchtitan.models.gpt_oss.model.args import GptOssModelArgs
        from torchtitan.models.gpt_oss.model.model import GptOssModel
        from torchtitan.models.moe import MoEArgs

        moe = MoEArgs(num_experts=8, num_shared_experts=0, top_k=3, score_func="softmax", route_norm=True, gate_bias=True,
                      score_before_experts=False, use_grouped_mm=False)
        model = GptOssModel(GptOssModelArgs(dim=64, n_layers=3, n_heads=4, n_kv_heads=2, head_dim=32, vocab_size=2048,
                                            moe_inter_dim=48, moe_args=moe, sliding_window_size=16, max_seq_len=seq_len))
        return with_plain_attention(model.float(), window=16)


def with_plain_attention(model, window):
    """torchtitan's model with attention by definition in the place of flex attention, and with its masks."""
    from torch.nn.attention.flex_attention import BlockMask

    class DenseMask(BlockMask):
        def __init__(self, allowed):
            self.allowed = allowed

    class Attention(torch.nn.Module):
        def forward(self, q, k, v, *, block_mask, scale, **_):
            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
            scores = (q @ k.transpose(2, 3) * scale).masked_fill(~block_mask.allowed, -torch.inf)
            return scores.softmax(-1) @ v, scores.logsumexp(-1)

    for layer in model.layers.values():
        layer.attention.inner_attention = Attention()
    forward = model.forward

    def forward_with_masks(tokens):
        causal = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
        masks = {"basic_mask": DenseMask(causal), "sliding_window_mask": DenseMask(causal.triu(1 - window))}
        return forward(tokens, masks)

    model.forward = forward_with_masks
    return model


if __name__ == "__main__":
    unittest.main()
