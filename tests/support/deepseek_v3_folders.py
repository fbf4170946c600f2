"""Small random DeepSeek models as Hugging Face folders, with the tokenizer of the tests."""

import json
import pathlib

import hugging_face_folders
import torch
import transformers

COMMON = {"num_key_value_heads": 4, "kv_lora_rank": 40, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24,
          "q_lora_rank": None, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 1,
          "moe_intermediate_size": 48, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
          "routed_scaling_factor": 1.0}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 4, "beta_slow": 1, "mscale": 1.0,
        "mscale_all_dim": 0.707, "original_max_position_embeddings": 64}
# What each kind changes.
KINDS = {
    "plain": {},
    "grouped": {"q_lora_rank": 24, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5},
    "all": {"rope_parameters": YARN, "tie_word_embeddings": True, "q_lora_rank": 24, "n_shared_experts": 2,
            "first_k_dense_replace": 0, "norm_topk_prob": False, "rms_norm_eps": 1e-6},
    "v2": {"rope_parameters": YARN, "n_shared_experts": 2},
}


def make(folder, kind, published_spelling=False, max_shard_size="1GB"):
    """Writes the folder and returns transformers' model: see hugging_face_folders.write. In DeepSeek V3 the bias that
    balances experts changes what is chosen."""
    torch.manual_seed(sorted(KINDS).index(kind))
    version = "V2" if kind == "v2" else "V3"
    config = hugging_face_folders.small(getattr(transformers, f"Deepseek{version}Config"), **(COMMON | KINDS[kind]))
    model = getattr(transformers, f"Deepseek{version}ForCausalLM")(config)
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.uniform_(-0.2, 0.2)
    hugging_face_folders.write(model, folder, published_spelling, max_shard_size)
    if published_spelling:  # DeepSeek's own folders say type
        path = pathlib.Path(folder) / "config.json"
        written = json.loads(path.read_text())
        if written["rope_scaling"]:
            written["rope_scaling"]["type"] = written["rope_scaling"].pop("rope_type")
        path.write_text(json.dumps(written))
    return model
