"""A Flux in the files in which it is published: a pipeline of diffusers with a distilled transformer in shards, the autoencoder of Black Forest Labs, CLIP with
vocab.json and merges.txt, and a T5 at the hub that has spiece.model and was saved by torch.save alone."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import caption_folders
import hub_server
import text_samples
import torch
import torchtitan_import  # noqa: F401
import transformers
from safetensors.torch import load_file, save_file
from torchtitan.models.flux.model.args import FluxModelArgs
from torchtitan.models.flux.model.autoencoder import AutoEncoder, AutoEncoderParams
from torchtitan.models.flux.model.layers import MLPEmbedder
from torchtitan.models.flux.model.model import FluxModel
from torchtitan.models.flux.model.state_dict_adapter import FluxStateDictAdapter

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ["TITANIUM"]
SIZES = FluxModelArgs(in_channels=64, out_channels=64, vec_in_dim=32, context_in_dim=24, hidden_size=64, num_heads=2, depth=1, depth_single_blocks=1,
                      axes_dim=(8, 12, 12))
EMBEDDER = {"guidance_in.in_layer": "time_text_embed.guidance_embedder.linear_1", "guidance_in.out_layer": "time_text_embed.guidance_embedder.linear_2"}


def distilled_model():
    """Of the peer, which has no embedding of guidance itself."""
    model = FluxModel(SIZES)
    model.guidance_in = MLPEmbedder(256, SIZES.hidden_size)
    return model


def weights():
    """Of a distilled model, under the names of Black Forest Labs and of diffusers."""
    torch.manual_seed(1)
    model = distilled_model()
    for name, parameter in model.named_parameters():
        torch.nn.init.uniform_(parameter, 0.5, 1.5) if "_norm" in name else torch.nn.init.normal_(parameter, std=0.1)
    state = model.state_dict()
    guidance = {name: state.pop(name) for name in list(state) if name.startswith("guidance_in.")}
    labs = {name.replace("_norm.weight", "_norm.scale"): tensor for name, tensor in (state | guidance).items()}
    diffusers = FluxStateDictAdapter(SIZES, None).to_hf(dict(state))
    for name, tensor in guidance.items():
        module, _, kind = name.rpartition(".")
        diffusers[f"{EMBEDDER[module]}.{kind}"] = tensor
    return labs, {name: tensor.contiguous() for name, tensor in diffusers.items()}


def write_pipeline(folder):
    """As black-forest-labs/FLUX.1-dev, with weights in two shards."""
    labs, diffusers = weights()
    transformer = folder / "transformer"
    transformer.mkdir(parents=True)
    (folder / "model_index.json").write_text(json.dumps({"_class_name": "FluxPipeline"}))
    (transformer / "config.json").write_text(json.dumps(
        {"_class_name": "FluxTransformer2DModel", "attention_head_dim": 32, "num_attention_heads": 2, "in_channels": 64, "pooled_projection_dim": 32,
         "joint_attention_dim": 24, "num_layers": 1, "num_single_layers": 1, "axes_dims_rope": [8, 12, 12], "guidance_embeds": True, "patch_size": 1}))
    names = sorted(diffusers)
    files = {"diffusion_pytorch_model-00001-of-00002.safetensors": names[::2], "diffusion_pytorch_model-00002-of-00002.safetensors": names[1::2]}
    for file, part in files.items():
        save_file({name: diffusers[name] for name in part}, transformer / file)
    index = {"metadata": {}, "weight_map": {name: file for file, part in files.items() for name in part}}
    (transformer / "diffusion_pytorch_model.safetensors.index.json").write_text(json.dumps(index))
    save_file(labs, folder / "flux1-dev.safetensors")
    (folder / "vae").mkdir()
    (folder / "vae/config.json").write_text(json.dumps(
        {"block_out_channels": [32, 64, 128, 128], "layers_per_block": 2, "latent_channels": 16, "norm_num_groups": 32, "in_channels": 3,
         "scaling_factor": 0.3611, "shift_factor": 0.1159}))
    save_file(AutoEncoder(AutoEncoderParams(ch=32)).state_dict(), folder / "ae.safetensors")


def write_encoders(folder):
    """clip and t5 with safetensors, and the files of `hub`, as google/t5-v1_1-xxl has them."""
    corpus = [text[:2000] for text in text_samples.real_text(60_000)[:60]]
    caption_folders.train_clip(folder / "clip", corpus)
    caption_folders.train_t5(folder / "t5", corpus)
    words = len(json.loads((folder / "clip/vocab.json").read_text()))
    clip = transformers.CLIPTextConfig(vocab_size=words, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                                       eos_token_id=words - 1, bos_token_id=words - 2)
    transformers.CLIPTextModel(clip).save_pretrained(folder / "clip")
    t5 = transformers.T5Config(vocab_size=1400, d_model=24, d_kv=8, d_ff=40, num_layers=2, num_heads=3, feed_forward_proj="gated-gelu")
    whole = transformers.T5ForConditionalGeneration(t5)
    whole.save_pretrained(folder / "t5")
    torch.save(whole.state_dict(), folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    files = {"config.json": folder / "t5/config.json", "spiece.model": folder / "t5/spiece.model", "pytorch_model.bin": folder / "pytorch_model.bin"}
    return {name: file.read_bytes() for name, file in files.items()} | {"tf_model.h5": b"not wanted"}


class PublishedFlux(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        cls.pipeline = cls.folder / "FLUX.1-dev"
        write_pipeline(cls.pipeline)
        cls.hub = hub_server.Hub("acme/t5", write_encoders(cls.folder), ["pytorch_model.bin", "tf_model.h5"])
        cls.addClassCleanup(cls.hub.__exit__)
        cls.prompts = cls.folder / "prompts.txt"
        cls.prompts.write_text("a red circle\n")
        cls.options = ["--model.name=flux", "--job.custom_config_module=torchtitan.models.flux.job_config", "--training.device=cpu", "--encoder.max_t5_encoding_len=16", f"--encoder.clip_encoder={cls.folder / 'clip'}",
                       f"--encoder.autoencoder_path={cls.pipeline / 'ae.safetensors'}"]

    def run_program(self, *arguments, code=0):
        environment = {**os.environ, "HF_ENDPOINT": self.hub.url, "HF_HOME": str(self.folder / "hub")}
        finished = subprocess.run([PROGRAM, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, env=environment)
        self.assertEqual(finished.returncode, code, finished.stdout + finished.stderr)
        return finished.stdout + finished.stderr

    def draw(self, name, checkpoint, *options, t5="acme/t5"):
        self.run_program("generate-image", "--checkpoint", checkpoint, "--prompts", self.prompts, "--out", self.folder / name, "--steps", 2, "--size", 32,
                         *self.options, f"--encoder.t5_encoder={t5}", *options)
        return (self.folder / name / "image_prompt0.png").read_bytes()

    def convert(self, source, target, to, *options):
        # The names of Black Forest Labs say which family it is.
        family = [] if to == "bfl" else ["--model.name", "flux"]
        return self.run_program("convert", source, target, "--to", to, *family, "--hf-assets", self.pipeline, *options)

    def test_images_from_every_form_of_the_files_are_the_same(self):
        drawn = self.draw("pipeline", self.pipeline)
        self.assertIn("pytorch_model.bin", " ".join(path for _, path, _ in self.hub.hub.requests))
        self.assertNotIn("tf_model.h5", " ".join(path for _, path, _ in self.hub.hub.requests))
        sizes = ["--model.flavor=auto", f"--model.hf_assets_path={self.pipeline}"]
        self.assertEqual(drawn, self.draw("labs", self.pipeline / "flux1-dev.safetensors", *sizes, t5=self.folder / "t5"))
        self.run_program("convert", self.pipeline, self.folder / "ours", "--to", "dcp", "--model.name", "flux", "--hf-assets", self.pipeline)
        self.assertEqual(drawn, self.draw("ours_drawn", self.folder / "ours", *sizes))
        self.run_program("convert", self.folder / "ours", self.folder / "back", "--to", "hf", "--model.name", "flux", "--hf-assets", self.pipeline)
        self.assertTrue(json.loads((self.folder / "back/config.json").read_text())["guidance_embeds"])
        shutil.copytree(self.pipeline / "vae", self.folder / "back/vae")
        (self.folder / "back/transformer").mkdir()
        (self.folder / "back/config.json").rename(self.folder / "back/transformer/config.json")
        self.assertEqual(drawn, self.draw("back_drawn", self.folder / "back"))

    def test_weights_are_written_under_the_names_of_black_forest_labs_bit_by_bit(self):
        labs = load_file(self.pipeline / "flux1-dev.safetensors")
        self.convert(self.pipeline, self.folder / "labs_dcp", "dcp")
        for source in (self.pipeline, self.folder / "labs_dcp", self.pipeline / "flux1-dev.safetensors"):
            self.convert(source, self.folder / "labs.safetensors", "bfl", "--force")
            written = load_file(self.folder / "labs.safetensors")
            self.assertEqual(set(written), set(labs))
            for name, tensor in labs.items():
                self.assertTrue(torch.equal(written[name], tensor), (source, name))
        # The peer's module calls a norm's factors "weight", as ours does.
        peer = distilled_model()
        peer.load_state_dict({name.replace("_norm.scale", "_norm.weight"): tensor for name, tensor in written.items()}, strict=True)
        diffusers = FluxStateDictAdapter(SIZES, None).to_hf({name: tensor for name, tensor in peer.state_dict().items() if "guidance_in" not in name})
        self.convert(self.folder / "labs.safetensors", self.folder / "labs_back", "hf")
        back = load_file(self.folder / "labs_back/diffusion_pytorch_model.safetensors")
        for name, tensor in diffusers.items():
            self.assertTrue(torch.equal(back[name], tensor), name)
        self.convert(self.pipeline, self.folder / "half.safetensors", "bfl", "--export-dtype", "bfloat16")
        for name, tensor in load_file(self.folder / "half.safetensors").items():
            self.assertTrue(torch.equal(tensor, labs[name].bfloat16()), name)

    def test_names_of_black_forest_labs_are_refused_where_there_are_none(self):
        llama = self.folder / "llama.pt"
        self.run_program("train", "--job.config_file=configs/llama3/debug_model.toml", "--training.device=cpu", "--training.steps=1", "--training.seq_len=16",
                         "--checkpoint.enable", "--checkpoint.last_save_model_only", f"--job.dump_folder={self.folder / 'llama'}")
        said = self.run_program("convert", self.folder / "llama/checkpoint/step-1", llama, "--to", "bfl", "--model.name", "llama3", "--model.flavor", "debugmodel", code=2)
        self.assertIn("this model's weights have no other names than ours and Hugging Face's. Convert them to hf, dcp or torch.", said)
        self.assertFalse(llama.exists())

    def test_a_cpu_draws_in_float32_unless_told_otherwise(self):
        unless = self.draw("unless", self.pipeline)
        self.assertEqual(unless, self.draw("given", self.pipeline, "--training.mixed_precision_param=float32"))
        self.assertNotEqual(unless, self.draw("rounded", self.pipeline, "--training.mixed_precision_param=bfloat16"))

    def test_the_model_is_told_the_strength_of_its_guidance(self):
        self.assertNotEqual(self.draw("usual", self.pipeline), self.draw("weak", self.pipeline, "--model.guidance=1"))

    def test_training_goes_on_from_the_published_weights(self):
        said = self.run_program("train", *self.options, "--encoder.t5_encoder=acme/t5",
                                "--model.flavor=auto", f"--model.hf_assets_path={self.pipeline}", "--training.dataset=cc12m-test", "--training.img_size=32",
                                "--training.local_batch_size=2", "--training.data_streams=4", "--training.steps=1", "--training.mixed_precision_param=float32",
                                "--checkpoint.enable", "--checkpoint.initial_load_in_hf", f"--job.dump_folder={self.folder / 'run'}")
        self.assertIn(f"Loading the checkpoint from {self.pipeline}", said)
        self.assertIn("Training completed", said)


if __name__ == "__main__":
    unittest.main()
