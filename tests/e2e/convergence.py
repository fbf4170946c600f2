"""bench/convergence: what its script gathers, and that its run is valid."""

import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.environ["TITANIUM"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
LICENSE = "Permission is granted to copy this text as often as you like, in whole or in part, for any purpose whatever. " * 3


def prose(subject, times=6):
    return f"The {subject} of the kernel allocates memory for each request and returns it when the work is done.\n" * times


class Convergence(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def gather(self, files, *options):
        for name, content in files.items():
            path = self.folder / "source" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content if isinstance(content, bytes) else content.encode())
        subprocess.run([sys.executable, ROOT / "bench/convergence/gather_text.py", self.folder / "source", "--out", self.folder / "text", *options],
                       check=True, capture_output=True)
        lines = "".join((self.folder / "text" / f"{part}.jsonl").read_text() for part in ("train", "validation"))
        return [json.loads(line)["text"] for line in lines.split("\n") if line]

    def test_text_is_gathered_once_and_without_markup(self):
        texts = self.gather({
            "a.txt": prose("first part") + "\n\n" + LICENSE,
            "copy_of_a.txt": prose("first part") + "\n\n" + LICENSE,
            "b.html": "<html><head><title>no</title></head><body><p>" + prose("second &amp; last part") + "</p><script>no()</script></body></html>",
            "c.txt.gz": prose("third part") + "\n\n" + LICENSE,
            "man1/tool.1.gz": ".TH TOOL 1\n.SH NAME\ntool \\- works\n.SH DESCRIPTION\n" + prose("\\fBfourth\\fR part"),
            "changelog.txt": prose("changelog"),
            "numbers.txt": "0123456789 " * 100,
            "broken.txt": b"\xff\xfe" + prose("last part").encode(),
            "short.md": "short",
        })
        self.assertEqual(len(texts), 4, [text[:40] for text in texts])
        together = "\n".join(texts)
        self.assertEqual(together.count("Permission is granted"), 3)  # of one paragraph, which repeats itself three times
        self.assertIn("second & last part", together)
        self.assertIn("The fourth part of", together)
        for absent in ("<p>", "no()", ".SH", "\\f", "changelog", "0123456789"):
            self.assertNotIn(absent, together)

    def test_a_limit_takes_a_share_and_gives_the_same_each_time(self):
        files = {f"{i}.txt": prose(f"part {'abcdefghij'[i % 10]}{'klmnopqrst'[i // 10]}", 200) for i in range(100)}
        some = self.gather(files, "--megabytes", "1")
        self.assertTrue(20 < len(some) < 80, len(some))
        self.assertEqual(self.gather({}, "--megabytes", "1"), some)

    def test_the_run_is_valid(self):
        assets = shutil.copytree(ROOT / "tests/assets/tokenizer", self.folder / "assets")
        shutil.copy(ROOT / "bench/convergence/config.json", assets)
        checked = subprocess.run([PROGRAM, "config", "check", "bench/convergence/train.toml", f"--model.hf_assets_path={assets}", "--gpu", "H200",
                                  f"--job.dump_folder={self.folder}", "--training.dataset_path=tests/assets/c4_test", "--validation.dataset_path=tests/assets/c4_test_validation"],
                                 cwd=ROOT, capture_output=True, text=True, timeout=120)
        self.assertEqual(checked.returncode, 0, checked.stderr)
        self.assertEqual(subprocess.run(["bash", "-n", ROOT / "bench/convergence/run.sh"]).returncode, 0)


if __name__ == "__main__":
    unittest.main()
