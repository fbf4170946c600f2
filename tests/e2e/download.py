"""`titanium download` against a stand-in for the hub: the same tree as huggingface_hub leaves, through faults, and no token for anybody else."""

import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import hub_server

TITANIUM = os.environ["TITANIUM"]
REPO = "acme/tiny-model"
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "README.md": b"# tiny\n",
    "tokenizer.json": b"{}",
    "model-00001-of-00002.safetensors": random.Random(1).randbytes(300_000),
    "model-00002-of-00002.safetensors": random.Random(2).randbytes(70_001),
    "original/params with space.json": b"[1]",
    "empty.txt": b"",
}
LARGE = [name for name in FILES if name.endswith(".safetensors")]
TOKEN = "hf_secretsecretsecret"


def tree(folder, skipped=()):
    """Every file and link with what it holds or where it points."""
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        name = str(path.relative_to(folder))
        if any(part in skipped for part in path.relative_to(folder).parts):
            continue
        if path.is_symlink():
            found[name] = "-> " + os.readlink(path)
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


class Download(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.home = pathlib.Path(self.folder.name)

    def run_titanium(self, hub, *arguments, code=0, home=None, **environment):
        names = ("HF_", "HUGGING_FACE", "XDG_", "http_proxy", "https_proxy", "no_proxy")
        clean = {name: value for name, value in os.environ.items() if not name.lower().startswith(tuple(n.lower() for n in names))}
        run = subprocess.run([TITANIUM, "download", *arguments], capture_output=True, text=True, env={**clean, "HF_ENDPOINT": hub.url, "HF_HOME": str(home or self.home / "ours"), **environment})
        self.assertEqual(run.returncode, code, run.stderr)
        self.assertNotIn(TOKEN, run.stdout + run.stderr)
        return run

    def hub(self, **options):
        hub = hub_server.Hub(REPO, dict(FILES), LARGE, **options)
        self.addCleanup(hub.__exit__)
        return hub

    def test_leaves_the_tree_that_huggingface_hub_leaves(self):
        hub = self.hub()
        run = self.run_titanium(hub, REPO)
        script = f"from huggingface_hub import snapshot_download; print(snapshot_download({REPO!r}))"
        theirs = self.home / "theirs"
        environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(theirs), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        snapshot = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True).stdout.strip()
        self.assertEqual(run.stdout.strip().replace("/ours/", "/theirs/"), snapshot)
        skipped = (".locks", "CACHEDIR.TAG", "trees", ".no_exist")
        self.assertEqual(tree(self.home / "ours/hub", skipped), tree(theirs / "hub", skipped))
        # Each finds what the other has fetched: no file is asked for again.
        hub.hub.requests.clear(), hub.cdn.requests.clear()
        self.run_titanium(hub, REPO, home=theirs)
        self.assertEqual(self.run_titanium(hub, REPO, home=theirs, HF_HUB_OFFLINE="1").stdout.strip(), snapshot)
        subprocess.run([sys.executable, "-c", script], env={**environment, "HF_HOME": str(self.home / "ours"), "HF_HUB_OFFLINE": "1"}, check=True, capture_output=True)
        self.assertEqual([path for method, path, _ in hub.hub.requests + hub.cdn.requests if method == "GET" and "/api/" not in path], [])

    def test_the_token_goes_to_the_hub_and_to_nobody_else(self):
        hub = self.hub(token=TOKEN)
        self.run_titanium(hub, REPO, HF_TOKEN=TOKEN)
        self.assertTrue(hub.cdn.requests and all("Authorization" in headers for _, _, headers in hub.hub.requests))
        self.assertEqual([headers for _, _, headers in hub.cdn.requests if "Authorization" in headers], [])

    def test_faults_are_mended_and_a_broken_download_goes_on(self):
        hub = self.hub()
        hub.hub.faults = [503, "reset"]
        hub.cdn.content_faults = ["short", None, "no range"]
        self.run_titanium(hub, REPO)
        snapshot = self.home / f"ours/hub/models--acme--tiny-model/snapshots/{hub_server.COMMIT}"
        self.assertEqual({name: (snapshot / name).read_bytes() for name in FILES}, FILES)
        self.assertTrue(any("Range" in headers for _, _, headers in hub.cdn.requests))
        self.assertEqual(list(self.home.rglob("*.incomplete")), [])

    def test_a_part_from_an_earlier_call_is_continued(self):
        hub, name = self.hub(), LARGE[0]
        blobs = self.home / "ours/hub/models--acme--tiny-model/blobs"
        blobs.mkdir(parents=True)
        (blobs / (hub.etag(name) + ".incomplete")).write_bytes(FILES[name][:100_000])
        self.run_titanium(hub, REPO, "--include", "*-00001-*")
        self.assertEqual([headers["Range"] for _, _, headers in hub.cdn.requests], ["bytes=100000-"])
        self.assertEqual((blobs / hub.etag(name)).read_bytes(), FILES[name])

    def test_wrong_bytes_are_never_kept(self):
        hub = self.hub()
        hub.cdn.content_faults = ["wrong"] * 2
        run = self.run_titanium(hub, REPO, "--include", "*-00001-*", code=1)
        self.assertIn("does not have the hash", run.stderr)
        self.assertEqual(list(self.home.rglob("*.safetensors")) + list(self.home.rglob("blobs/*")), [])
        hub.cdn.content_faults = ["wrong"]
        self.run_titanium(hub, REPO, "--include", "*-00001-*")

    def test_folders_and_the_flags_of_torchtitan(self):
        hub = self.hub()
        self.run_titanium(hub, REPO, "--local-dir", str(self.home / "plain"), "--exclude", "*.md", "--exclude", "original/")
        self.assertEqual(sorted(tree(self.home / "plain", (".cache",))), sorted(name for name in FILES if name != "README.md" and "/" not in name))
        run = self.run_titanium(hub, "--repo_id", REPO, "--assets", "tokenizer", "config", "--additional_patterns", "README.md", "--local_dir", str(self.home / "assets"))
        self.assertEqual(run.stdout.strip(), str(self.home / "assets/tiny-model"))
        # The script of torchtitan compares names with patterns in lower case, so that README.md finds nothing.
        self.assertEqual(sorted(tree(self.home / "assets/tiny-model", (".cache",))), ["config.json", "tokenizer.json"])
        hub.hub.requests.clear()
        self.run_titanium(hub, REPO, "--local-dir", str(self.home / "plain"), "--include", "config.json")
        self.assertFalse([path for _, path, _ in hub.hub.requests if "/resolve/" in path])

    def test_a_pipe_is_told_how_far_the_files_are(self):
        run = self.run_titanium(self.hub(), REPO, TITANIUM_PROGRESS_SECONDS="0")
        self.assertRegex(run.stderr, r"\A(downloading: \d+% \(.* of .*\).*\n)*downloading: 100% \(.*\), .*/s, in .*\n\Z")

    def test_data_sets(self):
        hub = hub_server.Hub("acme/texts", {"data/a.jsonl": b'{"text": "a"}\n'}, kind="datasets")
        self.addCleanup(hub.__exit__)
        self.run_titanium(hub, "acme/texts", "--repo-type", "dataset")
        self.assertTrue((self.home / f"ours/hub/datasets--acme--texts/snapshots/{hub_server.COMMIT}/data/a.jsonl").exists())

    def test_mistakes_have_their_sentences(self):
        gated, hub = self.hub(token=TOKEN), self.hub()
        for server, arguments, sentence in (
            (gated, [REPO], "the model acme/tiny-model is gated. Accept its conditions on its page at the hub, and set HF_TOKEN to a token of your account."),
            (hub, ["acme/other"], "the model acme/other does not exist, or is private. Check its name, and set HF_TOKEN if it is private."),
            (hub, [REPO, "--revision", "v9"], "the model acme/tiny-model has no revision v9. Name a branch, a tag or a commit."),
            (hub, [REPO, "--include", "*.gguf"], "acme/tiny-model has no file that matches the patterns."),
            (hub, ["a/b/c"], "a/b/c is not the name of a repository, such as meta-llama/Llama-3.1-8B."),
            (hub, [REPO, "--assets", "weights"], "there is no asset type weights. There are tokenizer, safetensors, index and config"),
        ):
            with self.subTest(sentence):
                self.assertIn(sentence, self.run_titanium(server, *arguments, code=2).stderr)
        hub.files["../outside"] = b"x"
        self.assertIn("which would leave its folder", self.run_titanium(hub, REPO, code=1).stderr)


if __name__ == "__main__":
    unittest.main()
