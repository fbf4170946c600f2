"""The same files and arguments give torchtitan 0.2.2 and Titanium the same configuration, field by field."""

import dataclasses
import logging
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import types
import typing

PROGRAM = os.environ["TITANIUM"]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FLUX = "torchtitan.models.flux.job_config"
FAULT_TOLERANCE = "torchtitan.components.ft.config"
OWN = {
    "encoder.offline",
    "encoder.on_cpu",
    "encoder.sharded",
    "metrics.enable_jsonl",
    "metrics.port",
    "metrics.address",
    "metrics.stall_seconds",
    "log.format",
    "optimizer.bf16_stochastic_rounding",
    "optimizer.lr_factor",
    "optimizer.muon.adjust_lr_fn",
    "optimizer.muon.eps",
    "optimizer.muon.lr_factor",
    "optimizer.muon.momentum",
    "optimizer.muon.nesterov",
    "optimizer.muon.ns_dtype",
    "optimizer.muon.ns_steps",
    "optimizer.param_groups",
    "model.attn_type",
    "model.attn_mask_type",
    "model.special_tokens_in_text",
    "model.guidance",
    "training.moe_balance_loss",
    "training.moe_z_loss",
    "quantize.grouped_mm.float8.emulate",
    "quantize.grouped_mm.mx.emulate",
    "training.skip_bad_records",
    "training.text_field",
    "training.data_streams",
    "training.data_striping",
    "training.data_lanes",
    "training.sources",
    "training.source_temperature",
    "training.token_dtype",
    "training.flow_times",
    "training.shuffle",
    "training.shuffle_seed",
    "training.shuffle_window",
    "training.positions",
    "training.device",
    "validation.data_streams",
    "validation.sources",
    "parallelism.ddp_bucket_mb",
    "parallelism.fsdp_reduce_once",
    "parallelism.fsdp_on_one_rank",
    "checkpoint.grace_seconds",
    "checkpoint.timeout_seconds",
    "debug.reference_ops",
    "comm.backend",
}


def import_torchtitan():
    # Importing any part of torchtitan imports its models, and those a Triton kernel that is never called here. Triton
    # needs a GPU; a module with the name of the kernel is enough.
    kernels = types.ModuleType("torchtitan.models.moe.kernels")
    kernels.generate_permute_indices = None
    sys.modules[kernels.__name__] = kernels
    import torchtitan.config.manager

    logging.disable(logging.CRITICAL)
    return torchtitan.config.manager


