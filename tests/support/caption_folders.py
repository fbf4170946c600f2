"""Vocabularies of captions in the files that CLIP and T5 are published with, trained on any text."""

import json

import sentencepiece
import tokenizers
import transformers


def train_clip(folder, corpus):
    """vocab.json and merges.txt as CLIP's: byte-level pairs, ends of words spelled."""
    folder.mkdir()
    model = tokenizers.Tokenizer(tokenizers.models.BPE(end_of_word_suffix="</w>"))
    example = transformers.CLIPTokenizer().backend_tokenizer
    model.normalizer, model.pre_tokenizer = example.normalizer, example.pre_tokenizer
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=1500, initial_alphabet=alphabet, end_of_word_suffix="</w>")
    model.train_from_iterator(corpus, trainer)
    write_clip(folder, [tuple(merge) for merge in json.loads(model.to_str())["model"]["merges"]])


def write_clip(folder, merges):
    """The ids of CLIP: bytes, bytes that end a word, merges in their order, and the two special tokens."""
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokens = letters + [letter + "</w>" for letter in letters] + ["".join(merge) for merge in merges]
    tokens = list(dict.fromkeys(tokens)) + ["<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({token: id for id, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(merge) for merge in merges) + "\n")


def train_t5(folder, corpus):
    folder.mkdir()
    (folder / "text.txt").write_text("\n".join(line for text in corpus for line in text.splitlines()))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text.txt"), model_prefix=str(folder / "spiece"), vocab_size=1400, model_type="unigram", pad_id=0, eos_id=1,
        unk_id=2, bos_id=-1, normalization_rule_name="nmt_nfkc", character_coverage=0.98, max_sentence_length=20_000, num_threads=1, minloglevel=2)
    (folder / "text.txt").unlink()
