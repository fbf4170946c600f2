"""Every format at an address gives the samples that it gives on the disk, through a server that fails, and reads what it needs."""

import gzip
import io
import json
import os
import pathlib
import random
import subprocess
import unittest

import numpy
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import s3_case
from data_format_files import ALL_TOKENS, DOCUMENTS, FORMATS

TITANIUM = os.environ["TITANIUM"]
DRIVER = os.path.join(os.environ["TITANIUM_BUILD"], "data_formats_driver")


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

    # Without TLS only what a format has checksums for can be found, for gzip at its end.
    def test_changed_bytes_of_formats_with_checksums_are_found(self):
        table = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table({"text": DOCUMENTS}), table, write_page_checksum=True)
        self.server.put("corpus", "checked/parquet/a.parquet", table.getvalue())
        for path, good in (("s3://corpus/checked/parquet", 4), ("s3://corpus/gzip", 1), ("s3://corpus/tar_gz", 1)):
            self.proxy.faults = []
            self.share(path, 0, 1, 0)
            self.proxy.faults = [None] * good + ["wrong bytes"] * 20
            run = subprocess.run([DRIVER, "share", path, "text", "0", "1", "0"], capture_output=True, text=True, env=self.environment(), timeout=100)
            self.assertEqual((run.returncode, path in run.stderr, run.stderr.count("\n")), (1, True, 1), run.stderr)

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

    def share(self, path, rank, ranks, block_bytes, how="share"):
        self.proxy.requests.clear()
        run = subprocess.run([DRIVER, how, path, "text", str(rank), str(ranks), str(block_bytes)], capture_output=True, text=True, env=self.environment(), timeout=100)
        self.assertEqual(run.returncode, 0, run.stderr)
        samples, lanes, _ = map(int, run.stdout.split())
        return samples, lanes, self.bytes_asked_for("")

    def test_by_blocks_a_reader_asks_for_its_share_and_not_for_the_rest(self):
        rng = random.Random(11)
        text = "".join(json.dumps({"text": rng.randbytes(1500).hex()}) + "\n" for _ in range(4000))  # 12 MB
        tokens = numpy.random.default_rng(3).integers(1, 250, 6_000_000, dtype=numpy.uint16)
        table = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table({"text": [json.loads(line)["text"] for line in text.splitlines()]}), table, row_group_size=50, compression="none")
        sets = {
            "lines": {"a.jsonl": text[:len(text) // 2].encode(), "b.jsonl": text[len(text) // 2:].encode()},
            "zipped": {f"{i:02}.jsonl.gz": gzip.compress("\n".join(text.splitlines()[i * 100:i * 100 + 100]).encode()) for i in range(40)},
            "tokens": {"a.ds": tokens.tobytes(), "a.ds.index": numpy.arange(100, 6_000_001, 100).astype(numpy.uint64).tobytes()},
            "columns": {"a.parquet": table.getvalue()},
        }
        for name, files in sets.items():
            for file, content in files.items():
                self.server.put("corpus", f"shares/{name}/{file}", content)
            size = sum(map(len, files.values()))
            samples, lanes, asked = self.share(f"s3://corpus/shares/{name}", 1, 4, 0)
            if name != "tokens":
                self.assertGreater(asked, 0.99 * size, name)
            for ranks in (1, 4):
                found, lanes, asked = self.share(f"s3://corpus/shares/{name}", 1 % ranks, ranks, 1 << 18)
                self.assertGreaterEqual(lanes, 4, name)
                self.assertLess(abs(found * ranks / (samples * 4) - 1), 0.15, name)
                # Beside the share: the first records, which tell whether there are enough, footers, and lines that end behind their block.
                self.assertLess(asked, size / ranks + 0.2 * size, (name, ranks, size))

    # Where readers of many sources give their memory back between reads, they find their place again without reading all of it once more.
    def test_readers_that_rest_ask_for_little_again(self):
        rng = random.Random(13)
        table = pyarrow.table({"text": [rng.randbytes(600).hex() for _ in range(4000)]})  # 4.8 MB
        stream, file, group, small_pages = io.BytesIO(), io.BytesIO(), io.BytesIO(), io.BytesIO()
        for out, new in ((stream, pyarrow.ipc.new_stream), (file, pyarrow.ipc.new_file)):
            with new(out, table.schema) as writer:
                writer.write_table(table, max_chunksize=200)
        pyarrow.parquet.write_table(table, group, compression="none", use_dictionary=False)
        pyarrow.parquet.write_table(table, small_pages, compression="none", use_dictionary=False, data_page_size=50_000, write_batch_size=40)
        large_pages = io.BytesIO()
        pyarrow.parquet.write_table(table, large_pages, compression="none", use_dictionary=False, data_page_size=3_000_000)
        for name, content in (("stream/a.arrow", stream), ("file/a.arrow", file), ("group/a.parquet", group), ("small/a.parquet", small_pages), ("large/a.parquet", large_pages)):
            self.server.put("corpus", f"resting/{name}", content.getvalue())
            samples, _, asked = self.share(f"s3://corpus/resting/{name}", 0, 1, 0, "resting")
            self.assertGreater(samples, 40_000)
            most = 8 if name.startswith("large") else 3  # a page for each block of a MiB and what is read ahead
            self.assertLess(asked, most * len(content.getvalue()), name)
        self.assertGreater(asked, 1.5 * len(large_pages.getvalue()))  # they do rest

    def test_missing_companions_and_damage_have_their_sentences(self):
        self.server.put("corpus", "alone/a.ds", ALL_TOKENS.tobytes())
        self.assertIn("Data file s3://corpus/alone/a.ds needs a.ds.index beside it, which cannot be read: s3://corpus/alone/a.ds.index does not exist. Check the path.", self.inspect("s3://corpus/alone", code=1))
        self.server.put("corpus", "cut/a.parquet", FORMATS["parquet"]["a.parquet"][:-1000])
        self.assertIn("Data file s3://corpus/cut/a.parquet cannot be read as Parquet: ", self.inspect("s3://corpus/cut", code=1))
        self.server.put("corpus", "cut2/a.idx", FORMATS["megatron"]["a.idx"][:-8])
        self.server.put("corpus", "cut2/a.bin", ALL_TOKENS.tobytes())
        self.assertIn("which do not fit 700 sequences and 701 bounds of documents", self.inspect("s3://corpus/cut2/a.idx", code=1))

    def test_an_unknown_name_is_told_by_its_content(self):
        self.server.put("corpus", "odd/table", FORMATS["parquet"]["a.parquet"])
        self.assertEqual(self.inspect("s3://corpus/odd/table")["formats"], {"Parquet": 1})


if __name__ == "__main__":
    unittest.main()
