"""What small random models as Hugging Face folders have in common, with the tokenizer of the tests."""

import json
import pathlib
import shutil

import torch
import transformers

transformers.utils.logging.disable_progress_bar()

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOKENIZER = ROOT / "tests" / "assets" / "tokenizer"
BOS, EOS, VOCABULARY = 0, 1, 2000


def small(config, **options):
    """A configuration of three small layers."""
    common = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4,
              "num_key_value_heads": 2, "vocab_size": VOCABULARY, "max_position_embeddings": 256,
              "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "rms_norm_eps": 1e-5,
              "tie_word_embeddings": False, "initializer_range": 0.1, "bos_token_id": BOS, "eos_token_id": EOS}
    return config(**(common | options))


def write(model, folder, published_spelling, max_shard_size):
    """Writes the folder and returns the model, in fp32, whose norms have weights that matter. published_spelling:
    rope_theta and rope_scaling in config.json, as folders that are older than transformers 5 have it."""
    model = model.float().eval()
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
