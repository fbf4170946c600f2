"""Flux and its encoders against torchtitan 0.2.2's own modules and transformers' T5 and CLIP, in fp32 on the CPU. torchtitan's blocks call attention with the causal
default of its wrapper, which is a defect: here every token sees every token, on both sides."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest
import unittest.mock

import torch
import torch.nn.functional as F
import torchtitan_import  # noqa: F401
import transformers
from safetensors.torch import load_file, save_file
from torchtitan.models.flux import flux_args
from torchtitan.models.flux.model.args import FluxModelArgs
from torchtitan.models.flux.model.autoencoder import AutoEncoder, AutoEncoderParams
from torchtitan.models.flux.model.layers import MLPEmbedder, timestep_embedding
from torchtitan.models.flux.model.model import FluxModel
from torchtitan.models.flux.model.state_dict_adapter import FluxStateDictAdapter
from torchtitan.models.flux.utils import create_position_encoding_for_latents, pack_latents

DRIVER = os.path.join(os.environ["TITANIUM_BUILD"], "flux_driver")
LARGEST = 1e-4  # difference
GRADIENTS = 1e-5  # ||a - b|| / ||b||

SIZES = FluxModelArgs(in_channels=16, out_channels=16, vec_in_dim=24, context_in_dim=40, hidden_size=64, num_heads=2, depth=2,
                      depth_single_blocks=2, axes_dim=(8, 12, 12))
ROWS, COLUMNS, TEXT, BATCH = 3, 5, 7, 2


def call(*arguments):
    finished = subprocess.run([str(argument) for argument in arguments], capture_output=True, text=True)
    if finished.returncode != 0:
        raise AssertionError(f"{arguments} ended with {finished.returncode}: {finished.stderr}")
    return finished.stdout


def relative(found, expected):
    return (torch.linalg.vector_norm((found - expected).double()) / torch.linalg.vector_norm(expected.double())).item()


def torchtitan_model(sizes=SIZES):
    """With random weights everywhere, so that gates and the last layer do something."""
    torch.manual_seed(3)
    model = FluxModel(sizes)
    for name, parameter in model.named_parameters():
        scale = 0.3 if name.endswith("bias") else 0.7 / parameter.shape[-1] ** 0.5
        torch.nn.init.normal_(parameter, std=scale)
        if "_norm" in name:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    for block in [*model.double_blocks, *model.single_blocks]:
        block.inner_attention.forward = F.scaled_dot_product_attention
    return model


def distilled_model(strength):
    """The same with what FLUX.1-dev has and torchtitan's model has not: an embedding of the guidance's strength, added to those of time and text."""
    model = torchtitan_model()
    text = model.vector_in.forward
    model.guidance_in = MLPEmbedder(256, SIZES.hidden_size)
    model.guidance_in.init_weights(init_std=0.2)
    model.vector_in.forward = lambda y: text(y) + model.guidance_in(timestep_embedding(torch.full((len(y),), strength), 256))
    return model


def config_json(sizes):
    return {"attention_head_dim": sizes.hidden_size // sizes.num_heads, "num_attention_heads": sizes.num_heads,
            "in_channels": sizes.in_channels, "pooled_projection_dim": sizes.vec_in_dim,
            "joint_attention_dim": sizes.context_in_dim, "num_layers": sizes.depth,
            "num_single_layers": sizes.depth_single_blocks, "axes_dims_rope": list(sizes.axes_dim)}


def inputs():
    torch.manual_seed(4)
    return {"latents": torch.randn(BATCH, ROWS * COLUMNS, SIZES.in_channels), "text": torch.randn(BATCH, TEXT, SIZES.context_in_dim),
            "pooled": torch.randn(BATCH, SIZES.vec_in_dim), "times": torch.rand(BATCH),
            "target": torch.randn(BATCH, ROWS * COLUMNS, SIZES.in_channels), "grid": torch.tensor([ROWS, COLUMNS])}


def velocity(model, given):
    return model(img=given["latents"], img_ids=create_position_encoding_for_latents(BATCH, 2 * ROWS, 2 * COLUMNS),
                 txt=given["text"], txt_ids=torch.zeros(BATCH, TEXT, 3), timesteps=given["times"], y=given["pooled"])


class Folder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)


class Model(Folder):
    def run_driver(self, state, given, level=0, **config):
        (self.folder / "config.json").write_text(json.dumps(config_json(SIZES) | config))
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, self.folder / "model.safetensors")
        save_file(given, self.folder / "in.safetensors")
        call(DRIVER, "velocity", self.folder / "config.json", self.folder / "model.safetensors", self.folder / "in.safetensors",
             self.folder / "out.safetensors", level)
        return load_file(self.folder / "out.safetensors")

    def test_velocity_loss_and_gradients_are_torchtitans(self):
        self.compare(torchtitan_model())

    def test_a_distilled_model_is_told_the_strength_of_its_guidance(self):
        self.compare(distilled_model(strength=3.5), guidance_embeds=True)

    def compare(self, model, **config):
        given = inputs()
        expected = velocity(model, given)
        loss = F.mse_loss(expected, given["target"], reduction="sum")
        loss.backward()
        found = [self.run_driver(model.state_dict(), given, level, **config) for level in (0, 1)]
        self.assertLess((found[0]["velocity"] - expected).abs().max().item(), LARGEST)
        self.assertLess(abs(found[0]["loss"].item() - loss.item()), 1e-5 * loss.item())
        for name, parameter in model.named_parameters():
            self.assertLess(relative(found[0][f"grad.{name}"], parameter.grad), GRADIENTS, name)
        for name, tensor in found[0].items():  # what is recomputed has the same bits
            self.assertTrue(torch.equal(tensor, found[1][name]), name)

    def test_ten_steps_are_torchtitans(self):
        """From the same weights, images in latent space, noise and times: AdamW, warm-up and clipping included."""
        steps, rate, warmup, most = 10, 2e-3, 3, 0.5
        model = torchtitan_model()
        (self.folder / "config.json").write_text(json.dumps(config_json(SIZES)))
        save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, self.folder / "model.safetensors")
        torch.manual_seed(8)
        latents, noise = torch.randn(2, steps, BATCH, SIZES.in_channels // 4, 2 * ROWS, 2 * COLUMNS)
        times = torch.rand(steps, BATCH)
        sigmas = times.view(steps, BATCH, 1, 1, 1)
        given = {"latents": torch.stack([pack_latents(x) for x in (1 - sigmas) * latents + sigmas * noise]),
                 "target": torch.stack([pack_latents(x) for x in noise - latents]), "times": times,
                 "text": torch.randn(steps, BATCH, TEXT, SIZES.context_in_dim), "pooled": torch.randn(steps, BATCH, SIZES.vec_in_dim)}
        save_file(given | {"grid": torch.tensor([ROWS, COLUMNS])}, self.folder / "in.safetensors")
        call(DRIVER, "train", self.folder / "config.json", self.folder / "model.safetensors", self.folder / "in.safetensors",
             self.folder / "out.safetensors", f"--training.steps={steps}", f"--training.local_batch_size={BATCH}",
             "--training.mixed_precision_param=float32", f"--optimizer.lr={rate}", f"--lr_scheduler.warmup_steps={warmup}",
             "--lr_scheduler.decay_ratio=0.0", f"--training.max_norm={most}")
        found = load_file(self.folder / "out.safetensors")
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warmup))
        for step in range(steps):
            optimizer.zero_grad()
            now = {name: tensor[step] for name, tensor in given.items()}
            loss = F.mse_loss(velocity(model, now), now["target"], reduction="sum") / now["target"].numel()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), most).item()
            optimizer.step()
            schedule.step()
            self.assertLess(abs(found["loss"][step].item() - loss.item()), 1e-4 * loss.item(), step)
            self.assertLess(abs(found["grad_norm"][step].item() - norm), 1e-4 * norm, step)
        self.assertGreater(norm, most)
        for name, parameter in model.named_parameters():
            self.assertLess(relative(found[name], parameter), 1e-4, name)

    def test_attention_is_not_causal(self):
        given = inputs()
        first = self.run_driver(torchtitan_model().state_dict(), given)["velocity"]
        given["latents"][:, -1] += 1
        second = self.run_driver(torchtitan_model().state_dict(), given)["velocity"]
        self.assertGreater((first - second)[:, 0].abs().max().item(), 1e-3)

    def test_weights_under_published_names_are_the_same(self):
        state, given = torchtitan_model().state_dict(), inputs()
        guidance = {name: tensor for name, tensor in distilled_model(3.5).state_dict().items() if name.startswith("guidance_in.")}
        diffusers, labs = FluxStateDictAdapter(SIZES, None).to_hf(dict(state)), {}
        for name, tensor in guidance.items():
            diffusers[name.replace("guidance_in.in_layer", "time_text_embed.guidance_embedder.linear_1")
                      .replace("guidance_in.out_layer", "time_text_embed.guidance_embedder.linear_2")] = tensor
        for name, tensor in (state | guidance).items():
            labs[name.replace("_norm.weight", "_norm.scale")] = tensor
        # A model without the embedding passes over it, as torchtitan's does.
        for config, ours in (({}, state), ({"guidance_embeds": True}, state | guidance)):
            expected = self.run_driver(ours, given, **config)["velocity"]
            for published in (diffusers, labs):
                self.assertNotEqual(set(published), set(ours))
                self.assertTrue(torch.equal(self.run_driver(published, given, **config)["velocity"], expected))

    def test_names_and_shapes_are_torchtitans(self):
        for flavor, sizes in flux_args.items():
            with torch.device("meta"):
                expected = {name: list(parameter.shape) for name, parameter in FluxModel(sizes).named_parameters()}
            found = {}
            for line in call(DRIVER, "names", flavor).splitlines():
                name, *shape = line.split()
                found[name] = [int(size) for size in shape]
            self.assertEqual(found, expected)


class Encoders(Folder):
    def encode(self, kind, model, tokens):
        model.eval().save_pretrained(self.folder)
        save_file({"tokens": tokens}, self.folder / "in.st")
        call(DRIVER, "encode", kind, self.folder, self.folder / "in.st", self.folder / "out.st")
        return load_file(self.folder / "out.st")["encoded"]

    def test_t5_is_that_of_transformers(self):
        for projection in ("relu", "gated-gelu"):
            torch.manual_seed(5)
            config = transformers.T5Config(vocab_size=99, d_model=24, d_kv=8, d_ff=40, num_layers=3, num_heads=4,
                                           relative_attention_num_buckets=16, relative_attention_max_distance=20,
                                           feed_forward_proj=projection)
            model = transformers.T5EncoderModel(config).eval()
            for name, parameter in model.named_parameters():  # the first weights of T5 are too small to see its biases
                torch.nn.init.normal_(parameter, std=0.4) if parameter.ndim > 1 else torch.nn.init.uniform_(parameter, 0.5, 1.5)
            tokens = torch.randint(0, 99, (2, 50))
            with torch.no_grad():
                expected = model(input_ids=tokens).last_hidden_state
            self.assertLess((self.encode("t5", model, tokens) - expected).abs().max().item(), LARGEST)

    def test_clip_is_that_of_transformers(self):
        for end, activation in ((98, "quick_gelu"), (2, "gelu")):
            torch.manual_seed(6)
            config = transformers.CLIPTextConfig(vocab_size=99, hidden_size=32, intermediate_size=64, num_hidden_layers=3,
                                                 num_attention_heads=4, max_position_embeddings=20, eos_token_id=end,
                                                 bos_token_id=1, pad_token_id=0, hidden_act=activation)
            model = transformers.CLIPTextModel(config).eval()
            for name, parameter in model.named_parameters():
                torch.nn.init.normal_(parameter, std=0.4)
            tokens = torch.randint(3, 97, (3, 20))
            tokens[torch.arange(3), torch.tensor([4, 19, 11])] = 98
            tokens[0, 9] = 98
            with torch.no_grad():
                expected = model(input_ids=tokens).pooler_output
            self.assertLess((self.encode("clip", model, tokens) - expected).abs().max().item(), LARGEST)

    def test_autoencoder_is_torchtitans(self):
        torch.manual_seed(7)
        model = AutoEncoder(AutoEncoderParams(ch=32))
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                torch.nn.init.uniform_(parameter, 0.5, 1.5)
        save_file(model.state_dict(), self.folder / "ae.safetensors")
        given = {"images": torch.rand(2, 3, 48, 32) * 2 - 1, "noise": torch.randn(2, 16, 6, 4), "latents": torch.randn(2, 16, 6, 4)}
        save_file(given, self.folder / "in.st")
        call(DRIVER, "autoencode", self.folder / "ae.safetensors", 32, self.folder / "in.st", self.folder / "out.st")
        found = load_file(self.folder / "out.st")
        with torch.no_grad(), unittest.mock.patch("torch.randn_like", lambda _: given["noise"]):
            encoded, decoded = model.encode(given["images"]), model.decode(given["latents"])
        self.assertLess((found["encoded"] - encoded).abs().max().item(), LARGEST)
        self.assertLess((found["decoded"] - decoded).abs().max().item(), LARGEST)

    def test_a_missing_weight_is_named(self):
        model = AutoEncoder(AutoEncoderParams(ch=32))
        state = {name: tensor for name, tensor in model.state_dict().items() if name != "encoder.mid.attn_1.q.bias"}
        save_file(state, self.folder / "ae.safetensors")
        with self.assertRaises(AssertionError) as raised:
            call(DRIVER, "autoencode", self.folder / "ae.safetensors", 32, "none", "none")
        self.assertIn('ae.safetensors has no tensor "encoder.mid.attn_1.q.bias"', str(raised.exception))


if __name__ == "__main__":
    unittest.main()
