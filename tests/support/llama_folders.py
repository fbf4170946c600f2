"""Small random Llama models as Hugging Face folders, with the tokenizer of the tests."""

import hugging_face_folders
import torch
import transformers
from hugging_face_folders import BOS, EOS, ROOT, TOKENIZER, VOCABULARY  # noqa: F401

SCALED_ROPE = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 64}

# What each kind changes. Every kind but the first two has grouped-query attention.
KINDS = {
    "plain": {"num_key_value_heads": 4},
    "wide_heads": {"num_key_value_heads": 4, "head_dim": 24},
    "grouped": {},
    "scaled_rope": {"rope_parameters": SCALED_ROPE},
    "tied": {"tie_word_embeddings": True},
    "all": {"rope_parameters": SCALED_ROPE, "tie_word_embeddings": True, "num_key_value_heads": 1},
}


def make(folder, kind, published_spelling=False, max_shard_size="1GB"):
    """Writes the folder and returns transformers' model: see hugging_face_folders.write."""
    torch.manual_seed(sorted(KINDS).index(kind))
    config = hugging_face_folders.small(transformers.LlamaConfig, **KINDS[kind])
    return hugging_face_folders.write(transformers.LlamaForCausalLM(config), folder, published_spelling, max_shard_size)
