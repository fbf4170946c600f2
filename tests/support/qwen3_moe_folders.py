"""Small random Qwen 3 models with experts as Hugging Face folders, with the tokenizer of the tests."""

import hugging_face_folders
import torch
import transformers

EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 48, "norm_topk_prob": True}
# What each kind changes.
KINDS = {
    "plain": {"num_key_value_heads": 4, "head_dim": 16},
    "grouped": {"head_dim": 32, "num_experts": 5, "norm_topk_prob": False},
    "all": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}, "tie_word_embeddings": True,
            "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-6, "num_experts_per_tok": 8},
}


def make(folder, kind, published_spelling=False, max_shard_size="1GB"):
    """Writes the folder and returns transformers' model: see hugging_face_folders.write."""
    torch.manual_seed(sorted(KINDS).index(kind))
    config = hugging_face_folders.small(transformers.Qwen3MoeConfig, **(EXPERTS | KINDS[kind]))
    return hugging_face_folders.write(transformers.Qwen3MoeForCausalLM(config), folder, published_spelling, max_shard_size)
