"""Token ids equal those of the makers' own libraries (tiktoken, SentencePiece, Hugging Face tokenizers) on published vocabularies.

TITANIUM_RANDOM_STRINGS=100000 compares so many random strings with each vocabulary instead of the few of a test run.
"""

import json
import os
import pathlib
import tempfile
import unittest

import published_vocabularies
import sentencepiece
import text_samples
from tokenize_lines import titanium

RANDOM_STRINGS = int(os.environ.get("TITANIUM_RANDOM_STRINGS", 2_000))


class Published(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.cache = {"XDG_CACHE_HOME": cls.folder.name}
        cls.counterparts = published_vocabularies.all_counterparts(pathlib.Path(cls.folder.name))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def compare(self, name, counterpart, texts, decode=0):
        texts = [text for text in texts if counterpart.usable(text)]
        theirs = counterpart.encode(texts)
        ours = titanium(counterpart.path, texts, "--no-bos", "--no-eos", *counterpart.flags, environment=self.cache)
        self.assertEqual(len(ours), len(theirs))
        for text, our, their in zip(texts, ours, theirs):
            if our != their:
                self.fail(f"{name}: {text[:200]!r}\n  ours   {our[:60]}\n  theirs {their[:60]}")
        if decode:
            expected = counterpart.decode(theirs[:decode])
            actual = titanium(counterpart.path, theirs[:decode], "--decode", environment=self.cache)
            for text, our, their in zip(texts, actual, expected):
                self.assertEqual(our, their, f"{name}: decoding {text[:200]!r}")
        return len(texts)

    def test_texts_of_all_kinds(self):
        texts = [text[:20_000] for text in text_samples.real_text(500_000)]
        kinds = texts[::5] + list(text_samples.script_samples())[::3]
        for name, counterpart in self.counterparts.items():
            with self.subTest(name):
                self.compare(name, counterpart, kinds)

    def test_random_strings(self):
        total = 0
        for number, (name, counterpart) in enumerate(self.counterparts.items()):
            with self.subTest(name):
                strings = text_samples.random_strings(RANDOM_STRINGS, number, counterpart.specials)
                total += self.compare(name, counterpart, list(strings), decode=500)
        print(f"{total} random strings, no difference")

    def test_long_lines(self):
        lines = [piece * (100_000 // len(piece)) for piece in ("a", " ", "ab ", "中", "1")]
        lines.append(" ".join(text_samples.TROUBLE * 800)[:1_000_000])
        for name in ("llama3", "mistral_v1", "jurassic"):
            with self.subTest(name):
                self.compare(name, self.counterparts[name], lines)

    def test_special_tokens_in_texts_become_tokens_text_or_an_error(self):
        path = self.counterparts["llama3"].path
        text = "a<|eot_id|>b"
        self.assertEqual(titanium(path, [text], environment=self.cache), [[128000, 64, 128009, 65, 128001]])
        self.assertEqual(titanium(path, [text], "--special", "text", "--no-bos", "--no-eos", environment=self.cache), self.counterparts["llama3"].encode([text]))
        with self.assertRaisesRegex(AssertionError, "the text holds the special token <.eot_id.> at byte 1. Take it out, or say what"):
            titanium(path, [text], "--special", "error", environment=self.cache)

    def test_begin_and_end_tokens(self):
        for name, begin, end in (("llama3", 128000, 128001), ("llama4", 200000, 200001), ("tekken", 1, 2), ("mistral_v1", 1, 2), ("gpt_oss", 199998, 200002)):
            ids = titanium(self.counterparts[name].path, [""], environment=self.cache)[0]
            self.assertEqual(ids, [begin, end], name)

    def test_sentencepiece_with_other_options(self):
        texts = [text[:300] for text in text_samples.real_text(300_000)]
        lines = [line for text in texts for line in text.splitlines() if line.strip()][:3000]
        strings = list(text_samples.random_strings(800, 77, ["<sep>", "a b", "▁"]))
        variants = {
            "unigram_nfkc_casefold": dict(model_type="unigram", normalization_rule_name="nmt_nfkc_cf"),
            "unigram_bytes": dict(model_type="unigram", byte_fallback=True, normalization_rule_name="identity"),
            "unigram_symbols": dict(model_type="unigram", user_defined_symbols=["<sep>", "a b"]),
            "bpe_symbols": dict(model_type="bpe", user_defined_symbols=["<sep>", "▁▁"], remove_extra_whitespaces=False),
            "bpe_suffix": dict(model_type="bpe", treat_whitespace_as_suffix=True, normalization_rule_name="nfkc"),
            "bpe_across_words": dict(model_type="bpe", split_by_whitespace=False, add_dummy_prefix=False),
        }
        for name, options in variants.items():
            with self.subTest(name):
                prefix = pathlib.Path(self.folder.name) / name
                sentencepiece.SentencePieceTrainer.train(
                    sentence_iterator=iter(lines), model_prefix=str(prefix), vocab_size=900, hard_vocab_limit=False, minloglevel=2, **options
                )
                counterpart = published_vocabularies.by_sentencepiece(prefix.with_suffix(".model"))
                self.compare(name, counterpart, texts[::3] + strings)

    def test_a_damaged_cache_is_made_again(self):
        counterpart = self.counterparts["llama3"]
        with tempfile.TemporaryDirectory() as cache:
            run = lambda: titanium(counterpart.path, ["Grüße, world"], "--no-bos", "--no-eos", environment={"XDG_CACHE_HOME": cache})
            expected = counterpart.encode(["Grüße, world"])
            self.assertEqual(run(), expected)
            (file,) = pathlib.Path(cache).glob("titanium/tokenizers/*.bin")
            whole = file.read_bytes()
            for damage in (whole[:-5], whole[:1000], b"", whole[:5_000_000] + b"x" + whole[5_000_001:], whole):
                file.write_bytes(damage)
                self.assertEqual(run(), expected)
                self.assertEqual(file.read_bytes(), whole)


if __name__ == "__main__":
    unittest.main()
