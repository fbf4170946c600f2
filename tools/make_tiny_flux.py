#!/usr/bin/env python3
"""Makes all that a tiny Flux needs, so that one can be trained on a CPU within minutes and nothing is downloaded.

    tools/make_tiny_flux.py DIR

DIR becomes a folder as Hugging Face's pipelines have it: transformer/ and vae/ with their sizes, ae.safetensors, and two encoders
of captions, t5/ and clip/, with tokenizers that know the words of tests/assets/cc12m_test.

- The autoencoder has the published architecture with one resolution, and weights that were computed, not trained: encoding and
  decoding give the image back, so the latents are its pixels. Residual blocks and attention add zero. The group norms at the ends
  divide by the constants that the channels beside the signal hold, and a large bias keeps SiLU where it is straight.
- The encoders of captions have random weights. They are frozen as always; the transformer learns to read what they say.
"""

import argparse
import json
import pathlib

import numpy
import safetensors.numpy

WIDTH, GROUPS = 32, 8  # channels of the autoencoder; those of a group are the signal, two constants, and the signal's negative
LARGE, STRAIGHT = 1000.0, 20.0
T5_WIDTH, CLIP_WIDTH = 64, 48
WORDS = ("a an red orange yellow green blue purple white black circle square triangle ring on grey sand sky rose background").split()
SPECIAL = ["<pad>", "</s>", "<|startoftext|>", "<|endoftext|>", "[UNK]"]


