"""titanium convert against PyTorch, transformers and their own converters: bit for bit, in all directions."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import llama_folders
import torch
import torch.distributed.checkpoint as dcp
import transformers
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner

PROGRAM = os.environ["TITANIUM"]

OURS = {"model.embed_tokens": "tok_embeddings", "model.norm": "norm", "lm_head": "output", "self_attn.q_proj": "attention.wq",
        "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv", "self_attn.o_proj": "attention.wo",
        "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2", "mlp.up_proj": "feed_forward.w3",
        "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm"}


def call(*arguments):
    finished = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True)
    if finished.returncode != 0:
        raise AssertionError(f"{arguments} ended with {finished.returncode}: {finished.stderr}")
    return finished.stdout


def our_weights(model):
    """The model's weights under torchtitan's names and in its order of rows: reference formula, not our adapter."""
    found = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        prefix, part = re.fullmatch(r"(?:model\.(layers\.\d+\.))?(.*)\.weight", name).groups()
        heads = {"self_attn.q_proj": model.config.num_attention_heads,
                 "self_attn.k_proj": model.config.num_key_value_heads}.get(part)
        if heads:
            half = tensor.shape[0] // heads // 2
            tensor = tensor.view(heads, 2, half, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)
        found[f"{prefix or ''}{OURS[part]}.weight"] = tensor.clone()
    return found


def read_dcp(folder):
    state = {}
    _load_state_dict(state, storage_reader=dcp.FileSystemReader(folder), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    return state


class Converting(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def assertSame(self, found, expected):
        """Equal nested dicts and lists, tensors bit for bit."""
        if isinstance(expected, torch.Tensor):
            self.assertEqual(found.dtype, expected.dtype)
            self.assertTrue(torch.equal(found, expected))
        elif isinstance(expected, dict):
            self.assertEqual(sorted(found), sorted(expected))
            for key in expected:
                self.assertSame(found[key], expected[key])
        elif isinstance(expected, list):
            self.assertEqual(len(found), len(expected))
            for one, other in zip(found, expected):
                self.assertSame(one, other)
        else:
            self.assertEqual(found, expected)

    def assertSameModel(self, folder, model, dtype=torch.float32):
        loaded = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
        self.assertEqual(loaded.dtype, dtype)
        self.assertSame(loaded.state_dict(), {name: tensor.to(dtype) for name, tensor in model.state_dict().items()})
        if dtype == torch.float32:
            tokens = torch.randint(0, llama_folders.VOCABULARY, (2, 100), generator=torch.Generator().manual_seed(3))
            with torch.no_grad():
                self.assertSame(loaded(tokens).logits, model(tokens).logits)
        return loaded


class HuggingFace(Converting):
    def test_round_trip_through_dcp_is_what_transformers_wrote(self):
        for kind in llama_folders.KINDS:
            with self.subTest(kind):
                place = self.folder / kind
                model = llama_folders.make(place / "hf", kind)
                call("convert", place / "hf", place / "dcp", "--to", "dcp")
                self.assertSame(read_dcp(place / "dcp"), our_weights(model))
                call("convert", place / "dcp", place / "back", "--to", "hf", "--hf-assets", place / "hf")
                self.assertSame(load_file(place / "back" / "model.safetensors"),
                                load_file(place / "hf" / "model.safetensors"))
                loaded = self.assertSameModel(place / "back", model)
                self.assertEqual(loaded.config.bos_token_id, llama_folders.BOS)
                self.assertEqual(loaded.config.eos_token_id, llama_folders.EOS)
                self.assertEqual(transformers.AutoTokenizer.from_pretrained(place / "back")("The city").input_ids,
                                 transformers.AutoTokenizer.from_pretrained(place / "hf")("The city").input_ids)

    def test_shards_follow_the_index_of_the_assets(self):
        model = llama_folders.make(self.folder / "hf", "grouped", max_shard_size="300KB")
        call("convert", self.folder / "hf", self.folder / "weights.pt", "--to", "torch")
        call("convert", self.folder / "weights.pt", self.folder / "back", "--to", "hf", "--hf-assets", self.folder / "hf")
        index = "model.safetensors.index.json"
        self.assertEqual(json.loads((self.folder / "back" / index).read_text())["weight_map"],
                         json.loads((self.folder / "hf" / index).read_text())["weight_map"])
        self.assertSameModel(self.folder / "back", model)

    def test_other_dtypes_are_rounded_as_torch_does(self):
        model = llama_folders.make(self.folder / "hf", "all")
        for dtype in ("bfloat16", "float16"):
            call("convert", self.folder / "hf", self.folder / dtype, "--to", "hf", "--export-dtype", dtype)
            self.assertSameModel(self.folder / dtype, model, getattr(torch, dtype))
        # What is not asked for stays: bfloat16 through DCP is bfloat16.
        call("convert", self.folder / "bfloat16", self.folder / "dcp", "--to", "dcp")
        self.assertEqual({tensor.dtype for tensor in read_dcp(self.folder / "dcp").values()}, {torch.bfloat16})


class TorchFiles(Converting):
    def test_weights_load_without_trust_also_mapped(self):
        model = llama_folders.make(self.folder / "hf", "grouped")
        call("convert", self.folder / "hf", self.folder / "weights.pt", "--to", "torch")
        for mapped in (False, True):
            self.assertSame(torch.load(self.folder / "weights.pt", weights_only=True, mmap=mapped), our_weights(model))

    def test_state_dicts_of_modules_also_below_a_key_and_with_their_names(self):
        model = llama_folders.make(self.folder / "hf", "tied")
        files = {"module": model.state_dict(), "below": {"model": our_weights(model), "step": 7}, "ours": our_weights(model)}
        for name, state in files.items():
            torch.save(state, self.folder / f"{name}.pt")
            call("convert", self.folder / f"{name}.pt", self.folder / name, "--to", "hf", "--hf-assets", self.folder / "hf")
            self.assertSameModel(self.folder / name, model)

    def test_files_from_before_archives_are_read(self):
        """As models were published before torch 1.6, and in a folder under the name that they had there."""
        torch.save(training_state(), self.folder / "state.pt", _use_new_zipfile_serialization=False)
        call("convert", self.folder / "state.pt", self.folder / "found.pt", "--to", "torch")
        self.assertSame(torch.load(self.folder / "found.pt", weights_only=True), training_state())
        model = llama_folders.make(self.folder / "hf", "tied")
        (self.folder / "hf/model.safetensors").unlink()
        torch.save(model.state_dict(), self.folder / "hf/pytorch_model.bin", _use_new_zipfile_serialization=False)
        call("convert", self.folder / "hf", self.folder / "back", "--to", "hf", "--hf-assets", self.folder / "hf")
        self.assertSameModel(self.folder / "back", model)


def training_state():
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(33, 7, generator=generator)
    return {"model": {"a.weight": weight, "b.weight": weight.t(), "half": weight[::2].bfloat16()},
            "optimizer": {"state": {"a.weight": {"step": torch.tensor(3.0), "exp_avg": weight[3:9, 2:5]}},
                          "param_groups": [{"lr": 0.1, "betas": (0.9, 0.95), "params": ["a.weight"], "fused": None}]},
            "ids": torch.arange(5), "flags": [True, "text", 2.5], "list": [torch.ones(2) * i for i in range(12)],
            "empty": torch.zeros(0, 3), "scalar": torch.tensor(2, dtype=torch.int32)}


class Everything(Converting):
    def test_dcp_to_torch_is_what_torch_makes_of_it(self):
        dcp.save(training_state(), checkpoint_id=self.folder / "dcp", no_dist=True)
        dcp_to_torch_save(self.folder / "dcp", self.folder / "expected.pt")
        call("convert", self.folder / "dcp", self.folder / "found.pt", "--to", "torch")
        self.assertSame(torch.load(self.folder / "found.pt", weights_only=True),
                        torch.load(self.folder / "expected.pt", weights_only=True))

    def test_torch_to_dcp_is_what_torch_makes_of_it(self):
        torch.save(training_state(), self.folder / "state.pt")
        torch_save_to_dcp(self.folder / "state.pt", self.folder / "expected")
        call("convert", self.folder / "state.pt", self.folder / "found", "--to", "dcp")
        self.assertSame(read_dcp(self.folder / "found"), read_dcp(self.folder / "expected"))
        self.assertEqual(dcp.FileSystemReader(self.folder / "found").read_metadata().planner_data,
                         dcp.FileSystemReader(self.folder / "expected").read_metadata().planner_data)

    def test_export_dtype_leaves_training_state_alone(self):
        torch.save(training_state(), self.folder / "state.pt")
        call("convert", self.folder / "state.pt", self.folder / "half.pt", "--to", "torch", "--export-dtype", "bfloat16")
        found, expected = torch.load(self.folder / "half.pt"), training_state()
        self.assertSame(found["optimizer"], expected["optimizer"])
        self.assertSame(found["ids"], expected["ids"])
        self.assertSame(found["model"]["a.weight"], expected["model"]["a.weight"].bfloat16())


class MetaShards(Converting):
    def write_shards(self, folder, model, count, vocabulary_cut, **params):
        """As Meta's model is parallel; rotary frequencies lie beside the weights and are not needed."""
        config = model.config
        cuts = {"wq": 0, "wk": 0, "wv": 0, "w1": 0, "w3": 0, "output": 0, "wo": 1, "w2": 1,
                "tok_embeddings": 0 if vocabulary_cut else 1}
        shards = [{"rope.freqs": torch.ones(8)} for _ in range(count)]
        for name, tensor in our_weights(model).items():
            dim = cuts.get(name.split(".")[-2])
            for i, shard in enumerate(shards):
                shard[name] = tensor.clone() if dim is None else tensor.chunk(count, dim)[i].clone()
        folder.mkdir()
        for i, shard in enumerate(shards):
            torch.save(shard, folder / f"consolidated.{i:02}.pth")
        (folder / "params.json").write_text(json.dumps(
            {"dim": config.hidden_size, "n_layers": config.num_hidden_layers, "n_heads": config.num_attention_heads,
             "n_kv_heads": config.num_key_value_heads, "multiple_of": 32, "ffn_dim_multiplier": 0.9,
             "norm_eps": config.rms_norm_eps, "vocab_size": -1} | params))

    def test_any_number_of_shards_gives_the_model(self):
        model = llama_folders.make(self.folder / "hf", "grouped")
        for count, vocabulary_cut in ((1, False), (2, False), (2, True)):
            with self.subTest(count=count, vocabulary_cut=vocabulary_cut):
                place = self.folder / f"meta_{count}_{vocabulary_cut}"
                self.write_shards(place, model, count, vocabulary_cut)
                call("convert", place, place / "hf", "--to", "hf")
                self.assertSameModel(place / "hf", model)
                call("convert", place, place / "dcp", "--to", "dcp")
                self.assertSame(read_dcp(place / "dcp"), our_weights(model))

    def test_rope_options_of_later_models(self):
        model = llama_folders.make(self.folder / "hf", "grouped")
        self.write_shards(self.folder / "meta", model, 2, True, rope_theta=500000.0, use_scaled_rope=True, vocab_size=2000)
        call("convert", self.folder / "meta", self.folder / "back", "--to", "hf")
        rope = transformers.AutoConfig.from_pretrained(self.folder / "back").rope_parameters
        self.assertEqual(rope, {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                                "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})


if __name__ == "__main__":
    unittest.main()
