"""Checkpoints in a bucket: saved, listed, verified, resumed, removed, killed and converted, through a server that fails."""

import json
import os
import pathlib
import signal
import subprocess
import unittest

import s3_case
import s3_server
import tiny_assets

TITANIUM = os.environ["TITANIUM"]
# Large enough that files are uploaded in parts.
SIZES = {"hidden_size": 384, "intermediate_size": 384, "num_attention_heads": 8, "num_key_value_heads": 2}


class ObjectCheckpoints(s3_case.S3Case):
    @classmethod
    def put_objects(cls):
        cls.server.put("runs", "readme.txt", b"a bucket")
        cls.options = tiny_assets.make(cls.assets("tiny")) + ["--training.local_batch_size=2", "--checkpoint.enable", "--checkpoint.interval=2", "--checkpoint.no_last_save_model_only"]
        tiny_assets.make(cls.assets("larger"))
        (cls.assets("larger") / "config.json").write_text(json.dumps({**tiny_assets.CONFIG, **SIZES}))

    @classmethod
    def assets(cls, name):
        return pathlib.Path(cls.folder.name) / name

    def command(self, folder, *options, ranks=1):
        launch = [TITANIUM, "launch", "--nproc-per-node", str(ranks), "--", "train"] if ranks > 1 else [TITANIUM, "train"]
        return launch + [*self.options, f"--job.dump_folder={self.home}", f"--checkpoint.folder={folder}", *options]

    def train(self, folder, steps, *options, ranks=1, code=0, **environment):
        command = self.command(folder, f"--training.steps={steps}", *options, ranks=ranks)
        run = subprocess.run(command, capture_output=True, text=True, env=self.environment(**environment), timeout=200)
        self.assertEqual(run.returncode, code, run.stdout[-3000:] + run.stderr[-3000:])
        for secret in (s3_server.SECRET, "Signature="):
            self.assertNotIn(secret, run.stdout + run.stderr)
        return run.stdout + run.stderr

    def losses(self):
        (path,) = self.home.rglob("metrics.jsonl")
        return {line["step"]: line["loss"] for line in map(json.loads, path.read_text().splitlines()) if "loss" in line}

    def tool(self, *arguments, code=0):
        run = subprocess.run([TITANIUM, "checkpoint", *arguments], capture_output=True, text=True, env=self.environment())
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        return run.stdout + run.stderr

    def test_a_run_goes_on_from_a_bucket_as_from_the_disk(self):
        larger = f"--model.hf_assets_path={self.assets('larger')}"
        self.train("folder", 6, larger)
        expected = self.losses()
        for path in self.home.rglob("metrics.jsonl"):
            path.unlink()
        self.proxy.write_faults = [503, None, "reset", None, "lost", None, None, "lost", 503, None, "reset", "lost"]
        self.train("s3://runs/a", 6, larger, "--checkpoint.async_mode=async", "--training.global_batch_size=2")
        self.assertEqual(self.losses(), expected)
        self.assertEqual(self.proxy.write_faults, [])
        parts = [path for method, path, _ in self.proxy.requests if method == "PUT" and "partNumber=2" in path]
        self.assertTrue(parts)
        listed = self.tool("list", "s3://runs/a").splitlines()
        self.assertEqual([line.split(":")[1] for line in listed], ["//runs/a/step-2", "//runs/a/step-4", "//runs/a/step-6"])
        self.assertNotIn("not whole", "".join(listed))
        self.assertIn("complete, and all bytes agree with the checksums of titanium.json", self.tool("verify", "s3://runs/a/step-4"))
        self.proxy.faults = [None, None, 503, "reset", "short", None, "less"]
        output = self.train("s3://runs/a", 6, larger, "--checkpoint.load_step=4", "--training.global_batch_size=2", "--parallelism.data_parallel_shard_degree=2", "--training.local_batch_size=1", ranks=2)
        self.assertIn("Loading the checkpoint from s3://runs/a/step-4", output)
        self.assertEqual(sorted(self.losses()), [1, 2, 3, 4, 5, 6])
        for step, loss in self.losses().items():
            self.assertAlmostEqual(loss, expected[step], delta=2e-5 * loss, msg=str(step))
        self.tool("verify", "s3://runs/a/step-6")  # written by two ranks, over the one that was there

    def kill_at(self, moment, command, kind="PUT"):
        """Runs the command and kills it when it writes an object whose name ends so, or with another kind of request removes it."""
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment())
        killed = []

        def kill(method, path):
            if method == kind and path.split("?")[0].endswith(moment) and not killed:
                killed.append(path)
                self.proxy.down = True  # what it sends now does not arrive
                run.send_signal(signal.SIGKILL)

        self.proxy.on_write = kill
        run.wait(100)
        self.proxy.on_write, self.proxy.down = lambda method, path: None, False
        self.assertEqual((run.returncode, len(killed)), (-signal.SIGKILL, 1))

    def test_a_killed_save_leaves_nothing_that_is_taken_for_a_checkpoint(self):
        self.train("s3://runs/b", 2)
        for moment in ("/step-4/titanium.json", "/step-4/.metadata"):
            with self.subTest(moment):
                self.kill_at(moment, self.command("s3://runs/b", "--training.steps=4"))
                self.assertIn("s3://runs/b/step-4", self.tool("list", "s3://runs/b"))
                self.assertIn("not whole: it is never loaded", self.tool("list", "s3://runs/b"))
        output = self.train("s3://runs/b", 3, "--checkpoint.keep_latest_k=2")
        self.assertIn("Removed s3://runs/b/step-4, which a run has left that did not end its work on it", output)
        self.assertIn("Loading the checkpoint from s3://runs/b/step-2", output)
        self.assertNotIn("step-4", self.tool("list", "s3://runs/b"))

    HUGGING_FACE = ("--checkpoint.last_save_model_only", "--checkpoint.last_save_in_hf")

    def test_the_last_save_may_be_hugging_face_weights(self):
        larger = f"--model.hf_assets_path={self.assets('larger')}"
        self.train("folder", 3, larger, *self.HUGGING_FACE)
        (expected,) = self.home.rglob("folder/step-3")
        files = {path.name: path.read_bytes() for path in expected.iterdir()}
        for layout in ((), ("--parallelism.data_parallel_shard_degree=2", "--training.local_batch_size=1"), ("--parallelism.tensor_parallel_degree=2",)):
            with self.subTest(layout):
                self.proxy.write_faults = [503, None, "reset", None, "lost", None, None, "lost", 503]
                address = f"s3://runs/hf{len(layout)}"
                self.train(address, 3, larger, *self.HUGGING_FACE, *layout, ranks=2 if layout else 1)
                self.assertEqual(self.proxy.write_faults, [])
                self.assertEqual(self.server.names("runs", f"hf{len(layout)}/step-3/"), set(files))
                if not layout:
                    for name, content in files.items():
                        self.assertEqual(self.server.get("runs", f"hf0/step-3/{name}"), content, name)
                self.assertIn("complete, and all bytes agree with the checksums of titanium.json", self.tool("verify", f"{address}/step-3"))
        puts = [path.split("?")[0].rsplit("/", 1)[1] for method, path, _ in self.proxy.requests if method in ("PUT", "POST") and "/hf0/step-3/" in path]
        self.assertEqual((puts[0], puts[-1]), (".unfinished", "model.safetensors"))
        told = self.train("s3://runs/told", 1, larger, *self.HUGGING_FACE, TITANIUM_PROGRESS_SECONDS="0")
        self.assertRegex(told, r"(?m)^uploading the weights: 100% \(.* of .*\)")
        self.assertIn("Loading the checkpoint from s3://runs/hf0/step-3", self.train("s3://runs/hf0", 3, larger, *self.HUGGING_FACE))
        self.train("other", 1, larger, "--checkpoint.initial_load_path=s3://runs/hf0/step-3", "--checkpoint.initial_load_in_hf")

    def test_killed_hugging_face_weights_are_removed(self):
        self.train("s3://runs/e", 2, "--checkpoint.keep_latest_k=0")
        for moment in ("/step-3/config.json", "/step-3/titanium.json", "/step-3/model.safetensors"):
            with self.subTest(moment):
                self.kill_at(moment, self.command("s3://runs/e", "--training.steps=3", *self.HUGGING_FACE))
                self.assertIn(".unfinished", self.server.names("runs", "e/step-3/"))
                self.assertIn("not whole: it is never loaded", self.tool("list", "s3://runs/e"))
                output = self.train("s3://runs/e", 2)
                self.assertIn("Removed s3://runs/e/step-3, which a run has left that did not end its work on it", output)
                self.assertEqual(self.server.names("runs", "e/step-3/"), set())

    def test_hugging_face_weights_that_were_about_to_be_removed_are_removed(self):
        self.train("s3://runs/l", 2)
        command = self.command("s3://runs/l", "--training.steps=3", "--checkpoint.load_step=2", *self.HUGGING_FACE)
        subprocess.run(command, check=True, capture_output=True, env=self.environment())
        self.kill_at("/step-3/config.json", command, "DELETE")  # which comes after its marker
        self.assertLess({".unfinished"}, self.server.names("runs", "l/step-3/"))
        self.assertIn("Removed s3://runs/l/step-3, which a run has left", self.train("s3://runs/l", 2))
        self.assertEqual(self.server.names("runs", "l/step-3/"), set())

    def test_whole_hugging_face_weights_stay_when_their_mark_does_not_go(self):
        self.proxy.denies = lambda method, path: method == "DELETE" and path.endswith("/.unfinished")
        output = self.train("s3://runs/h", 1, *self.HUGGING_FACE)
        self.assertIn("s3://runs/h/step-1/.unfinished cannot be removed, though what is beside it is whole: ", output)
        self.assertIn("complete", self.tool("verify", "s3://runs/h/step-1"))
        self.proxy.denies = lambda method, path: False
        self.assertIn("Loading the checkpoint from s3://runs/h/step-1", self.train("s3://runs/h", 1, *self.HUGGING_FACE))
        self.assertNotIn(".unfinished", self.server.names("runs", "h/step-1/"))

    def test_converted_weights_go_to_a_bucket(self):
        larger = f"--model.hf_assets_path={self.assets('larger')}"
        self.train("s3://runs/f", 2, larger)
        source, assets = "s3://runs/f/step-2", ("--hf-assets", str(self.assets("larger")))
        hf, dcp, torch_file = (f"s3://runs/converted/{name}" for name in ("hf", "dcp", "weights.pt"))
        self.assertRegex(self.convert(source, hf, "--to", "hf", *assets, TITANIUM_PROGRESS_SECONDS="0"), r"(?m)^uploading: 100% \(.* of .*\)")
        self.convert(hf, dcp, "--to", "dcp")
        self.convert(dcp, torch_file, "--to", "torch")
        self.convert(torch_file, str(self.home / "back"), "--to", "hf", *assets)
        self.convert(source, str(self.home / "direct"), "--to", "hf", *assets)
        self.assertEqual((self.home / "back/model.safetensors").read_bytes(), (self.home / "direct/model.safetensors").read_bytes())
        for place in (hf, dcp):
            self.assertIn("complete", self.tool("verify", place))
        self.assertIn(f"{hf} exists. Name another place, or give --force to replace it.", self.convert(source, hf, "--to", "hf", *assets, code=2))
        self.assertIn(f"{torch_file} exists.", self.convert(dcp, torch_file, "--to", "torch", code=2))
        self.train("s3://runs/f", 4, larger)
        self.convert("s3://runs/f/step-4", hf, "--to", "hf", "--force", *assets)  # other bytes of the same sizes
        self.convert(hf, str(self.home / "again"), "--to", "hf", *assets)
        self.convert("s3://runs/f/step-4", str(self.home / "direct_again"), "--to", "hf", *assets)
        self.assertEqual((self.home / "again/model.safetensors").read_bytes(), (self.home / "direct_again/model.safetensors").read_bytes())
        self.assertNotEqual((self.home / "again/model.safetensors").read_bytes(), (self.home / "back/model.safetensors").read_bytes())
        self.assertIn("s3://runs/converted is a folder that holds something else", self.convert(source, "s3://runs/converted", "--to", "hf", "--force", *assets, code=2))
        self.assertIn("https://host/x cannot be written: only s3:// and gs:// can.", self.convert(source, "https://host/x", "--to", "hf", *assets, code=2))

    # As torch writes it, without our file of checksums: the parts that a rank needs are read where they are.
    def test_what_another_program_has_written_is_read_in_place(self):
        larger = f"--model.hf_assets_path={self.assets('larger')}"
        self.train("there", 2, larger)
        (step,) = self.home.rglob("step-2")
        for path in step.iterdir():
            if path.name != "titanium.json":
                self.server.put("runs", f"foreign/{path.name}", path.read_bytes())
        begin = ["--checkpoint.no_initial_load_model_only", larger]
        self.train("other/disk", 4, f"--checkpoint.initial_load_path={step}", *begin)
        expected = self.losses()
        for path in self.home.rglob("metrics.jsonl"):
            path.unlink()
        self.proxy.faults = [None, 503, None, "short"]
        self.train("other/bucket", 4, "--checkpoint.initial_load_path=s3://runs/foreign", *begin, "--training.global_batch_size=2", "--training.local_batch_size=1", ranks=2)
        self.assertEqual(list(self.losses()), [3, 4])
        for step_number, loss in self.losses().items():
            self.assertAlmostEqual(loss, expected[step_number], delta=2e-4)
        self.assertEqual(list((self.home / ".cache").rglob("*.distcp")), [])
        self.assertIn("complete", self.tool("verify", "s3://runs/foreign"))
        (largest,) = sorted(self.server.names("runs", "foreign/") & {path.name for path in step.glob("*.distcp")}, key=lambda name: (step / name).stat().st_size)[-1:]
        damaged = bytearray((step / largest).read_bytes())
        damaged[len(damaged) // 2] ^= 1
        self.server.put("runs", f"foreign/{largest}", bytes(damaged))
        self.assertIn("checksum of bytes", self.tool("verify", "s3://runs/foreign", code=1))
        self.server.request("DELETE", f"/runs/foreign/{largest}")
        self.assertIn(f"{largest}, which is missing", self.tool("verify", "s3://runs/foreign", code=1))

    def test_conversions_that_did_not_end_are_replaced(self):
        self.train("s3://runs/j", 2)
        source, assets = "s3://runs/j/step-2", ("--hf-assets", str(self.assets("tiny")))
        for kind, moment in (("hf", "/config.json"), ("dcp", "/titanium.json")):
            target = f"s3://runs/unfinished/{kind}"
            command = [TITANIUM, "convert", source, target, "--to", kind, *(assets if kind == "hf" else ())]
            with self.subTest(kind):
                self.kill_at(moment, command)
                self.assertIn(".unfinished", self.server.names("runs", f"unfinished/{kind}/"))
                self.assertIn(f"{target} exists.", self.convert(*command[2:], code=2))
                self.convert(*command[2:], "--force")
                self.assertIn("complete", self.tool("verify", target))
                self.kill_at(moment, [*command, "--force"], "DELETE")  # when the marker is gone
                self.proxy.denies = lambda method, path: method == "PUT" and path.endswith(moment)
                self.assertIn(f"{target}{moment}: access is denied", self.convert(*command[2:], "--force", code=2))
                self.assertEqual(self.server.names("runs", f"unfinished/{kind}/"), set())
                self.proxy.denies = lambda method, path: False
                self.convert(*command[2:])
                self.assertIn("complete", self.tool("verify", target))
                self.assertNotIn(".unfinished", self.server.names("runs", f"unfinished/{kind}/"))

    def test_what_a_killed_conversion_has_left_on_this_machine_is_not_sent(self):
        self.train("s3://runs/k", 2)
        script = 'mkdir $TMPDIR/titanium-convert-$$ && echo stale > $TMPDIR/titanium-convert-$$/stale.txt && exec "$@"'  # $$ stays the number of the process
        command = [TITANIUM, "convert", "s3://runs/k/step-2", "s3://runs/fresh", "--to", "hf", "--hf-assets", str(self.assets("tiny"))]
        temporary = self.home / "temporary"
        temporary.mkdir()
        subprocess.run(["sh", "-c", script, "sh", *command], check=True, capture_output=True, env=self.environment(TMPDIR=str(temporary)))
        self.assertIn("model.safetensors", self.server.names("runs", "fresh/"))
        self.assertNotIn("stale.txt", self.server.names("runs", "fresh/"))
        self.assertEqual(len(list(temporary.iterdir())), 1)

    def convert(self, *arguments, code=0, **environment):
        run = subprocess.run([TITANIUM, "convert", *arguments], capture_output=True, text=True, env=self.environment(**environment))
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        return run.stdout + run.stderr

    def test_old_steps_are_removed_and_damage_is_found(self):
        output = self.train("s3://runs/c", 8, "--checkpoint.keep_latest_k=2")
        self.assertIn("Removed the old checkpoint of step 2", output)
        self.assertNotIn("step-2:", self.tool("list", "s3://runs/c"))
        self.train("other", 1, "--checkpoint.initial_load_path=s3://runs/c/step-8")
        self.server.put("runs", "c/step-8/__0_1.distcp", b"x" * 1000)
        self.assertIn("s3://runs/c/step-8", self.tool("verify", "s3://runs/c/step-8", code=1))

    def test_mistakes_have_their_sentences(self):
        for folder, options, environment, sentence in (
            ("s3://runs/d", [], dict(secret="wrong"), "s3://runs/d/: access is denied: the key or its secret is wrong. Check the credentials and the bucket's permissions."),
            ("s3://nowhere/d", [], {}, "s3://nowhere/d/: there is no bucket nowhere. Check its name and the region."),
            ("https://host/d", [], {}, "checkpoint.folder = https://host/d cannot be written: only s3:// and gs:// can. Name one of them, or a folder."),
        ):
            with self.subTest(sentence):
                self.assertIn(sentence, self.train(folder, 1, *options, code=2, **environment))
        self.assertIn("s3://runs/none has no checkpoints: no folders step-<N>. Check the path.", self.tool("list", "s3://runs/none", code=2))

    def test_buckets_of_google_speak_the_same_protocol(self):
        google = dict(key="", STORAGE_EMULATOR_HOST=self.proxy.host, GS_ACCESS_KEY_ID=s3_server.KEY, GS_SECRET_ACCESS_KEY=s3_server.SECRET)
        self.train("gs://runs/g", 2, **google)
        output = self.train("gs://runs/g", 3, **google)
        self.assertIn("Loading the checkpoint from gs://runs/g/step-2", output)
        self.assertIn("gs://runs/g/: access is denied: the key or its secret is wrong.", self.train("gs://runs/g", 3, code=2, **{**google, "GS_SECRET_ACCESS_KEY": "wrong"}))


if __name__ == "__main__":
    unittest.main()
