"""The worked example of docs/data.md, as it stands there, against an S3 server: plan, check, train and go on."""

import gzip
import io
import json
import os
import pathlib
import re
import subprocess
import unittest

import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import s3_case
import s3_server

TITANIUM = os.environ["TITANIUM"]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOKENIZER = ROOT / "tests/assets/tokenizer"
SHARES = {"web": 0.40, "edu": 0.44, "dolma": 0.03, "zyda": 0.02, "code": 0.10, "math": 0.01}


def example():
    (config,) = re.findall(r"`six_sources\.toml`:\n\n```toml\n(.*?)```", (ROOT / "docs/data.md").read_text(), re.DOTALL)
    return config


def texts(name, count=300):
    return [f"{name} number {i}: " + " ".join(str(i * k % 97) for k in range(40)) for i in range(count)]


def lines(name):
    return "".join(json.dumps({"text": text}) + "\n" for text in texts(name)).encode()


def parquet(name, column):
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({column: texts(name), "id": range(300)}), out, row_group_size=100)
    return out.getvalue()


def arrow(name):
    out = io.BytesIO()
    table = pyarrow.table({"text": texts(name)})
    with pyarrow.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)
    return out.getvalue()


FILES = {
    "dclm/0.jsonl": lines("web"),
    "fineweb-edu/a/0.parquet": parquet("edu", "text"),
    "fineweb-edu/b/0.parquet": parquet("more edu", "text"),
    "dolma/0.jsonl.gz": gzip.compress(lines("dolma")),
    "zyda/data-00000.arrow": arrow("zyda"),
    "the-stack-v2/0.parquet": parquet("code", "content"),
    "finemath/0.jsonl": lines("math"),
}


class SixSources(s3_case.S3Case):
    @classmethod
    def put_objects(cls):
        cls.local = pathlib.Path(cls.folder.name) / "corpus"
        cls.server.put("runs", "readme.txt", b"checkpoints")
        for name, content in FILES.items():
            path = cls.local / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            cls.server.put("corpus", name, content)

    def run_program(self, *arguments, code=0, **environment):
        run = subprocess.run([TITANIUM, *map(str, arguments)], capture_output=True, text=True, env=self.environment(**environment), timeout=200)
        self.assertEqual(run.returncode, code, run.stdout[-3000:] + run.stderr[-3000:])
        self.assertNotIn(s3_server.SECRET, run.stdout + run.stderr)
        return run.stdout + run.stderr

    # What makes the run small; all else is the example.
    def options(self, dump, steps):
        return [f"--job.config_file={self.home / 'six_sources.toml'}", "--model.flavor=debugmodel", f"--model.hf_assets_path={TOKENIZER}", f"--job.dump_folder={self.home / dump}",
                "--training.seq_len=32", "--training.local_batch_size=50", "--training.global_batch_size=100", f"--training.steps={steps}", "--training.device=cpu",
                "--training.mixed_precision_param=float32", "--metrics.log_freq=1", "--lr_scheduler.total_steps=4"]

    def metrics(self, dump):
        (path,) = (self.home / dump).rglob("metrics.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]

    def test_the_example_runs_as_it_stands(self):
        self.assertIn("format   Parquet (2)\n  records  600", self.run_program("data", "inspect", "s3://corpus/fineweb-edu"))
        self.run_program("data", "prepare", "s3://corpus/finemath", "--tokenizer", TOKENIZER, "--out", self.local / "finemath.tokens")
        for path in (self.local / "finemath.tokens").iterdir():
            self.server.put("corpus", f"finemath.tokens/{path.name}", path.read_bytes())
        (self.home / "six_sources.toml").write_text(example())
        plan = self.run_program("data", "plan", *self.options("s3", 4))
        self.assertIn("edu: 5,632 tokens (44%)", plan)
        self.assertIn("s3://corpus/fineweb-edu: 2 files", plan)
        self.run_program("config", "check", self.home / "six_sources.toml", *self.options("s3", 4)[1:])
        self.proxy.faults = [None, 503, None, "reset", None, "short"]
        self.run_program("train", *self.options("s3", 2), "--checkpoint.interval=2", "--checkpoint.no_last_save_model_only")
        output = self.run_program("train", *self.options("s3", 4), "--checkpoint.interval=2")
        self.assertIn("Loading the checkpoint from s3://runs/six_sources/step-2", output)
        (self.home / "six_sources.toml").write_text(example().replace("s3://corpus", str(self.local)))
        self.run_program("train", *self.options("disk", 4), "--checkpoint.no_enable")
        found, expected = self.metrics("s3"), self.metrics("disk")
        self.assertEqual([line["loss"] for line in found], [line["loss"] for line in expected])
        tokens = found[-1]["tokens_by_source"]
        self.assertEqual(sum(tokens.values()), 4 * 100 * 32)
        for name, share in SHARES.items():
            self.assertLessEqual(abs(tokens[name] / 32 - 400 * share), 2, tokens)

    def test_what_is_wrong_is_told_before_the_run(self):
        (self.home / "six_sources.toml").write_text(example())
        output = self.run_program("config", "check", self.home / "six_sources.toml", *self.options("x", 4)[1:], code=2, secret="wrong")
        self.assertIn("s3://corpus/dclm: access is denied: the key or its secret is wrong.", output)


if __name__ == "__main__":
    unittest.main()
