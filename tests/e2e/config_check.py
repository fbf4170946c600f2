"""`titanium config check` says what `titanium train` would say, for everything that needs no device."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["TITANIUM"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
DEBUG = "configs/llama3/debug_model_cpu.toml"
NOWHERE = "/nowhere/at/all"
TENSOR = "--parallelism.tensor_parallel_degree="
PIPELINE = "--parallelism.pipeline_parallel_degree=2"
SCHEDULE = "--parallelism.pipeline_parallel_schedule="

# What the sentence has to say, the ranks of the run, and the options.
REFUSED = [
    ('model.flavor = "9B" is not a flavor of llama3', 1, ["--model.flavor=9B"]),
    ("config.json", 1, ["--model.flavor=auto"]),
    ("does not divide the model's 16 heads", 3, [TENSOR + "3", "--training.seq_len=48"]),
    ("training.seq_len = 50 is not divisible by 4", 2, [TENSOR + "2", "--training.seq_len=50"]),
    ("the degrees ask for 2 ranks", 3, [TENSOR + "2"]),
    ("needs model.attn_type", 1, ["--model.attn_type=sdpa", "--model.attn_mask_type=block_causal"]),
    ("takes its table from a file", 2, [PIPELINE, SCHEDULE + "PipelineScheduleMulti"]),
    (NOWHERE, 2, [PIPELINE, SCHEDULE + "PipelineScheduleMulti", f"--parallelism.pipeline_parallel_schedule_csv={NOWHERE}"]),
    ("stage 0 has 'norm', but 'layers.3' must come before", 2, [PIPELINE, "--parallelism.module_fqns_per_model_part",
                                '[["tok_embeddings","layers.0","layers.1","layers.2","norm"],["layers.3","layers.4","layers.5","output"]]']),
    ("nothing is sharded", 1, ["--training.enable_cpu_offload"]),
    ("the CPU does not compute in float8", 1, ["--model.converters=quantize.linear.float8", "--training.device=cpu"]),
    ("is made by one rank, and there are 2", 2, ["--checkpoint.create_seed_checkpoint", "--checkpoint.enable"]),
    ("not available yet: fault_tolerance.enable = true", 2, ["--fault_tolerance.enable"]),
    ("parallelism.expert_parallel_degree = 2 spreads experts over ranks, but the model has none", 2, ["--parallelism.expert_parallel_degree=2"]),
    (NOWHERE, 1, [f"--model.hf_assets_path={NOWHERE}"]),
    ("Dataset c5 is not supported", 1, ["--training.dataset=c5"]),
    (f"Data path {NOWHERE} does not exist", 1, [f"--training.dataset_path={NOWHERE}"]),
    (f"Data path {NOWHERE} does not exist", 1, ["--validation.enable", f"--validation.dataset_path={NOWHERE}"]),
    (f"{NOWHERE} is not a folder", 1, ["--checkpoint.enable", f"--checkpoint.initial_load_path={NOWHERE}"]),
    ("checkpoint.load_step = 7", 1, ["--checkpoint.enable", "--checkpoint.load_step=7"]),
]

# The values that torchtitan's own files for Flux set: those that all three share, and each one's own.
FLUX = {"job": {"dump_folder": "./outputs", "custom_config_module": "torchtitan.models.flux.job_config"},
        "profiling": {"enable_profiling": False, "save_traces_folder": "profile_trace", "enable_memory_snapshot": False,
                      "save_memory_snapshot_folder": "memory_snapshot"},
        "metrics": {"disable_color_printing": False, "enable_tensorboard": False, "save_tb_folder": "tb", "enable_wandb": False},
        "model": {"name": "flux"}, "optimizer": {"name": "AdamW", "eps": 1e-8}, "lr_scheduler": {"decay_ratio": 0.0},
        "training": {"classifier_free_guidance_prob": 0.447, "img_size": 256},
        "encoder": {"t5_encoder": "google/t5-v1_1-xxl", "clip_encoder": "openai/clip-vit-large-patch14",
                    "autoencoder_path": "assets/hf/FLUX.1-dev/ae.safetensors"},
        "parallelism": {"data_parallel_replicate_degree": 1, "data_parallel_shard_degree": -1}, "activation_checkpoint": {"mode": "full"},
        "checkpoint": {"enable": False, "folder": "checkpoint", "export_dtype": "float32", "async_mode": "disabled"},
        "validation": {"enable": False, "dataset": "coco-validation", "enable_classifier_free_guidance": True,
                       "classifier_free_guidance_scale": 5.0, "save_img_folder": "img", "all_timesteps": False}}
LARGE = {"job.description": "a large one", "profiling.profile_freq": 100, "metrics.log_freq": 100, "optimizer.lr": 1e-4,
         "lr_scheduler.warmup_steps": 3000, "training.max_norm": 1.0, "training.steps": 30000, "training.dataset": "cc12m-wds",
         "checkpoint.interval": 1000, "checkpoint.last_save_model_only": True, "validation.freq": 1000, "validation.denoising_steps": 50,
         "validation.save_img_count": 50}
FLUX_FILES = {
    "flux-debug": {"job.print_config": False, "profiling.profile_freq": 10, "metrics.log_freq": 1, "optimizer.lr": 8e-4,
                   "lr_scheduler.warmup_steps": 1, "training.local_batch_size": 4, "training.max_norm": 2.0, "training.steps": 10,
                   "training.dataset": "cc12m-test", "encoder.max_t5_encoding_len": 256, "checkpoint.interval": 10,
                   "checkpoint.last_save_model_only": False, "validation.freq": 5, "validation.local_batch_size": 8, "validation.steps": 48,
                   "validation.denoising_steps": 4, "validation.save_img_count": 1, "inference.save_img_folder": "inference_results",
                   "inference.prompts_path": "./torchtitan/models/flux/inference/prompts.txt", "inference.local_batch_size": 2},
    "flux-dev": LARGE | {"training.local_batch_size": 32, "encoder.max_t5_encoding_len": 512, "validation.local_batch_size": 32, "validation.steps": 12},
    "flux-schnell": LARGE | {"training.local_batch_size": 64, "encoder.max_t5_encoding_len": 256, "validation.local_batch_size": 64,
                             "validation.steps": 6}}


def flux_file(flavor):
    sections = {name: dict(values) for name, values in FLUX.items()}
    for name, value in ({"model.flavor": flavor} | FLUX_FILES[flavor]).items():
        section, _, option = name.partition(".")
        sections.setdefault(section, {})[option] = value
    return "".join(f"[{name}]\n" + "".join(f"{option} = {json.dumps(value)}\n" for option, value in values.items())
                   for name, values in sections.items())


def program(*args, **environment):
    return subprocess.run([PROGRAM, *args], cwd=ROOT, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})


def check(config, *args):
    return program("config", "check", config, *args)


def sentences(errors):
    """Without hints, which training logs elsewhere, and without what only `config check` adds."""
    lines = errors.removeprefix("titanium: ").replace("\ntitanium: ", "\n").splitlines()
    return [line for line in lines if not line.startswith("hint: ") and "is valid but for files" not in line]


class ConfigCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dump = f"--job.dump_folder={folder.name}"

    def train(self, ranks, *options):
        fake = [] if ranks == 1 else ["--comm.mode=fake_backend"]
        return program("train", f"--job.config_file={DEBUG}", self.dump, *fake, *options, NGPU=str(ranks))

    def test_says_what_training_says(self):
        for part, ranks, options in REFUSED:
            with self.subTest(options):
                if "--checkpoint.enable" in options and ranks > 1:
                    trained = program("train", f"--job.config_file={DEBUG}", self.dump, *options, RANK="0", WORLD_SIZE=str(ranks),
                                      MASTER_ADDR="127.0.0.1", MASTER_PORT="29999")
                else:
                    trained = self.train(ranks, *options)
                checked = check(DEBUG, "--ranks", str(ranks), self.dump, *options)
                self.assertEqual((checked.returncode, trained.returncode), (2, 2), checked.stderr + trained.stderr)
                self.assertEqual(sentences(checked.stderr), sentences(trained.stderr))
                self.assertIn(part, checked.stderr)
                self.assertNotIn("is valid.", checked.stdout)

    def test_all_problems_are_named_at_once(self):
        options = ["--model.flavor=9B", "--training.dataset=c5", f"--model.hf_assets_path={NOWHERE}"]
        checked = check(DEBUG, *options)
        self.assertEqual(len(sentences(checked.stderr)), 3, checked.stderr)
        self.assertEqual(sentences(checked.stderr), sentences(self.train(1, *options).stderr))

    def test_accepts_what_training_accepts(self):
        options = ["--model.attn_type=varlen", "--parallelism.context_parallel_degree=2", "--training.seq_len=32",
                   "--training.local_batch_size=1", "--training.steps=1"]
        self.assertEqual(check(DEBUG, "--ranks", "2", *options).returncode, 0)
        self.assertEqual(self.train(2, *options).returncode, 0)

    def test_shipped_configurations_pass_and_say_what_to_fetch(self):
        shipped = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "configs").rglob("*.toml"))
        self.assertGreaterEqual(len(shipped), 20)
        for config in shipped:
            with self.subTest(config):
                checked = check(config)
                self.assertEqual(checked.returncode, 0, checked.stderr)
                self.assertTrue(checked.stdout.endswith(f"{config} is valid.\n"), checked.stdout)
                for line in sentences(checked.stderr):
                    self.assertRegex(line, "^to fetch: .*: titanium download ")
                    self.assertNotIn("OWNER/", line)
                estimated = program("estimate", "--job.config_file", config)
                self.assertEqual(estimated.returncode, 0, estimated.stderr)
                self.assertIn("together", estimated.stdout)

    def test_files_with_the_values_of_torchtitans_for_flux_pass(self):
        for flavor in FLUX_FILES:
            with tempfile.TemporaryDirectory() as folder, self.subTest(flavor):
                config = pathlib.Path(folder) / "run.toml"
                config.write_text(flux_file(flavor))
                checked = check(str(config))
                self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
                self.assertTrue(checked.stdout.endswith(f"{config} is valid.\n"), checked.stdout)

    def test_a_built_program_finds_its_files_from_any_folder(self):
        with tempfile.TemporaryDirectory() as elsewhere:
            for config in (DEBUG, "configs/flux/flux_debug.toml"):
                checked = subprocess.run([PROGRAM, "config", "check", config], cwd=elsewhere, capture_output=True, text=True)
                self.assertEqual((checked.returncode, checked.stderr), (0, ""))

    def test_files_to_fetch_are_no_fault_of_the_configuration_but_stop_training(self):
        options = ["--training.dataset=dolma", "--model.hf_assets_path=./assets/hf/Qwen3-0.6B"]
        commands = ["titanium download --repo_id Qwen/Qwen3-0.6B --assets tokenizer config",
                    "titanium download allenai/dolma --repo-type dataset --include '*.json.gz' --local-dir data/dolma"]
        checked, trained = check(DEBUG, *options), self.train(1, *options)
        self.assertEqual((checked.returncode, trained.returncode), (0, 2), checked.stderr + trained.stderr)
        for command in commands:
            self.assertIn(command, checked.stderr)
            self.assertIn(command, trained.stderr)
        self.assertEqual(check(DEBUG, *options, "--model.flavor=9B").returncode, 2)

    def test_options_that_only_observe_are_never_refused(self):
        for option in ("--profiling.enable_profiling", "--profiling.enable_memory_snapshot", "--metrics.enable_wandb"):
            checked = check(DEBUG, option)
            self.assertEqual(checked.returncode, 0, checked.stderr)
            estimated = program("estimate", "--job.config_file", DEBUG, option)
            self.assertEqual(estimated.returncode, 0, estimated.stderr)

    def test_a_gpu_can_be_named(self):
        large = ["--model.flavor=70B", "--training.seq_len=8192"]
        self.assertEqual(check(DEBUG, "--gpu", "h100").returncode, 0)
        for gpu in (["--gpu", "H100"], ["--gpu-memory", "79.1"]):
            refused = check(DEBUG, *gpu, *large)
            self.assertEqual(refused.returncode, 2)
            self.assertIn("but the device has 79.1 GiB", refused.stderr)
        self.assertIn("at most", check(DEBUG, "--gpu", "B200", "--ranks", "64", *large, "--training.local_batch_size=1",
                                       "--activation_checkpoint.mode=full").stdout)
        float8 = "--model.converters=quantize.linear.float8"
        self.assertIn("A100-80G does not compute in float8", check(DEBUG, "--gpu", "A100-80G", float8).stderr)
        self.assertEqual(check(DEBUG, "--gpu", "H200", float8).returncode, 0)
        self.assertIn("Use one of A100-40G, A100-80G", check(DEBUG, "--gpu", "V100").stderr)
        self.assertIn("excludes", check(DEBUG, "--gpu", "H100", "--gpu-memory", "3").stderr)


if __name__ == "__main__":
    unittest.main()
