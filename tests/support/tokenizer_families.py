"""Tokenizers with the regular expressions and options of each model family, trained here with Hugging Face tokenizers."""

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT4_LIKE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
DEEPSEEK_WORDS = "|".join(
    [
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+""",
        r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
        r" ?[\p{P}\p{S}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(use_regex=False, add_prefix_space=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)


def sequence(*parts):
    return pre_tokenizers.Sequence(list(parts))


def template(begin, end, tokenizer):
    """What Llama 3 and DeepSeek V3 have: BOS in front of every text."""
    specials = [(token, tokenizer.token_to_id(token)) for token in (begin, end) if token]
    return processors.TemplateProcessing(
        single=f"{begin} $A" + (f" {end}" if end else ""), pair=f"{begin} $A {begin} $B", special_tokens=specials
    )


FAMILIES = {
    "llama3": dict(
        pre=sequence(split(GPT4_LIKE % "{1,3}"), byte_level()), bos="<|begin_of_text|>", eos="<|end_of_text|>", ignore_merges=True, template=True
    ),
    "qwen": dict(pre=sequence(split(GPT4_LIKE % ""), byte_level()), nfc=True, bos=None, eos="<|endoftext|>"),
    "deepseek_v3": dict(
        pre=sequence(split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK_WORDS), byte_level()),
        bos="<｜begin▁of▁sentence｜>",
        eos="<｜end▁of▁sentence｜>",
        template=True,
    ),
    "gpt_oss": dict(pre=sequence(split(O200K), byte_level()), bos="<|startoftext|>", eos="<|return|>", ignore_merges=False),
    "gpt2": dict(pre=byte_level(use_regex=True), bos="<|begin|>", eos="<|endoftext|>", legacy_merges=True),
    # Not a family: the options that the families leave alone.
    "prefix_space_and_digits": dict(
        pre=sequence(pre_tokenizers.Digits(individual_digits=True), split(r"\s+", "merged_with_next"), byte_level(True, True)), bos="<s>", eos="</s>", nfc=True
    ),
    "inverted_split": dict(
        pre=sequence(split(GPT4_LIKE % "{1,3}", "removed", True), pre_tokenizers.Digits(individual_digits=False), byte_level()), bos="<s>", eos="</s>"
    ),
    "other_behaviors": dict(
        pre=sequence(split(r"[\p{P}]", "contiguous"), pre_tokenizers.Split("e", "merged_with_previous"), split(r"\d", "removed"), byte_level()), bos="<s>", eos="</s>"
    ),
}


def added_tokens(family):
    """Special tokens and ordinary added tokens with every option."""
    return [
        *(AddedToken(token, special=True, normalized=False) for token in (family["bos"], family["eos"]) if token),
        AddedToken("<|im_start|>", special=True, normalized=False),
        AddedToken("<|im|>", special=True, normalized=False),
        AddedToken("<|left|>", lstrip=True, normalized=False),
        AddedToken("<|right|>", rstrip=True, normalized=False, special=True),
        AddedToken("<|both|>", lstrip=True, rstrip=True, normalized=True),
        AddedToken("wörd", single_word=True, normalized=True),
        AddedToken("tool", single_word=True, normalized=False),
        AddedToken("Å", normalized=True),
        AddedToken("    ", normalized=False),
    ]


def train(name, texts, vocab_size):
    """The tokenizer of a family with merges learned from `texts`."""
    family = FAMILIES[name]
    tokenizer = Tokenizer(models.BPE(ignore_merges=family.get("ignore_merges", False)))
    if family.get("nfc"):
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = family["pre"]
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    for token in added_tokens(family):
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    tokenizer.post_processor = template(family["bos"], None, tokenizer) if family.get("template") else processors.ByteLevel(trim_offsets=False)
    return tokenizer
