"""Speed of encoding on one core, Titanium against Hugging Face tokenizers, in one run on the same text; ids must agree.

    PYTHONPATH=tests/support python bench/tokenizer_speed.py build/bench_tokenizer_speed [MB of text] [vocabulary]

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

import text_samples
import tokenizer_families


def main(program, megabytes="10", vocabulary="8000"):
    texts = text_samples.real_text(int(float(megabytes) * 1e6))
    documents = [text[i : i + 10_000].replace("\0", "") for text in texts for i in range(0, len(text), 10_000)]
    size = sum(len(document.encode()) for document in documents) / 1e6
    print(f"{size:.1f} MB in {len(documents)} documents, one core")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "text").write_text("".join(document + "\0" for document in documents), encoding="utf-8", newline="")
        for name in ("llama3", "qwen", "deepseek_v3", "gpt_oss", "gpt2"):
            tokenizer = tokenizer_families.train(name, [text[:20_000] for text in texts], int(vocabulary))
            tokenizer.post_processor = tokenizer_families.processors.ByteLevel(trim_offsets=False)
            tokenizer.save(str(folder / "tokenizer.json"))
            start = time.perf_counter()
            theirs = [tokenizer.encode(document).ids for document in documents]
            their_seconds = time.perf_counter() - start
            run = subprocess.run([program, folder, folder / "text", folder / "ids"], capture_output=True, text=True, check=True)
            cold, warm = map(float, run.stdout.split())
            ours = array.array("i", (folder / "ids").read_bytes())
            assert ours.tolist() == [id for ids in theirs for id in ids], f"{name}: the ids differ"
            print(f"{name:12} Hugging Face {size / their_seconds:6.2f} MB/s   Titanium {size / cold:6.2f} MB/s (warm {size / warm:6.2f})   ratio {their_seconds / cold:.1f}   ids equal")


if __name__ == "__main__":
    main(*sys.argv[1:])
