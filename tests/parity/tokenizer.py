"""Token ids equal those of Hugging Face tokenizers, for the options of every model family, on text of all kinds.

TITANIUM_RANDOM_STRINGS=100000 compares so many random strings with each family instead of the fewer of a test run.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

import text_samples
import tokenizer_families
from tokenize_lines import titanium
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

TITANIUM = os.environ["TITANIUM"]
RANDOM_STRINGS = int(os.environ.get("TITANIUM_RANDOM_STRINGS", 5_000))
VOCAB_SIZE = 2_000
SKIP_SPECIAL = (((), True),)
KEEP_SPECIAL = ((("--keep-special",), False),)


def reference_class():
    """torchtitan's tokenizer class from the installed package, without the rest of it (which needs Triton)."""
    if "torchtitan_tokenizer" not in sys.modules:
        for name, attribute in (("torchtitan.config", "JobConfig"), ("torchtitan.tools.logging", "logger")):
            sys.modules[name] = types.SimpleNamespace(**{attribute: types.SimpleNamespace(info=lambda text: None)})
        package = pathlib.Path(importlib.util.find_spec("torchtitan").submodule_search_locations[0])
        spec = importlib.util.spec_from_file_location("torchtitan_tokenizer", package / "components/tokenizer.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules.update({"torchtitan": types.SimpleNamespace(), "torchtitan_tokenizer": module})
        spec.loader.exec_module(module)
    return sys.modules["torchtitan_tokenizer"].HuggingFaceTokenizer


class Parity(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.texts = text_samples.real_text(3_000_000)
        cls.training_texts = [text[:10_000] for text in cls.texts[::2]]
        cls.tokenizers = {}
        for name in tokenizer_families.FAMILIES:
            cls.tokenizers[name] = cls.make(name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def make(cls, name):
        family = tokenizer_families.FAMILIES[name]
        tokenizer = tokenizer_families.train(name, cls.training_texts, VOCAB_SIZE)
        folder = pathlib.Path(cls.folder.name) / name
        folder.mkdir()
        data = json.loads(tokenizer.to_str())
        if family.get("legacy_merges"):
            data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
        (folder / "tokenizer.json").write_text(json.dumps(data, ensure_ascii=name == "gpt2"), encoding="utf-8")
        config = {key: family[key[:3]] for key in ("bos_token", "eos_token") if family[key[:3]]}
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        return folder, tokenizer

    def equal(self, ours, theirs, texts, name):
        """assertEqual takes minutes to describe how long lists differ; this names the first difference."""
        self.assertEqual(len(ours), len(theirs))
        for text, our, their in zip(texts, ours, theirs):
            if our != their:
                self.fail(f"{name}: {text[:200]!r}\n  ours   {our[:100]}\n  theirs {their[:100]}")

    def compare(self, name, texts, decode=()):
        folder, tokenizer = self.tokenizers[name]
        expected = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
        actual = titanium(folder, texts, "--no-bos", "--no-eos")
        self.equal(actual, expected, texts, name)
        for flags, skip in decode:
            decoded = tokenizer.decode_batch(expected[:3000], skip_special_tokens=skip)
            self.equal(titanium(folder, actual[:3000], "--decode", *flags), decoded, texts, name)

    def test_real_text_of_many_languages(self):
        for name in self.tokenizers:
            with self.subTest(name):
                self.compare(name, [text[:20_000] for text in self.texts], decode=SKIP_SPECIAL)

    def test_every_script(self):
        for name in self.tokenizers:
            with self.subTest(name):
                pairs = [a + b for a in text_samples.TROUBLE for b in text_samples.TROUBLE]
                self.compare(name, list(text_samples.script_samples()) + pairs[:: 1 if name in ("llama3", "gpt_oss") else 7])

    def test_random_strings(self):
        for number, name in enumerate(self.tokenizers):
            with self.subTest(name):
                pieces = [token.content for token in tokenizer_families.added_tokens(tokenizer_families.FAMILIES[name])]
                self.compare(name, list(text_samples.random_strings(RANDOM_STRINGS, number, pieces)), decode=SKIP_SPECIAL + KEEP_SPECIAL)

    def test_long_lines(self):
        pieces = [" ", "a", "\n", " \n", "ab", "1", "!", "é", "中", "e\u0301", "x ", "'", "'s"]
        for name in ("llama3", "qwen", "deepseek_v3", "gpt_oss", "gpt2"):
            with self.subTest(name):
                size = 1_000_000 if name == "llama3" else 20_000
                lines = [piece * (size // len(piece.encode())) for piece in (pieces[:4] if name == "llama3" else pieces)]
                self.compare(name, [*lines, " " * size + "x", "word" + "\r\n" * (size // 2)])

    def test_invalid_utf8_is_replaced(self):
        folder, tokenizer = self.tokenizers["llama3"]
        samples = [b"abc\xff", b"\x80\x80x", b"\xe4\xb8", b"\xe4\xb8\xe4\xb8\xad", b"\xf0\x9f\x98", b"\xf0\x9f\x98a", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xf8\x88", b"\xe0\x80\x80z", b"\xc3"]
        run = subprocess.run([TITANIUM, "tokenize", "--tokenizer", str(folder), "--no-eos"], input=b"\n".join(samples), capture_output=True, check=True)
        expected = [tokenizer.encode(sample.decode(errors="replace")).ids for sample in samples]
        self.assertEqual([json.loads(line) for line in run.stdout.splitlines()], expected)

    def test_every_code_point_has_the_same_classes(self):
        """\\s, \\d, \\w and the general categories, for every assigned code point, from splits with such patterns."""
        folder, tokenizer = self.tokenizers["gpt2"]
        data = json.loads(tokenizer.to_str())
        every = "".join(chr(c) for c in [*range(0x32400), *range(0xE0000, 0xE0200), 0x10FFFF] if not 0xD800 <= c < 0xE000)
        texts = [every[i : i + 5000] for i in range(0, len(every), 5000)]
        patterns = [r"\s", r"\d", r"\w", r"[^\s\w]+", "(?i:[k-s])", r"\p{L}", r"\p{Lu}|\p{Lm}", r"\p{Ll}|\p{Lt}", r"\p{M}", r"\p{N}", r"\p{P}", r"\p{S}"]
        for pattern in patterns:
            with self.subTest(pattern):
                split = pre_tokenizers.Split(Regex(pattern), "removed")
                data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [json.loads(split.__getstate__()), {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}
                data["added_tokens"] = []
                target = pathlib.Path(self.folder.name) / "classes"
                target.mkdir(exist_ok=True)
                (target / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
                expected = [encoding.ids for encoding in Tokenizer.from_str(json.dumps(data)).encode_batch(texts)]
                self.equal(titanium(target, texts), expected, texts, pattern)

    def test_bos_and_eos_are_found_like_in_torchtitan(self):
        texts = ["", "hello", "<|im_start|> tool", "新しい"]
        for name in ("llama3", "qwen", "gpt_oss"):
            folder = self.tokenizers[name][0]
            reference = reference_class()(str(folder))
            for bos in (True, False):
                for eos in (True, False):
                    flags = [flag for flag, on in (("--no-bos", bos), ("--no-eos", eos)) if not on]
                    self.assertEqual(titanium(folder, texts, *flags), [reference.encode(text, add_bos=bos, add_eos=eos) for text in texts], name)

    def test_vocabulary_files_without_tokenizer_json(self):
        _, tokenizer = self.tokenizers["gpt2"]
        model = json.loads(tokenizer.to_str())["model"]
        merges = "\n".join(["#version: 0.2", *(" ".join(pair) for pair in model["merges"])]) + "\n"
        tokens = sorted(model["vocab"], key=model["vocab"].get)
        config = {"bos_token": "<x>", "eos_token": {"content": "<y>", "lstrip": True}, "added_tokens_decoder": {"9": {"content": "<z>"}, "10": {"content": "<y>"}, "2": {"content": "<w>"}}}
        layouts = {
            "json_merges": {"vocab.json": json.dumps(model["vocab"]), "merges.txt": merges},
            "txt_merges": {"vocab.txt": "\n".join(tokens), "merges.txt": merges},
            "words": {"vocab.json": json.dumps({"[UNK]": 0, "hello": 1, "a b": 2})},
        }
        texts = ["hello", "a b", "Grüße, <x> <y> <z><w> it's 10 o'clock", ""]
        for name, files in layouts.items():
            with self.subTest(name):
                folder = pathlib.Path(self.folder.name) / name
                folder.mkdir()
                for file, content in {**files, "tokenizer_config.json": json.dumps(config)}.items():
                    (folder / file).write_text(content, encoding="utf-8")
                reference = reference_class()(str(folder))
                expected = [reference.encode(text, add_bos=True, add_eos=True) for text in texts]
                self.assertEqual(titanium(folder, texts), expected)
                self.assertEqual(titanium(folder, expected, "--decode"), [reference.decode(ids) for ids in expected])

    def test_trained_tokenizer_loads_in_hugging_face(self):
        folder = pathlib.Path(self.folder.name) / "own"
        texts = self.training_texts[:60]
        folder.mkdir()
        (folder / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
        command = [TITANIUM, "tokenizer", "train", "--input", folder / "in.jsonl", "--vocab-size", "1200", "--out", folder]
        subprocess.run(command, check=True, capture_output=True)
        reference = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.assertEqual(reference.get_vocab_size(), 1200)
        self.tokenizers["own"] = folder, reference
        self.compare("own", texts + list(text_samples.random_strings(2000, 5, ["<|begin_of_text|>", "<|end_of_text|>"])))
        del self.tokenizers["own"]

    def test_wrong_usage_ends_with_code_2_and_a_sentence(self):
        folder = str(self.tokenizers["gpt2"][0])
        for arguments, sentence in (
            (["tokenize"], "--tokenizer is required"),
            (["tokenize", "--tokenizer", "/no/such"], "does not exist"),
            (["tokenize", "--tokenizer", folder, "--decode"], "line 1 of the input is not a JSON array of ids"),
            (["tokenizer"], "subcommand is required"),
            (["tokenizer", "train", "--input", "/no/file", "--vocab-size", "300", "--out", "x"], "does not exist"),
        ):
            run = subprocess.run([TITANIUM, *arguments], input="x\n", capture_output=True, text=True)
            self.assertEqual(run.returncode, 2, arguments)
            self.assertIn(sentence, run.stderr)
            self.assertEqual(run.stderr.count("\n"), 1)

    def test_only_arrays_hold_ids(self):
        folder = str(self.tokenizers["gpt2"][0])
        for line in ("{}", "1", "[" * 100000):
            run = subprocess.run([TITANIUM, "tokenize", "--tokenizer", folder, "--decode"], input=line, capture_output=True, text=True)
            self.assertEqual(run.returncode, 2, line[:20])
            self.assertIn("line 1 of the input is not a JSON array of ids", run.stderr)

    def test_characters_without_a_token_are_dropped_or_unknown(self):
        letters = {chr(c): c for c in range(33, 127)}
        variants = {
            "dropped": {},
            "unknown": {"unk_token": "<unk>"},
            "fused": {"unk_token": "<unk>", "fuse_unk": True},
            "bytes": {"byte_fallback": True, "unk_token": "<unk>"},
        }
        for name, options in variants.items():
            for pre in ({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}, None):
                with self.subTest(name, byte_level=pre is not None):
                    vocab = {**letters, "<unk>": 200, "<0xC3>": 201, "<0xA9>": 202, "<0xC4>": 203, "<0xA0>": 204, "he": 205}
                    data = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": pre, "post_processor": None, "decoder": None, "truncation": None, "padding": None}
                    data["model"] = {"type": "BPE", "vocab": vocab, "merges": [["h", "e"]], **options}
                    folder = pathlib.Path(self.folder.name) / f"{name}_{pre is not None}"
                    folder.mkdir()
                    (folder / "tokenizer.json").write_text(json.dumps(data))
                    texts = ["he llo", "  he\n", "é中héhe中中é", "中"]
                    reference = Tokenizer.from_str(json.dumps(data))
                    expected = [reference.encode(text).ids for text in texts]
                    self.assertEqual(titanium(folder, texts), expected)
                    self.assertEqual(titanium(folder, expected, "--decode"), [reference.decode(ids) for ids in expected])

    def test_other_normalizers_pre_tokenizers_and_decoders(self):
        """What families without byte-level BPE use: Llama 2's two ways to mark spaces, and the parts of smaller ones."""
        llama2 = dict(normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), decoder=decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]))
        variants = {
            "llama2": llama2,
            "metaspace_first": dict(pre=pre_tokenizers.Metaspace("▁", "first", False), decoder=decoders.Metaspace("▁", "first", False)),
            "metaspace_split": dict(pre=pre_tokenizers.Metaspace("▁", "always", True), decoder=decoders.Metaspace("▁", "always", True)),
            "nfkc_strip": dict(normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Strip()]), pre=pre_tokenizers.Whitespace()),
            "nfkd": dict(normalizer=normalizers.NFKD(), pre=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_previous")])),
            "nfd_replace": dict(normalizer=normalizers.Sequence([normalizers.NFD(), normalizers.Replace(Regex(r"\p{M}+"), "")]), pre=pre_tokenizers.Punctuation()),
        }
        texts = [text[:3000] for text in self.texts[::5]] + list(text_samples.script_samples())[::2]
        texts += list(text_samples.random_strings(3000, 11, ["<s>", "</s>", "▁", " <s> "])) + ["ab cd " * 2000]
        bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
        for name, parts in variants.items():
            with self.subTest(name):
                tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
                for part, value in (("normalizer", parts.get("normalizer")), ("pre_tokenizer", parts.get("pre")), ("decoder", parts.get("decoder"))):
                    if value is not None:
                        setattr(tokenizer, part, value)
                trainer = trainers.BpeTrainer(vocab_size=1500, special_tokens=["<unk>", "<s>", "</s>", *bytes_], limit_alphabet=300, show_progress=False, max_token_length=16)
                tokenizer.train_from_iterator([line for text in self.training_texts[:40] for line in text.splitlines()], trainer)
                data = json.loads(tokenizer.to_str())
                data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] not in bytes_]
                folder = pathlib.Path(self.folder.name) / f"part_{name}"
                folder.mkdir()
                (folder / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
                self.tokenizers[name] = folder, Tokenizer.from_str(json.dumps(data))
                self.compare(name, texts, decode=SKIP_SPECIAL)
                del self.tokenizers[name]

    def test_special_tokens_as_text_are_those_of_hugging_face(self):
        folder, tokenizer = self.tokenizers["llama3"]
        texts = ["a<|begin_of_text|>b", "<|end_of_text|>", " <|end_of_text|><|end_of_text|>"]
        tokenizer.encode_special_tokens = True
        expected = [tokenizer.encode(text).ids for text in texts]
        tokenizer.encode_special_tokens = False
        self.assertEqual(titanium(folder, texts, "--special", "text", "--no-eos"), expected)

    def test_merges_that_begin_with_a_hash_are_merges(self):
        folder = pathlib.Path(self.folder.name) / "hash"
        folder.mkdir()
        vocab = {character: number for number, character in enumerate(["#", "##", "###", "####"])}
        (folder / "vocab.json").write_text(json.dumps(vocab))
        (folder / "merges.txt").write_text("#version: 0.2\n# #\n## ##\n## #\n")
        self.assertEqual(titanium(folder, ["#", "##", "###", "####"]), [[0], [1], [2], [3]])


if __name__ == "__main__":
    unittest.main()
