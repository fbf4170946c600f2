"""Training speed on several ranks over Gloo: Titanium against PyTorch's FSDP2 and tensor parallelism, in one run.

    PYTHONPATH=tests/support <venv>/bin/python bench/scaling.py [--ranks 2] [--rounds 3] [--only fsdp2]

Both train torchtitan's debug model with the same sizes, batch, precision, ranks and one thread per rank, without activation
checkpointing, with AdamW and clipping. PyTorch's side uses torchtitan's own functions to apply FSDP2 and tensor parallelism.
The two take turns, so that a machine whose speed drifts is fair to both; the figure is the median of all steps after the
warm-up of each round. Strong scaling keeps the global batch, weak scaling the batch of a rank. Titanium's steps include
reading and tokenising the text; PyTorch gets random tokens.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WARM_UP = 2


@dataclasses.dataclass
class Case:
    name: str
    replicate: int
    shard: int
    tensor: int
    batch: int  # of a data-parallel rank

    @property
    def ranks(self):
        return self.replicate * self.shard * self.tensor

    @property
    def tokens_per_step(self):
        return self.batch * self.replicate * self.shard


def cases(ranks, batch):
    return [
        Case("one rank", 1, 1, 1, batch),
        Case(f"fsdp{ranks}, strong", 1, ranks, 1, batch // ranks),
        Case(f"fsdp{ranks}, weak", 1, ranks, 1, batch),
        Case(f"dp{ranks}, weak", ranks, 1, 1, batch),
        Case(f"tp{ranks}, strong", 1, 1, ranks, batch),
        Case(f"tp{ranks}, weak", 1, 1, ranks, batch * ranks),
    ]


def titanium_round(case, options):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [options.program, "launch", "--nproc-per-node", str(case.ranks), "--", "train",
             "--job.config_file=configs/llama3/debug_model.toml", f"--job.dump_folder={folder}", "--training.device=cpu",
             f"--training.steps={WARM_UP + options.steps}", f"--training.local_batch_size={case.batch}",
             f"--training.seq_len={options.seq_len}", "--training.mixed_precision_param=float32",
             f"--parallelism.data_parallel_replicate_degree={case.replicate}",
             f"--parallelism.data_parallel_shard_degree={case.shard}",
             f"--parallelism.tensor_parallel_degree={case.tensor}", "--activation_checkpoint.mode=none",
             "--metrics.log_freq=1"],
            cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"})
        lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
    times = [json.loads(line)["time_s"] for line in lines]
    return [after - before for before, after in zip(times[WARM_UP - 1:], times[WARM_UP:])]


def pytorch_round(case, options):
    torchrun = pathlib.Path(sys.executable).parent / "torchrun"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [torchrun, "--standalone", "--nproc-per-node", str(case.ranks), __file__, "--worker", f"{folder}/times", "--case",
             json.dumps(dataclasses.asdict(case)), "--steps", str(options.steps), "--seq-len", str(options.seq_len)],
            cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "tests" / "support")})
        return json.loads(pathlib.Path(f"{folder}/times").read_text())


def parallel_model(case, options):
    import torch
    import torchtitan_import  # noqa: F401
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule
    from torchtitan.models.llama3 import llama3_args
    from torchtitan.models.llama3.infra.parallelize import apply_ddp, apply_fsdp, apply_tp
    from torchtitan.models.llama3.model.model import Transformer

    model = Transformer(dataclasses.replace(llama3_args["debugmodel"], max_seq_len=options.seq_len))
    mesh = init_device_mesh("cpu", (case.replicate, case.shard, case.tensor), mesh_dim_names=("replicate", "shard", "tp"))
    if case.tensor > 1:
        apply_tp(model, mesh["tp"], loss_parallel=True, enable_float8_tensorwise_tp=False)
    if case.shard > 1:
        apply_fsdp(model, mesh["shard"], param_dtype=torch.float32, reduce_dtype=torch.float32, pp_enabled=False)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)  # Gloo has no scaled sums
    elif case.replicate > 1:
        apply_ddp(model, mesh["replicate"], enable_compile=False)
    with torch.no_grad():
        model.init_weights()
    return model


def worker(options):
    import contextlib

    import torch
    import torch.distributed as dist
    from torch.distributed.tensor.parallel import loss_parallel

    dist.init_process_group("gloo")
    case = Case(**json.loads(options.case))
    model = parallel_model(case, options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens_in_all = case.tokens_per_step * options.seq_len
    times = []
    for _ in range(WARM_UP + options.steps):
        begin = time.perf_counter()
        tokens = torch.randint(0, 2000, (case.batch, options.seq_len + 1))
        optimizer.zero_grad()
        with loss_parallel() if case.tensor > 1 else contextlib.nullcontext():
            logits = model(tokens[:, :-1]).flatten(0, 1).float()
            loss = torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten(), reduction="sum")
            (loss / tokens_in_all).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        times.append(time.perf_counter() - begin)
    if dist.get_rank() == 0:
        pathlib.Path(options.worker).write_text(json.dumps(times[WARM_UP:]))
    dist.destroy_process_group()


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=ROOT / "build" / "titanium")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--steps", type=int, default=8, help="of each round, after 2 for warm-up")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = arguments()
    if options.worker:
        return worker(options)
    print(f"llama3 debugmodel, sequence {options.seq_len}, fp32, one thread per rank, {os.cpu_count()} cores")
    print("| case | batch of a rank | Titanium tok/s | PyTorch tok/s | ratio |\n|---|---|---|---|---|")
    for case in cases(options.ranks, options.batch):
        if options.only not in case.name:
            continue
        ours, theirs = [], []
        for _ in range(options.rounds):
            ours += titanium_round(case, options)
            theirs += pytorch_round(case, options)
        tokens = case.tokens_per_step * options.seq_len
        ours, theirs = statistics.median(ours), statistics.median(theirs)
        print(f"| {case.name} | {case.batch} | {tokens / ours:,.0f} | {tokens / theirs:,.0f} | {theirs / ours:.2f} |",
              flush=True)


if __name__ == "__main__":
    main()
