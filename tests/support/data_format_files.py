"""The same documents, or the same tokens, in files of every format, as bytes."""

import gzip
import io
import json
import random
import struct
import tarfile

import numpy
import pyarrow
import pyarrow.ipc
import pyarrow.parquet

RNG = random.Random(11)
DOCUMENTS = [f"document {i} " + "wörd " * RNG.randrange(0, 200 if i % 9 else 2000) for i in range(1500)]
TOKENS = [numpy.array([RNG.randrange(1, 250) for _ in range(RNG.randrange(1, 900))], dtype=numpy.uint16) for _ in range(700)]
ALL_TOKENS = numpy.concatenate(TOKENS)


SHORT = [f"short {i} " + "ö" * RNG.randrange(0, 60) for i in range(1500)]  # few bytes, so that a test comes to the end of an epoch


def parquet():
    noise = [RNG.randbytes(3000) for _ in DOCUMENTS]  # a column that nobody wants, 4.5 MB that do not compress
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"noise": noise, "text": DOCUMENTS, "more": noise}), out, row_group_size=300)
    return out.getvalue()


def small_groups(texts):
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), out, row_group_size=12)
    return out.getvalue()


def arrow(new, texts=DOCUMENTS, rows=400):
    out = io.BytesIO()
    table = pyarrow.table({"text": texts, "n": range(len(texts))})
    with new(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return out.getvalue()


def megatron_index(documents=TOKENS):
    lengths = numpy.array([len(tokens) for tokens in documents], dtype=numpy.int32)
    places = numpy.concatenate([[0], numpy.cumsum(lengths[:-1].astype(numpy.int64)) * 2])
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(documents), len(documents) + 1)
    return header + lengths.tobytes() + places.astype(numpy.int64).tobytes() + numpy.arange(len(documents) + 1, dtype=numpy.int64).tobytes()


def mds(texts=DOCUMENTS):
    samples = [struct.pack("<I", len(text.encode())) + text.encode() for text in texts]
    columns = json.dumps({"column_names": ["text"], "column_encodings": ["str"], "column_sizes": [None]}).encode()
    first = 4 + 4 * (len(samples) + 1) + len(columns)
    ends = numpy.cumsum([first] + [len(sample) for sample in samples]).astype(numpy.uint32)
    return struct.pack("<I", len(samples)) + ends.tobytes() + columns + b"".join(samples)


def tar(texts=DOCUMENTS):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for i, text in enumerate(texts):
            member = tarfile.TarInfo(f"{i:06}.txt")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


def numpy_file():
    out = io.BytesIO()
    numpy.save(out, ALL_TOKENS)
    return out.getvalue()


LINES = "".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS).encode()
LLMC = numpy.zeros(256, dtype=numpy.int32)
LLMC[:3] = [20240520, 1, len(ALL_TOKENS)]
FORMATS = {
    "parquet": {"a.parquet": parquet()},
    "stream": {"a.arrow": arrow(pyarrow.ipc.new_stream), "state.json": b"{}"},
    "file": {"a.arrow": arrow(pyarrow.ipc.new_file)},
    "megatron": {"a.idx": megatron_index(), "a.bin": ALL_TOKENS.tobytes()},
    "datatrove": {"a.ds": ALL_TOKENS.tobytes(), "a.ds.index": numpy.cumsum([len(tokens) for tokens in TOKENS]).astype(numpy.uint64).tobytes()},
    "numpy": {"a.npy": numpy_file()},
    "llmc": {"a.bin": LLMC.tobytes() + ALL_TOKENS.tobytes()},
    "mds": {"index.json": b"{}", "a.mds": mds(), "sub/b.mds.gz": gzip.compress(mds())},
    "tar": {"a.tar": tar()},
    "tar_gz": {"a.tar.gz": gzip.compress(tar())},
    "raw": {"a.npy": ALL_TOKENS.tobytes()},
    "texts": {f"{i:03}.txt": text.encode() for i, text in enumerate(DOCUMENTS[:40])} | {"40.txt.gz": gzip.compress(DOCUMENTS[40].encode())},
    "gzip": {"a.jsonl.gz": gzip.compress(LINES)},
    "zstd": {"a.jsonl.zst": pyarrow.compress(LINES, "zstd", asbytes=True)},
    "lines": {"a.jsonl": LINES, ".cache/b.jsonl": b"no"},
}


def in_parts(count, name, write, items=SHORT):
    return {name.format(i): write(items[i::count]) for i in range(count)}


SHORT_TOKENS = [numpy.frombuffer(text.encode(), dtype=numpy.uint8).astype(numpy.uint16) for text in SHORT]
# The same documents in files of every format that can be dealt by blocks: a few with many groups, or many.
SHORT_FILES = {
    "parquet": in_parts(4, "{}.parquet", small_groups),
    "file": in_parts(3, "{}.arrow", lambda texts: arrow(pyarrow.ipc.new_file, texts, 12)),
    "stream": in_parts(80, "{:02}.arrow", lambda texts: arrow(pyarrow.ipc.new_stream, texts, 7)),
    "megatron": in_parts(3, "{}.idx", megatron_index, SHORT_TOKENS) | in_parts(3, "{}.bin", lambda tokens: numpy.concatenate(tokens).tobytes(), SHORT_TOKENS),
    "mds": {"index.json": b"{}"} | in_parts(3, "{}.mds", mds),
    "mds_gz": in_parts(80, "{:02}.mds.gz", lambda texts: gzip.compress(mds(texts))),
    "tar": in_parts(80, "{:02}.tar", tar),
    "tar_gz": in_parts(80, "{:02}.tar.gz", lambda texts: gzip.compress(tar(texts))),
}
