"""titanium data, and runs on mixes of sources, as users start them."""

import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import tempfile
import unittest

import pyarrow
import pyarrow.parquet
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ["TITANIUM"]
CORPUS = "tests/assets/c4_test"
TOKENIZER = "tests/assets/tokenizer"


def mix(folder, *more):
    sources = [{"name": "stories", "dataset": "c4_test", "weight": 3}, {"name": "tokens", "path": str(folder), "weight": 1}]
    return "--training.sources=" + json.dumps(sources + list(more))


class Data(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        cls.tokens = cls.folder / "tokens"
        cls.made = cls.run_program("data", "prepare", CORPUS, "--tokenizer", TOKENIZER, "--out", cls.tokens, "--shard-records", 300)

    @classmethod
    def run_program(cls, *arguments, code=0):
        finished = subprocess.run([PROGRAM, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)
        assert finished.returncode == code, (finished.returncode, finished.stdout, finished.stderr)
        return finished.stderr if code else finished.stdout

    def train(self, dump, *options, ranks=1, code=0):
        launcher = ["launch", "--nproc-per-node", ranks, "--"] if ranks > 1 else []
        return self.run_program(*launcher, "train", "--job.config_file=configs/llama3/debug_model.toml", "--training.device=cpu",
                                f"--job.dump_folder={self.folder / dump}", "--training.seq_len=32",
                                "--training.global_batch_size=8", f"--training.local_batch_size={8 // ranks}",
                                "--metrics.log_freq=1", "--metrics.disable_color_printing",
                                "--training.mixed_precision_param=float32", *options, code=code)

    def metrics(self, dump):
        return [json.loads(line) for line in (self.folder / dump / "metrics.jsonl").read_text().splitlines()]

    def test_prepared_tokens_are_those_of_the_texts_and_are_kept(self):
        self.assertRegex(self.made, r"has 8 shards, 0 of them from before: 2,000 documents and [\d,]+ tokens were added")
        found = json.loads(self.run_program("data", "inspect", self.tokens, "--records", "2000", "--json"))
        self.assertEqual((found["records"], found["formats"]), (2000, {"tokens of datatrove": 8}))
        self.assertEqual(found["tokens"], sum(len(sample["tokens"]) for sample in found["samples"]))
        texts = json.loads(self.run_program("data", "inspect", CORPUS, "--records", "2000", "--json"))["samples"]
        lines = "".join(json.dumps(sample["text"]) + "\n" for sample in texts)
        encoded = subprocess.run([PROGRAM, "tokenize", "--tokenizer", TOKENIZER, "--json"], input=lines, cwd=ROOT,
                                 capture_output=True, text=True).stdout.splitlines()
        self.assertEqual([sample["tokens"] for sample in found["samples"]], [json.loads(line) for line in encoded])
        (self.tokens / "00001-00000.ds").unlink()
        same_files = self.folder / "copy"  # a tokenizer is known by its content
        shutil.copytree(ROOT / TOKENIZER, same_files)
        options = ["--out", self.tokens, "--shard-records", 300]
        again = self.run_program("data", "prepare", CORPUS, "--tokenizer", same_files, *options)
        self.assertRegex(again, r"has 8 shards, 7 of them from before: 300 documents")
        self.assertIn("holds shards of other data, another tokenizer or other options. Name another folder or empty this one.",
                      self.run_program("data", "prepare", "tests/assets/c4_test_validation", "--tokenizer", TOKENIZER, "--out",
                                       self.tokens, code=2))
        refusal = "holds shards of other data, another tokenizer or other options"
        self.assertIn(refusal, self.run_program("data", "prepare", CORPUS, "--tokenizer", TOKENIZER, *options,
                                                "--special-tokens-in-text", "text", code=2))
        with open(same_files / "tokenizer_config.json", "a") as config:
            config.write("\n")
        self.assertIn(refusal, self.run_program("data", "prepare", CORPUS, "--tokenizer", same_files, *options, code=2))

    def test_special_tokens_in_prepared_texts_become_what_is_asked_for(self):
        lines = self.folder / "special.jsonl"
        lines.write_text(json.dumps({"text": "a<|end_of_text|>b"}) + "\n")
        lengths = {}
        for special in ("token", "text"):
            out = self.folder / special
            self.run_program("data", "prepare", lines, "--tokenizer", TOKENIZER, "--out", out, "--special-tokens-in-text", special)
            (sample,) = json.loads(self.run_program("data", "inspect", out, "--json"))["samples"]
            lengths[special] = len(sample["tokens"])
        self.assertEqual(lengths["token"], 5)
        self.assertGreater(lengths["text"], 5)
        self.assertIn("special.jsonl:1", self.run_program("data", "prepare", lines, "--tokenizer", TOKENIZER, "--out",
                                                           self.folder / "refused", "--special-tokens-in-text", "error", code=1))

    def test_a_run_on_tokens_has_the_losses_of_the_texts_and_needs_no_tokenizer(self):
        self.train("texts", "--training.steps=3")
        self.train("tokens_run", "--training.steps=3", f"--training.dataset_path={self.tokens}",
                   "--model.hf_assets_path=/no/such/folder")
        self.assertEqual([line["loss"] for line in self.metrics("tokens_run")], [line["loss"] for line in self.metrics("texts")])

    def test_a_mix_reads_its_shares_on_every_layout_and_after_a_resume(self):
        options = [mix(self.tokens), "--training.shuffle", "--lr_scheduler.total_steps=4", "--checkpoint.enable", "--checkpoint.interval=2"]
        self.train("whole", *options, "--training.steps=4")
        whole = self.metrics("whole")
        self.assertEqual(whole[-1]["tokens_by_source"], {"stories": 6 * 4 * 32, "tokens": 2 * 4 * 32})
        self.train("two", *options, "--training.steps=4", ranks=2)
        self.train("parts", *options, "--training.steps=2", "--checkpoint.no_last_save_model_only", ranks=2)
        self.train("parts", *options, "--training.steps=4")
        for dump in ("two", "parts"):
            other = self.metrics(dump)
            self.assertEqual([line["tokens_by_source"] for line in other], [line["tokens_by_source"] for line in whole])
            for a, b in zip(other, whole):
                self.assertAlmostEqual(a["loss"], b["loss"], delta=2e-4)

    def test_the_log_and_tensorboard_tell_the_tokens_of_each_source(self):
        output = self.train("told", mix(self.tokens), "--training.steps=10", "--metrics.enable_tensorboard")
        self.assertIn("Tokens by source: stories 1,920 (75.00%), tokens 640 (25.00%)", output)
        (logs,) = {path.parent for path in (self.folder / "told").rglob("events.out.tfevents.*")}
        scalars = EventAccumulator(str(logs)).Reload()
        for name, tokens in (("stories", 192), ("tokens", 64)):
            self.assertEqual([event.value for event in scalars.Scalars(f"tokens_by_source/{name}")], [tokens * step for step in range(1, 11)])

    def test_weights_and_sources_may_change_at_a_resume(self):
        options = ["--lr_scheduler.total_steps=4", "--checkpoint.enable", "--checkpoint.interval=2"]
        self.train("changed", mix(self.tokens), *options, "--training.steps=2", "--checkpoint.no_last_save_model_only")
        shutil.copytree(self.folder / "changed", self.folder / "changed too")
        sources = [{"name": "stories", "dataset": "c4_test", "weight": 1}, {"name": "new", "dataset": "c4_test_validation", "weight": 1}]
        for dump, ranks in (("changed", 1), ("changed too", 2)):
            output = self.train(dump, "--training.sources=" + json.dumps(sources), *options, "--training.steps=4", ranks=ranks)
            self.assertIn("Source stories: 50% of the tokens", output)
            self.assertIn("Source new is not part of the saved data position and begins with its first record", output)
            self.assertIn("Source tokens of the saved data position is left out after 4 samples", output)
            self.assertEqual(self.metrics(dump)[-1]["tokens_by_source"], {"stories": (12 + 8) * 32, "new": 8 * 32})
        for a, b in zip(self.metrics("changed"), self.metrics("changed too")):
            self.assertAlmostEqual(a["loss"], b["loss"], delta=2e-4)

    def test_validation_sets_have_a_loss_each(self):
        sets = json.dumps([{"name": "held out", "dataset": "c4_test_validation"}, {"name": "seen", "dataset": "c4_test"}])
        output = self.train("sets", "--training.steps=1", "--validation.enable", f"--validation.sources={sets}",
                            "--validation.seq_len=32", "--validation.steps=1")
        for name in ("held out", "seen"):
            self.assertRegex(output, rf"Set {name}: validate step:  1  loss: +\d")
        folder = self.folder / "sets"
        records = {line["set"]: line for line in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()) if "validation_loss" in line}
        events = {event["set"]: event for event in map(json.loads, (folder / "run.jsonl").read_text().splitlines()) if event["event"] == "validation"}
        self.assertEqual(list(records), ["held out", "seen"])
        self.assertNotEqual(records["held out"]["validation_loss"], records["seen"]["validation_loss"])
        for name, record in records.items():
            self.assertAlmostEqual(record["validation_loss"], events[name]["loss"], places=6)
        page = self.run_program("report", str(folder), "--out", str(self.folder / "sets.html"))
        self.assertIn('"set":"held out"', (self.folder / "sets.html").read_text(), page)

    def test_a_source_that_must_not_end_ends_the_run(self):
        few = self.folder / "few.jsonl"
        few.write_text("".join(json.dumps({"text": "word " * 100}) + "\n" for _ in range(40)))
        output = self.train("ends", mix(self.tokens, {"name": "few", "path": str(few), "weight": 40, "when_exhausted": "stop"}),
                            "--training.data_streams=16", "--training.steps=40")
        self.assertIn("Ran out of data; last step was canceled.", output)

    def test_plan_tells_tokens_and_epochs(self):
        output = self.run_program("data", "plan", mix(self.tokens), "--training.steps=100", "--training.global_batch_size=8",
                                  "--training.seq_len=128")
        self.assertIn("100 steps of 8 samples of 128 tokens: 102,400 tokens", output)
        tokens = json.loads(self.run_program("data", "inspect", self.tokens, "--json"))["tokens"]
        for name, taken in (("stories", 76_800), ("tokens", 25_600)):  # those of the same texts
            epochs = taken / 128 * 129 / tokens
            self.assertRegex(output, rf"{name}: {taken:,} tokens \(\d+%\), {epochs:.3g} epochs of {tokens:,} tokens")
        output = self.run_program("data", "plan", mix(self.tokens), "--model.hf_assets_path=nowhere")
        self.assertRegex(output, r"stories: [\d,]+ tokens \(75%\), epochs not known before the text is tokenised")

    def test_plan_says_that_a_set_has_no_tokens(self):
        (self.folder / "no_texts.jsonl").write_text(json.dumps({"title": "a"}) + "\n")
        output = self.run_program("data", "plan", f"--training.dataset_path={self.folder / 'no_texts.jsonl'}", f"--model.hf_assets_path={TOKENIZER}")
        self.assertRegex(output, r"\(100%\), no tokens in it: all records are bad or empty\n")

    def test_plan_finds_the_tokenizer_that_a_run_finds(self):
        plan = [PROGRAM, "data", "plan", "--training.dataset=c4_test", f"--model.hf_assets_path={TOKENIZER}"]
        here, elsewhere = (subprocess.run(plan, cwd=folder, capture_output=True, text=True) for folder in (ROOT, self.folder))
        tokens = re.search(r"epochs of [\d,]+ tokens", here.stdout).group()
        self.assertIn(tokens, elsewhere.stdout, elsewhere.stderr)

    # More than is counted: lines, and Parquet whose later groups have longer words; against all tokens, as training reads them.
    def test_plan_estimates_tokens_within_the_bound_that_it_tells(self):
        rng = random.Random(5)
        words = [path.read_text() for path in sorted((ROOT / CORPUS).iterdir())]
        words = [word for line in words[0].splitlines()[:500] for word in json.loads(line)["text"].split()]
        words.sort(key=len)
        texts = [" ".join(rng.choices(words[: len(words) // 2 + i * len(words) // 40_000], k=rng.randrange(40, 400))) for i in range(20_000)]
        (self.folder / "long.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        pyarrow.parquet.write_table(pyarrow.table({"id": range(len(texts)), "text": texts}), self.folder / "long.parquet", row_group_size=500, compression="none", use_dictionary=False)
        self.expect_estimates("long", widest=10)

    # Of JSON lines and of Parquet with these records.
    def expect_estimates(self, stem, widest):
        self.run_program("data", "prepare", self.folder / f"{stem}.jsonl", "--tokenizer", TOKENIZER, "--out", self.folder / stem)
        tokens = json.loads(self.run_program("data", "inspect", self.folder / stem, "--json"))["tokens"]
        for name in (f"{stem}.jsonl", f"{stem}.parquet"):
            self.assertGreater((self.folder / name).stat().st_size, 8 << 20)
            output = self.run_program("data", "plan", f"--training.dataset_path={self.folder / name}", f"--model.hf_assets_path={TOKENIZER}")
            epochs, found, error = re.search(r"about ([\d.e-]+) epochs of ([\d,]+) tokens \(more or less ([\d.]+)%\)", output).groups()
            self.assertLess(float(error), widest, output)
            self.assertLess(abs(int(found.replace(",", "")) / tokens - 1), float(error) / 100, output)

    # A place of 64 KiB that ended after a long record would take the others for as long.
    def test_plan_estimates_tokens_of_records_of_very_different_lengths(self):
        texts = ["some words " * (5_500 if i % 20 == 0 else 55) for i in range(3_000)]
        (self.folder / "uneven.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        pyarrow.parquet.write_table(pyarrow.table({"text": texts}), self.folder / "uneven.parquet", row_group_size=500, compression="none", use_dictionary=False)
        self.expect_estimates("uneven", widest=20)

    def test_plan_and_log_tell_what_each_rank_reads(self):
        size = sum(path.stat().st_size for path in (ROOT / CORPUS).iterdir())
        plan = self.run_program("data", "plan", "--training.dataset=c4_test", "--ranks", "16", "--parallelism.tensor_parallel_degree=2")
        self.assertIn(f"2,000 records; dealt by records, each of 8 ranks reads all {size:,} bytes in an epoch", plan)
        plan = self.run_program("data", "plan", "--training.dataset=c4_test", "--training.data_striping=blocks", "--ranks", "8")
        self.assertRegex(plan, rf"dealt by blocks of 65,536 bytes in 8 lanes \(\d+ blocks\), each of 8 ranks reads [\d,]+ to [\d,]+ of {size:,} bytes")
        options = ["--training.data_striping=blocks", "--lr_scheduler.total_steps=4", "--checkpoint.enable", "--checkpoint.interval=2"]
        self.assertRegex(self.train("by_blocks", *options, "--training.steps=4"), r"Dataset c4_test: dealt by blocks of 65,536 bytes in 8 lanes")
        self.train("by_parts", *options, "--training.steps=2", "--checkpoint.no_last_save_model_only", ranks=2)
        # A saved run goes on as it began, unless another way is asked for.
        self.assertIn("training.data_striping asks for records. Set it to \"auto\" to go on with the saved run.",
                      self.train("by_parts", *options, "--training.steps=4", "--training.data_striping=records", code=1))
        output = self.train("by_parts", *options, "--training.steps=4", "--training.data_striping=auto")
        self.assertRegex(output, r"Dataset c4_test goes on as the saved run has it: dealt by blocks of 65,536 bytes in 8 lanes")
        for a, b in zip(self.metrics("by_parts"), self.metrics("by_blocks")):
            self.assertAlmostEqual(a["loss"], b["loss"], delta=2e-4)
        self.train("by_records", "--training.steps=1")
        self.assertNotEqual(self.metrics("by_records")[0]["loss"], self.metrics("by_blocks")[0]["loss"])

    def test_missing_sources_are_told_together(self):
        error = self.train("missing", mix("/no/such/a", {"name": "b", "path": "/no/such/b", "weight": 1}), code=2)
        self.assertIn("Data path /no/such/a does not exist.", error)
        self.assertIn("Data path /no/such/b does not exist.", error)


if __name__ == "__main__":
    unittest.main()
