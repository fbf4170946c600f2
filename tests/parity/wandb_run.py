"""wandb's own reader opens what runs of the whole program write for Weights & Biases."""

import importlib.util
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

PROGRAM = os.environ["TITANIUM"]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CORE = pathlib.Path(importlib.util.find_spec("wandb").submodule_search_locations[0]) / "bin" / "wandb-core"
NAMES = {"WANDB_TEAM": "team", "WANDB_PROJECT": "project", "WANDB_RUN_NAME": "name", "WANDB_RUN_NOTES": "notes", "WANDB_RUN_TAGS": "one,two",
         "WANDB_RUN_GROUP": "group", "WANDB_RUN_JOB_TYPE": "pretraining"}


class WandbRun(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def train(self, *options, launcher=(), **variables):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
        command = [PROGRAM, *launcher, "train", "--job.config_file=configs/llama3/debug_model.toml", "--training.device=cpu", "--training.seq_len=32",
                   "--training.local_batch_size=2", f"--job.dump_folder={self.folder}", "--metrics.log_freq=1", "--metrics.enable_wandb", *options]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=clean | variables)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def runs(self):
        return sorted(self.folder.rglob("*.wandb"), key=lambda path: path.stat().st_mtime_ns)

    def inspect(self, path, *options):
        command = [CORE, "leet", "inspect", "-no-observability", "-json", *options, "-run-file", path]
        done = subprocess.run(command, capture_output=True, text=True, env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def records(self, path):
        return [json.loads(line) for line in self.inspect(path).splitlines()]

    def test_a_run_has_names_config_history_summary_usage_and_end(self):
        output = self.train("--training.steps=3", "--metrics.enable_tensorboard", "--validation.enable", "--validation.dataset=c4_test_validation",
                            "--validation.seq_len=32", "--validation.steps=1", **NAMES)
        self.assertIn("WandB logging enabled", output)
        (path,) = self.runs()
        self.assertRegex(str(path.relative_to(self.folder)), r"^tb/\d{8}-\d{4}/wandb/offline-run-\d{8}_\d{6}-(\w{8})/run-\1\.wandb$")
        records = self.records(path)
        self.assertEqual([record["num"] for record in records], list(range(1, len(records) + 1)))
        (run,) = [record["run"] for record in records if record["type"] == "run"]
        self.assertEqual([run["entity"], run["project"], run["display_name"], run["notes"], run["tags"], run["run_group"], run["job_type"]],
                         ["team", "project", "name", "notes", ["one", "two"], "group", "pretraining"])
        self.assertEqual(run["config"]["update"]["training"]["steps"], 3)
        history = [record["history"]["item"] for record in records if record["type"] == "history"]
        self.assertEqual([item["_step"] for item in history], [1, 1, 2, 3])  # with a validation at the first step
        (usage, *_) = [record["stats"]["item"] for record in records if record["type"] == "stats"]
        self.assertGreater(usage["proc.memory.rssMB"], 10)
        summary = json.loads(self.inspect(path, "-summary"))
        self.assertEqual((summary["state"], summary["exit_code"], summary["step"]), ("finished", 0, 3))
        self.assertEqual(summary["summary"]["lr"], history[-1]["lr"])
        self.check_tensorboard_agrees(path.parents[2], history)

    def check_tensorboard_agrees(self, folder, history):
        events = EventAccumulator(str(folder))
        events.Reload()
        for tag in events.Tags()["scalars"]:
            for event in events.Scalars(tag):
                (value,) = [item[tag] for item in history if item["_step"] == event.step and tag in item]
                self.assertAlmostEqual(float(value), event.value, delta=1e-6 * max(1, abs(event.value)), msg=tag)

    def test_what_the_driver_says_of_gpus_is_among_the_system_metrics(self):
        (self.folder / "driver").mkdir()
        (self.folder / "driver/libnvidia-ml.so.1").symlink_to(pathlib.Path(os.environ["TITANIUM_BUILD"]).resolve() / "libnvml_stand_in.so")
        self.train("--training.steps=1", LD_LIBRARY_PATH=str(self.folder / "driver"))
        (path,) = self.runs()
        (usage, *_) = [record["stats"]["item"] for record in self.records(path) if record["type"] == "stats"]
        self.assertEqual((usage["gpu.0.gpu"], usage["gpu.0.temp"], usage["gpu.0.powerWatts"], usage["gpu.1.memoryAllocated"]), (97, 63, 525, 50))

    def test_a_resumed_run_keeps_its_id(self):
        saves = ["--checkpoint.enable", "--checkpoint.interval=2", "--checkpoint.no_last_save_model_only"]
        self.train("--training.steps=2", *saves)
        self.train("--training.steps=4", *saves)
        first, second = [next(record["run"] for record in self.records(path) if record["type"] == "run") for path in self.runs()]
        self.assertEqual(first["run_id"], second["run_id"])
        self.assertEqual((second.get("resumed"), int(second["starting_step"])), (True, 2))
        self.assertNotIn("resumed", first)
        self.assertEqual((self.folder / "wandb_run_id").read_text(), first["run_id"] + "\n")

    def test_every_rank_writes_where_that_is_asked_for(self):
        self.train("--training.steps=1", "--metrics.save_for_all_ranks", "--metrics.enable_tensorboard",
                   launcher=("launch", "--nproc-per-node", "2", "--"), WANDB_RUN_ID="mine")
        folders = sorted(str(path.relative_to(self.folder).parents[2].name) for path in self.runs())
        self.assertEqual(folders, ["rank_0", "rank_1"])
        self.assertEqual(sorted(path.parent.name for path in self.folder.rglob("events.out.*")), ["rank_0", "rank_1"])
        self.assertEqual(sorted(path.name for path in (self.folder / "metrics_by_rank").iterdir()), ["rank_0.jsonl", "rank_1.jsonl"])
        self.assertEqual({path.name for path in self.runs()}, {"run-mine.wandb"})

    def test_disabled_writes_nothing(self):
        self.train("--training.steps=1", WANDB_MODE="disabled")
        self.assertEqual(self.runs(), [])

    def test_an_id_that_wandb_refuses_is_refused(self):
        with self.assertRaises(AssertionError) as refused:
            self.train("--training.steps=1", WANDB_RUN_ID="a/b")
        self.assertIn("WANDB_RUN_ID = a/b should have at most 128 characters and none of / \\ # ? % :.", str(refused.exception))


if __name__ == "__main__":
    unittest.main()
