"""Speed of encoding on one core, Titanium against tiktoken and Hugging Face tokenizers, in one run on the same text; ids must agree.

    PYTHONPATH=tests/support python bench/tokenizer_speed.py build/bench_tokenizer_speed [MB of text] [vocabulary]

All figures are CPU time. First come published vocabularies with their makers' libraries and how long Titanium takes to load them
(from its cache, and without), then tokenizers with the options of each family that are trained here.

Documents of at most 10,000 characters are encoded one by one by both. The text is documentation, source code and translated messages of this machine.
"""

import array
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1")

import published_vocabularies
import text_samples
import tokenizer_families


def measure(name, maker, encode, program, path, documents, folder, size):
    start = time.process_time()
    theirs = encode(documents)
    their_seconds = time.process_time() - start
    figures = []
    for _ in range(2):  # the first run fills the cache of tokenizers
        run = subprocess.run([program, path, folder / "text", folder / "ids"], capture_output=True, text=True, check=True, env={**os.environ, "XDG_CACHE_HOME": str(folder)})
        figures.append([float(line) for line in run.stdout.split()])
    ours = array.array("i", (folder / "ids").read_bytes())
    assert ours.tolist() == [id for ids in theirs for id in ids], f"{name}: the ids differ"
    (first, *_), (load, cold, warm) = figures
    print(
        f"| {name} | {maker} {size / their_seconds:.1f} | {size / cold:.1f} (warm {size / warm:.1f}) | {their_seconds / cold:.1f} | {first:.2f} | {load:.3f} |",
        flush=True,
    )


def main(program, megabytes="10", vocabulary="8000"):
    texts = text_samples.real_text(int(float(megabytes) * 1e6))
    documents = [text[i : i + 10_000].replace("\0", "") for text in texts for i in range(0, len(text), 10_000)]
    size = sum(len(document.encode()) for document in documents) / 1e6
    print(f"{size:.1f} MB in {len(documents)} documents, one core, MB/s of CPU time; loading in CPU seconds\n")
    print("| vocabulary | maker's library | Titanium | ratio | first load | load |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "text").write_text("".join(document + "\0" for document in documents), encoding="utf-8", newline="")
        for name, maker in (("llama3", "tiktoken"), ("llama4", "tiktoken"), ("qwen", "tiktoken"), ("tekken", "tiktoken"), ("deepseek_v3", "tokenizers"), ("mistral_v3", "sentencepiece"), ("jurassic", "sentencepiece")):
            counterpart = published_vocabularies.PUBLISHED[name]()
            measure(name, maker, counterpart.encode, program, counterpart.path, documents, folder, size)
        for name in ("llama3", "qwen", "deepseek_v3", "gpt_oss", "gpt2"):
            tokenizer = tokenizer_families.train(name, [text[:20_000] for text in texts], int(vocabulary))
            tokenizer.post_processor = tokenizer_families.processors.ByteLevel(trim_offsets=False)
            tokenizer.save(str(folder / "tokenizer.json"))
            encode = lambda documents: [tokenizer.encode(document).ids for document in documents]
            measure(f"{name}, {vocabulary} trained", "tokenizers", encode, program, folder / "tokenizer.json", documents, folder, size)


if __name__ == "__main__":
    main(*sys.argv[1:])
