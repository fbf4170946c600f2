"""Small random Llama models as Hugging Face folders, with the tokenizer of the tests."""

import json
import pathlib
import shutil

import torch
import transformers

transformers.utils.logging.disable_progress_bar()

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOKENIZER = ROOT / "tests" / "assets" / "tokenizer"
BOS, EOS, VOCABULARY = 0, 1, 2000

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
    """Writes the folder and returns transformers' model, in fp32. published_spelling: rope_theta and rope_scaling in
    config.json, as folders that are older than transformers 5 have it."""
    options = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4,
               "num_key_value_heads": 2, "vocab_size": VOCABULARY, "max_position_embeddings": 256,
               "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "rms_norm_eps": 1e-5,
               "tie_word_embeddings": False, "initializer_range": 0.1, "bos_token_id": BOS, "eos_token_id": EOS}
    torch.manual_seed(sorted(KINDS).index(kind))
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**(options | KINDS[kind]))).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    for file in TOKENIZER.iterdir():
        shutil.copy(file, folder)
    if published_spelling:
        path = pathlib.Path(folder) / "config.json"
        config = json.loads(path.read_text())
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
        path.write_text(json.dumps(config))
    return model
