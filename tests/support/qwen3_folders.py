"""Small random Qwen 3 models as Hugging Face folders, with the tokenizer of the tests."""

import hugging_face_folders
import torch
import transformers

# What each kind changes. A head has 16 elements where the model's size would give 16 too, unless it says otherwise.
KINDS = {
    "plain": {"num_key_value_heads": 4, "head_dim": 16},
    "wide_heads": {"num_key_value_heads": 4, "head_dim": 24},
    "grouped": {"head_dim": 32},
    "tied": {"tie_word_embeddings": True, "head_dim": 16},
    "all": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}, "tie_word_embeddings": True,
            "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-6},
}


def make(folder, kind, published_spelling=False, max_shard_size="1GB"):
    """Writes the folder and returns transformers' model: see hugging_face_folders.write."""
    torch.manual_seed(sorted(KINDS).index(kind))
    config = hugging_face_folders.small(transformers.Qwen3Config, **KINDS[kind])
    return hugging_face_folders.write(transformers.Qwen3ForCausalLM(config), folder, published_spelling, max_shard_size)
