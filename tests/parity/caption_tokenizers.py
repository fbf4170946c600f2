"""Captions become the ids that the tokenizers of CLIP and T5 (transformers) make of them, cut and filled up alike, on vocabularies
that are trained here; and those of the mode for tests."""

import json
import os
import pathlib
import random
import subprocess
import tempfile
import unicodedata
import unittest

import caption_folders
import sentencepiece
import text_samples
import tokenizers
import transformers

DRIVER = pathlib.Path(os.environ["TITANIUM_BUILD"], "caption_tokenizers_driver")
CAPTIONS = [
    "", " ", "a", "A photo of a cat.", "  Two   dogs\tplaying\nin the snow ", "It's the children's toys; they'll won't I'VE",
    "1234 apples & 56,7 oranges!!!", "<|startoftext|>a cat<|endoftext|>", "café CAFÉ naïve ﬁne ½ Ⅷ", "日本語の写真", "👍🏽 emoji",
    "word " * 200, "x" * 500, "e\u0301 combining", "…—“quotes”",
]


def captions():
    rng = random.Random(3)
    texts = CAPTIONS + list(text_samples.random_strings(400, 11))
    words = " ".join(text_samples.real_text(100_000)).split()
    texts += [" ".join(rng.choice(words) for _ in range(rng.randrange(1, 120))) for _ in range(100)]
    # Letters that came after Unicode 14 have no lower case here: docs/tokenizer.md.
    return [text for text in texts if all(unicodedata.category(letter) != "Cn" for letter in text)]


def titanium(kind, folder, length, texts):
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    result = subprocess.run([DRIVER, kind, folder, str(length)], input=lines, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return [[int(id) for id in line.split()] for line in result.stdout.splitlines()]


class CaptionTokenizers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder, cls.captions = pathlib.Path(folder.name), captions()
        corpus = [text[:2000] for text in text_samples.real_text(60_000)[:60]]
        caption_folders.train_clip(cls.folder / "clip", corpus)
        caption_folders.train_t5(cls.folder / "t5", corpus)

    def compare(self, kind, folder, length, theirs, texts=None):
        texts = texts or self.captions
        found = titanium(kind, folder, length, texts)
        for text, ours, wanted in zip(texts, found, theirs(texts, length), strict=True):
            self.assertEqual(ours, wanted, f"{kind} {length}: {text[:100]!r}")

    def by_transformers(self, tokenizer):
        return lambda texts, length: tokenizer(texts, truncation=True, max_length=length, padding="max_length")["input_ids"]

    def test_clip(self):
        folder = self.folder / "clip"
        theirs = transformers.CLIPTokenizer.from_pretrained(folder)
        for length in (77, 9):
            self.compare("clip", folder, length, self.by_transformers(theirs))
        saved = self.folder / "clip_json"
        theirs("a", truncation=True, max_length=5, padding="max_length")  # what it leaves in the file is not our length
        theirs.save_pretrained(saved)
        self.assertIsNotNone(json.loads((saved / "tokenizer.json").read_text())["truncation"])
        self.compare("clip", saved, 77, self.by_transformers(theirs))

    def test_t5(self):
        folder = self.folder / "t5"
        pieces = sentencepiece.SentencePieceProcessor(str(folder / "spiece.model"))
        for length in (256, 7):
            cut = lambda ids: (ids[: length - 1] + [1] + [0] * length)[:length]
            self.compare("t5", folder, length, lambda texts, _: [cut(pieces.encode(text)) for text in texts])
        saved = self.folder / "t5_json"
        theirs = transformers.T5Tokenizer.from_pretrained(folder)
        theirs.save_pretrained(saved)
        self.assertFalse((saved / "spiece.model").exists())
        # SentencePiece replaces the longest text that has a rule; tokenizers a whole letter with all its accents: docs/tokenizer.md.
        texts = [text for text in self.captions if not any(map(unicodedata.combining, text))] + ["</s> and <pad> <unk>", "<extra_id_3>"]
        self.assertGreater(len(texts), 150)
        self.compare("t5", saved, 256, self.by_transformers(theirs), texts)

    def test_mode_for_tests_cuts_and_fills_up_with_zeros(self):
        """As torchtitan's FluxTestTokenizer: BOS and EOS, then cut or filled up, so that a long caption loses its EOS."""
        theirs = tokenizers.Tokenizer.from_file("tests/assets/tokenizer/tokenizer.json")
        config = json.loads(pathlib.Path("tests/assets/tokenizer/tokenizer_config.json").read_text())
        texts = [text for text in self.captions if text.isascii() and "<" not in text]
        for text, ours in zip(texts, titanium("test", "tests/assets/tokenizer", 77, texts)):
            ids = [theirs.token_to_id(config["bos_token"]), *theirs.encode(text, add_special_tokens=False).ids, theirs.token_to_id(config["eos_token"])]
            self.assertEqual(ours, (ids + [0] * 77)[:77], text[:100])

    def test_folders_of_another_encoder_have_a_sentence(self):
        result = subprocess.run([DRIVER, "t5", self.folder / "clip", "77"], input="", capture_output=True, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertIn("clip has no token <pad>, which captions need. Name the folder of the right encoder.", result.stderr)
        result = subprocess.run([DRIVER, "clip", self.folder / "clip", "1"], input="", capture_output=True, text=True)
        self.assertIn("captions of 1 tokens are not possible. Use at least 2.", result.stderr)


if __name__ == "__main__":
    unittest.main()
