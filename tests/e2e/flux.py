"""A small Flux as users train it: from archives of images, with validation, drawn images and a checkpoint; on a layout with
replicas, shards and parts of sequences; then titanium generate-image."""

import base64
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest

import numpy
import PIL.Image
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ["TITANIUM"]
SIZES = {"attention_head_dim": 32, "num_attention_heads": 2, "in_channels": 64, "pooled_projection_dim": 768,
         "joint_attention_dim": 4096, "num_layers": 1, "num_single_layers": 1, "axes_dims_rope": [8, 12, 12]}


def png_size(path):
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n") and data.endswith(b"IEND\xaeB`\x82"), path
    return struct.unpack(">II", data[16:24])


class Flux(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        cls.assets = cls.folder / "assets"
        shutil.copytree(ROOT / "tests/assets/tokenizer", cls.assets)
        (cls.assets / "config.json").write_text(json.dumps(SIZES))
        cls.options = ["--job.config_file=configs/flux/flux_debug.toml", "--training.device=cpu", "--model.flavor=auto",
                       f"--model.hf_assets_path={cls.assets}", "--training.mixed_precision_param=float32",
                       "--encoder.max_t5_encoding_len=16"]
        cls.training = ["--training.img_size=32", "--training.global_batch_size=4", "--training.steps=4", "--metrics.log_freq=1",
                        "--training.data_streams=4", "--validation.data_streams=4", "--checkpoint.enable", "--checkpoint.interval=2",
                        "--validation.enable", "--validation.freq=4", "--validation.steps=1", "--validation.denoising_steps=2"]
        cls.one = cls.train("one", "--training.local_batch_size=4", "--validation.local_batch_size=4", "--metrics.enable_tensorboard",
                            "--encoder.on_cpu")

    @classmethod
    def run_program(cls, *arguments, code=0):
        finished = subprocess.run([PROGRAM, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)
        assert finished.returncode == code, (finished.returncode, finished.stdout, finished.stderr)
        return finished.stderr if code else finished.stdout

    @classmethod
    def train(cls, dump, *options, ranks=1):
        launcher = ["launch", "--nproc-per-node", ranks, "--"] if ranks > 1 else []
        cls.run_program(*launcher, "train", *cls.options, *cls.training, f"--job.dump_folder={cls.folder / dump}", *options)
        lines = [json.loads(line) for line in (cls.folder / dump / "metrics.jsonl").read_text().splitlines()]
        lines = [line for line in lines if "loss" in line]
        for line in lines:  # 4 patches and 16 tokens of the text
            assert abs(line["images_per_s"] - line["tps"] / 20) < 1e-6 * line["tps"], line
        return [line["loss"] for line in lines]

    def test_a_layout_goes_on_with_the_same_losses_and_draws_the_same_image(self):
        self.assertEqual(len(self.one), 4)
        self.assertEqual(png_size(self.folder / "one/img/image_step4_0.png"), (32, 32))
        shutil.copytree(self.folder / "one/checkpoint/step-2", self.folder / "eight/checkpoint/step-2")
        # The layout of torchtitan's integration test of Flux, which also validates, saves and then draws.
        rest = self.train("eight", "--training.local_batch_size=1", "--validation.local_batch_size=1", "--parallelism.data_parallel_shard_degree=2",
                          "--parallelism.data_parallel_replicate_degree=2", "--parallelism.context_parallel_degree=2", "--encoder.sharded", ranks=8)
        for found, expected in zip(rest[-2:], self.one[-2:], strict=True):
            self.assertAlmostEqual(found, expected, delta=1e-5 * expected)
        drawn, expected = (numpy.asarray(PIL.Image.open(self.folder / dump / "img/image_step4_0.png"), numpy.int16) for dump in ("eight", "one"))
        self.assertEqual(drawn.shape, (32, 32, 3))
        self.assertLessEqual(numpy.abs(drawn - expected).max(), 2)
        self.assertGreater(expected.std(), 2)  # an image of one colour would tell nothing

    def test_drawn_images_are_in_tensorboard_and_on_the_page(self):
        events = [json.loads(line) for line in (self.folder / "one/run.jsonl").read_text().splitlines()]
        drawn = {event["step"]: event["images"] for event in events if event["event"] == "images"}
        self.assertEqual({step: [image["file"] for image in images] for step, images in drawn.items()},
                         {1: ["img/image_step1_0.png"], 4: ["img/image_step4_0.png"]})
        picture = (self.folder / "one/img/image_step4_0.png").read_bytes()
        self.assertIn(drawn[4][0]["caption"].encode(), picture)
        self.run_program("report", self.folder / "one", "--out", self.folder / "one.html")
        self.assertIn("data:image/png;base64," + base64.b64encode(picture).decode(), (self.folder / "one.html").read_text())
        accumulator = EventAccumulator(str(next((self.folder / "one/tb").iterdir())))
        accumulator.Reload()
        self.assertEqual(accumulator.Images("validation_images/0")[-1].encoded_image_string, picture)

    def test_images_are_generated_from_a_checkpoint(self):
        prompts = self.folder / "prompts.txt"
        prompts.write_text("a red square\n\na blue circle on sand\n")
        checkpoint = self.folder / "one/checkpoint/step-4"
        drawn = {}
        # Four steps of training have hardly taught it what captions are, so it takes a large guidance to see one.
        for name, more in (("plain", ()), ("again", ()), ("seed", ("--seed", 8)), ("guidance", ("--guidance", 20000)),
                           ("one at a time", ("--batch", 1))):
            out = self.folder / name
            said = self.run_program("generate-image", "--checkpoint", checkpoint, "--prompts", prompts, "--out", out, "--steps", 2,
                                    "--size", 48, *more, *self.options)
            self.assertIn("image_prompt1.png: a blue circle on sand", said)
            self.assertEqual(png_size(out / "image_prompt1.png"), (48, 48))
            drawn[name] = numpy.asarray(PIL.Image.open(out / "image_prompt1.png"), numpy.int16)
        difference = {name: numpy.abs(pixels - drawn["plain"]).max() for name, pixels in drawn.items()}
        self.assertEqual(difference["again"], 0)
        self.assertLessEqual(difference["one at a time"], 2)
        for name in ("seed", "guidance"):
            self.assertGreater(difference[name], 2, name)
        self.assertIn(b"a blue circle on sand", (self.folder / "plain/image_prompt1.png").read_bytes())
        prompts.write_text("\n")
        said = self.run_program("generate-image", "--checkpoint", checkpoint, "--prompts", prompts, "--out", self.folder, *self.options, code=2)
        self.assertIn("prompts.txt holds no prompts. Write one on each line.", said)
        said = self.run_program("generate-image", "--checkpoint", checkpoint, "--prompts", prompts, "--out", self.folder, "--size", 50,
                                *self.options, code=2)
        self.assertIn("generate-image: --size 50 should be a multiple of 16.", said)

    def test_weights_go_to_diffusers_format_and_back(self):
        self.run_program("convert", self.folder / "one/checkpoint/step-4", self.folder / "hf", "--to", "hf", "--hf-assets", self.assets,
                         "--model.name=flux", "--model.flavor=auto")
        self.assertTrue((self.folder / "hf/diffusion_pytorch_model.safetensors").is_file())  # where diffusers looks
        theirs = load_file(self.folder / "hf/diffusion_pytorch_model.safetensors")
        self.assertIn("transformer_blocks.0.attn.to_q.weight", theirs)
        sizes = ["--model.name=flux", "--model.flavor=auto"]
        self.run_program("convert", self.folder / "hf", self.folder / "back", "--to", "dcp", "--hf-assets", self.assets, *sizes)
        self.run_program("convert", self.folder / "back", self.folder / "once_more", "--to", "hf", "--hf-assets", self.assets, *sizes)
        again = load_file(self.folder / "once_more/diffusion_pytorch_model.safetensors")
        self.assertEqual(set(again), set(theirs))
        for name, tensor in theirs.items():
            self.assertTrue(numpy.array_equal(again[name], tensor), name)

    def test_what_does_not_fit_is_refused(self):
        def refused(*options):
            return self.run_program("train", *self.options, *self.training, f"--job.dump_folder={self.folder / 'refused'}", *options, code=2)

        self.assertIn('training.positions = "document" counts tokens inside documents, and this model reads images. Use "sequence".',
                      refused("--training.positions=document"))
        self.assertIn("training.img_size = 40 is not a multiple of the 16 pixels of a patch. Use 32 or 48.", refused("--training.img_size=40"))
        self.assertIn("does not exist. Set training.test_mode = true for a test without it, or fetch it with: titanium download",
                      refused("--training.no_test_mode"))
        self.assertIn('clip_encoder = "./tests/assets/flux_test_encoders/clip-vit-large-patch14" gives 768 columns, but the model takes 700.',
                      self.with_sizes({"pooled_projection_dim": 700}, refused))
        self.assertIn("nowhere is neither a folder nor the name of a model at Hugging Face", refused("--encoder.t5_encoder=nowhere"))

    def with_sizes(self, changed, refused):
        folder = self.folder / "other"
        shutil.copytree(self.assets, folder, dirs_exist_ok=True)
        (folder / "config.json").write_text(json.dumps(SIZES | changed))
        return refused(f"--model.hf_assets_path={folder}")


if __name__ == "__main__":
    unittest.main()
