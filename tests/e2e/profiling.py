"""Traces of the whole program: which steps are recorded, where the files are, and which ranges they hold."""

import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

from skipped import skip
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch_tb_profiler import io as trace_files
from torch_tb_profiler.profiler.loader import RunLoader

ROOT = pathlib.Path(__file__).resolve().parents[2]
TITANIUM = os.environ["TITANIUM"]
LISTENER = pathlib.Path(os.environ["TITANIUM_BUILD"]) / "libnvtx_listener.so"
OPTIONS = f"""
--job.config_file={ROOT}/configs/llama3/debug_model.toml --model.hf_assets_path={ROOT}/tests/assets/tokenizer
--training.dataset=c4_test --training.dataset_path={ROOT}/tests/assets/c4_test --training.seq_len=16
--training.local_batch_size=2 --training.mixed_precision_param=float32 --training.device=cpu
--metrics.disable_color_printing
""".split()

BASE_CONFIG = """
[job]
description = "model debug training for integration tests"
print_config = false
[profiling]
enable_profiling = false
save_traces_folder = "profile_trace"
profile_freq = 10
enable_memory_snapshot = false
save_memory_snapshot_folder = "memory_snapshot"
[metrics]
log_freq = 1
disable_color_printing = false
enable_tensorboard = false
save_tb_folder = "tb"
enable_wandb = false
[model]
name = "llama3"
flavor = "debugmodel"
hf_assets_path = "./tests/assets/tokenizer"
[optimizer]
name = "AdamW"
lr = 8e-4
eps = 1e-8
[lr_scheduler]
warmup_steps = 2
decay_ratio = 0.8
decay_type = "linear"
min_lr_factor = 0.0
[training]
local_batch_size = 8
seq_len = 2048
max_norm = 1.0
steps = 10
dataset = "c4_test"
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
fsdp_reshard_after_forward = "default"
tensor_parallel_degree = 1
enable_async_tensor_parallel = false
pipeline_parallel_degree = 1
context_parallel_degree = 1
expert_parallel_degree = 1
expert_tensor_parallel_degree = 1
[checkpoint]
enable = false
folder = "checkpoint"
interval = 10
last_save_model_only = false
export_dtype = "float32"
async_mode = "disabled"
[activation_checkpoint]
mode = "selective"
selective_ac_option = '2'
[compile]
enable = false
components = ["model", "loss"]
[quantize.linear.float8]
enable_fsdp_float8_all_gather = false
precompute_float8_dynamic_scale_for_fsdp = false
filter_fqns = ["output"]
[validation]
enable = false
dataset = "c4_validation"
freq = 5
steps = 10
"""


