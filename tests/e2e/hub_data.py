"""Data sets that the hub has and that a configuration names without a path: texts and images read from there, with the losses of the same files on the disk."""

import gzip
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

import datasets
import hub_server
import PIL.Image

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ["TITANIUM"]
TEXTS = ["--job.config_file=configs/llama3/debug_model.toml", "--training.seq_len=32", "--training.local_batch_size=4"]
IMAGES = ["--job.config_file=configs/flux/flux_debug.toml", "--model.flavor=auto", "--training.img_size=32", "--training.local_batch_size=2",
          "--encoder.max_t5_encoding_len=16"]
SIZES = {"attention_head_dim": 32, "num_attention_heads": 2, "in_channels": 64, "pooled_projection_dim": 768, "joint_attention_dim": 4096, "num_layers": 1,
         "num_single_layers": 1, "axes_dims_rope": [8, 12, 12]}


def c4_files():
    """Lines of the sample corpus in the folders and under the names of allenai/c4."""
    lines = (ROOT / "tests/assets/c4_test/data.jsonl").read_bytes().splitlines(keepends=True)
    part = lambda first: gzip.compress(b"".join(lines[first : first + 60]))
    return {"README.md": b"", "en/c4-train.00000-of-00002.json.gz": part(0), "en/c4-train.00001-of-00002.json.gz": part(60),
            "en/c4-validation.00000-of-00001.json.gz": part(120), "en.noclean/c4-train.00000-of-00001.json.gz": part(180),
            "multilingual/c4-af.json.gz": part(240)}


