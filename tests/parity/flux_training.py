"""Training and drawing of Flux against torchtitan 0.2.2's own trainer and sampler, in fp32 on the CPU: from an archive of pictures with captions and from published
files of a small model and its encoders, with the noise and the times that Titanium has. torchtitan's attention sees every token here, as in flux.py."""

import io
import json
import os
import pathlib
import subprocess
import tarfile
import tempfile
import types
import unittest
import unittest.mock

import caption_folders
import numpy
import PIL.Image
import text_samples
import torch
import torch.nn.functional as F
import torchtitan_import  # noqa: F401
import transformers
from safetensors.torch import load_file, save_file
from torchtitan.components.loss import mse_loss
from torchtitan.components.lr_scheduler import build_lr_schedulers
from torchtitan.components.optimizer import build_optimizers
from torchtitan.config import JobConfig
from torchtitan.models.flux.flux_datasets import _cc12m_wds_data_processor
from torchtitan.models.flux.inference import sampling
from torchtitan.models.flux.model.args import FluxModelArgs
from torchtitan.models.flux.model.autoencoder import AutoEncoder, AutoEncoderParams
from torchtitan.models.flux.model.hf_embedder import FluxEmbedder
from torchtitan.models.flux.model.model import FluxModel
from torchtitan.models.flux.model.state_dict_adapter import FluxStateDictAdapter
from torchtitan.models.flux.tokenizer import FluxTokenizer
from torchtitan.models.flux.train import FluxTrainer
from torchtitan.models.flux.utils import pack_latents, unpack_latents

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM, DRIVER = os.environ["TITANIUM"], os.path.join(os.environ["TITANIUM_BUILD"], "flux_training_driver")
LARGEST = 1e-4  # difference
STEPS, BATCH, PIXELS, TEXT, SEED = 10, 2, 32, 24, 5
RATE, WARMUP, MOST = 2e-3, 3, 0.5
AUTOENCODER = AutoEncoderParams(ch=32, ch_mult=(1, 2), num_res_blocks=1, z_channels=16)
SIDE = PIXELS // 2  # elements of the latents
SIZES = FluxModelArgs(in_channels=64, out_channels=64, vec_in_dim=32, context_in_dim=24, hidden_size=64, num_heads=2, depth=1, depth_single_blocks=1,
                      axes_dim=(8, 12, 12))


def call(*arguments):
    finished = subprocess.run([str(argument) for argument in arguments], cwd=ROOT, capture_output=True, text=True)
    if finished.returncode != 0:
        raise AssertionError(f"{arguments} ended with {finished.returncode}: {finished.stderr[-2000:]}")
    return finished.stdout


def new_model():
    torch.manual_seed(3)
    model = FluxModel(SIZES)
    for name, parameter in model.named_parameters():
        torch.nn.init.uniform_(parameter, 0.5, 1.5) if "_norm" in name else torch.nn.init.normal_(parameter, std=0.1)
    for block in [*model.double_blocks, *model.single_blocks]:
        block.inner_attention.forward = F.scaled_dot_product_attention
    return model


def write_pipeline(folder):
    """As black-forest-labs/FLUX.1-dev: the transformer in diffusers' format, sizes of the autoencoder, and its weights as a file."""
    transformer = folder / "transformer"
    transformer.mkdir(parents=True)
    (transformer / "config.json").write_text(json.dumps(
        {"_class_name": "FluxTransformer2DModel", "attention_head_dim": 32, "num_attention_heads": 2, "in_channels": 64, "pooled_projection_dim": 32,
         "joint_attention_dim": 24, "num_layers": 1, "num_single_layers": 1, "axes_dims_rope": [8, 12, 12]}))
    diffusers = FluxStateDictAdapter(SIZES, None).to_hf(dict(new_model().state_dict()))
    save_file({name: tensor.contiguous() for name, tensor in diffusers.items()}, transformer / "diffusion_pytorch_model.safetensors")
    (folder / "vae").mkdir()
    (folder / "vae/config.json").write_text(json.dumps(
        {"block_out_channels": [32, 64], "layers_per_block": 1, "latent_channels": 16, "norm_num_groups": 32, "in_channels": 3,
         "scaling_factor": AUTOENCODER.scale_factor, "shift_factor": AUTOENCODER.shift_factor}))
    torch.manual_seed(4)
    save_file(AutoEncoder(AUTOENCODER).state_dict(), folder / "ae.safetensors")


def write_encoders(folder):
    corpus = [text[:2000] for text in text_samples.real_text(60_000)[:60]]
    caption_folders.train_clip(folder / "clip", corpus)
    caption_folders.train_t5(folder / "t5", corpus)
    words = len(json.loads((folder / "clip/vocab.json").read_text()))
    torch.manual_seed(5)
    clip = transformers.CLIPTextConfig(vocab_size=words, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                                       eos_token_id=words - 1, bos_token_id=words - 2)
    t5 = transformers.T5Config(vocab_size=1400, d_model=24, d_kv=8, d_ff=40, num_layers=2, num_heads=3, feed_forward_proj="gated-gelu")
    for name, model in (("clip", transformers.CLIPTextModel(clip)), ("t5", transformers.T5EncoderModel(t5))):
        for parameter in model.parameters():  # large enough that captions differ
            torch.nn.init.normal_(parameter, std=0.3)
        model.save_pretrained(folder / name)


