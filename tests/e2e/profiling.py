"""Traces of the whole program: which steps are recorded, where the files are, and which ranges they hold."""

import collections
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
TITANIUM = os.environ["TITANIUM"]
LISTENER = pathlib.Path(os.environ["TITANIUM_BUILD"]) / "libnvtx_listener.so"
OPTIONS = f"""
--job.config_file={ROOT}/configs/llama3/debug_model.toml --model.hf_assets_path={ROOT}/tests/assets/tokenizer
--training.dataset=c4_test --training.dataset_path={ROOT}/tests/assets/c4_test --training.seq_len=16
--training.local_batch_size=2 --training.mixed_precision_param=float32 --training.device=cpu
--metrics.disable_color_printing
""".split()


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

    def test_every_rank_writes_its_collectives(self):
        """The options are those of torchtitan's integration test "default", with its schedule of ten steps."""
        self.train("--training.steps=10", "--profiling.enable_profiling", "--metrics.enable_tensorboard", ranks=2)
        self.assertEqual(self.traces(), ["iteration_10/rank0_trace.json", "iteration_10/rank1_trace.json"])
        trace = self.read("iteration_10/rank1_trace.json")
        self.assertEqual(trace["distributedInfo"], {"backend": "gloo", "rank": 1, "world_size": 2})
        ranges = self.ranges(trace)
        for name in ("all_gather fsdp", "wait for all_gather fsdp", "reduce_scatter fsdp", "all_reduce fsdp"):
            self.assertIn(name, list(ranges))

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

    @unittest.skipUnless(LISTENER.exists(), "a build without CUDA has no NVTX")
    def test_tools_of_nvidia_see_the_ranges_without_the_profiler(self):
        log = self.folder / "ranges"
        self.train("--training.steps=1", environment={"NVTX_INJECTION64_PATH": str(LISTENER), "NVTX_LISTENER_LOG": str(log)})
        lines = log.read_text().splitlines()
        opened = [line[1:] for line in lines if line.startswith("+")]
        self.assertEqual(len(opened), lines.count("-"), "each range ends")
        for name in ("data wait", "layers.2", "attention", "attention backward", "optimizer"):
            self.assertIn(name, opened)


if __name__ == "__main__":
    unittest.main()