class Profiling(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def run_program(self, *options, ranks=1, dump="run", environment=None):
        launch = ["launch", "--nproc-per-node", str(ranks), "--"] if ranks > 1 else []
        return subprocess.run([TITANIUM, *launch, "train", *OPTIONS, f"--job.dump_folder={self.folder / dump}", *options],
                              cwd=ROOT, capture_output=True, text=True, timeout=180, env=dict(os.environ, **(environment or {})))

    def train(self, *options, **more):
        done = self.run_program(*options, **more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def traces(self, dump="run", name="profile_trace"):
        folder = self.folder / dump / name
        return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())

    def read(self, path, dump="run"):
        return json.loads((self.folder / dump / "profile_trace" / path).read_text())

    def ranges(self, trace):
        """Name -> events of our named ranges."""
        found = collections.defaultdict(list)
        for event in trace["traceEvents"]:
            if event.get("cat") == "user_annotation":
                found[event["name"]].append(event)
        return found

    def losses(self, dump):
        lines = (self.folder / dump / "metrics.jsonl").read_text().splitlines()
        return [(line["loss"], line["grad_norm"]) for line in map(json.loads, lines)]

    def test_the_last_step_of_each_cycle_is_recorded_and_nothing_changes(self):
        options = ["--training.steps=9", "--metrics.log_freq=1", "--activation_checkpoint.mode=none"]
        out = self.train(*options, "--profiling.enable_profiling", "--profiling.profile_freq=4", "--profiling.profiler_warmup=1",
                         "--metrics.enable_tensorboard")
        self.assertEqual(self.traces(), ["iteration_4/rank0_trace.json", "iteration_8/rank0_trace.json"])
        self.assertIn(f"Profiling active. Traces will be saved at {self.folder}/run/profile_trace", out)
        self.assertEqual(re.findall(r"Dumping profiler traces at step (\d+)", out), ["4", "8"])
        self.assertEqual(len(re.findall(r"Finished dumping profiler traces in \d+\.\d\d seconds", out)), 2)
        self.assertEqual(len(list((self.folder / "run/tb").rglob("events.out.tfevents.*"))), 1)
        self.train(*options, dump="plain")
        self.assertEqual(self.traces("plain"), [])
        self.assertEqual(self.losses("run"), self.losses("plain"))

        trace = self.read("iteration_8/rank0_trace.json")
        self.assertEqual(trace["distributedInfo"], {"backend": "gloo", "rank": 0, "world_size": 1})
        ranges = self.ranges(trace)
        for name in ("ProfilerStep#8", "data wait", "agree", "forward", "backward", "gradient norm", "optimizer", "tok_embeddings",
                     "layers.0", "layers.5", "norm_qkv_rope", "attention", "feed_forward", "linear_residual", "head_loss",
                     "layers.0 backward", "attention backward", "feed_forward backward"):
            self.assertIn(name, list(ranges))
        self.assertEqual([name for name in ranges if name.startswith("ProfilerStep")], ["ProfilerStep#8"])
        self.assertEqual(len(ranges["attention"]), 6)
        self.assertEqual(len(ranges["attention backward"]), 6)
        step, forward, backward = (ranges[name][0] for name in ("ProfilerStep#8", "forward", "backward"))
        for name, outer in (("forward", step), ("backward", step), ("optimizer", step), ("layers.3", forward), ("attention", forward),
                            ("layers.3 backward", backward), ("feed_forward backward", backward)):
            for event in ranges[name]:
                self.assertGreaterEqual(event["ts"], outer["ts"], name)
                self.assertLessEqual(event["ts"] + event["dur"], outer["ts"] + outer["dur"] + 1, name)
        operators = [event for event in trace["traceEvents"] if event.get("cat") == "cpu_op"]
        self.assertTrue(any(event["name"] == "aten::mm" and event["args"].get("Input Dims") for event in operators))
        self.assertTrue(any(event["name"] == "attention backward" for event in operators), "autograd's nodes have our names")

    def test_a_run_that_ends_inside_a_recorded_cycle_writes_what_it_has(self):
        self.train("--training.steps=5", "--profiling.enable_profiling", "--profiling.profile_freq=6", "--profiling.profiler_active=2",
                   "--profiling.profiler_warmup=0", "--profiling.save_traces_folder=elsewhere")
        self.assertEqual(self.traces(), [])
        self.assertEqual(self.traces(name="elsewhere"), ["iteration_5/rank0_trace.json"])

    def opened_by_tensorboard(self, iteration, dump="run"):
        """What the loader of TensorBoard's plug-in makes of the traces of a cycle, by worker: they need names that it takes for traces."""
        folder = self.folder / "plugin"
        folder.mkdir()
        for trace in (self.folder / dump / "profile_trace" / iteration).iterdir():
            shutil.copy(trace, folder / trace.name.replace("_trace.json", ".pt.trace.json"))
        return {worker: profile for (worker, _), profile in RunLoader("run", str(folder), trace_files.Cache()).load().profiles.items()}

    def test_the_plug_in_of_tensorboard_opens_a_trace(self):
        self.train("--training.steps=2", "--training.local_batch_size=1", "--profiling.enable_profiling", "--profiling.profile_freq=2",
                   "--profiling.profiler_warmup=1")
        (worker, profile), = self.opened_by_tensorboard("iteration_2").items()
        self.assertEqual(worker, "rank0")
        self.assertEqual([view.display_name for view in profile.views], ["Overview", "Operator", "Trace"])
        self.assertEqual([row[0] for row in profile.overview["steps"]["rows"]], ["2"])
        calls = {row["name"]: row["calls"] for row in profile.operation_table_by_name["data"]}
        recorded = collections.Counter(event["name"] for event in self.read("iteration_2/rank0_trace.json")["traceEvents"]
                                       if event.get("cat") == "cpu_op")
        for name in ("aten::mm", "attention backward"):
            self.assertGreater(calls[name], 0)
            self.assertEqual(calls[name], recorded[name], name)

    def test_the_integration_case_default_of_torchtitan(self):
        """The values of torchtitan 0.2.2's tests/integration_tests/base_config.toml and the two options of its case "default", unchanged, on four ranks as
        there; only batch and sequence are smaller, and the ranks have no GPUs."""
        config = self.folder / "base_config.toml"
        config.write_text(BASE_CONFIG)
        done = subprocess.run([TITANIUM, "launch", "--nproc-per-node", "4", "--", "train", f"--job.config_file={config}", f"--job.dump_folder={self.folder}/run",
                               "--profiling.enable_profiling", "--metrics.enable_tensorboard",
                               "--training.device=cpu", "--training.seq_len=16", "--training.local_batch_size=2"],
                              cwd=ROOT, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("Training completed", done.stdout)
        self.assertEqual(self.traces(), [f"iteration_10/rank{rank}_trace.json" for rank in range(4)])
        for rank in range(4):
            trace = self.read(f"iteration_10/rank{rank}_trace.json")
            self.assertEqual(trace["distributedInfo"], {"backend": "gloo", "rank": rank, "world_size": 4})
            ranges = self.ranges(trace)
            for name in ("ProfilerStep#10", "all_gather fsdp", "wait for all_gather fsdp", "reduce_scatter fsdp", "all_reduce fsdp"):
                self.assertIn(name, list(ranges))
        (events,) = (self.folder / "run/tb").rglob("events.out.tfevents.*")
        curves = EventAccumulator(str(events.parent), size_guidance={"scalars": 0}).Reload()
        losses = curves.Scalars("loss_metrics/global_avg_loss")
        self.assertEqual([point.step for point in losses], list(range(1, 11)))
        self.assertLess(losses[-1].value, losses[0].value)
        logged = [json.loads(line)["loss"] for line in (self.folder / "run/metrics.jsonl").read_text().splitlines()]
        for point, loss in zip(losses, logged, strict=True):
            self.assertAlmostEqual(point.value, loss, places=5)

    def test_actions_of_a_pipeline_are_ranges(self):
        self.train("--training.steps=2", "--training.local_batch_size=4", "--parallelism.pipeline_parallel_degree=2",
                   "--parallelism.pipeline_parallel_schedule=1F1B", "--profiling.enable_profiling", "--profiling.profile_freq=2",
                   "--profiling.profiler_warmup=1", ranks=2)
        first, last = (self.ranges(self.read(f"iteration_2/rank{rank}_trace.json")) for rank in (0, 1))
        for batch in range(4):
            self.assertIn(f"pipeline 0F{batch}", list(first))
            self.assertIn(f"pipeline 0SEND_F{batch}", list(first))
            self.assertIn(f"pipeline 1B{batch}", list(last))
            self.assertIn(f"pipeline 1RECV_F{batch}", list(last))
        self.assertIn("send pp", list(first))
        self.assertIn("wait for receive pp", list(last))
        self.assertIn("layers.0", list(first))
        self.assertNotIn("layers.0", list(last))

    def test_a_trace_that_cannot_be_written_is_a_warning(self):
        (self.folder / "run").mkdir()
        (self.folder / "run/profile_trace").write_text("in the way")
        out = self.train("--training.steps=2", "--profiling.enable_profiling", "--profiling.profile_freq=2", "--profiling.profiler_warmup=0")
        self.assertRegex(out, r"WARNING - the trace .*/iteration_2/rank0_trace.json cannot be written: .*Not a directory.*\. "
                              r"Check the folder and its free space\.")
        self.assertIn("Training completed", out)

    def test_a_picture_of_a_trace_has_the_shares_of_the_step(self):
        def event(category, name, begin, length):
            return {"cat": category, "name": name, "ts": begin, "dur": length, "args": {}}

        # A step of 100 us that begins at 1000: 40 us of products, 20 of attention, 20 of AdamW, 10 of a copy, 10 idle.
        ranges = [event("gpu_user_annotation", *words) for words in (("ProfilerStep#3", 1000, 100), ("head_loss", 1030, 10), ("attention backward", 1040, 30),
                                                                    ("optimizer", 1080, 20))]
        work = [event("kernel", "nvjet_before", 900, 50), event("kernel", "nvjet_a", 1000, 40), event("kernel", "flash_bprop<&>", 1040, 20),
                event("gpu_memcpy", "Memcpy", 1060, 10), event("kernel", "adamw_kernel", 1080, 20)]
        trace, picture = self.folder / "trace.json", self.folder / "trace.svg"
        trace.write_text(json.dumps({"traceEvents": ranges + work}))
        words = ["python3", ROOT / "bench/trace_picture.py", trace, "--out", picture]
        done = subprocess.run([*words, "--step", "3", "--title", "<8B>"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        shares = dict(re.findall(r"\| ([a-z ]+) \| [\d.]+ \| ([\d.]+) % \|", done.stdout))
        self.assertEqual({kind: float(share) for kind, share in shares.items()},
                         {"matrix products": 40, "attention": 20, "optimizer and norm": 20, "copies": 10, "idle": 10})
        self.assertIn("| backward | 0.0 |", done.stdout)
        words_shown = [element.text for element in xml.etree.ElementTree.parse(picture).iter() if element.tag.endswith("text")]
        self.assertIn("<8B>", words_shown)
        self.assertIn("matrix products 40.0 %", words_shown)
        missing = subprocess.run([*words, "--step", "4"], capture_output=True, text=True)
        self.assertEqual((missing.returncode, missing.stderr.strip()),
                         (1, "the trace has no work of a GPU in ProfilerStep#4; it has ProfilerStep#3. Choose with --step."))

    def test_memory_snapshots_need_a_gpu(self):
        done = self.run_program("--profiling.enable_memory_snapshot")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, "titanium: profiling.enable_memory_snapshot = true needs a GPU, because it shows the GPU's memory; "
                                      "this run is on the CPU. Leave it off.\n")

    def test_tools_of_nvidia_see_the_ranges_without_the_profiler(self):
        if not LISTENER.exists():
            skip(self, "a build without CUDA has no NVTX")
        log = self.folder / "ranges"
        self.train("--training.steps=1", environment={"NVTX_INJECTION64_PATH": str(LISTENER), "NVTX_LISTENER_LOG": str(log)})
        lines = log.read_text().splitlines()
        opened = [line[1:] for line in lines if line.startswith("+")]
        self.assertEqual(len(opened), lines.count("-"), "each range ends")
        for name in ("data wait", "layers.2", "attention", "attention backward", "optimizer"):
            self.assertIn(name, opened)


if __name__ == "__main__":
    unittest.main()
