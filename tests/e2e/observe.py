"""What a run tells others while it runs: the metrics endpoint, the log as JSON, and its own record of what happened."""

import json
import os
import pathlib
import pty
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from free_ports import free_port
from prometheus_client.openmetrics.parser import text_string_to_metric_families

PROGRAM = os.environ["TITANIUM"]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Observe(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def command(self, *options, launcher=()):
        return [PROGRAM, *launcher, "train", "--job.config_file=configs/llama3/debug_model.toml", "--training.device=cpu", "--training.seq_len=32",
                "--training.local_batch_size=2", f"--job.dump_folder={self.folder}", "--metrics.log_freq=1", *options]

    def events(self):
        return [json.loads(line) for line in (self.folder / "run.jsonl").read_text().splitlines()]

    def get(self, url):
        """Status, type and body; None while nobody listens."""
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers["Content-Type"], error.read().decode()
        except (urllib.error.URLError, ConnectionError):
            return None

    def scrape(self, url):
        answer = self.get(url)
        if answer is None:
            return {}
        status, kind, text = answer
        self.assertEqual((status, kind), (200, "application/openmetrics-text; version=1.0.0; charset=utf-8"))
        return {sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples}

    def test_a_run_is_scraped_while_it_trains(self):
        port = free_port()
        command = self.command("--training.steps=1000000", f"--metrics.port={port}", "--checkpoint.enable", "--checkpoint.interval=3",
                               "--checkpoint.keep_latest_k=2", "--validation.enable", "--validation.dataset=c4_test_validation",
                               "--validation.seq_len=32", "--validation.steps=1", "--validation.freq=2")
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
            try:
                values = {}
                deadline = time.monotonic() + 100
                while "titanium_checkpoint_step" not in values or "titanium_validation_loss" not in values:
                    self.assertLess(time.monotonic(), deadline, values)
                    self.assertIsNone(run.poll())
                    values = self.scrape(f"http://127.0.0.1:{port}/metrics")
                    time.sleep(0.1)
                health = self.get(f"http://127.0.0.1:{port}/health")
                if shutil.which("prometheus"):
                    self.check_prometheus(port)
                missing = self.get(f"http://127.0.0.1:{port}/other")
            finally:
                run.send_signal(signal.SIGTERM)
                output = run.stdout.read()
        self.assertEqual(run.returncode, 0, output)
        self.assertIn(f"Metrics are served at http://127.0.0.1:{port}/metrics", output)
        self.assertGreaterEqual(values["titanium_step"], 3)
        self.assertEqual(values["titanium_steps_planned"], 1_000_000)
        self.assertTrue(2 < values["titanium_loss"] < 10, values)
        for name in ("titanium_tokens_per_second", "titanium_tokens_total", "titanium_memory_gibibytes", "titanium_learning_rate"):
            self.assertGreater(values[name], 0, name)
        for name in ("titanium_last_step_age_seconds", "titanium_checkpoint_age_seconds", "titanium_data_wait_percent", "titanium_restarts_total"):
            self.assertGreaterEqual(values[name], 0, name)
        self.assertNotIn("titanium_mfu_percent", values)  # a CPU claims none
        self.assertEqual((health[0], json.loads(health[2])["status"]), (200, "ok"))
        self.assertEqual(missing[0], 404)
        self.check_record()

    def check_prometheus(self, port):
        """Where there is a Prometheus, it takes the metrics for healthy and has their values."""
        own, config = free_port(), self.folder / "prometheus.yml"
        config.write_text("global: {scrape_interval: 1s}\nscrape_configs:\n"
                          f"- job_name: titanium\n  static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n")
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.folder / 'prometheus'}", f"--web.listen-address=127.0.0.1:{own}"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            try:
                found, deadline = {}, time.monotonic() + 60
                while not {"up", "titanium_step", "titanium_loss", "titanium_restarts_total"} <= found.keys() or found["titanium_step"] == 0:
                    self.assertLess(time.monotonic(), deadline, found)
                    time.sleep(0.2)
                    answer = self.get(f"http://127.0.0.1:{own}/api/v1/query?query=%7Bjob%3D%22titanium%22%7D")
                    if answer is not None and answer[0] == 200:
                        samples = json.loads(answer[2])["data"]["result"]
                        found = {sample["metric"]["__name__"]: float(sample["value"][1]) for sample in samples}
            finally:
                server.send_signal(signal.SIGTERM)
        self.assertEqual(found["up"], 1)

    def check_record(self):
        events = self.events()
        self.assertEqual(events[0]["event"], "start")
        self.assertEqual(events[0]["config"]["training"]["seq_len"], 32)
        self.assertIn("training.seq_len", [option["name"] for option in events[0]["changed"]])
        kinds = {event["event"] for event in events}
        self.assertEqual(kinds, {"start", "validation", "checkpoint", "end"})
        self.assertEqual((events[-1]["event"], events[-1]["how"]), ("end", "stopped"))

    def test_a_port_that_is_taken_ends_the_run_with_a_sentence(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            done = subprocess.run(self.command(f"--metrics.port={port}"), cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        sentence = f"metrics.port: nothing can listen at 127.0.0.1 port {port}: Address already in use. Choose another port, or 0 for none."
        self.assertIn(sentence, done.stderr)
        self.assertEqual(self.events()[-1]["message"], sentence)

    def test_a_failure_is_the_last_event(self):
        done = subprocess.run(self.command("--optimizer.lr=1e30", "--training.steps=5", "--lr_scheduler.warmup_steps=0"), cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stdout)
        event = self.events()[-1]
        self.assertEqual((event["event"], event["rank"]), ("error", 0))
        self.assertIn("is not finite at step", event["message"])
        text = subprocess.run([PROGRAM, "watch", "--text", self.folder], capture_output=True, text=True).stdout
        self.assertRegex(text, r"\nfailed  step \d+/5 .*\nrank 0: the loss or the gradient norm is not finite")

    def test_a_rank_that_was_killed_is_in_the_record(self):
        launcher = ("launch", "--nproc-per-node", "2", "--")
        with subprocess.Popen(self.command("--training.steps=1000000", launcher=launcher), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as job:
            deadline = time.monotonic() + 100
            while not (self.folder / "metrics.jsonl").exists() or (self.folder / "metrics.jsonl").read_text().count("\n") < 2:
                self.assertLess(time.monotonic(), deadline)
                self.assertIsNone(job.poll())
                time.sleep(0.1)
            ranks = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
            (victim,) = [int(rank) for rank in ranks if b"\0RANK=1\0" in b"\0" + pathlib.Path(f"/proc/{rank}/environ").read_bytes()]
            os.kill(victim, signal.SIGKILL)
            output = job.stderr.read()
        self.assertNotEqual(job.returncode, 0, output)
        event = self.events()[-1]
        self.assertEqual((event["event"], event["rank"]), ("error", 0))
        self.assertRegex(event["message"], r"rank 1\b")

    def test_every_line_of_a_launched_job_is_an_object(self):
        options = ["--log.format=json", "--training.steps=2", "--comm.trace_buf_size=0"]
        launcher = ("launch", "--nproc-per-node", "2", "--log-rank", "0,1", "--")
        done = subprocess.run(self.command(*options, launcher=launcher), cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        for line in lines:
            self.assertEqual(list(line), ["time", "level", "source", "rank", "step", "message"])
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertNotIn("\x1b", line["message"])
        self.assertEqual(lines[0]["source"], "launcher")
        self.assertIsNone(lines[0]["rank"])
        self.assertEqual({line["rank"] for line in lines if line["source"] == "titanium"}, {0, 1})
        steps = [line["step"] for line in lines if line["rank"] == 0 and re.match(r"step: ", line["message"])]
        self.assertEqual(steps, [1, 2])

    def test_the_failure_of_a_launched_job_is_an_object_too(self):
        launcher = ("launch", "--nproc-per-node", "1", "--")
        done = subprocess.run(self.command("--log.format=json", "--training.dataset_path=/no/such", launcher=launcher), cwd=ROOT, capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        lines = [json.loads(line) for line in done.stderr.splitlines()]
        self.assertEqual([(line["level"], line["rank"]) for line in lines], [("ERROR", 0)] * len(lines))
        self.assertEqual(lines[-1]["source"], "launcher")
        self.assertIn("/no/such", lines[0]["message"])

    def test_no_color_is_obeyed(self):
        for variables, colored in (({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)):
            environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | variables
            done = subprocess.run(self.command("--training.steps=1"), cwd=ROOT, capture_output=True, text=True, env=environment)
            self.assertEqual("\x1b[" in done.stdout, colored, variables)


class Progress(unittest.TestCase):
    def shown_by(self, *options):
        """What a terminal gets from work that takes more than a second, because nobody reads its output for so long."""
        with tempfile.NamedTemporaryFile("w+") as text:
            text.write("the quick brown fox\n" * 20_000)
            text.seek(0)
            ours, theirs = pty.openpty()
            command = [PROGRAM, "tokenize", "--tokenizer", ROOT / "tests/assets/tokenizer", *options]
            with subprocess.Popen(command, stdin=text, stdout=subprocess.PIPE, stderr=theirs) as run:
                os.close(theirs)
                run.stdout.read(1)  # it has begun
                time.sleep(1.5)
                self.assertEqual(len(run.stdout.read().splitlines()), 20_000)
            shown = b""
            try:
                while piece := os.read(ours, 65536):
                    shown += piece
            except OSError:  # so ends a terminal
                pass
            os.close(ours)
        self.assertEqual(run.returncode, 0)
        return shown.decode()

    def test_a_terminal_sees_rate_and_time_unless_told_quiet(self):
        bars = self.shown_by().split("\r")
        self.assertRegex(bars[1], r"^tokenising +\[[#-]{16}\] +\d+%  [\d.]+ [kM]?B/s  \d+ s left\x1b\[K$")
        self.assertRegex(bars[-2], r"\[#{16}\] 100%  [\d.]+ [kM]?B/s  in \d+ s\x1b\[K$")
        self.assertEqual(self.shown_by("--quiet"), "")

    def said_by(self, *command):
        """The pieces of work of which a program tells that writes to a pipe, each with the amount of its last line."""
        done = subprocess.run([PROGRAM, *map(str, command)], cwd=ROOT, capture_output=True, text=True, env={**os.environ, "TITANIUM_PROGRESS_SECONDS": "0"})
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = re.findall(r"(?m)^([a-zA-Z, ]+): (\d+%) \(.+ of .+\)(?:, .+/s, .+)?$", done.stderr)
        self.assertEqual(len(lines), len(done.stderr.splitlines()), done.stderr)
        return dict(lines)

    def test_long_work_tells_lines_to_a_pipe(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            train = ["train", "--job.config_file=configs/llama3/debug_model.toml", "--training.device=cpu", "--training.seq_len=16", "--training.local_batch_size=1",
                     "--checkpoint.enable", f"--job.dump_folder={folder}"]
            self.assertEqual(self.said_by(*train, "--training.steps=1"), {"saving the checkpoint": "100%"})
            self.assertEqual(self.said_by(*train, "--training.steps=2", "--checkpoint.last_save_model_only", "--checkpoint.last_save_in_hf"),
                             {"loading the model": "100%", "loading the optimizer": "100%", "saving the weights": "100%"})
            weights = folder / "checkpoint/step-2"
            self.assertEqual(self.said_by(*train, "--training.steps=1", "--checkpoint.folder=other", f"--checkpoint.initial_load_path={weights}",
                                          "--checkpoint.initial_load_in_hf"), {"loading weights": "100%", "saving the checkpoint": "100%"})
            self.assertEqual(self.said_by("convert", weights, folder / "dcp", "--to", "dcp"), {"converting weights": "100%"})
            text, tokenizer = ROOT / "tests/assets/c4_test", ROOT / "tests/assets/tokenizer"
            self.assertEqual(self.said_by("data", "prepare", text, "--tokenizer", tokenizer, "--out", folder / "shards"), {"tokenising": "100%"})
            jsonl = next(text.glob("*.json*"))
            self.assertEqual(self.said_by("tokenizer", "train", "--input", jsonl, "--vocab-size", "300", "--out", folder / "learned"),
                             {"counting words": "100%", "merging pairs": "100%"})
            self.assertEqual(self.said_by("data", "prepare", text, "--tokenizer", tokenizer, "--out", folder / "again", "--quiet"), {})


if __name__ == "__main__":
    unittest.main()
