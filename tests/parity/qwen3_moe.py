"""Qwen 3 with experts against transformers' model (logits, loss, gradients, generation, weights in and out) and
torchtitan's (training), in fp32 on the CPU."""

import unittest

import decoder_parity
import moe_parity
import qwen3_moe_folders


class AgainstTransformers(decoder_parity.AgainstTransformers):
    folders = qwen3_moe_folders
    from_hugging_face = staticmethod(moe_parity.from_hugging_face)

    def test_weights_go_out_as_they_came_in(self):
        decoder_parity.weights_go_round(self, qwen3_moe_folders, ("grouped", "all"))


class AgainstTorchtitan(moe_parity.AgainstTorchtitan):
    """torchtitan 0.2.2 never moves the bias that balances the experts of this family; here it does."""

    NAME = "qwen3"
    CONFIG = {"model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
              "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 96, "vocab_size": 2048, "rope_theta": 1e6,
              "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 48, "norm_topk_prob": True}

    def torchtitan_model(self, seq_len):
        import torchtitan_import  # noqa: F401
        from torchtitan.models.moe import MoEArgs
        from torchtitan.models.qwen3.model.args import Qwen3ModelArgs
        from torchtitan.models.qwen3.model.model import Qwen3Model

        moe = MoEArgs(num_experts=8, num_shared_experts=0, top_k=3, score_func="softmax", route_norm=True,
                      score_before_experts=False, use_grouped_mm=False)
        return Qwen3Model(Qwen3ModelArgs(dim=64, n_layers=3, n_heads=4, n_kv_heads=2, head_dim=32, vocab_size=2048,
                                         moe_enabled=True, moe_inter_dim=48, moe_args=moe, max_seq_len=seq_len))


if __name__ == "__main__":
    unittest.main()
