"""Every format at an address gives the samples that it gives on the disk, through a server that fails, and reads what it needs."""

import gzip
import io
import json
import os
import pathlib
import random
import struct
import subprocess
import tarfile
import unittest

import numpy
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import s3_case

TITANIUM = os.environ["TITANIUM"]
DRIVER = os.path.join(os.environ["TITANIUM_BUILD"], "data_formats_driver")
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
    "lines": {"a.jsonl": "".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS).encode(), ".cache/b.jsonl": b"no"},
}


class ObjectFormats(s3_case.S3Case):
    @classmethod
    def put_objects(cls):
        for format, files in FORMATS.items():
            for name, content in files.items():
                path = pathlib.Path(cls.folder.name) / "corpus" / format / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                cls.server.put("corpus", f"{format}/{name}", content)
        cls.local = pathlib.Path(cls.folder.name) / "corpus"

    def samples(self, path):
        run = subprocess.run([DRIVER, str(path), "text"], capture_output=True, text=True, env=self.environment(), timeout=100)
        self.assertEqual(run.returncode, 0, f"{path}: {run.stderr}")
        return run.stdout

    def bytes_asked_for(self, ending):
        spans = [wanted.removeprefix("bytes=").split("-") for method, path, wanted in self.proxy.requests if wanted and path.endswith(ending)]
        return sum(int(end) - int(begin) + 1 for begin, end in spans)

    def test_every_format_gives_the_samples_of_the_disk_through_faults(self):
        for format in FORMATS:
            with self.subTest(format):
                self.proxy.faults = [None, 503, "reset", None, "short", None, "less", None, "wrong range"]
                expected = self.samples(self.local / format)
                self.assertGreater(len(expected), 10_000)
                self.assertEqual(self.samples(f"s3://corpus/{format}"), expected)
                self.assertEqual(self.proxy.faults, [])

    def test_files_are_named_by_themselves_too(self):
        for name in ("megatron/a.idx", "datatrove/a.ds"):
            self.assertEqual(self.samples(f"s3://corpus/{name}"), self.samples(self.local / name), name)

    def inspect(self, path, code=0):
        run = subprocess.run([TITANIUM, "data", "inspect", path, "--json", "--records", "2000"], capture_output=True, text=True, env=self.environment())
        self.assertEqual(run.returncode, code, run.stderr)
        return json.loads(run.stdout) if code == 0 else run.stderr

    def test_of_parquet_the_column_of_texts_is_read_and_no_other(self):
        found = self.inspect("s3://corpus/parquet/a.parquet")
        self.assertEqual([sample["text"] for sample in found["samples"]], DOCUMENTS)
        column = pyarrow.parquet.ParquetFile(self.local / "parquet/a.parquet").metadata
        wanted = sum(column.row_group(i).column(1).total_compressed_size for i in range(column.num_row_groups))
        self.assertLess(self.bytes_asked_for("a.parquet"), wanted + 400_000)  # the beginning and the footer, in windows
        self.assertLess(wanted + 400_000, len(FORMATS["parquet"]["a.parquet"]) / 2)

    def test_missing_companions_and_damage_have_their_sentences(self):
        self.server.put("corpus", "alone/a.ds", ALL_TOKENS.tobytes())
        self.assertIn("Data file s3://corpus/alone/a.ds needs a.ds.index beside it, which cannot be read: s3://corpus/alone/a.ds.index does not exist. Check the path.", self.inspect("s3://corpus/alone", code=1))
        self.server.put("corpus", "cut/a.parquet", FORMATS["parquet"]["a.parquet"][:-1000])
        self.assertIn("Data file s3://corpus/cut/a.parquet cannot be read as Parquet: ", self.inspect("s3://corpus/cut", code=1))
        self.server.put("corpus", "cut2/a.idx", megatron_index()[:-8])
        self.server.put("corpus", "cut2/a.bin", ALL_TOKENS.tobytes())
        self.assertIn("which do not fit 700 sequences and 701 bounds of documents", self.inspect("s3://corpus/cut2/a.idx", code=1))

    def test_an_unknown_name_is_told_by_its_content(self):
        self.server.put("corpus", "odd/table", FORMATS["parquet"]["a.parquet"])
        self.assertEqual(self.inspect("s3://corpus/odd/table")["formats"], {"Parquet": 1})


if __name__ == "__main__":
    unittest.main()
