"""bench/convergence: what its script gathers, and that its run is valid."""

import gzip
import hashlib
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


def varied(subject, lines):
    """Text that does not repeat itself: the subject, then lines of different length from invented words."""
    def word(i, j):
        return hashlib.sha256(f"{subject} {i} {j}".encode()).hexdigest().translate(str.maketrans("0123456789", "ghijklmnop"))[:9]
    return f"The {subject}\n" + "".join(f"{', '.join(word(i, j) for j in range(3 + i % 9))} and {word(i, 9)}{' (so)' * (i % 3)}\n" for i in range(lines))


class Convergence(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def gather(self, files, *options, sources=()):
        for name, content in files.items():
            path = self.folder / "source" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content if isinstance(content, bytes) else content.encode())
        subprocess.run([sys.executable, ROOT / "bench/convergence/gather_text.py", *(sources or [self.folder / "source"]), "--out", self.folder / "text", *options],
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
        files = {f"{i}.txt": varied(f"part {i}", 260) for i in range(100)}
        some = self.gather(files, "--megabytes", "1")
        self.assertTrue(20 < len(some) < 80, len(some))
        self.assertEqual(self.gather({}, "--megabytes", "1"), some)

    def test_one_source_gives_no_more_than_it_may(self):
        files = {f"{i}.txt": varied(f"part {i}", 260) for i in range(10)}
        self.assertEqual(len(self.gather(files, "--most-of-one", "0")), 0)
        self.assertEqual(len(self.gather(files, "--most-of-one", "1")), 10)

    def test_names_are_skipped_inside_a_source_and_other_languages_by_folder(self):
        texts = self.gather({"test_folder/unicode/news/good.txt": prose("good part"), "test_bad.py": prose("bad part"), "fr-FR/bad.txt": prose("french part"),
                             "fs/good.c": prose("other part")})
        self.assertEqual(sorted(text.split()[1] for text in texts), ["good", "other"])

    def test_tests_and_repeated_sources_are_skipped(self):
        texts = self.gather({"tests/bad.c": prose("test part"), "net/dial_test.go": prose("other test part"), "_sources/index.txt": prose("unrendered part"),
                             "html/class-members.html": prose("members part"), "testing/good.rs": prose("good part")})
        self.assertEqual([text.split()[1] for text in texts], ["good"])

    def test_tables_are_left_out(self):
        registers = "".join(f"#define mmREGISTER_{hashlib.sha256(bytes([i])).hexdigest()[:12]}_OFFSET {i}\n" for i in range(100))
        texts = self.gather({"registers.h": registers, "index.html": "".join(f"<li>{'ab' * (i % 50 + 5)}</li>" for i in range(60)), "generated.py": varied("rows", 12) * 20,
                             "text.txt": varied("part", 200)})
        self.assertEqual(texts, [varied("part", 200).strip()])

    def test_paragraphs_that_state_a_licence_are_left_out(self):
        holder = "/*\n * Adds numbers. Copyright 2020 Somebody.\n * This program comes without any warranty.\n */"
        texts = self.gather({"a.c": holder + "\n\n" + prose("first part"), "b.py": "# Copyright Somebody Else\n\n" + prose("second part"),
                             "c.txt": prose("third part") + "\n\nCopyright protects what is written for many years."})
        self.assertEqual(sorted(texts), [prose(f"{number} part").strip() for number in ("first", "second", "third")])

    def test_pages_lose_the_frame_that_they_share(self):
        head, tail = ["Home of the manual", "Search"], ["Report a mistake"]
        parts = {name: [varied(f"{side} of {name}", 20) for side in ("begin", "end")] for name in "abcdefghijklmnopqrst"}
        pages = {f"{name}.html": "".join(f"\n<p>{text}</p>\n" for text in [*head, begin, "Search", end, *tail])
                 + '<div class="sphinxsidebar"><p>Next topic</p></div>' for name, (begin, end) in parts.items()}
        texts = self.gather(pages | {"u.txt": "Search\n\n" + varied("part u", 20)})
        self.assertEqual(sum(text.count("Home of the manual") for text in texts), 10)
        self.assertEqual(sum(text.count("Report a mistake") for text in texts), 10)
        self.assertEqual(sum(text.count("Search") for text in texts), 10 + 20 + 1)  # the one in the middle of each page stays
        self.assertFalse(any("Next topic" in text for text in texts))

    def test_a_side_bar_before_the_body_leaves_the_body(self):
        page = '<div class="sphinxsidebar"><p>Menu</p></div><div class="document"><div class="body"><p>{}</p></div></div><div class="sphinxsidebar"><p>Next topic</p></div>'
        text, = self.gather({"a.html": page.format(varied("body", 20))})
        self.assertIn("The body", text)
        self.assertNotIn("Next topic", text)

    def test_the_manifest_names_packages_with_version_licence_and_digest(self):
        package = self.folder / "package"
        for name, content in {
            "DEBIAN/control": "Package: manual\nVersion: 1.2-3\nSection: doc\nArchitecture: all\nMaintainer: A <a@example.org>\nDescription: a manual\n",
            "usr/share/doc/manual/copyright": "Files: *\nLicense: GFDL-1.3\n",
            "usr/share/doc/manual/page.txt": prose("packed part"),
        }.items():
            (package / name).parent.mkdir(parents=True, exist_ok=True)
            (package / name).write_text(content)
        source = package / "usr/src"
        source.mkdir()
        (self.folder / "inner.c").write_text(prose("inner part"))
        subprocess.run(["tar", "-czf", source / "manual.tar.gz", "-C", self.folder, "inner.c"], check=True)
        subprocess.run(["dpkg-deb", "--root-owner-group", "--build", package, self.folder / "manual.deb"], check=True, capture_output=True)
        texts = self.gather({"c.txt": prose("loose part")}, sources=[self.folder / "manual.deb", self.folder / "source"])
        self.assertEqual(sorted(text.split()[1] for text in texts), ["inner", "loose", "packed"])
        manual, loose = json.loads((self.folder / "text/manifest.json").read_text())
        self.assertEqual({name: manual[name] for name in ("source", "version", "section", "licence_file", "licences", "documents")},
                         {"source": "manual", "version": "1.2-3", "section": "doc", "licence_file": "usr/share/doc/manual/copyright", "licences": ["GFDL-1.3"],
                          "documents": 2})
        self.assertEqual(manual["bytes"], sum(len(text.encode()) for text in texts if "loose" not in text))
        digest = hashlib.sha256(next(text for text in texts if "loose" in text).encode()).digest()
        self.assertEqual(loose["sha256"], hashlib.sha256(digest).hexdigest())

    def test_the_run_is_valid_on_its_gpu(self):
        assets = shutil.copytree(ROOT / "tests/assets/tokenizer", self.folder / "assets")
        shutil.copy(ROOT / "bench/convergence/config.json", assets)
        checked = subprocess.run([PROGRAM, "config", "check", "bench/convergence/train.toml", f"--model.hf_assets_path={assets}", "--gpu", "H200",
                                  f"--job.dump_folder={self.folder}", "--training.dataset_path=tests/assets/c4_test", "--validation.dataset_path=tests/assets/c4_test_validation"],
                                 cwd=ROOT, capture_output=True, text=True, timeout=120)
        self.assertEqual(checked.returncode, 0, checked.stderr)

    def run_script(self, *options, part=None, **variables):
        """run.sh on a part of the corpus with a model that a CPU trains at once; `part` of it, with more environment `variables`."""
        environment = os.environ | {"WORK_FOLDER": str(self.folder / "work"), "MODEL": str(self.folder / "config.json"), "STEPS": "2", "COMMIT": "0123abc",
                                    "TITANIUM_CACHE_DIR": str(self.folder / "cache")}
        ran = subprocess.run([ROOT / "bench/convergence/run.sh", self.folder / "text", self.folder / "result", "--training.local_batch_size", "2",
                              "--training.seq_len", "64", "--validation.local_batch_size", "2", "--validation.seq_len", "64", "--validation.steps", "1",
                              "--validation.freq", "1", "--metrics.log_freq", "1", *options],
                             env=environment | ({"PART": part} if part else {}) | variables, capture_output=True, text=True, timeout=300)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        return ran.stdout

    def write_text(self):
        shutil.copytree(ROOT / "tests/assets/tokenizer", self.folder / "text")
        lines = (ROOT / "tests/assets/c4_test/data.jsonl").read_text().splitlines(keepends=True)
        (self.folder / "text/train.jsonl").write_text("".join(lines[:100]))
        (self.folder / "text/train.jsonl.zst").write_bytes(b"damaged")  # beside the plain one
        (self.folder / "text/validation.jsonl.gz").write_bytes(gzip.compress("".join(lines[100:120]).encode()))
        sizes = json.loads((ROOT / "bench/convergence/config.json").read_text())
        sizes |= {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 2000}
        (self.folder / "config.json").write_text(json.dumps(sizes))

    def test_the_script_trains_and_writes_in_parts(self):
        self.write_text()
        for part in ("prepare", "train", "samples"):
            self.run_script(part=part)
        facts = (self.folder / "result/facts.md").read_text()
        for fact in ("commit 0123abc, titanium ", "steps 2 of", "records  100", "validate step:  2", '"step": 2'):
            self.assertIn(fact, facts)
        steps = [json.loads(line) for line in (self.folder / "result/metrics.jsonl").read_text().splitlines()]
        self.assertEqual(max(line["step"] for line in steps), 2)
        samples = (self.folder / "result/samples.md").read_text()
        for prompt in (ROOT / "bench/convergence/prompts.txt").read_text().splitlines():
            self.assertIn(f"```\n{prompt}", samples)

    def test_the_script_trains_for_no_more_than_one_epoch(self):
        self.write_text()
        self.run_script(part="prepare")
        self.run_script("--validation.no_enable", part="train", STEPS="", SECONDS_OF_TRAINING="3600")  # one step of run.sh is more than the text
        self.assertIn("steps 1 of 131072 tokens", (self.folder / "work/facts").read_text())


if __name__ == "__main__":
    unittest.main()
