"""Sizes of a tiny Llama and the tokenizer of the tests, as a folder for model.hf_assets_path with model.flavor=auto."""

import json
import pathlib
import shutil

ROOT = pathlib.Path(__file__).resolve().parents[2]

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "intermediate_size": 64,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 2048,
          "max_position_embeddings": 128, "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "hidden_act": "silu",
          "tie_word_embeddings": False}


def make(folder):
    """Returns the options of a run with it."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for file in (ROOT / "tests/assets/tokenizer").iterdir():
        shutil.copy(file, folder)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return ["--model.flavor=auto", f"--model.hf_assets_path={folder}", "--training.dataset=c4_test",
            f"--training.dataset_path={ROOT}/tests/assets/c4_test", "--training.seq_len=32",
            "--training.mixed_precision_param=float32", "--training.device=cpu", "--metrics.log_freq=1",
            "--metrics.disable_color_printing", "--lr_scheduler.warmup_steps=2"]