class HubData(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def serve(self, repo, files):
        hub = hub_server.Hub(repo, files, [name for name in files if name.endswith((".gz", ".tar"))], kind="datasets")
        self.addCleanup(hub.__exit__)
        return hub

    def write(self, files):
        for name, content in files.items():
            (self.folder / "data" / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / "data" / name).write_bytes(content)
        return self.folder / "data"

    def run_program(self, *arguments, endpoint, code=0, **variables):
        # An address that refuses every connection where nothing is to be asked for.
        environment = {**os.environ, "HF_ENDPOINT": endpoint or "http://127.0.0.1:9", **variables}
        finished = subprocess.run([PROGRAM, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, env=environment)
        self.assertEqual(finished.returncode, code, finished.stdout + finished.stderr)
        return finished.stdout + finished.stderr

    def train(self, name, *options, endpoint=None, code=0, **variables):
        said = self.run_program("train", *options, "--training.device=cpu", "--training.steps=3", "--training.data_streams=4", "--metrics.log_freq=1",
                                "--training.mixed_precision_param=float32", f"--job.dump_folder={self.folder / name}", endpoint=endpoint, code=code, **variables)
        if code:
            return said
        lines = [json.loads(line) for line in (self.folder / name / "metrics.jsonl").read_text().splitlines()]
        return said, [(line["step"], line["loss"]) for line in lines if "loss" in line]

    def test_texts_are_read_from_the_hub(self):
        files = c4_files()
        hub = self.serve("allenai/c4", files)
        validated = ["--validation.enable", "--validation.dataset=c4_validation", "--validation.freq=3", "--validation.steps=2", "--validation.seq_len=32",
                     "--validation.data_streams=4"]
        said, streamed = self.train("hub", *TEXTS, "--training.dataset=c4", *validated, endpoint=hub.url)
        self.assertIn("Preparing c4 dataset from hf://datasets/allenai/c4/en/c4-train.*", said)
        read = {name for name in files for _, path, _ in hub.cdn.requests if path.endswith(name)}
        self.assertLessEqual(read, {name for name in files if name.startswith("en/")})
        self.assertLessEqual({"en/c4-train.00000-of-00002.json.gz", "en/c4-validation.00000-of-00001.json.gz"}, read)
        # The folder of both sets is listed, nothing else, and once.
        asked = [path.split("?")[0] for _, path, _ in hub.hub.requests if path.startswith("/api/")]
        self.assertEqual(asked, ["/api/datasets/allenai/c4/revision/main", f"/api/datasets/allenai/c4/tree/{hub_server.COMMIT}/en"])
        here = self.write({name: content for name, content in files.items() if name.startswith("en/c4-train")})
        other = self.write({"validation/" + name: content for name, content in files.items() if name.startswith("en/c4-validation")})
        _, copied = self.train("disk", *TEXTS, "--training.dataset=c4", f"--training.dataset_path={here / 'en'}", *validated,
                               f"--validation.dataset_path={other / 'validation'}")
        self.assertEqual(streamed, copied)

    def test_a_run_that_began_at_the_hub_goes_on_from_a_downloaded_copy(self):
        files = c4_files()
        saved = ["--checkpoint.enable", "--checkpoint.interval=2", "--checkpoint.no_last_save_model_only", "--training.dataset=c4"]
        _, all_at_hub = self.train("run", *TEXTS, *saved, endpoint=self.serve("allenai/c4", files).url)
        copy = self.write({name: content for name, content in files.items() if name.startswith("en/c4-train")})
        shutil.copytree(self.folder / "run/checkpoint/step-2", self.folder / "rest/checkpoint/step-2")
        said, rest = self.train("rest", *TEXTS, *saved, f"--training.dataset_path={copy}")
        self.assertIn("Training starts at step 3", said)
        self.assertEqual(rest, all_at_hub[2:])

    def options_for_images(self):
        assets = self.folder / "assets"
        assets.mkdir()
        (assets / "config.json").write_text(json.dumps(SIZES))
        for file in (ROOT / "tests/assets/tokenizer").iterdir():
            (assets / file.name).write_bytes(file.read_bytes())
        return [*IMAGES, f"--model.hf_assets_path={assets}", "--training.dataset=cc12m-wds"]

    def test_images_are_read_from_the_hub(self):
        archives = {path.name: path.read_bytes() for path in (ROOT / "tests/assets/cc12m_test").iterdir()}
        hub = self.serve("pixparse/cc12m-wds", {**archives, "README.md": b"", "_info.json": b"{}"})
        images = self.options_for_images()
        said, streamed = self.train("hub", *images, endpoint=hub.url)
        self.assertIn("Preparing cc12m-wds dataset from hf://datasets/pixparse/cc12m-wds/*.tar", said)
        _, copied = self.train("disk", *images, "--training.dataset_path=tests/assets/cc12m_test")
        self.assertEqual(streamed, copied)

    def test_images_of_the_hub_are_dealt_by_archives(self):
        archives = {}
        for source in sorted((ROOT / "tests/assets/cc12m_test").iterdir()):
            with tarfile.open(source) as shapes:
                names = shapes.getnames()
                for first in range(0, len(names), 4):  # two pictures and their captions
                    content = io.BytesIO()
                    with tarfile.open(fileobj=content, mode="w") as archive:
                        for name in names[first : first + 4]:
                            archive.addfile(shapes.getmember(name), shapes.extractfile(name))
                    archives[f"cc12m-train-{len(archives):04d}.tar"] = content.getvalue()
        blocks = [*self.options_for_images(), "--training.data_striping=blocks"]
        said, streamed = self.train("hub", *blocks, endpoint=self.serve("pixparse/cc12m-wds", archives).url)
        self.assertIn("Dataset cc12m-wds: dealt by files in 4 lanes (16 blocks)", said)
        _, copied = self.train("disk", *blocks, f"--training.dataset_path={self.write(archives)}")
        self.assertEqual(streamed, copied)

    def test_pictures_in_parquet_are_packed_into_archives(self):
        """As `datasets` writes them, among them what cannot be used."""
        with tarfile.open(ROOT / "tests/assets/coco_test/coco-validation-0000.tar") as archive:
            members = {name: archive.extractfile(name).read() for name in archive.getnames()}
        pictures = {name: content for name, content in members.items() if not name.endswith((".txt", ".json"))}
        captions = [f"caption {i}" for i in range(len(pictures))]
        rows = {"image": [{"bytes": content, "path": name} for name, content in pictures.items()] + [None, {"bytes": b"x", "path": None}],
                "caption": [[caption, "another"] for caption in captions] + [["no picture"], []], "image_id": list(range(len(pictures) + 2))}
        features = datasets.Features({"image": datasets.Image(), "caption": datasets.Sequence(datasets.Value("string")), "image_id": datasets.Value("int64")})
        (self.folder / "coco/data").mkdir(parents=True)
        datasets.Dataset.from_dict(rows, features=features).to_parquet(self.folder / "coco/data/validation-00000-of-00001.parquet")
        packed = subprocess.run([sys.executable, ROOT / "tools/pack_pictures.py", self.folder / "coco", self.folder / "archives"], capture_output=True, text=True)
        self.assertIn(f"data-validation-00000-of-00001.tar: {len(pictures)} samples, 2 rows without a picture or a caption left out", packed.stdout)
        found = json.loads(self.run_program("data", "inspect", self.folder / "archives", "--records", "99", "--json", endpoint=None))
        self.assertEqual([sample["text"] for sample in found["samples"]], captions)
        with tarfile.open(self.folder / "archives/data-validation-00000-of-00001.tar") as archive:
            stored = [archive.extractfile(name).read() for name in archive.getnames() if not name.endswith(".txt")]
        self.assertEqual(stored, list(pictures.values()))
        for content, sample in zip(pictures.values(), found["samples"], strict=True):
            self.assertIn("{} x {}".format(*PIL.Image.open(io.BytesIO(content)).size), sample["image"])

    def test_doctor_says_what_it_has_not_looked_at(self):
        doctor = ["doctor", "--storage-mib", "2", "--training.device=cpu", "--job.config_file=configs/llama3/debug_model.toml",
                  f"--job.dump_folder={self.folder}"]
        not_asked = "all files of this machine are there and can be read; the hub is asked when the run starts"
        self.assertIn(not_asked, self.run_program(*doctor, "--training.dataset=C4", endpoint=None))
        self.assertNotIn(not_asked, self.run_program(*doctor, endpoint=None))

    def test_a_check_asks_for_nothing_and_training_names_another_way(self):
        for config, *options in (["configs/llama3/debug_model.toml", "--training.dataset=c4", "--validation.enable", "--validation.dataset=c4_validation"],
                                 ["configs/flux/flux_debug.toml", "--training.dataset=cc12m-wds"]):
            checked = self.run_program("config", "check", config, *options, "--training.device=cpu", endpoint=None)
            self.assertIn("is valid.", checked)
            self.assertNotIn("to fetch", checked)
        strange = hub_server.Server(lambda handler, _: handler.answer(200, b"{}"))
        self.addCleanup(strange.stop)
        said = self.train("strange", *TEXTS, "--training.dataset=c4", endpoint=strange.url, code=1)
        self.assertIn("Check HF_ENDPOINT. Or fetch it, or as many of its files as you need, with: titanium download allenai/c4 --repo-type dataset "
                      "--include 'en/c4-train.*' --local-dir data/c4; then set dataset_path = \"data/c4\".", said)

    def test_one_rank_lists_for_all(self):
        hub = self.serve("allenai/c4", c4_files())
        train = ["launch", "--nproc-per-node", "2", "--", "train", *TEXTS, "--training.dataset=c4", "--validation.enable", "--validation.dataset=c4_validation", "--validation.freq=2",
                 "--validation.steps=1", "--validation.seq_len=32", "--validation.data_streams=4", "--training.device=cpu", "--training.steps=2", "--training.data_streams=4", "--metrics.log_freq=1", f"--job.dump_folder={self.folder / 'two'}"]
        self.run_program(*train, endpoint=hub.url)
        self.assertEqual(sum("/revision/" in path for _, path, _ in hub.hub.requests), 1)
        strange = hub_server.Server(lambda handler, _: handler.answer(200, b"{}"))
        self.addCleanup(strange.stop)
        said = self.run_program(*train, endpoint=strange.url, code=1)
        self.assertIn("Check HF_ENDPOINT. Or fetch it, or as many of its files as you need, with: titanium download allenai/c4", said)
        self.assertEqual(len(strange.requests), 2)  # of training and of validation

    def test_the_hub_is_not_asked_where_the_environment_forbids_it(self):
        hub = self.serve("allenai/c4", c4_files())
        home = self.folder / "hugging face"
        said = self.train("offline", *TEXTS, "--training.dataset=c4", endpoint=hub.url, code=1, HF_HUB_OFFLINE="on", HF_HOME=home)
        self.assertIn(f"HF_HUB_OFFLINE is set, so {hub.url} is not asked, and the cache {home}/hub does not have anything of the dataset allenai/c4 at the revision main. "
                      "Unset it, or name files of this machine. Or fetch it, or as many of its files as you need, with: titanium download allenai/c4 --repo-type dataset", said)
        said = self.run_program("download", "allenai/c4", "--repo-type", "dataset", "--local-dir", self.folder / "c4", endpoint=hub.url, code=1,
                                HF_HUB_OFFLINE="1")
        self.assertIn(f"HF_HUB_OFFLINE is set, so {hub.url} is not asked, and nothing is fetched into {self.folder}/c4. Unset it, or leave out the folder", said)
        self.assertEqual(hub.hub.requests, [])
        _, online = self.train("online", *TEXTS, "--training.dataset=c4", endpoint=hub.url, HF_HUB_OFFLINE="0", HF_HOME=home)
        self.run_program("download", "allenai/c4", "--repo-type", "dataset", "--include", "en/*", endpoint=hub.url, HF_HOME=home)
        said, offline = self.train("cached", *TEXTS, "--training.dataset=c4", HF_HUB_OFFLINE="1", HF_HOME=home)
        self.assertEqual(offline, online)
        self.assertIn(f"HF_HUB_OFFLINE is set: the dataset allenai/c4 is what the cache has of it, 3 files in {home}/hub/datasets--allenai--c4/snapshots/{hub_server.COMMIT}", said)


if __name__ == "__main__":
    unittest.main()
