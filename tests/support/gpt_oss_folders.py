"""Small random GPT-OSS models as Hugging Face folders, with the tokenizer of the tests."""

import hugging_face_folders
import torch
import transformers

COMMON = {"head_dim": 16, "intermediate_size": 64, "num_local_experts": 8, "num_experts_per_tok": 3, "sliding_window": 16,
          "attn_implementation": "eager"}
YARN = {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 4.0, "beta_fast": 8.0, "beta_slow": 1.0, "truncate": False,
        "original_max_position_embeddings": 64}
# What each kind changes.
KINDS = {
    "plain": {"num_key_value_heads": 4},
    "grouped": {"head_dim": 32, "num_local_experts": 5, "sliding_window": 7},
    "all": {"rope_parameters": YARN, "num_key_value_heads": 1, "head_dim": 24, "rms_norm_eps": 1e-6, "swiglu_limit": 0.5},
}


def make(folder, kind, published_spelling=False, max_shard_size="1GB"):
    """Writes the folder and returns transformers' model: see hugging_face_folders.write. Biases and sinks matter."""
    torch.manual_seed(sorted(KINDS).index(kind))
    model = transformers.GptOssForCausalLM(hugging_face_folders.small(transformers.GptOssConfig, **(COMMON | KINDS[kind])))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("bias", "sinks")):
                parameter.uniform_(-1, 1)
    return hugging_face_folders.write(model, folder, published_spelling, max_shard_size)
