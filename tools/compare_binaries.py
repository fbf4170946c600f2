#!/usr/bin/env python3
"""Trains with two builds of the program and compares them bit by bit: what a refactoring has to pass.

    PYTHON tools/compare_binaries.py OLD NEW [--only NAME ...] [--steps 20]

OLD and NEW are two `titanium` programs; PYTHON has torch (the venv of the set-up). Each layout trains a debug model on
the CPU with both. Logged losses and gradient norms and every tensor of the final checkpoint, optimizer state included, must
be equal in all bits. Exits with 1 if something differs. A layout that OLD refuses because it lacks the model, the optimizer
or the option is left out, with a line that says so; what OLD could do and NEW refuses is an error.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

ROOT = pathlib.Path(__file__).resolve().parents[1]
USAGE_ERROR = 2  # the exit code of options that are wrong or unknown
DOCUMENTS = ["--model.attn_type=varlen"]
FULL = ["--activation_checkpoint.mode=full"]
BY_OPERATOR = ["--activation_checkpoint.mode=selective", "--activation_checkpoint.selective_ac_option=op"]
QWEN = ["--model.name=qwen3", "--model.flavor=debugmodel"]
EXPERTS = ["--model.name=llama4", "--model.flavor=debugmodel"]
MUON = ["--optimizer.name=Muon"]
FLOAT8 = ["--model.converters=quantize.linear.float8", "--quantize.linear.float8.emulate"]


def layout(ranks, options=(), **degrees):
    words = [f"--parallelism.{name}_degree={degree}" for name, degree in degrees.items()]
    return ranks, [*words, *options]


LAYOUTS = {
    "one": layout(1),
    "one+bf16+documents": layout(1, ["--training.mixed_precision_param=bfloat16", *DOCUMENTS, *BY_OPERATOR]),
    "one+float8": layout(1, FLOAT8),
    "one+early": layout(1, ["--training.max_norm=-1", "--optimizer.early_step_in_backward"]),
    "one+qwen3+muon": layout(1, [*QWEN, *MUON]),
    "ddp2": layout(2, data_parallel_replicate=2, data_parallel_shard=1),
    "fsdp2+accumulation": layout(2, ["--training.local_batch_size=2"], data_parallel_shard=2),
    "hsdp2x2": layout(4, FULL, data_parallel_replicate=2, data_parallel_shard=2),
    "tp2": layout(2, tensor_parallel=2),
    "cp2": layout(2, context_parallel=2),
    "pp2": layout(2, ["--parallelism.pipeline_parallel_schedule=1F1B"], pipeline_parallel=2),
    "pp2+interleaved": layout(2, ["--parallelism.pipeline_parallel_schedule=Interleaved1F1B"], pipeline_parallel=2),
    "fsdp2xtp2": layout(4, DOCUMENTS, data_parallel_shard=2, tensor_parallel=2),
    "pp2xfsdp2": layout(4, data_parallel_shard=2, pipeline_parallel=2),
    "fsdp2+muon": layout(2, MUON, data_parallel_shard=2),
    "fsdp2+experts": layout(2, EXPERTS, data_parallel_shard=2, expert_parallel=2),
}


class Refused(Exception):
    """The program does not know what the layout asks for; the message is its own."""


def train(program, name, steps, folder):
    ranks, options = LAYOUTS[name]
    launcher = ["launch", "--nproc-per-node", str(ranks), "--"] if ranks > 1 else []
    batch_ranks = 1
    for option in options:
        if option.startswith("--parallelism.data_parallel_"):
            batch_ranks *= int(option.split("=")[1])
    command = [program, *launcher, "train", f"--job.config_file={ROOT}/configs/llama3/debug_model_cpu.toml",
               f"--job.dump_folder={folder}", f"--model.hf_assets_path={ROOT}/tests/assets/tokenizer",
               f"--training.dataset_path={ROOT}/tests/assets/c4_test", f"--training.steps={steps}",
               "--training.seq_len=64", "--training.global_batch_size=8", f"--training.local_batch_size={8 // batch_ranks}",
               "--training.max_norm=0.5", "--checkpoint.enable", "--checkpoint.no_last_save_model_only",
               "--parallelism.data_parallel_shard_degree=1", *options]
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    job = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if job.returncode == USAGE_ERROR:
        sentence = re.search(r"titanium: (.*)", job.stdout)
        raise Refused(sentence.group(1) if sentence else job.stdout[-400:])
    if job.returncode != 0:
        sys.exit(f"{name}: {' '.join(command)} ended with {job.returncode}:\n{job.stdout[-4000:]}")
    logged = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: line.get(key) for key in ("step", "loss", "max_loss", "grad_norm", "lr", "tokens")} for line in logged]


def saved_tensors(folder, steps):
    file = folder / "all.pt"
    dcp_to_torch_save(folder / f"checkpoint/step-{steps}", file)
    tensors = {}

    def collect(name, value):
        if isinstance(value, dict):
            for key, below in value.items():
                collect(f"{name}.{key}" if name else str(key), below)
        elif isinstance(value, torch.Tensor):
            tensors[name] = value
    collect("", torch.load(file, weights_only=False))
    return tensors


def differences(old, new):
    found = [f"{name} is only in the {'old' if name in old else 'new'} checkpoint" for name in sorted(old.keys() ^ new.keys())]
    for name in sorted(old.keys() & new.keys()):
        same = old[name].dtype == new[name].dtype and old[name].shape == new[name].shape
        if not same or not torch.equal(old[name], new[name]):
            found.append(f"{name} differs")
    return found


def digest(tensors):
    """The number of tensors, and a hash of all their names and bytes."""
    hashed = hashlib.sha256()
    for name in sorted(tensors):
        hashed.update(name.encode())
        hashed.update(tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return f"{len(tensors)} tensors {hashed.hexdigest()[:16]}"


def compare(name, arguments, folder):
    lines, tensors = [], []
    for label in ("old", "new"):
        own = folder / label
        own.mkdir()
        try:
            lines.append(train(getattr(arguments, label), name, arguments.steps, own))
        except Refused as refused:
            if label == "old":
                raise
            sys.exit(f"{name}: NEW refuses what OLD trains: {refused}")
        tensors.append(saved_tensors(own, arguments.steps))
    found = [f"logged {a} became {b}" for a, b in zip(*lines) if a != b]
    if len(lines[0]) != len(lines[1]):
        found.append(f"{len(lines[0])} logged lines became {len(lines[1])}")
    return found + differences(*tensors), lines[0][-1], digest(tensors[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("new", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--only", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    failed = 0
    for name in arguments.only:
        try:
            with tempfile.TemporaryDirectory() as folder:
                found, last, tensors = compare(name, arguments, pathlib.Path(folder))
        except Refused as refused:
            print(f"{name}: left out, OLD refuses it: {refused}", flush=True)
            continue
        failed += bool(found)
        same = f"same bits, {tensors}, last loss {last['loss']}, norm {last['grad_norm']}"
        print(f"{name}: " + (f"{len(found)} differences\n  " + "\n  ".join(found[:5]) if found else same), flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
