"""Runs of the whole program on the CPU: what it logs, writes and refuses, and that the debug model learns."""

import json
import math
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest
import unittest.mock

import llama_folders
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ["TITANIUM"]
STAMP = r"\[titan\] \d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - root - INFO - "
MEMORY = r"memory: [ \d]\d\.\d\dGiB\(\d+\.\d\d%\)  "
STEP = re.compile(STAMP + r"step: ([ \d]\d)  loss: ([ \d]\d\.\d{5})  grad_norm: ([ \d]\d\.\d{4})  " + MEMORY +
                  r"tps: [\d,]+  tflops: [\d,]+\.\d\d  mfu: N/A")
VALIDATION = re.compile(STAMP + r"validate step: ([ \d]\d)  loss: ([ \d]\d\.\d{4})  " + MEMORY + r"tps: [\d,]+")
JSON_KEYS = ["step", "loss", "max_loss", "grad_norm", "lr", "tps", "tflops", "mfu", "memory_gib", "memory_active_gib", "tokens", "time_s",
             "step_s", "data_wait_percent", "unix_s"]


class Train(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def command(self, *options, dump="run"):
        return [PROGRAM, "train", "--job.config_file=configs/llama3/debug_model.toml", "--training.device=cpu",
                f"--job.dump_folder={self.folder / dump}", "--training.seq_len=128", "--training.local_batch_size=8",
                "--metrics.disable_color_printing", *map(str, options)]

    def run_program(self, *options, dump="run"):
        return subprocess.run(self.command(*options, dump=dump), cwd=ROOT, capture_output=True, text=True)

    def train(self, *options, dump="run"):
        finished = self.run_program(*options, dump=dump)
        self.assertEqual((finished.returncode, finished.stderr), (0, ""), finished.stdout)
        return finished.stdout

    def metrics(self, dump="run"):
        """The logged steps, without the lines of validations."""
        lines = (self.folder / dump / "metrics.jsonl").read_text().splitlines()
        return [record for record in (json.loads(line, parse_float=str) for line in lines) if "validation_loss" not in record]

    def refused(self, sentence, *options, code=2):
        finished = self.run_program(*options)
        self.assertEqual(finished.returncode, code, finished.stderr)
        self.assertIn(sentence, finished.stderr)
        self.assertEqual(len(finished.stderr.splitlines()), 1, finished.stderr)

    def test_special_tokens_in_texts_become_what_is_asked_for(self):
        data = self.folder / "special.jsonl"
        data.write_text("".join(json.dumps({"text": f"document {i} <|end_of_text|> more words"}) + "\n" for i in range(400)))
        options = [f"--training.dataset_path={data}", "--training.steps=1"]
        self.refused("the text holds the special token <|end_of_text|> at byte 11. Take it out, or say what special tokens in texts become",
                     *options, "--model.special_tokens_in_text=error", code=1)
        losses = []
        for choice in ("token", "text"):
            self.train(*options, f"--model.special_tokens_in_text={choice}", dump=choice)
            losses.append(self.metrics(choice)[0]["loss"])
        self.assertNotEqual(*losses)

    def test_ten_steps_are_logged_and_written(self):
        output = self.train("--metrics.enable_tensorboard", "--validation.enable",
                            "--validation.dataset=c4_test_validation", "--validation.seq_len=128", "--validation.steps=2")
        for line in (r"Starting job: Llama 3 debug training", r"CPU capacity: .+ with [\d.]+GiB memory",
                     r"Building llama3 debugmodel with \{\"dim\":256,.*\}",
                     r"Model llama3 debugmodel size: 6,163,712 total parameters", r"Memory plan: parameters 0\.02 GiB, .*",
                     r"Applied selective activation checkpointing to the model",
                     r"Trainer is initialized with local batch size 8, global batch size 8, gradient accumulation steps 1, "
                     r"sequence length 128, total steps 10 \(warmup 2\)",
                     r"Training starts at step 1", r"Training completed"):
            self.assertRegex(output, re.compile(f"^{STAMP}{line}$", re.MULTILINE))
        steps = [STEP.fullmatch(line) for line in output.splitlines() if " step: " in line and "validate" not in line]
        self.assertNotIn(None, steps, output)
        self.assertEqual([int(step.group(1)) for step in steps], list(range(1, 11)))
        self.assertAlmostEqual(float(steps[0].group(2)), math.log(2000), delta=0.7)
        validations = [VALIDATION.fullmatch(line) for line in output.splitlines() if "validate step" in line]
        self.assertEqual([int(line.group(1)) for line in validations], [1, 5, 10])
        self.assertLess(float(validations[-1].group(2)), float(validations[0].group(2)))
        self.check_metrics(steps)
        self.check_tensorboard(steps)

    def check_metrics(self, steps):
        records = self.metrics()
        self.assertEqual([record["step"] for record in records], list(range(1, 11)))
        for record, step in zip(records, steps):
            self.assertEqual(list(record), JSON_KEYS)
            self.assertEqual(f"{float(record['loss']):8.5f}", step.group(2))
            self.assertEqual(record["tokens"], 1024 * record["step"])
            self.assertIsNone(record["mfu"])
            self.assertIsNone(record["memory_active_gib"])  # of a process nobody counts the tensors
        digits = [len(re.sub(r"e.*|\D", "", record["loss"]).lstrip("0")) for record in records]
        self.assertEqual(max(digits), 9)
        self.assertAlmostEqual(float(records[0]["lr"]), 4e-4, delta=1e-12)
        self.assertAlmostEqual(float(records[1]["lr"]), 8e-4, delta=1e-12)

    def check_tensorboard(self, steps):
        (logs,) = (self.folder / "run" / "tb").iterdir()
        accumulator = EventAccumulator(str(logs))
        accumulator.Reload()
        losses = accumulator.Scalars("loss_metrics/global_avg_loss")
        self.assertEqual([event.step for event in losses], list(range(1, 11)))
        for event, step in zip(losses, steps):
            self.assertAlmostEqual(event.value, float(step.group(2)), places=4)
        self.assertEqual([event.step for event in accumulator.Scalars("validation_metrics/loss")], [1, 5, 10])

    def test_deterministic_reruns_give_the_same_bits_in_every_checkpoint_mode(self):
        runs = []
        for mode in ("none", "none", "full", "selective"):
            self.train("--debug.deterministic", "--debug.seed=3", "--training.steps=4",
                       f"--activation_checkpoint.mode={mode}", dump=f"run{len(runs)}")
            runs.append([(record["loss"], record["grad_norm"]) for record in self.metrics(f"run{len(runs)}")])
        for run in runs[1:]:
            self.assertEqual(run, runs[0])

    def test_accumulation_equals_the_whole_batch_within_rounding(self):
        self.train("--training.steps=3", "--training.mixed_precision_param=float32", dump="whole")
        self.train("--training.steps=3", "--training.mixed_precision_param=float32", "--training.local_batch_size=2",
                   "--training.global_batch_size=8", dump="parts")
        for whole, parts in zip(self.metrics("whole"), self.metrics("parts"), strict=True):
            self.assertEqual(parts["tokens"], whole["tokens"])
            self.assertAlmostEqual(float(parts["loss"]) / float(whole["loss"]), 1, delta=1e-5)

    def test_an_interrupt_ends_the_run_after_the_step(self):
        process = subprocess.Popen(self.command("--training.steps=100000"), cwd=ROOT, stdout=subprocess.PIPE, text=True)
        output = []
        for line in process.stdout:
            output.append(line)
            if " step:  2 " in line:
                process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(), 0)
        self.assertRegex(output[-1], r"WARNING - Stopped by a signal after step \d+\n$")
        self.assertGreaterEqual(len(self.metrics()), 2)

    def test_a_loss_that_is_not_finite_ends_the_run_and_its_step_is_not_saved(self):
        self.refused("the loss or the gradient norm is not finite at step 2 (", "--optimizer.lr=1e38",
                     "--checkpoint.enable", "--checkpoint.interval=1", code=1)
        self.assertEqual([record["step"] for record in self.metrics()], [1, 2])
        self.assertEqual([folder.name for folder in (self.folder / "run" / "checkpoint").iterdir()], ["step-1"])

    def test_weights_of_a_hugging_face_folder_start_the_run(self):
        model = self.folder / "model"
        llama_folders.make(model, "tied")
        options = ("--model.flavor=auto", f"--model.hf_assets_path={model}", "--training.steps=1", "--checkpoint.enable",
                   "--checkpoint.load_only", "--checkpoint.initial_load_in_hf", "--training.mixed_precision_param=float32")
        output = self.train(*options)
        self.assertRegex(output, r"Finished loading the checkpoint in \d+\.\d\d seconds\.")
        loaded = float(self.metrics()[0]["loss"])
        self.train(*options[:3], dump="random")
        self.assertNotAlmostEqual(loaded, float(self.metrics("random")[0]["loss"]), places=1)
        self.refused("initial_load_path = nowhere is not a folder. Name one with Hugging Face weights.", *options,
                     "--checkpoint.initial_load_path=nowhere")
        self.refused("model lacks 27 of the model's 56 tensors, such as", *options[1:],
                     "--model.flavor=debugmodel", code=1)

    def test_what_cannot_be_is_refused_with_a_sentence(self):
        self.refused('model.flavor = "debugmodle" is not a flavor of llama3. Did you mean "debugmodel"?',
                     "--model.flavor=debugmodle")
        self.refused("Dataset c5 is not supported. Supported datasets are: c4,", "--training.dataset=c5")
        self.refused("training.stepz", "--training.stepz=3")
        self.refused("not available yet: fault_tolerance.enable = true", "--fault_tolerance.enable")
        self.refused("no-tokenizer", f"--model.hf_assets_path={self.folder / 'no-tokenizer'}")
        self.refused("training.global_batch_size = 12 is not divisible by 8", "--training.global_batch_size=12")
        self.refused("model.name", "--model.name=lama3")

    def test_the_memory_plan_is_printed_without_training(self):
        output = self.train("--memory_estimation.enable", "--model.flavor=405B")
        self.assertIn("Memory plan: parameters 1511.9", output)
        self.assertNotIn("Training starts", output)

    def test_ranks_that_do_not_exist_share_a_million_tokens(self):
        with unittest.mock.patch.dict(os.environ, NGPU="512"):
            output = self.train("--memory_estimation.enable", "--comm.mode=fake_backend", "--model.flavor=405B",
                                "--parallelism.tensor_parallel_degree=8", "--parallelism.context_parallel_degree=8",
                                "--training.seq_len=1048576", "--training.local_batch_size=1",
                                "--activation_checkpoint.mode=full")
            self.assertIn("Active meshes: batch 8, cp 8, tp 8, loss 64, fsdp 64", output)
            self.assertRegex(output, r"activations 63\.00 GiB")
            self.refused("training.seq_len = 1048500 is not divisible by 128 (tensor parallel 8 x 2 x context parallel 8). "
                         "Use 1048448 or 1048576", "--comm.mode=fake_backend", "--training.seq_len=1048500",
                         "--parallelism.tensor_parallel_degree=8", "--parallelism.context_parallel_degree=8")

    def test_the_debug_model_learns(self):
        self.train("--training.steps=100", "--metrics.log_freq=10", "--training.local_batch_size=2",
                   "--training.mixed_precision_param=float32", "--optimizer.lr=2e-3", "--lr_scheduler.warmup_steps=10",
                   "--activation_checkpoint.mode=none")
        records = self.metrics()
        first, last = float(records[0]["loss"]), float(records[-1]["loss"])
        self.assertAlmostEqual(first, math.log(2000), delta=0.7)
        self.assertGreater(first - last, 2.5)


if __name__ == "__main__":
    unittest.main()