def write_json(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def write_weights(path, weights):
    safetensors.numpy.save_file({name: numpy.ascontiguousarray(value, numpy.float32) for name, value in weights.items()}, str(path))


# --- the autoencoder ----------------------------------------------------------------------------------------------------------

def convolution(weights, name, inputs, outputs, kernel, matrix=None, bias=None):
    """One that mixes channels at each place by `matrix` [outputs, inputs]; without, one that gives zeros."""
    weight = numpy.zeros((outputs, inputs, kernel, kernel))
    if matrix is not None:
        weight[:, :, kernel // 2, kernel // 2] = matrix
    weights[f"{name}.weight"] = weight
    weights[f"{name}.bias"] = numpy.zeros(outputs) if bias is None else bias


def norm(weights, name, scale=1.0, bias=0.0):
    weights[f"{name}.weight"], weights[f"{name}.bias"] = numpy.full(WIDTH, scale), numpy.full(WIDTH, bias)


def silent_block(weights, name):
    """A residual block that adds nothing."""
    for i in (1, 2):
        norm(weights, f"{name}.norm{i}")
        convolution(weights, f"{name}.conv{i}", WIDTH, WIDTH, 3)


def half(weights, name, inputs, outputs, out_bias, blocks):
    """The encoder or the decoder: from 3 channels to 3."""
    size = WIDTH // GROUPS
    spread, gather, constants = numpy.zeros((WIDTH, inputs)), numpy.zeros((outputs, WIDTH)), numpy.zeros(WIDTH)
    for group in range(GROUPS):
        constants[group * size + 1], constants[group * size + 2] = LARGE, -LARGE
    for i in range(3):
        spread[i * size, i], spread[i * size + 3, i] = 1, -1
        gather[i, i * size] = 1
    convolution(weights, f"{name}.conv_in", inputs, WIDTH, 3, spread, constants)
    for block in blocks + [f"{name}.mid.block_1", f"{name}.mid.block_2"]:
        silent_block(weights, block)
    norm(weights, f"{name}.mid.attn_1.norm")
    for layer in ("q", "k", "v", "proj_out"):
        convolution(weights, f"{name}.mid.attn_1.{layer}", WIDTH, WIDTH, 1)
    # Two of four channels are constants: the variance of a group is half of their square, whatever the signal is.
    norm(weights, f"{name}.norm_out", LARGE / numpy.sqrt(2), STRAIGHT)
    convolution(weights, f"{name}.conv_out", WIDTH, outputs, 3, gather, out_bias)


def write_autoencoder(folder):
    weights = {}
    minus = numpy.full(3, -STRAIGHT)
    half(weights, "encoder", 3, 6, numpy.concatenate([minus, numpy.full(3, -30.0)]), ["encoder.down.0.block.0"])  # no variance
    half(weights, "decoder", 3, 3, minus, [f"decoder.up.0.block.{i}" for i in range(2)])
    write_weights(folder / "ae.safetensors", weights)
    write_json(folder / "vae/config.json", {"_class_name": "AutoencoderKL", "in_channels": 3, "latent_channels": 3, "block_out_channels": [WIDTH],
                                            "layers_per_block": 1, "norm_num_groups": GROUPS, "scaling_factor": 2.0, "shift_factor": 0.0})


# --- encoders of captions -----------------------------------------------------------------------------------------------------

def write_tokenizer(folder, bos, eos, pad):
    vocabulary = {word: i for i, word in enumerate(SPECIAL + WORDS)}
    special = [{"id": vocabulary[token], "content": token, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
               for token in SPECIAL]
    write_json(folder / "tokenizer.json", {"version": "1.0", "added_tokens": special, "normalizer": None, "pre_tokenizer": {"type": "Whitespace"},
                                           "post_processor": None, "decoder": None,
                                           "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}})
    write_json(folder / "tokenizer_config.json", {"bos_token": bos, "eos_token": eos, "pad_token": pad})


def write_t5(folder, random):
    dim, hidden, heads, buckets = T5_WIDTH, 128, 4, 32
    matrix = lambda rows, columns: random.standard_normal((rows, columns)) / numpy.sqrt(columns)
    block = "encoder.block.0.layer"
    weights = {"shared.weight": random.standard_normal((len(SPECIAL + WORDS), dim)), "encoder.final_layer_norm.weight": numpy.ones(dim),
               f"{block}.0.SelfAttention.relative_attention_bias.weight": random.standard_normal((buckets, heads)),
               f"{block}.0.layer_norm.weight": numpy.ones(dim), f"{block}.1.layer_norm.weight": numpy.ones(dim),
               f"{block}.1.DenseReluDense.wi.weight": matrix(hidden, dim), f"{block}.1.DenseReluDense.wo.weight": matrix(dim, hidden)}
    weights |= {f"{block}.0.SelfAttention.{name}.weight": matrix(dim, dim) for name in "qkvo"}
    write_json(folder / "config.json", {"model_type": "t5", "vocab_size": len(SPECIAL + WORDS), "d_model": dim, "d_kv": dim // heads, "d_ff": hidden,
                                        "num_layers": 1, "num_heads": heads, "feed_forward_proj": "relu"})
    write_weights(folder / "model.safetensors", weights)
    write_tokenizer(folder, "</s>", "</s>", "<pad>")


def write_clip(folder, random):
    dim, hidden, heads = CLIP_WIDTH, 96, 4
    layer, weights = "text_model.encoder.layers.0", {}
    for name, (rows, columns) in {"self_attn.q_proj": (dim, dim), "self_attn.k_proj": (dim, dim), "self_attn.v_proj": (dim, dim),
                                  "self_attn.out_proj": (dim, dim), "mlp.fc1": (hidden, dim), "mlp.fc2": (dim, hidden)}.items():
        weights[f"{layer}.{name}.weight"] = 3 * random.standard_normal((rows, columns)) / numpy.sqrt(columns)
        weights[f"{layer}.{name}.bias"] = numpy.zeros(rows)
    for name in (f"{layer}.layer_norm1", f"{layer}.layer_norm2", "text_model.final_layer_norm"):
        weights[f"{name}.weight"], weights[f"{name}.bias"] = numpy.ones(dim), numpy.zeros(dim)
    weights["text_model.embeddings.token_embedding.weight"] = random.standard_normal((len(SPECIAL + WORDS), dim))
    weights["text_model.embeddings.position_embedding.weight"] = 0.3 * random.standard_normal((77, dim))
    write_json(folder / "config.json", {"model_type": "clip_text_model", "vocab_size": len(SPECIAL + WORDS), "hidden_size": dim, "intermediate_size": hidden,
                                        "num_hidden_layers": 1, "num_attention_heads": heads, "eos_token_id": SPECIAL.index("<|endoftext|>")})
    write_weights(folder / "model.safetensors", weights)
    write_tokenizer(folder, "<|startoftext|>", "<|endoftext|>", "<|endoftext|>")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--heads", type=int, default=3, help="of 32 elements each")
    parser.add_argument("--double-blocks", type=int, default=1)
    parser.add_argument("--single-blocks", type=int, default=3)
    options = parser.parse_args()
    folder, random = options.folder, numpy.random.default_rng(1)
    write_json(folder / "transformer/config.json",
               {"_class_name": "FluxTransformer2DModel", "in_channels": 12, "attention_head_dim": 32, "num_attention_heads": options.heads,
                "pooled_projection_dim": CLIP_WIDTH, "joint_attention_dim": T5_WIDTH, "num_layers": options.double_blocks,
                "num_single_layers": options.single_blocks, "axes_dims_rope": [8, 12, 12]})
    write_autoencoder(folder)
    write_t5(folder / "t5", random)
    write_clip(folder / "clip", random)


if __name__ == "__main__":
    main()