def write_pictures(path):
    """As WebDataset has them, of the size of training; the samples are also returned."""
    random, words = numpy.random.default_rng(6), " ".join(text_samples.real_text(20_000)).split()
    samples = []
    with tarfile.open(path, "w") as archive:
        for i in range(STEPS * BATCH):
            image = PIL.Image.fromarray(random.integers(0, 256, (PIXELS, PIXELS, 3), dtype=numpy.uint8))
            caption = " ".join(random.choice(words) for _ in range(5 + 2 * i))
            png = io.BytesIO()
            image.save(png, "PNG")
            for ending, content in (("png", png.getvalue()), ("txt", caption.encode())):
                member = tarfile.TarInfo(f"{i:05}.{ending}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
            samples.append({"jpg": image, "txt": caption})
    return samples


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="flux")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        write_pipeline(cls.folder / "pipeline")
        write_encoders(cls.folder)
        (cls.folder / "pictures").mkdir()
        cls.samples = write_pictures(cls.folder / "pictures/0.tar")
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        cls.addClassCleanup(torch.distributed.destroy_process_group)

    def noise(self, name, columns, *numbers):
        """Standard normal numbers of samples of the run, as Titanium makes them, and the times at which it sees them."""
        call(DRIVER, "noise", name, SEED, columns, self.folder / "noise.st", *numbers)
        found = load_file(self.folder / "noise.st")
        return found["noise"].view(len(numbers), 16, SIDE, SIDE), found["times"]

    def autoencoder(self):
        model = AutoEncoder(AUTOENCODER)
        model.load_state_dict(load_file(self.folder / "pipeline/ae.safetensors"))
        return model.requires_grad_(False)

    def trainer(self):
        """torchtitan's, with its parts put in their places by hand, on one rank."""
        config = JobConfig()
        config.optimizer.lr, config.optimizer.implementation = RATE, "for-loop"
        config.lr_scheduler.warmup_steps, config.lr_scheduler.decay_ratio = WARMUP, 0.0
        config.training.steps, config.training.max_norm = STEPS, MOST
        trainer, model = FluxTrainer.__new__(FluxTrainer), new_model()
        off = types.SimpleNamespace(dp_enabled=False, cp_enabled=False, dp_cp_enabled=False, ep_enabled=False, get_optional_mesh=lambda _: None)
        trainer.device, trainer._dtype, trainer.parallel_dims, trainer.job_config = torch.device("cpu"), torch.float32, off, config
        trainer.autoencoder = self.autoencoder()
        trainer.clip_encoder, trainer.t5_encoder = FluxEmbedder(str(self.folder / "clip")), FluxEmbedder(str(self.folder / "t5"))
        trainer.model_parts, trainer.loss_fn, trainer.gradient_accumulation_steps = [model], mse_loss, 1
        trainer.train_context, trainer.maybe_enable_amp = torch.enable_grad, torch.enable_grad()
        trainer.optimizers = build_optimizers([model], config.optimizer, off)
        trainer.lr_schedulers = build_lr_schedulers(trainer.optimizers, config.lr_scheduler, STEPS)
        trainer.checkpointer = types.SimpleNamespace(maybe_wait_for_staging=lambda: None)
        trainer.logged, trainer.ntokens_seen = [], 0
        trainer.metrics_processor = types.SimpleNamespace(should_log=lambda _: True,
                                                          log=lambda step, loss, largest, norm, extra_metrics: trainer.logged.append((loss, norm)))
        return trainer

    def batch(self, step):
        t5, clip = FluxTokenizer(str(self.folder / "t5"), max_length=TEXT), FluxTokenizer(str(self.folder / "clip"), max_length=77)
        rows = [_cc12m_wds_data_processor(sample, t5, clip, PIXELS) for sample in self.samples[BATCH * step:BATCH * (step + 1)]]
        return {name: torch.stack([row[name] for row in rows]) for name in ("image", "clip_tokens", "t5_tokens")}

    def train_here(self):
        call(PROGRAM, "train", "--model.name=flux", "--job.custom_config_module=torchtitan.models.flux.job_config", "--training.device=cpu",
             "--model.flavor=auto", f"--model.hf_assets_path={self.folder / 'pipeline'}", f"--encoder.t5_encoder={self.folder / 't5'}",
             f"--encoder.clip_encoder={self.folder / 'clip'}", f"--encoder.autoencoder_path={self.folder / 'pipeline/ae.safetensors'}",
             f"--encoder.max_t5_encoding_len={TEXT}", "--training.dataset=cc12m-wds", f"--training.dataset_path={self.folder / 'pictures'}",
             f"--training.img_size={PIXELS}", f"--training.local_batch_size={BATCH}", f"--training.steps={STEPS}", "--training.data_streams=1",
             "--training.classifier_free_guidance_prob=0.0", "--training.mixed_precision_param=float32", f"--training.max_norm={MOST}",
             f"--optimizer.lr={RATE}", f"--lr_scheduler.warmup_steps={WARMUP}", "--lr_scheduler.decay_ratio=0.0", f"--debug.seed={SEED}",
             "--checkpoint.enable", "--checkpoint.initial_load_in_hf", "--checkpoint.last_save_in_hf", "--checkpoint.interval=1000",
             "--metrics.log_freq=1", f"--job.dump_folder={self.folder / 'run'}")
        lines = [json.loads(line) for line in (self.folder / "run/metrics.jsonl").read_text().splitlines()]
        weights = {}
        for file in (self.folder / f"run/checkpoint/step-{STEPS}").glob("*.safetensors"):
            weights |= load_file(file)
        return [(line["loss"], line["grad_norm"]) for line in lines], weights

    def test_ten_steps_from_captions_and_pictures_are_those_of_torchtitans_trainer(self):
        found, weights = self.train_here()
        trainer = self.trainer()
        for step in range(STEPS):
            numbers = range(BATCH * step, BATCH * (step + 1))
            drawn = [self.noise(name, 16 * SIDE * SIDE, *numbers) for name in ("autoencoder.noise", "flow.noise")]
            batch, noises = self.batch(step), [drawn[0][0], drawn[1][0]]
            trainer.step = step + 1
            with unittest.mock.patch("torch.randn_like", lambda _: noises.pop(0)), unittest.mock.patch("torch.rand", lambda _: drawn[0][1]):
                trainer.train_step(iter([(batch, batch.pop("image"))]))
            self.assertEqual(noises, [])
        self.assertEqual(len(found), STEPS)
        for step, ((loss, norm), (their_loss, their_norm)) in enumerate(zip(found, trainer.logged, strict=True)):
            self.assertLess(abs(loss - their_loss), LARGEST * their_loss, step)
            self.assertLess(abs(norm - their_norm), LARGEST * their_norm, step)
        self.assertGreater(min(norm for _, norm in trainer.logged), MOST)
        self.assertLess(trainer.logged[-1][0], trainer.logged[0][0])
        theirs = FluxStateDictAdapter(SIZES, None).to_hf(dict(trainer.model_parts[0].state_dict()))
        self.assertEqual(set(weights), set(theirs))
        for name, expected in theirs.items():
            self.assertLess((weights[name] - expected).norm().item(), LARGEST * expected.norm().item(), name)

    def test_patches_are_cut_and_put_together_as_torchtitan_does(self):
        torch.manual_seed(7)
        latents = torch.randn(2, 5, 6, 10)
        save_file({"latents": latents}, self.folder / "in.st")
        call(DRIVER, "pack", self.folder / "in.st", self.folder / "out.st")
        found = load_file(self.folder / "out.st")
        self.assertTrue(torch.equal(found["packed"], pack_latents(latents)))
        self.assertTrue(torch.equal(found["unpacked"], unpack_latents(pack_latents(latents), 6, 10)))
        self.assertTrue(torch.equal(found["unpacked"], latents))

    def draw_there(self, given, numbers, steps, guidance):
        noise = self.noise("drawn.noise", 16 * SIDE * SIDE, *numbers)[0]
        schedule = sampling.get_schedule  # torchtitan counts elements of the latents where patches are meant
        with torch.no_grad(), unittest.mock.patch.object(sampling, "generate_noise_latent", lambda *_: noise), \
                unittest.mock.patch.object(sampling, "get_schedule", lambda count, elements, shift: schedule(count, elements // 4, shift=shift)):
            latents = sampling.denoise(torch.device("cpu"), torch.float32, new_model(), PIXELS, PIXELS, steps, given["pooled"], given["text"],
                                       guidance is not None, given["empty_text"].repeat(len(numbers), 1, 1), given["empty_pooled"].repeat(len(numbers), 1), guidance)
            return self.autoencoder().decode(latents).clamp(-1, 1)

    def test_drawn_images_are_torchtitans_with_and_without_guidance(self):
        torch.manual_seed(8)
        given = {"text": torch.randn(2, TEXT, 24), "pooled": torch.randn(2, 32), "empty_text": torch.randn(1, TEXT, 24), "empty_pooled": torch.randn(1, 32)}
        save_file(given, self.folder / "in.st")
        drawn = []
        for guidance in (None, 1.0, 4.0):
            call(DRIVER, "draw", self.folder / "pipeline", self.folder / "in.st", self.folder / "out.st", PIXELS, 4, SEED,
                 "none" if guidance is None else guidance, 3, 9)
            drawn.append(load_file(self.folder / "out.st")["images"])
            self.assertLess((drawn[-1] - self.draw_there(given, (3, 9), 4, guidance)).abs().max().item(), LARGEST)
        self.assertLess((drawn[0] - drawn[1]).abs().max().item(), LARGEST)
        self.assertGreater((drawn[0] - drawn[2]).abs().max().item(), 0.01)


if __name__ == "__main__":
    unittest.main()