def flatten(value, prefix=""):
    for key, item in value.items():
        if isinstance(item, dict):
            yield from flatten(item, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", item


def titanium_config(args):
    result = subprocess.run([PROGRAM, "config", "show", *args], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, f"{args}: {result.stderr}"
    # None stands in comments, because TOML has no word for it.
    text = re.sub(r"^# (\w+) = None", r'\1 = "None"', result.stdout, flags=re.M)
    return {name: None if value == "None" else value for name, value in flatten(tomllib.loads(text))}


def torchtitan_config(manager, args):
    return dict(flatten(dataclasses.asdict(manager.ConfigManager().parse_args(list(args)))))


def same_type(a, b):
    return type(a) is type(b) or {type(a), type(b)} == {int, float}


def compare(manager, args):
    theirs, ours = torchtitan_config(manager, args), titanium_config(args)
    assert set(ours) - set(theirs) == OWN, f"{args}: {set(ours) ^ set(theirs) ^ OWN}"
    assert set(theirs) <= set(ours), f"{args}: missing {set(theirs) - set(ours)}"
    for name, value in theirs.items():
        if name == "model.converters":
            value = ["quantize.linear.float8" if item == "float8" else item for item in value]
        assert ours[name] == value and same_type(ours[name], value), f"{args}: {name} = {ours[name]!r}, not {value!r}"
    return len(theirs)


def literals(kind, prefix=""):
    """Option -> its allowed texts, from the annotations of torchtitan's dataclasses."""
    for field in dataclasses.fields(kind):
        name = f"{prefix}{field.name}"
        if dataclasses.is_dataclass(field.type):
            yield from literals(field.type, name + ".")
            continue
        for part in (field.type, *typing.get_args(field.type)):
            if typing.get_origin(part) is typing.Literal:
                yield name, list(typing.get_args(part))


def titanium_choices():
    """Option -> its allowed texts, from the page of options."""
    page = subprocess.run([PROGRAM, "config", "options", "--markdown"], capture_output=True, text=True, check=True).stdout
    for section in page.split("\n## ")[1:]:
        for key, value in re.findall(r"^\| `(\w+)` \| (.*?) \|", section, flags=re.M):
            yield f"{section.splitlines()[0]}.{key}", re.findall(r'"(.*?)"', value)


def check_literals(manager):
    theirs, ours = dict(literals(manager.JobConfig)), dict(titanium_choices())
    for name, texts in theirs.items():
        assert set(ours[name]) == set(texts), f"{name}: {ours[name]}, not {texts}"
    return len(theirs)


def check_refused_by_both(manager, folder):
    cases = {
        "unknown_key": "[training]\nseqlen = 3\n",
        "unknown_section": "[trainings]\nsteps = 3\n",
        "duplicate": "[training]\nsteps = 3\nsteps = 4\n",
        "no_toml": "[training\n",
        "empty_balancer": "[parallelism]\ncontext_parallel_load_balancer = ''\n",
        "validation_steps": "[validation]\nsteps = 0\n",
    }
    for name, text in cases.items():
        path = folder / f"{name}.toml"
        path.write_text(text)
        args = [f"--job.config_file={path}"]
        try:
            torchtitan_config(manager, args)
            raise SystemExit(f"torchtitan takes {name}")
        except (ValueError, AssertionError, TypeError):
            pass
        assert subprocess.run([PROGRAM, "config", "show", *args], capture_output=True).returncode == 2, name


TYPES = """
[job]
description = "tab\\t, quote \\", e\\u00e9"
[optimizer]
lr = 3e-4
[training]
max_norm = 2
steps = 1_000
dataloader = {num_workers = 4, pin_memory = true}
"""
FILES = {
    "types.toml": TYPES,
    "empty.toml": "",
    "parts.toml": "[parallelism]\nmodule_fqns_per_model_part = [['tok_embeddings', 'layers.0'], ['layers.1', 'norm', 'output']]\n",
    "flux.toml": f"""
[job]
custom_config_module = "{FLUX}"
[model]
name = "flux"
[training]
classifier_free_guidance_prob = 0.447
img_size = 512
[encoder]
t5_encoder = "google/t5-v1_1-xxl"
max_t5_encoding_len = 512
[validation]
enable_classifier_free_guidance = true
save_img_count = -1
""",
    "tolerance.toml": f"""
[job]
custom_config_module = "{FAULT_TOLERANCE}"
[fault_tolerance]
sync_steps = 10
fragment_update_alpha = 0.5
semi_sync_method = "diloco"
module_fqns_per_model_fragment = [["a"], ["b", "c"]]
""",
    "deprecated.toml": "[model]\ntokenizer_path = 'some/folder'\n",
    "float8.toml": "[model]\nconverters = ['float8']\n[quantize.grouped_mm.float8]\nfqns = ['experts']\n",
}
ARGUMENTS = [
    [],
    ["--compile.enable", "--checkpoint.no_initial_load_model_only", "--checkpoint.no-last-save-model-only"],
    ["--training.steps", "5", "--training.seq-len=128", "--training.global_batch_size=-1", "--optimizer.lr", "3e-4"],
    ["--model.converters", "quantize.linear.float8,quantize.grouped_mm.float8"],
    ["--checkpoint.exclude_from_loading", "lr_scheduler,optimizer", "--quantize.linear.float8.filter_fqns=output"],
    ["--training.dataloader.num_workers", "2", "--training.dataloader.prefetch_factor=4", "--validation.dataloader.pin_memory"],
    ["--debug.seed", "None", "--lr_scheduler.decay_ratio=0.5", "--parallelism.context_parallel_load_balancer", "None"],
    ["--debug.seed=42", "--lr_scheduler.total_steps=None", "--quantize.linear.float8.recipe_name=rowwise"],
    [f"--job.custom_config_module={FLUX}", "--training.img_size", "128", "--inference.local_batch_size=1"],
    ["--job.custom-config-module", FAULT_TOLERANCE, "--fault_tolerance.sync_steps=3", "--fault_tolerance.should_quantize"],
]


def without_own_options(path, folder):
    """The file as torchtitan takes it, which refuses options that it does not know."""
    text = path.read_text()
    own = [name.rpartition(".")[2] for name, _ in flatten(tomllib.loads(text)) if name in OWN]
    if not own:
        return path
    copy = folder / path.name
    copy.write_text(re.sub(rf"^({'|'.join(own)}) = .*\n", "", text, flags=re.M))
    return copy


def main():
    manager = import_torchtitan()
    sets = list(ARGUMENTS)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file, text in FILES.items():
            (folder / file).write_text(text)
            sets.append([f"--job.config_file={folder / file}"])
        sets.append(["--training.steps=7", "--job.config-file", str(folder / "types.toml")])
        # torchtitan does not know mixes of sources.
        shipped = sorted(path for path in (ROOT / "configs").rglob("*.toml") if "[[training.sources]]" not in path.read_text())
        # TITANIUM_CONFIGS: a folder with more files to compare, such as a checkout of torchtitan.
        if more := os.environ.get("TITANIUM_CONFIGS"):
            shipped += sorted(pathlib.Path(more).rglob("models/*/train_configs/*.toml"))
        sets += [[f"--job.config_file={without_own_options(path, folder)}"] for path in shipped]
        fields = sum(compare(manager, args) for args in sets)
        check_refused_by_both(manager, folder)
    print(f"{len(sets)} configurations, {fields} fields and {check_literals(manager)} sets of choices agree")


if __name__ == "__main__":
    main()
