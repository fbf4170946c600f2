"""A tiny Flux that is trained from encodings which were prepared, on layouts too, also from mixes of them; several sets to validate on;
what a run will read; preparations that stop; what does not fit is refused."""

import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

import numpy
import PIL.Image
import safetensors.numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ["TITANIUM"]
SET, OTHERS = ROOT / "tests/assets/cc12m_test", ROOT / "tests/assets/coco_test"


class FluxOffline(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        cls.tiny = cls.folder / "tiny"
        subprocess.run([sys.executable, ROOT / "tools/make_tiny_flux.py", cls.tiny, "--heads", "2", "--single-blocks", "1"], check=True)
        cls.options = ["--job.config_file=configs/flux/flux_debug.toml", "--training.device=cpu", "--model.flavor=auto", f"--model.hf_assets_path={cls.tiny}",
                       "--training.no_test_mode", f"--encoder.t5_encoder={cls.tiny / 't5'}", f"--encoder.clip_encoder={cls.tiny / 'clip'}",
                       f"--encoder.autoencoder_path={cls.tiny / 'ae.safetensors'}", "--encoder.max_t5_encoding_len=8", "--training.img_size=16",
                       "--training.mixed_precision_param=float32", "--training.data_streams=4", "--validation.data_streams=4"]
        cls.training = ["--training.global_batch_size=4", "--training.steps=12", "--metrics.log_freq=1", "--checkpoint.enable", "--checkpoint.interval=6",
                        "--validation.enable", "--validation.freq=6", "--validation.steps=1", "--validation.denoising_steps=2",
                        "--validation.enable_classifier_free_guidance"]
        cls.one_rank = ("--training.local_batch_size=4", "--validation.local_batch_size=4")
        cls.four_ranks = ("--training.local_batch_size=2", "--validation.local_batch_size=2", "--parallelism.data_parallel_shard_degree=2",
                          "--parallelism.context_parallel_degree=2")
        cls.prepared, cls.validation = cls.folder / "prepared", cls.folder / "prepared_validation"
        cls.said = cls.prepare(cls.prepared, TITANIUM_PROGRESS_SECONDS="0")
        cls.prepare(cls.validation, "--validation")
        cls.offline = ("--encoder.offline", f"--training.dataset_path={cls.prepared}", f"--validation.dataset_path={cls.validation}")

    @classmethod
    def run_program(cls, *arguments, code=0, **environment):
        """What it has written to stdout, or with a failure to stderr; with variables of its own to both."""
        finished = subprocess.run([PROGRAM, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, env={**os.environ, **environment})
        assert finished.returncode == code, (finished.returncode, finished.stdout, finished.stderr)
        if environment:
            return finished.stdout + finished.stderr
        return finished.stderr if code else finished.stdout

    @classmethod
    def prepare(cls, out, *options, shard=5, code=0, **environment):
        return cls.run_program("data", "prepare-images", "--out", out, "--batch", 3, "--shard-samples", shard, *cls.options, *options, code=code,
                               **environment)

    def train(self, dump, *options, ranks=1):
        """The losses of training, and of validation."""
        launcher = ["launch", "--nproc-per-node", ranks, "--"] if ranks > 1 else []
        self.run_program(*launcher, "train", *self.options, *self.training, f"--job.dump_folder={self.folder / dump}", *options)
        lines = self.metrics(dump)
        return [line["loss"] for line in lines if "loss" in line], [line["validation_loss"] for line in lines if "validation_loss" in line]

    def metrics(self, dump):
        return [json.loads(line) for line in (self.folder / dump / "metrics.jsonl").read_text().splitlines()]

    def mix(self, name, shapes, others):
        """The option of a file with a mix of two sets."""
        file = self.folder / f"{name}.toml"
        file.write_text((ROOT / "configs/flux/flux_debug.toml").read_text() + f'''
[[training.sources]]
name = "shapes"
path = "{shapes}"
weight = 3
[[training.sources]]
name = "others"
path = "{others}"
weight = 1
''')
        return f"--job.config_file={file}"

    def refused(self, *options):
        return self.run_program("train", *self.options, *self.training, f"--job.dump_folder={self.folder / 'refused'}", *options, code=2)

    def check_close(self, found, expected, tolerance):
        self.assertEqual(len(found), len(expected))
        for a, b in zip(found, expected):
            self.assertAlmostEqual(a, b, delta=tolerance * b)

    def test_training_from_prepared_encodings_gives_the_same_numbers(self):
        self.assertIn("has 32 samples, 0 of them from before; 0 images were too small, 0 records were bad.", self.said)
        self.assertIn("INFO - Prepared 32 images in 6 archives\n", self.said)
        self.assertRegex(self.said, r"(?m)^encoding images: 3, .*/s, for ")
        self.assertRegex(self.said, r"(?m)^encoding images: 32, .*/s, for ")
        names = sorted(path.name for path in (self.prepared / "shards").iterdir())
        self.assertEqual(names, [f"{i:05}.tar" for i in range(6)])  # batches of 3 until there are 5
        # 12 steps of 4 samples: the second epoch cuts pictures elsewhere when they are read again, so only square ones are compared there.
        images, images_validation = self.train("images", *self.one_rank)
        losses, validation = self.train("offline", *self.offline, *self.one_rank)
        self.check_close(losses[:8], images[:8], 1e-5)
        self.check_close(validation[:2], images_validation[:2], 1e-4)
        self.assertNotIn("Loaded published encoders", self.run_program("train", *self.options, *self.training, *self.offline, *self.one_rank,
                                                                      "--training.steps=1", f"--job.dump_folder={self.folder / 'said'}"))
        drawn = [(self.folder / name / "img/image_step1_0.png").read_bytes() for name in ("images", "offline")]
        self.assertTrue(drawn[1].startswith(b"\x89PNG"))
        self.assertEqual(*drawn)
        # Other layouts see the same numbers, and go on in the middle.
        shutil.copytree(self.folder / "offline/checkpoint/step-6", self.folder / "four/checkpoint/step-6")
        rest, _ = self.train("four", *self.offline, *self.four_ranks, ranks=4)
        self.check_close(rest[-6:], losses[-6:], 1e-5)

    def test_images_and_prepared_encodings_are_mixed_from_sources(self):
        mixed = self.mix("mixed", SET, OTHERS)
        losses, _ = self.train("mixed", mixed, *self.one_rank)
        again, _ = self.train("mixed_four", mixed, *self.four_ranks, ranks=4)
        self.check_close(again, losses, 1e-5)
        counts = {"shapes": 36 * (64 + 8), "others": 12 * (64 + 8)}
        self.assertEqual([line for line in self.metrics("mixed") if "loss" in line][-1]["tokens_by_source"], counts)
        self.assertIn("training.sources has several data sets, and one is prepared at a time. Set --training.sources=[] and --training.dataset_path to one of them.",
                      self.prepare(self.folder / "mix", mixed, code=2))
        # The same mix of encodings, at a stop too.
        made = self.folder / "others_prepared"
        self.prepare(made, mixed, "--training.sources=[]", f"--training.dataset_path={OTHERS}")
        prepared = self.mix("prepared_mix", self.prepared, made)
        options = (prepared, "--encoder.offline", f"--validation.dataset_path={self.validation}")
        offline, _ = self.train("offline_mixed", *options, *self.one_rank)
        self.check_close(offline[:10], losses[:10], 1e-5)  # the first epoch of the shapes
        self.assertEqual([line for line in self.metrics("offline_mixed") if "loss" in line][-1]["tokens_by_source"], counts)
        shutil.copytree(self.folder / "offline_mixed/checkpoint/step-6", self.folder / "offline_mixed_four/checkpoint/step-6")
        rest, _ = self.train("offline_mixed_four", *options, *self.four_ranks, ranks=4)
        self.check_close(rest[-6:], offline[-6:], 1e-5)
        # What does not fit is named.
        self.assertIn(f"Source others of training.sources: {OTHERS} has no prepared.json: encoder.offline reads folders of titanium data prepare-images.",
                      self.refused(self.mix("half", self.prepared, OTHERS), *options[1:]))
        self.assertIn(f"Source shapes of training.sources: {self.prepared} holds encodings of images that were prepared, not images.",
                      self.refused(self.mix("half", self.prepared, OTHERS)))
        self.assertIn(f"Source others of training.sources: {made} was prepared with training.img_size = 16, but the run has 24.",
                      self.refused(*options, "--training.img_size=24"))
        self.assertIn("Source shapes of training.sources: " + str(self.prepared) + " has encodings of 64 and 48 columns",
                      self.refused(*options, f"--model.hf_assets_path={self.with_pooled_columns(40)}"))

    def test_each_validation_set_has_the_loss_that_it_has_alone(self):
        for name, first, second, more in (("pictures", SET, OTHERS, ()), ("encodings", self.prepared, self.validation, self.offline)):
            sets = json.dumps([{"name": "seen", "path": str(first)}, {"name": "held out", "path": str(second)}])
            several = ("--training.steps=1", *more, f"--validation.sources={sets}")
            self.train(name, *several, *self.one_rank)
            losses = {line["set"]: line["validation_loss"] for line in self.metrics(name) if "validation_loss" in line}
            self.assertEqual(list(losses), ["seen", "held out"])
            alone = [self.train(f"{name}_{i}", "--training.steps=1", *more, f"--validation.dataset_path={path}", *self.one_rank)[1]
                     for i, path in enumerate((first, second))]
            self.assertEqual(alone, [[losses["seen"]], [losses["held out"]]])
            drawn = [[path.read_bytes() for path in (self.folder / dump / "img").iterdir()] for dump in (name, f"{name}_0", f"{name}_1")]
            self.assertEqual(drawn[0], drawn[1])  # the captions of the first set
            self.assertNotEqual(drawn[0], drawn[2])
            _, again = self.train(f"{name}_four", *several, *self.four_ranks, ranks=4)
            self.check_close(again, list(losses.values()), 1e-5)

    def test_a_plan_tells_images_epochs_and_bytes(self):
        def plan(*options, code=0):
            return self.run_program("data", "plan", *self.options, "--training.global_batch_size=4", "--training.steps=24", *options, code=code)

        size, others_size = (sum(path.stat().st_size for path in folder.iterdir()) for folder in (SET, OTHERS))
        said = plan("--ranks", 2)
        self.assertIn("24 steps of 4 images: 96 images, 48 for each of 2 data-parallel ranks\n", said)
        self.assertIn("cc12m-test: 96 images (100%), 3 epochs of 32 images\n", said)
        self.assertIn(f"2 files, {size:,} bytes, 32 records; dealt by records, each of 2 ranks reads all {size:,} bytes in an epoch\n", said)
        self.assertIn("Images with a side below training.img_size = 16 are skipped when they are read; each makes an epoch shorter.\n", said)
        said = plan(self.mix("planned", SET, OTHERS))
        self.assertIn("shapes: 72 images (75%), 2.25 epochs of 32 images\n", said)
        self.assertIn("others: 24 images (25%), 1.5 epochs of 16 images\n", said)
        self.assertIn(f"1 files, {others_size:,} bytes, 16 records; dealt by records, the only rank reads all {others_size:,} bytes in an epoch\n", said)
        self.assertIn(f"Source shapes of training.sources: {self.prepared} holds encodings of images that were prepared, not images.",
                      plan(self.mix("planned", self.prepared, OTHERS), code=2))

    def test_a_plan_of_encodings_is_exact_and_that_of_large_archives_says_what_is_not_known(self):
        many = self.folder / "many"
        self.run_program("data", "prepare-images", "--out", many, "--batch", 1, "--shard-samples", 1, *self.options)
        size = sum(path.stat().st_size for path in (many / "shards").iterdir())
        said = self.run_program("data", "plan", *self.options, self.mix("planned", self.prepared, many), "--encoder.offline", "--ranks", 2,
                                "--training.global_batch_size=4", "--training.steps=32")
        self.assertIn("others: 32 images (25%), 1 epochs of 32 images\n", said)
        self.assertNotIn("skipped", said)
        said = self.run_program("data", "plan", *self.options, f"--training.dataset_path={many}", "--encoder.offline", "--ranks", 2,
                                "--training.data_striping=blocks")
        read = re.search(rf"dealt by files in 4 lanes \(32 blocks\), each of 2 ranks reads ([\d,]+)(?: to [\d,]+)? of {size:,} bytes in an epoch", said)
        self.assertLessEqual(abs(2 * int(read[1].replace(",", "")) - size), size // 4, said)
        described = json.loads((many / "prepared.json").read_text())
        (many / "prepared.json").write_text(json.dumps(described | {"samples": 8000}))  # which is believed: archives may be too large to be counted
        said = self.run_program("data", "plan", *self.options, f"--training.dataset_path={many}", "--encoder.offline", "--training.steps=2000")
        self.assertIn("cc12m-test: 8,000 images (100%), 1 epochs of 8,000 images\n", said)
        large = self.folder / "large.tar"
        with tarfile.open(large, "w") as archive:
            for name, content in (("0.jpg", bytes(65 << 20)), ("0.txt", b"a caption")):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        said = self.run_program("data", "plan", *self.options, f"--training.dataset_path={large}", "--training.steps=2", "--training.global_batch_size=4")
        self.assertIn("8 images (100%), epochs not known before the archives are read (titanium data inspect --all counts images)\n", said)

    def test_what_does_not_fit_is_refused(self):
        self.assertIn(f"{self.prepared} was prepared with training.img_size = 16, but the run has 24. Prepare the images with the run's options",
                      self.refused(*self.offline, "--training.img_size=24"))
        self.assertIn(f"{self.prepared} was prepared with training.mixed_precision_param = float32, but the run has bfloat16.",
                      self.refused(*self.offline, "--training.mixed_precision_param=bfloat16"))
        self.assertIn(f"{self.prepared} was prepared with encoder.max_t5_encoding_len = 8, but the run has 12.",
                      self.refused(*self.offline, "--encoder.max_t5_encoding_len=12"))
        self.assertIn(f"{self.prepared} was prepared with encoder.t5_encoder = t5, but the run has t5-v1_1-xxl.",
                      self.refused(*self.offline, "--encoder.t5_encoder=google/t5-v1_1-xxl"))
        self.assertIn(f"{self.prepared} was prepared with encoder.t5_encoder = t5, but the run has made up by seed 5.",
                      self.refused(*self.offline, "--training.test_mode", "--debug.seed=5"))
        self.assertIn("has encodings of 64 and 48 columns and 3 channels of 16 x 16, but the model takes 64 and 40 columns and 3 channels of 16 x 16. "
                      "Prepare the images for this model.", self.refused(*self.offline, f"--model.hf_assets_path={self.with_pooled_columns(40)}"))
        self.assertIn(f"{self.prepared} holds encodings of images that were prepared, not images. Set encoder.offline = true to train from them.",
                      self.refused(f"--training.dataset_path={self.prepared}"))
        self.assertIn("has no prepared.json: encoder.offline reads folders of titanium data prepare-images. Make one, or set encoder.offline = false.",
                      self.refused("--encoder.offline", f"--training.dataset_path={SET}"))
        self.assertIn("encoder.sharded cuts encoders on the devices, and encoder.on_cpu keeps them in host memory. Use one of the two.",
                      self.refused("--encoder.sharded", "--encoder.on_cpu"))
        self.assertIn("32 samples, 32 of them from before", self.prepare(self.prepared))
        self.assertIn("holds images that were prepared from other data or with other options. Name another folder.",
                      self.prepare(self.prepared, "--debug.seed=5", code=2))

    def test_networks_of_the_same_name_are_told_apart_by_their_weights(self):
        def options(folder):
            return (f"--encoder.t5_encoder={folder / 't5'}", f"--encoder.clip_encoder={folder / 'clip'}",
                    f"--encoder.autoencoder_path={folder / 'ae.safetensors'}", "--validation.no_enable", "--training.steps=1")

        copy = self.folder / "copy"
        shutil.copytree(self.tiny, copy)
        expected, _ = self.train("original", *self.offline, *self.one_rank, *options(self.tiny))
        for folder in (copy, self.folder / "not_here"):  # the encoders may be elsewhere, or not be on this machine at all
            self.assertEqual(self.train(f"with_{folder.name}", *self.offline, *self.one_rank, *options(folder))[0], expected)
        for file, tensor, option, name in (("ae.safetensors", "decoder.conv_out.bias", "autoencoder_path", "ae.safetensors"),
                                           ("t5/model.safetensors", "shared.weight", "t5_encoder", "t5"),
                                           ("clip/model.safetensors", "text_model.final_layer_norm.bias", "clip_encoder", "clip")):
            weights = safetensors.numpy.load_file(copy / file)
            changed = weights[tensor].copy()
            changed[-1] += 1
            safetensors.numpy.save_file(weights | {tensor: changed}, copy / file)
            self.assertRegex(self.refused(*self.offline, *options(copy)),
                             rf"was prepared with encoder\.{option} = {name} with weights (\w{{16}}), but the run has {name} with weights (?!\1)\w{{16}}\. Prepare")
            safetensors.numpy.save_file(weights, copy / file)
        made = json.loads((self.prepared / "prepared.json").read_text())
        self.assertRegex(made["autoencoder_weights"], r"^[0-9a-f]{16}$")

    def with_pooled_columns(self, columns):
        """The folder of a model that takes this many columns of CLIP."""
        other = self.folder / "other"
        shutil.copytree(self.tiny, other, dirs_exist_ok=True)
        sizes = json.loads((other / "transformer/config.json").read_text())
        (other / "transformer/config.json").write_text(json.dumps(sizes | {"pooled_projection_dim": columns}))
        return other

    def test_a_stopped_preparation_goes_on(self):
        images = self.folder / "cc12m"
        shutil.copytree(SET, images)
        archive = max(images.iterdir())
        good = archive.read_bytes()
        begin = good.index(b"\xff\xd8\xff", 30_000)  # a picture in the middle of the second archive
        bad = good[:begin] + bytes(64) + good[begin + 64:]
        data = f"--training.dataset_path={images}"
        for name, shard, kept in (("stopped", 5, r"[1-9]\d*"), ("stopped_at_first", 64, "0")):
            stopped, through = self.folder / name, self.folder / f"{name}_through"
            archive.write_bytes(bad)
            self.assertIn("has an image that", self.prepare(stopped, data, shard=shard, code=1))
            self.assertTrue((stopped / "shards/.unfinished").exists())
            self.assertIn("its preparation has not ended. Run titanium data prepare-images again, which goes on where it was.",
                          self.refused("--encoder.offline", f"--training.dataset_path={stopped}", "--validation.no_enable"))
            self.assertIn("was begun with other data, encoders or options. Name another folder, or empty this one.",
                          self.prepare(stopped, data, "--training.img_size=24", shard=shard, code=2))
            archive.write_bytes(good)
            self.assertRegex(self.prepare(stopped, data, shard=shard), rf"has 32 samples, {kept} of them from before")
            self.prepare(through, data, shard=shard)
            files = sorted(path.relative_to(through) for path in through.rglob("*") if path.is_file())
            self.assertEqual(files, sorted(path.relative_to(stopped) for path in stopped.rglob("*") if path.is_file()))
            for path in files:
                self.assertEqual((stopped / path).read_bytes(), (through / path).read_bytes(), path)

    def test_archives_of_somebody_else_are_not_written_over(self):
        out = self.folder / "archives"
        (out / "shards").mkdir(parents=True)
        self.assertIn(f"{out} holds archives that this preparation has not begun. Name another folder.", self.prepare(out, code=1))

    def test_the_latents_of_a_tiny_flux_are_pixels(self):
        with tarfile.open(self.prepared / "shards/00000.tar") as archive:
            tensors = safetensors.numpy.load(archive.extractfile("000000000.safetensors").read())
            self.assertEqual(archive.extractfile("000000000.txt").read(), b"a red circle on a sand background")
        self.assertEqual({name: value.shape for name, value in tensors.items()},
                         {"mean": (3, 16, 16), "logvar": (3, 16, 16), "t5_encodings": (8, 64), "clip_encodings": (48,)})
        with tarfile.open(min(SET.iterdir())) as archive:
            picture = PIL.Image.open(io.BytesIO(archive.extractfile(archive.getmembers()[0]).read())).convert("RGB")
        self.assertEqual(picture.size, (256, 256))
        pixels = numpy.asarray(picture.resize((16, 16), PIL.Image.BICUBIC), numpy.float32).transpose(2, 0, 1) / 127.5 - 1
        self.assertLess(numpy.abs(tensors["mean"] - pixels).max(), 1e-3)
        self.assertLess(tensors["logvar"].max(), -29)


if __name__ == "__main__":
    unittest.main()
