"""What reaches the terminal: output that cannot be written, names that would steer it, ids that are none."""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.environ["TITANIUM"]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOKENIZER = ROOT / "tests/assets/tokenizer"


def run(*arguments, **options):
    return subprocess.run([PROGRAM, *map(str, arguments)], stderr=subprocess.PIPE, cwd=ROOT, timeout=120, **options)


class FullDisk(unittest.TestCase):
    def test_output_that_cannot_be_written_is_a_failure(self):
        commands = [("--help",), ("--version",), ("config", "options"), ("config", "show"), ("train", "--help"),
                    ("schedule", "--help"), ("tokenize", "--tokenizer", TOKENIZER)]
        for command in commands:
            with self.subTest(command=command), open("/dev/full", "wb") as full:
                done = run(*command, stdout=full, input=b"some words\n")
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertRegex(done.stderr.decode(), r"\Atitanium: .*output.*(could|cannot) be written.*\n\Z")

    def test_a_closed_pipe_is_a_failure_too(self):
        reader, writer = os.pipe()
        os.close(reader)
        ignore = ["bash", "-c", 'trap "" PIPE; exec "$@"', "bash", PROGRAM, "config", "options"]
        done = subprocess.run(ignore, stdout=writer, stderr=subprocess.PIPE, cwd=ROOT)
        os.close(writer)
        self.assertEqual((done.returncode, done.stderr),
                         (1, b"titanium: not all of the output could be written to stdout: Broken pipe.\n"))

    def test_a_run_goes_on_without_its_metrics(self):
        """metrics.jsonl may not grow; the run trains on and ends well."""
        with tempfile.TemporaryDirectory() as folder:
            limit = ["bash", "-c", 'ulimit -f 1; exec "$@"', "bash", PROGRAM, "train", f"--model.hf_assets_path={TOKENIZER}",
                     "--training.dataset=c4_test", f"--training.dataset_path={ROOT}/tests/assets/c4_test", "--training.steps=8",
                     "--training.seq_len=16", "--training.local_batch_size=1", "--training.device=cpu", "--metrics.log_freq=1",
                     "--metrics.enable_tensorboard", "--training.mixed_precision_param=float32", f"--job.dump_folder={folder}"]
            done = subprocess.run(limit, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True,
                                  env=dict(os.environ, LOG_RANK="0"), timeout=300)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("Training completed", done.stdout)
            for name in ("metrics.jsonl", "events.out.tfevents"):
                self.assertRegex(done.stdout, rf"WARNING - .*{name}.* cannot be written: File too large\. The run goes on")
                self.assertRegex(done.stdout, rf"WARNING - .*{name}.* ends too early: [\d,]+ bytes could not be written")
            self.assertEqual((pathlib.Path(folder) / "metrics.jsonl").stat().st_size, 1024)


class Names(unittest.TestCase):
    def test_names_of_a_file_do_not_steer_the_terminal(self):
        with tempfile.TemporaryDirectory() as folder:
            header = {"a\x1b[2Jb": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                      "__metadata__": {"note\x1b]0;x\x07": "line\nline"}}
            text = json.dumps(header).encode()
            path = pathlib.Path(folder) / "model.safetensors"
            path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
            done = run("inspect", path, stdout=subprocess.PIPE)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn(b"\x1b", done.stdout)
            self.assertIn(b"a\\x1b[2Jb", done.stdout)
            done = run("inspect", path, "--tensor", "b\x1b[31m", stdout=subprocess.PIPE)
            self.assertEqual(done.returncode, 1)
            self.assertNotIn(b"\x1b", done.stderr)
            self.assertIn(b"\\x1b[31m", done.stderr)


class Decode(unittest.TestCase):
    def test_only_whole_numbers_are_ids(self):
        for value in ("1.9", "true", "-1", '"a"', "null", "[1]", "1e0", "99999999999"):
            with self.subTest(value=value):
                done = run("tokenize", "--tokenizer", TOKENIZER, "--decode", input=f"[1]\n[2, {value}]\n".encode(),
                           stdout=subprocess.PIPE)
                self.assertEqual(done.returncode, 2, done.stderr)
                shown = "1.0" if value == "1e0" else value
                self.assertEqual(done.stderr.decode(), f"titanium: tokenize: line 2 of the input has {shown} where an id "
                                                       "should be: a whole number from 0.\n")

    def test_lines_before_a_bad_one_are_written(self):
        expected = run("tokenize", "--tokenizer", TOKENIZER, "--decode", input=b"[1]\n[2]\n", stdout=subprocess.PIPE)
        done = run("tokenize", "--tokenizer", TOKENIZER, "--decode", input=b"[1]\n[2]\nx\n", stdout=subprocess.PIPE)
        self.assertEqual((expected.returncode, done.returncode), (0, 2), done.stderr)
        self.assertEqual((done.stdout, done.stdout.count(b"\n")), (expected.stdout, 2))


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=2)
