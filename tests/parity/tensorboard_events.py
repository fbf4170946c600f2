"""The real tensorboard package reads our event files."""

import io
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import PIL.Image
from tensorboard.backend.event_processing import event_file_loader
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

DRIVER = os.path.join(os.environ["TITANIUM_BUILD"], "tensorboard_events_driver")
LOGGED = [1] + list(range(5, 1001, 5))

# Everything but the losses is constant: 8,000 tokens a second over 4 ranks, with 5 steps of 1 s between logs.
EXPECTED = {
    "grad_norm": 0.5, "throughput(tps)": 2000, "tflops": 12, "mfu(%)": 12, "time_metrics/end_to_end(s)": 1,
    "time_metrics/data_loading(s)": 0.25, "time_metrics/data_loading(%)": 25, "memory/max_active(GiB)": 1,
    "memory/max_active(%)": 10, "memory/max_reserved(GiB)": 2, "memory/max_reserved(%)": 20, "memory/num_alloc_retries": 3,
    "memory/num_ooms": 4, "lr": 1e-4,
}
VALIDATION = {
    "validation_metrics/loss": 0.75, "validation_metrics/throughput(tps)": 2000, "validation_metrics/memory/max_active(GiB)": 1,
    "validation_metrics/memory/max_active(%)": 10, "validation_metrics/memory/max_reserved(GiB)": 2,
    "validation_metrics/memory/max_reserved(%)": 20,
}


class Events(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        subprocess.run([DRIVER, self.folder], check=True)
        (self.logs,) = (self.folder / "tb").iterdir()
        self.assertRegex(self.logs.name, r"^\d{8}-\d{4}$")

    def test_every_scalar_is_read(self):
        accumulator = EventAccumulator(str(self.logs), size_guidance={"scalars": 0})
        accumulator.Reload()
        self.assertEqual(accumulator.file_version, 2.0)
        tags = set(accumulator.Tags()["scalars"])
        losses = {"loss_metrics/global_avg_loss", "loss_metrics/global_max_loss", "n_tokens_seen"}
        self.assertEqual(tags, losses | EXPECTED.keys() | VALIDATION.keys())
        scalars = {tag: {event.step: event.value for event in accumulator.Scalars(tag)} for tag in tags}
        for step in LOGGED:
            self.assertAlmostEqual(scalars["loss_metrics/global_avg_loss"][step] * step, 1, places=6)
            self.assertAlmostEqual(scalars["loss_metrics/global_max_loss"][step] * step, 2, places=6)
            self.assertEqual(scalars["n_tokens_seen"][step], 8000 * step)
        for tag, value in EXPECTED.items():
            self.assertEqual(sorted(scalars[tag]), LOGGED)
            self.assertAlmostEqual(scalars[tag][1000] / value, 1, places=6, msg=tag)
        for tag, value in VALIDATION.items():
            self.assertEqual(scalars[tag], {500: value, 1000: value})

    def test_images_are_read_with_their_captions(self):
        accumulator = EventAccumulator(str(self.logs), size_guidance={"images": 0, "tensors": 0})
        accumulator.Reload()
        self.assertEqual(set(accumulator.Tags()["images"]), {"validation_images/0", "validation_images/1"})
        drawn = accumulator.Images("validation_images/0")
        self.assertEqual([(image.step, image.width, image.height) for image in drawn], [(500, 3, 2), (1000, 3, 2)])
        for image, grey in zip(drawn, (50, 100)):
            picture = PIL.Image.open(io.BytesIO(image.encoded_image_string))
            self.assertEqual((picture.size, picture.mode, set(picture.tobytes())), ((3, 2), "RGB", {grey}))
        # As the page of images asks for them.
        (path,) = self.logs.iterdir()
        values = [value for event in event_file_loader.EventFileLoader(str(path)).Load() for value in event.summary.value]
        images = [value for value in values if value.metadata.plugin_data.plugin_name == "images"]
        self.assertEqual([value.metadata.summary_description for value in images], 2 * ["a *red* circle", "a blue square"])

    def test_records_are_whole_and_times_are_now(self):
        (path,) = self.logs.iterdir()
        times = [event.wall_time for event in event_file_loader.EventFileLoader(str(path)).Load()]
        self.assertEqual(len(times), 1 + len(LOGGED) + 2 + 2)
        self.assertLess(abs(times[0] - os.stat(path).st_mtime), 600)
        self.assertEqual(times, sorted(times))

    def test_damage_is_noticed_by_the_checksum(self):
        (path,) = self.logs.iterdir()
        content = bytearray(path.read_bytes())
        content[100] ^= 1
        path.write_bytes(content)
        try:
            read = len(list(event_file_loader.EventFileLoader(str(path)).Load()))
        except Exception:  # either answer will do, as long as the damage is not read as data
            read = 0
        self.assertLess(read, 3)

    def test_jsonl_has_one_object_for_each_logged_step_and_validation(self):
        lines = [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([line["validation_loss"] for line in lines if "validation_loss" in line], [0.75, 0.75])
        lines = [line for line in lines if "validation_loss" not in line]
        self.assertEqual([line["step"] for line in lines], LOGGED)
        keys = ["step", "loss", "max_loss", "grad_norm", "lr", "tps", "tflops", "mfu", "memory_gib", "memory_active_gib", "tokens", "time_s",
                "step_s", "data_wait_percent", "unix_s"]
        for line in lines:
            self.assertEqual(list(line), keys)
        self.assertEqual(lines[-1]["tokens"], 8_000_000)
        self.assertEqual(lines[1]["loss"], 0.2)


if __name__ == "__main__":
    unittest.main()
