"""Small random Llama 4 text models as Hugging Face folders, with the tokenizer of the tests."""

import json
import pathlib

import hugging_face_folders
import torch
import transformers
from safetensors.torch import load_file, save_file

COMMON = {"head_dim": 16, "intermediate_size": 48, "intermediate_size_mlp": 96, "num_local_experts": 8,
          "num_experts_per_tok": 1, "interleave_moe_layer_step": 1, "attention_chunk_size": 32, "floor_scale": 16,
          "use_qk_norm": False, "attn_temperature_tuning": False, "no_rope_layers": [1, 1, 1]}
SCALED_ROPE = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
               "original_max_position_embeddings": 64}
# What each kind changes.
KINDS = {
    "plain": {"num_key_value_heads": 4, "attention_chunk_size": 512},
    "grouped": {"interleave_moe_layer_step": 2, "head_dim": 32, "no_rope_layers": [1, 0, 1]},
    "all": {"rope_parameters": SCALED_ROPE, "num_key_value_heads": 1, "no_rope_layers": [0, 1, 1], "use_qk_norm": True,
            "attn_temperature_tuning": True, "num_experts_per_tok": 2},
}


def make(folder, kind, published_spelling=False, max_shard_size="1GB"):
    """Writes the folder and returns transformers' model: see hugging_face_folders.write. published_spelling: as the text
    part of a model that sees images as well, with rope_theta and rope_scaling."""
    torch.manual_seed(sorted(KINDS).index(kind))
    config = hugging_face_folders.small(transformers.Llama4TextConfig, **(COMMON | KINDS[kind]))
    model = transformers.Llama4ForCausalLM(config)
    hugging_face_folders.write(model, folder, published_spelling, max_shard_size)
    if published_spelling:
        folder = pathlib.Path(folder)
        text = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({"model_type": "llama4", "text_config": text}))
        tensors = {f"language_model.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
        tensors["vision_model.patch_embedding.linear.weight"] = torch.zeros(2)
        tensors["multi_modal_projector.linear_1.weight"] = torch.zeros(2)
        save_file(tensors, folder / "model.safetensors")
    return model
