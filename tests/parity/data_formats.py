"""Files that pyarrow and Hugging Face's datasets write give the same documents and samples as JSON lines."""

import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import tempfile
import unittest

import datasets
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
from data_format_files import FORMATS, SHORT_FILES

PROGRAM = os.environ["TITANIUM"]
DRIVER = pathlib.Path(os.environ["TITANIUM_BUILD"]) / "data_formats_driver"


def make_documents(count):
    rng = random.Random(7)
    return [f"document {i} " + "wörd " * rng.randrange(0, 90 if i % 9 else 900) for i in range(count)]


DOCUMENTS = make_documents(2500)


def inspect(path, *arguments):
    result = subprocess.run([PROGRAM, "data", "inspect", str(path), "--json", *arguments], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def refusal(path, *arguments):
    result = subprocess.run([PROGRAM, "data", "inspect", str(path), *arguments], capture_output=True, text=True)
    assert result.returncode == 1, (result.returncode, result.stdout)
    return result.stderr


def texts(path, *arguments):
    return [sample.get("text") for sample in inspect(path, "--records", "100000", *arguments)["samples"]]


def samples(path, field="text"):
    result = subprocess.run([DRIVER, str(path), field], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def by_blocks(path, layouts):
    result = subprocess.run([DRIVER, "blocks", str(path), "text", layouts], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


# Samples of an epoch of one reader, the number of lanes, and the bytes that it has read.
def read_share(path, rank, ranks, how="share", block_bytes=16384):
    result = subprocess.run([DRIVER, how, str(path), "text", str(rank), str(ranks), str(block_bytes)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return [int(word) for word in result.stdout.split()]


# Where the blocks of a file end for a reader that stays open, and for one that rests after each.
def pieces(path):
    result = subprocess.run([DRIVER, "pieces", str(path), "text"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return [line.split() for line in result.stdout.splitlines()]


def mixed(paths, striping, shuffle, layouts, steps=60):
    command = [DRIVER, "mix", striping, str(int(shuffle)), layouts, str(steps), *map(str, paths)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


class DataFormats(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="titanium_data_formats_"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        lines = cls.folder / "lines.jsonl"
        lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS))
        cls.expected = samples(lines)

    def test_parquet_of_all_types_of_text(self):
        types = [pyarrow.string(), pyarrow.large_string(), pyarrow.string_view(),
                 pyarrow.dictionary(pyarrow.int32(), pyarrow.string())]
        for number, type in enumerate(types):
            for compression in ("zstd", "snappy"):
                path = self.folder / f"{number}.{compression}.parquet"
                column = pyarrow.array(DOCUMENTS).cast(type) if number < 3 else pyarrow.array(DOCUMENTS).dictionary_encode()
                table = pyarrow.table({"id": range(len(DOCUMENTS)), "text": column})
                pyarrow.parquet.write_table(table, path, row_group_size=300, compression=compression)
                self.assertEqual(samples(path), self.expected, type)
            self.assertEqual(texts(path), DOCUMENTS, type)

    def test_places_inside_large_groups_are_found_again(self):
        table = pyarrow.table({"text": [[i % 200 + 1, i // 200 + 1, 3, 4] for i in range(20_000)]})
        found = set()
        for group in (500, 20_000):  # the second is decoded in pieces, which a resume passes over
            pyarrow.parquet.write_table(table, self.folder / "groups.parquet", row_group_size=group)
            with pyarrow.OSFile(str(self.folder / "groups.arrow"), "wb") as sink, pyarrow.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=group)
            found |= {samples(self.folder / f"groups.{ending}") for ending in ("parquet", "arrow")}
        self.assertEqual(len(found), 1)

    # Dictionaries that are given up in the middle, pages of a few rows, and readers that rest inside them (in mixes with a stop).
    def test_parquet_of_all_encodings_and_pages(self):
        nullable = pyarrow.table({"text": DOCUMENTS})
        required = nullable.cast(pyarrow.schema([pyarrow.field("text", pyarrow.string(), nullable=False)]))
        nested = pyarrow.table({"meta": [{"text": text} for text in DOCUMENTS]})
        encodings = [dict(use_dictionary=True, dictionary_pagesize_limit=100_000), dict(use_dictionary=True), *(dict(use_dictionary=False, column_encoding=name) for name in ("PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"))]
        lines = self.folder / "lines.jsonl"
        path = self.folder / "pages.parquet"
        expected = mixed([lines, lines], "records", False, "1")
        for encoding in encodings:
            for version in ("1.0", "2.0"):
                for table in (nullable, required):
                    pyarrow.parquet.write_table(table, path, data_page_version=version, data_page_size=4000, write_batch_size=16, **encoding)
                    self.assertEqual(samples(path), self.expected, (encoding, version))
                    for layouts in ("1", "124"):
                        self.assertEqual(mixed([path, lines], "records", False, layouts), expected, (encoding, version, layouts))
        pyarrow.parquet.write_table(nested, path, data_page_size=4000, write_batch_size=16)
        self.assertEqual(samples(path, "meta.text"), self.expected)
        short = [f"{i} {i * i}" for i in range(20_000)]  # a reader rests inside a page of all of them
        (self.folder / "short.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in short))
        expected = mixed([self.folder / "short.jsonl", lines], "records", False, "1", 240)
        for encoding in encodings:
            pyarrow.parquet.write_table(pyarrow.table({"text": short}), path, **encoding)
            self.assertEqual(mixed([path, lines], "records", False, "124", 240), expected, encoding)

    # Each of 120 blocks would read the group again from its beginning; a page takes a buffer of 256 KiB.
    def test_readers_that_rest_find_their_page_again(self):
        rng = random.Random(14)
        table = pyarrow.table({"text": [rng.randbytes(rng.randrange(10, 90)).hex() for _ in range(120_000)]})
        path = self.folder / "resting.parquet"
        pyarrow.parquet.write_table(table, path, compression="none", use_dictionary=False, row_group_size=120_000, data_page_size=100_000, write_batch_size=256)
        self.assertEqual(read_share(path, 0, 1, "resting", 0)[0], read_share(path, 0, 1, "share", 0)[0])
        self.assertLess(read_share(path, 0, 1, "resting", 0)[2], 4 * path.stat().st_size)

    # Chunks and pages that are smaller than what a header is looked for in (16 KiB), and pages at the end of a buffer of 256 KiB.
    def test_readers_that_rest_find_small_pages_again(self):
        path = self.folder / "small_pages.parquet"
        for count, encoding in ((5000, dict(use_dictionary=True)), (300, {}), (30_000, {})):
            table = pyarrow.table({"text": [f"row {i if not encoding else i % 7}" for i in range(count)]})
            pyarrow.parquet.write_table(table, path, compression="none", data_page_size=1000, write_batch_size=16, **{"use_dictionary": False, **encoding})
            open_ends, resting_ends = pieces(path)
            self.assertEqual(open_ends, resting_ends, (count, encoding))
            self.assertGreater(len(open_ends), 2)

    # Of 1,500 bytes, a block has 699 rows, and a piece of 1,024 another one of 325.
    def test_blocks_are_the_same_whoever_rests(self):
        path, arrow_file = self.folder / "pieces.parquet", self.folder / "pieces.arrow"
        table = pyarrow.table({"text": ["a" * 1500] * 5000})
        with pyarrow.OSFile(str(arrow_file), "wb") as sink, pyarrow.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        self.assertEqual(*pieces(arrow_file))
        for use_dictionary in (False, True):
            pyarrow.parquet.write_table(table, path, use_dictionary=use_dictionary, data_page_size=1 << 26)
            self.assertEqual(*pieces(path), use_dictionary)
            self.assertEqual(pieces(path), pieces(arrow_file))
        pyarrow.parquet.write_table(pyarrow.table({"text": [[i] * 3000 for i in range(1500)]}), path)
        self.assertEqual(*pieces(path))

    # 60 open readers would hold a page of 8 MB each, or of 4 MB for lists of tokens, or a batch.
    def test_readers_of_many_sources_hold_little(self):
        words = pyarrow.table({"text": [f"{i} " + "word " * 1600 for i in range(2048)]})  # 16 MB
        tokens = pyarrow.table({"text": pyarrow.array([[i] * 2000 for i in range(2048)], pyarrow.list_(pyarrow.int32()))})
        sets = {"many.parquet": None, "tokens.parquet": None, "many.stream.arrow": pyarrow.ipc.new_stream, "many.file.arrow": pyarrow.ipc.new_file}
        for name, new in sets.items():
            path = self.folder / name
            table = tokens if name == "tokens.parquet" else words
            if new is None:
                pyarrow.parquet.write_table(table, path, compression="zstd", use_dictionary=False, data_page_size=4 << 20)
            else:
                with pyarrow.OSFile(str(path), "wb") as sink, new(sink, table.schema, options=pyarrow.ipc.IpcWriteOptions(compression="zstd")) as writer:
                    writer.write_table(table)
            command = [DRIVER, "mix", "records", "0", "1", "60", *[str(path)] * 60]
            with tempfile.TemporaryFile() as output:
                process = subprocess.Popen(command, stdout=output)
                _, status, used = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 0)
            self.assertLess(used.ru_maxrss, 350 << 10, name)

    def test_several_parquet_files_are_one_set(self):
        folder = self.folder / "parts"
        folder.mkdir()
        for number, begin in enumerate(range(0, 2500, 700)):
            table = pyarrow.table({"text": DOCUMENTS[begin:begin + 700]})
            pyarrow.parquet.write_table(table, folder / f"part-{number}.parquet", row_group_size=64)
        found = inspect(folder)
        self.assertEqual((found["records"], found["formats"]), (2500, {"Parquet": 4}))
        self.assertEqual(samples(folder), self.expected)

    def test_columns_by_blocks_are_the_same_on_every_number_of_readers(self):
        folder = self.folder / "blocks"
        folder.mkdir()
        table = pyarrow.table({"text": DOCUMENTS})
        pyarrow.parquet.write_table(table, folder / "a.parquet", row_group_size=20, compression="none", use_dictionary=False)
        with pyarrow.OSFile(str(folder / "b.arrow"), "wb") as sink, pyarrow.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=30)
        for path in (folder / "a.parquet", folder / "b.arrow", folder):
            expected, found = by_blocks(path, "1"), by_blocks(path, "124")
            self.assertEqual(expected, found, path)
            self.assertRegex(expected, r"\n(8|16) lanes\n$")
            self.assertNotEqual(expected[:10_000], self.expected[:10_000])
        for path in (folder / "a.parquet", folder / "b.arrow"):  # all of it is read: samples are 101 tokens, rests are dropped
            tokens = sum(len(text.encode()) + 1 for text in DOCUMENTS)
            shares = [read_share(path, rank, 4)[0] for rank in range(4)]
            self.assertLess(abs(sum(shares) - tokens / 101), 17)
            self.assertLess(max(shares), 1.4 * min(shares))

    # 117 pieces in one group, and windows of 16 of them in which streams jump about.
    def test_streams_share_the_passes_over_a_group_of_rows(self):
        rng = random.Random(12)
        table = pyarrow.table({"text": [rng.randbytes(rng.randrange(10, 90)).hex() for _ in range(120_000)]})
        path = self.folder / "one_group.parquet"
        pyarrow.parquet.write_table(table, path, compression="none", use_dictionary=False, row_group_size=120_000)
        size = path.stat().st_size
        self.assertLess(read_share(path, 0, 1, "share", 0)[2], 1.2 * size)
        self.assertLess(read_share(path, 0, 1, "shuffled", 0)[2], 3 * size)

    # 18 MB for 16 streams would make two lanes of 8.
    def test_columns_whose_lanes_would_lack_records_are_dealt_by_records(self):
        long, short = "y" * 1_800_000, "z" * 25_000
        uneven = pyarrow.table({"text": [short, long] + [short] * 71 + ([long] + [short] * 72) * 4})  # the long ones would be a lane
        pyarrow.parquet.write_table(uneven, self.folder / "uneven.parquet", row_group_size=1, compression="none", use_dictionary=False)
        few = pyarrow.table({"text": [f"{i} " + "y" * 600_000 for i in range(30)]})
        with pyarrow.OSFile(str(self.folder / "few.arrow"), "wb") as sink, pyarrow.ipc.new_file(sink, few.schema) as writer:
            for begin in range(0, 30, 3):
                writer.write_table(few.slice(begin, 1))
                writer.write_table(few.slice(begin + 1, 2))
        for name, shuffle in (("uneven.parquet", False), ("few.arrow", False), ("few.arrow", True)):  # shuffled, the long ones are in both lanes
            found, expected = (mixed([self.folder / name], striping, shuffle, "1") for striping in ("auto", "records"))
            self.assertEqual(found, expected, (name, shuffle))

    # Each format in a mix with lines, then all in one.
    def test_mixes_of_every_format_are_the_same_on_every_number_of_readers_shuffled_or_not(self):
        folder = self.folder / "formats"
        for format, files in FORMATS.items():
            for name, content in files.items():
                path = folder / format / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        mixes = [[folder / format, self.folder / "lines.jsonl"] for format in FORMATS] + [[folder / format for format in FORMATS]]
        for paths in mixes:
            by_blocks = {path.name for path in paths} <= {"megatron", "datatrove", "lines", "lines.jsonl"}
            for striping in ("records", "blocks") if by_blocks else ("records",):
                orders = [mixed(paths, striping, shuffle, "1") for shuffle in (False, True)]
                self.assertNotEqual(*orders, (paths, striping))
                for shuffle in (False, True):
                    self.assertEqual(mixed(paths, striping, shuffle, "124"), orders[shuffle], (paths, striping, shuffle))

    # 240 steps are almost two epochs of one source.
    def test_files_of_every_format_are_dealt_by_blocks_on_every_number_of_readers_in_mixes_and_shuffles(self):
        folder = self.folder / "short"
        for format, files in SHORT_FILES.items():
            (folder / format).mkdir(parents=True)
            for name, content in files.items():
                (folder / format / name).write_bytes(content)
        paths = [folder / format for format in SHORT_FILES]
        for mix in [[path] for path in paths] + [paths]:
            orders = [mixed(mix, "blocks", shuffle, "1", 240) for shuffle in (False, True)]
            self.assertNotEqual(*orders, mix)
            for shuffle in (False, True):
                for layouts in ("124", "4182"):
                    self.assertEqual(mixed(mix, "blocks", shuffle, layouts, 240), orders[shuffle], (mix, shuffle, layouts))

    def test_nested_columns_nulls_and_lists_of_tokens(self):
        path = self.folder / "nested.parquet"
        rows = [{"text": text, "n": i} for i, text in enumerate(DOCUMENTS[:99])] + [None, {"text": None, "n": 3}]
        pyarrow.parquet.write_table(pyarrow.table({"meta": rows, "ids": [[i, i + 1] for i in range(101)]}), path)
        found = inspect(path, "--text-field", "meta.text", "--records", "200")["samples"]
        self.assertEqual([sample["text"] for sample in found[:99]], DOCUMENTS[:99])
        for row, sample in ((100, found[99]), (101, found[100])):
            self.assertEqual(sample["problem"], f'{path}:{row}: "meta.text" is null here. Repair or remove the record, or '
                             "set training.skip_bad_records to leave such records out.")
        found = inspect(path, "--text-field", "ids", "--records", "200")["samples"]
        self.assertEqual([sample["tokens"] for sample in found], [[i, i + 1] for i in range(101)])

    def test_arrow_streams_and_files(self):
        table = pyarrow.table({"text": DOCUMENTS, "other": range(2500)})
        for name, new in (("stream", pyarrow.ipc.new_stream), ("file", pyarrow.ipc.new_file)):
            for options in (None, pyarrow.ipc.IpcWriteOptions(compression="zstd")):
                path = self.folder / f"{name}{options is None}.arrow"
                with pyarrow.OSFile(str(path), "wb") as sink, new(sink, table.schema, options=options) as writer:
                    writer.write_table(table, max_chunksize=1100)
                self.assertEqual(texts(path), DOCUMENTS, name)
                self.assertEqual(samples(path), self.expected, name)

    def test_arrow_of_all_types_of_text(self):
        plain = pyarrow.array(DOCUMENTS)
        columns = [plain.cast(pyarrow.large_string()), plain.cast(pyarrow.string_view()), plain.dictionary_encode(), pyarrow.StructArray.from_arrays([plain], ["text"])]
        for column in columns:
            nested = pyarrow.types.is_struct(column.type)
            table = pyarrow.table({"meta" if nested else "text": column})
            for name, new in (("stream", pyarrow.ipc.new_stream), ("file", pyarrow.ipc.new_file)):
                path = self.folder / f"typed_{name}.arrow"
                with pyarrow.OSFile(str(path), "wb") as sink, new(sink, table.schema) as writer:
                    writer.write_table(table, max_chunksize=1100)
                self.assertEqual(samples(path, "meta.text" if nested else "text"), self.expected, (name, column.type))

    def test_folders_of_datasets(self):
        data = datasets.Dataset.from_dict({"text": DOCUMENTS})
        folder = self.folder / "saved"
        data.save_to_disk(str(folder), num_shards=3)
        self.assertEqual(inspect(folder)["formats"], {"Arrow": 3})
        self.assertEqual(samples(folder), self.expected)
        both = self.folder / "both"
        datasets.DatasetDict({"train": data, "test": data.select(range(10))}).save_to_disk(str(both))
        self.assertEqual(inspect(both)["records"], 2510)
        self.assertEqual(samples(both / "train"), self.expected)

    def test_the_cache_of_datasets(self):
        cache = self.folder / "cache"
        lines = str(self.folder / "lines.jsonl")
        data = datasets.load_dataset("json", data_files={"train": lines}, cache_dir=str(cache), split="train")
        data.map(lambda row: {"length": len(row["text"])})  # leaves a file of its own beside the set
        folder = pathlib.Path(data.cache_files[0]["filename"]).parent
        self.assertTrue(list(folder.glob("cache-*.arrow")))
        self.assertEqual(inspect(cache)["formats"], {"Arrow": 1})
        self.assertEqual(samples(folder), self.expected)

    def test_damaged_files_are_read_or_refused_and_nothing_else(self):
        texts = pyarrow.array(DOCUMENTS[:200])
        files = {}
        for name, column in (("plain", texts), ("view", texts.cast(pyarrow.string_view())), ("words", texts.dictionary_encode()), ("lists", pyarrow.array([[i, i + 1, 7] for i in range(200)]))):
            table = pyarrow.table({"text": column})
            for compression in ("zstd", "snappy", "none"):
                files[f"{name}.{compression}.parquet"] = lambda path, t=table, c=compression: pyarrow.parquet.write_table(t, path, row_group_size=70, compression=c)
            for kind, new in (("stream", pyarrow.ipc.new_stream), ("file", pyarrow.ipc.new_file)):
                def write(path, t=table, n=new):
                    with pyarrow.OSFile(str(path), "wb") as sink, n(sink, t.schema) as writer:
                        writer.write_table(t, max_chunksize=70)
                files[f"{name}.{kind}.arrow"] = write
        rounds = int(os.environ.get("TITANIUM_FUZZ_ROUNDS", 40))  # for each of 20 files
        folder = self.folder / "fuzz"
        folder.mkdir()
        for name, write in files.items():
            write(folder / name)
            result = subprocess.run([DRIVER, "fuzz", folder / name, "text", str(rounds), os.environ.get("TITANIUM_FUZZ_SEED", "7")], capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, f"{name}: {result.returncode} {result.stderr[-500:]}")
            good, refused, memory = map(int, result.stdout.split())
            self.assertEqual(good + refused, rounds)
            self.assertLess(memory, 512 << 20, name)
            self.assertGreater(refused, 0, name)

    def test_offsets_inside_a_column_are_checked(self):
        data = pyarrow.py_buffer(b"abcdefghij")
        for offsets, type in (([0, 9, 3, 10], pyarrow.string()), ([0, 2**30, 3, 10], pyarrow.string())):
            column = pyarrow.Array.from_buffers(type, 3, [None, pyarrow.py_buffer(struct.pack("<4i", *offsets)), data])
            batch = pyarrow.RecordBatch.from_arrays([column], ["text"])
            for new in (pyarrow.ipc.new_stream, pyarrow.ipc.new_file):
                path = self.folder / "offsets.arrow"
                with pyarrow.OSFile(str(path), "wb") as sink, new(sink, batch.schema) as writer:
                    writer.write_batch(batch)
                self.assertIn("cannot be read as Arrow: the offsets of a column do not ascend: the file is damaged.", refusal(path))

    def test_refusals(self):
        path = self.folder / "refused.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"content": ["a"], "n": [1.5]}), path)
        self.assertIn('cannot be read as Parquet: there is no column "text" (its columns: content, n). Set '
                      "training.text_field to one of them.", refusal(path))
        self.assertIn('column "n" holds double, but texts or lists of integers', refusal(path, "--text-field", "n"))
        whole = path.read_bytes()
        (self.folder / "cut.parquet").write_bytes(whole[:-20])
        self.assertIn("cannot be read as Parquet: ", refusal(self.folder / "cut.parquet"))
        (self.folder / "named.jsonl").write_bytes(whole)
        self.assertIn("is read as JSON lines because of its name, but its content is Parquet. Rename it.",
                      refusal(self.folder / "named.jsonl"))

    def test_a_changed_byte_of_a_page_with_a_checksum_is_found(self):
        path = self.folder / "checked.parquet"
        for checked in (True, False):
            table = pyarrow.table({"text": [f"text number {i}" for i in range(50)]})
            pyarrow.parquet.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=checked)
            path.write_bytes(path.read_bytes().replace(b"text number 7", b"text number X"))
            if checked:
                self.assertIn("cannot be read as Parquet: could not verify page integrity, CRC checksum verification failed for page_ordinal 0.", refusal(path))
            else:
                self.assertEqual(texts(path)[7], "text number X")  # nothing says that this is wrong

    def test_damage_is_a_sentence_or_the_records(self):
        path = self.folder / "damage.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"text": DOCUMENTS[:200]}), path, row_group_size=50)
        whole = path.read_bytes()
        rng = random.Random(3)
        for _ in range(40):
            damaged = bytearray(whole)
            for _ in range(rng.randrange(1, 5)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            path.write_bytes(damaged)
            result = subprocess.run([DRIVER, str(path), "text"], capture_output=True, text=True)
            self.assertIn(result.returncode, (0, 1), result.stderr)
            self.assertEqual(result.returncode == 0, result.stderr == "")

    def test_without_the_plug_in_there_is_a_sentence(self):
        path = self.folder / "alone.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"text": ["a"]}), path)
        copy = self.folder / "driver"
        shutil.copy(DRIVER, copy)
        result = subprocess.run([copy, str(path), "text"], capture_output=True, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertIn("needs the plug-in libtitanium_arrow.so beside the program", result.stderr)
        self.assertIn("Install the wheel pyarrow of tools/requirements.txt and build again", result.stderr)


if __name__ == "__main__":
    unittest.main()
