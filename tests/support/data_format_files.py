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


def parquet():
    noise = [RNG.randbytes(3000) for _ in DOCUMENTS]  # a column that nobody wants, 4.5 MB that do not compress
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"noise": noise, "text": DOCUMENTS, "more": noise}), out, row_group_size=300)
    return out.getvalue()


def arrow(new):
    out = io.BytesIO()
    table = pyarrow.table({"text": DOCUMENTS, "n": range(len(DOCUMENTS))})
    with new(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=400)
    return out.getvalue()


def megatron_index():
    lengths = numpy.array([len(tokens) for tokens in TOKENS], dtype=numpy.int32)
    places = numpy.concatenate([[0], numpy.cumsum(lengths[:-1].astype(numpy.int64)) * 2])
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(TOKENS), len(TOKENS) + 1)
    return header + lengths.tobytes() + places.astype(numpy.int64).tobytes() + numpy.arange(len(TOKENS) + 1, dtype=numpy.int64).tobytes()


def mds():
    samples = [struct.pack("<I", len(text.encode())) + text.encode() for text in DOCUMENTS]
    columns = json.dumps({"column_names": ["text"], "column_encodings": ["str"], "column_sizes": [None]}).encode()
    first = 4 + 4 * (len(samples) + 1) + len(columns)
    ends = numpy.cumsum([first] + [len(sample) for sample in samples]).astype(numpy.uint32)
    return struct.pack("<I", len(samples)) + ends.tobytes() + columns + b"".join(samples)


def tar():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for i, text in enumerate(DOCUMENTS):
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
