"""Documents per second of one core, without tokenising: Titanium against Python's json and gzip and pyarrow on the same files.

  bench/data_documents.py BUILD_FOLDER [MEGABYTES]

Processor time, so that other work on the machine matters little; each reader has a first pass that warms the page cache.
"""

import gzip
import io
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import pyarrow
import pyarrow.parquet

DRIVER = pathlib.Path(sys.argv[1]) / "bench_documents"
MEGABYTES = int(sys.argv[2]) if len(sys.argv) > 2 else 128


def make_documents():
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyzé", k=rng.randrange(2, 10))) for _ in range(20_000)]
    documents, size = [], 0
    while size < MEGABYTES * 1_000_000:
        text = " ".join(rng.choices(words, k=rng.randrange(40, 900))).replace(" a", "\n\"a\"")
        documents.append(text)
        size += len(text.encode())
    return documents


def in_hangul(text):
    """The same number of letters, each a syllable, as json.dumps writes them in six bytes."""
    return "".join(chr(0xAC00 + ord(letter) * 7919 % 11172) if letter.isalpha() else letter for letter in text)


def measured(read):
    read()
    begin = time.process_time()
    size = read()
    return time.process_time() - begin, size


def python_json(path):
    with open(path, "rb") as lines:
        return sum(len(json.loads(line)["text"]) for line in lines)


def python_gzip(path):
    with gzip.open(path, "rb") as lines:
        return sum(len(json.loads(line)["text"]) for line in lines)


def python_zstd(path):
    with pyarrow.input_stream(str(path), compression="zstd") as stream:
        return sum(len(json.loads(line)["text"]) for line in io.BufferedReader(stream, 1 << 20))


def python_parquet(path):
    size = 0
    file = pyarrow.parquet.ParquetFile(path)
    for batch in file.iter_batches(batch_size=1024, columns=["text"], use_threads=False):
        size += batch.column(0).nbytes
    return size


def python_parquet_strings(path):
    size = 0
    file = pyarrow.parquet.ParquetFile(path)
    for batch in file.iter_batches(batch_size=1024, columns=["text"], use_threads=False):
        size += sum(map(len, batch.column(0).to_pylist()))
    return size


def titanium(path):
    subprocess.run([DRIVER, path], check=True, capture_output=True)
    seconds, size, _ = subprocess.run([DRIVER, path], check=True, capture_output=True, text=True).stdout.split()
    return float(seconds), int(size)


def main():
    documents = make_documents()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        lines = folder / "data.jsonl"
        lines.write_text("".join(json.dumps({"url": "https://x", "text": text}, ensure_ascii=False) + "\n" for text in documents))
        print("| file | Titanium MB/s | peer MB/s | peer |\n|---|---|---|---|")
        rows = [(lines, python_json, "Python's json")]
        for name, texts in (("escaped.jsonl", (text.replace(" ", " \U0001f600 ", 3) for text in documents)), ("escaped_hangul.jsonl", map(in_hangul, documents))):
            path = folder / name
            path.write_text("".join(json.dumps({"url": "https://x", "text": text}) + "\n" for text in texts))
            rows.append((path, python_json, "Python's json"))
        for ending, compress, reader, peer in ((".gz", lambda text: gzip.compress(text, 6), python_gzip, "Python's gzip and json"), (".zst", lambda text: pyarrow.compress(text, "zstd", asbytes=True), python_zstd, "pyarrow's zstd, Python's json")):
            path = folder / f"data.jsonl{ending}"
            path.write_bytes(compress(lines.read_bytes()))
            rows.append((path, reader, peer))
        for compression in ("zstd", "snappy"):
            path = folder / f"{compression}.parquet"
            pyarrow.parquet.write_table(pyarrow.table({"text": documents}), path, compression=compression, row_group_size=10_000)
            rows.append((path, python_parquet, "pyarrow, columns decoded"))
            rows.append((path, python_parquet_strings, "pyarrow, to texts"))
        for path, reader, peer in rows:
            own, size = titanium(path)
            other, _ = measured(lambda: reader(path))
            print(f"| {path.name} | {size / own / 1e6:.0f} | {size / other / 1e6:.0f} | {peer} |")


main()
