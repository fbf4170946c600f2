"""DeepSeek V3 against transformers' DeepSeek V3 and V2 (logits, loss, gradients, generation, weights in and out, float8
weights) and torchtitan's (training), in fp32 on the CPU."""

import unittest

import decoder_parity
import deepseek_v3_folders
import moe_parity
import torch
from safetensors.torch import load_file, save_file

BLOCK = 128


def quantise(weight):
    """float8 with one factor for each block of 128 x 128 elements, and what it stands for."""
    blocks = [-(-size // BLOCK) for size in weight.shape]
    factors = torch.empty(blocks)
    data = torch.empty(weight.shape, dtype=torch.float8_e4m3fn)
    expanded = torch.empty_like(weight)
    for i in range(blocks[0]):
        for j in range(blocks[1]):
            place = slice(i * BLOCK, (i + 1) * BLOCK), slice(j * BLOCK, (j + 1) * BLOCK)
            factors[i, j] = weight[place].abs().max() / 448
            data[place] = (weight[place] / factors[i, j]).to(torch.float8_e4m3fn)
            expanded[place] = data[place].float() * factors[i, j]
    return data, factors, expanded


class AgainstTransformers(decoder_parity.AgainstTransformers):
    folders = deepseek_v3_folders
    from_hugging_face = staticmethod(moe_parity.from_hugging_face)
    PUBLISHED = ("plain", "all", "v2")
    GENERATED = ("grouped", "all", "v2")

    def test_weights_go_out_as_they_came_in(self):
        decoder_parity.weights_go_round(self, deepseek_v3_folders, ("grouped", "all", "v2"))

    def test_float8_weights_are_expanded(self):
        for layer in (0, 3):  # the model's own layers; those of multi-token prediction are passed over
            with self.subTest(layer=layer):
                model = deepseek_v3_folders.make(self.folder, "grouped")
                tensors = load_file(self.folder / "model.safetensors")
                state = {}
                for name in [name for name in tensors if name.endswith("proj.weight")]:
                    tensors[name], tensors[f"{name}_scale_inv"], state[name] = quantise(tensors[name])
                if layer == 3:
                    tensors["model.layers.3.eh_proj.weight"] = torch.zeros(2, 2)
                save_file(tensors, self.folder / "model.safetensors")
                plain = self.folder / "expanded"
                plain.mkdir(exist_ok=True)
                model.config.save_pretrained(plain)
                save_file({name: state.get(name, tensor) for name, tensor in tensors.items() if "scale_inv" not in name
                           and "eh_proj" not in name}, plain / "model.safetensors", metadata={"format": "pt"})
                self.compare_logits(type(model).from_pretrained(plain, dtype=torch.float32))


class AgainstTorchtitan(decoder_parity.WithPositions, moe_parity.AgainstTorchtitan):
    """torchtitan 0.2.2 applies YaRN only beyond 4,096 positions, so its tables are built for more; the eps of its last
    norm is that of the dtype, which 1e-4 leaves room for; the norms of its latents have the eps of the others."""

    NAME = "deepseek_v3"
    CONFIG = {"model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
              "intermediate_size": 96, "vocab_size": 2048, "rope_theta": 1e4, "kv_lora_rank": 40, "qk_nope_head_dim": 16,
              "qk_rope_head_dim": 8, "v_head_dim": 24, "q_lora_rank": 24, "n_routed_experts": 8, "num_experts_per_tok": 3,
              "n_shared_experts": 2, "moe_intermediate_size": 48, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2,
              "norm_topk_prob": True, "routed_scaling_factor": 2.5, "rms_norm_eps": 1e-6, "max_position_embeddings": 16384,
              "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 0.7,
                               "mscale_all_dim": 0.7, "original_max_position_embeddings": 4096}}

    def torchtitan_model(self, seq_len):
        import torchtitan_import  # noqa: F401
        from torchtitan.models.deepseek_v3.model.args import DeepSeekV3ModelArgs
        from torchtitan.models.deepseek_v3.model.model import DeepSeekV3Model
        from torchtitan.models.moe import MoEArgs

        moe = MoEArgs(num_experts=8, num_shared_experts=2, top_k=3, num_expert_groups=4, num_limited_groups=2,
                      score_func="sigmoid", route_norm=True, route_scale=2.5, score_before_experts=False,
                      use_grouped_mm=False)
        args = DeepSeekV3ModelArgs(dim=64, n_layers=3, n_heads=4, vocab_size=2048, inter_dim=96, moe_inter_dim=48,
                                   n_dense_layers=1, norm_eps=1e-6, moe_args=moe, q_lora_rank=24, kv_lora_rank=40,
                                   qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=24, mscale=0.7, max_seq_len=16384)
        args.moe_impl = "standard"
        return DeepSeekV3Model(args)


if __name__ == "__main__":
    unittest.main()
