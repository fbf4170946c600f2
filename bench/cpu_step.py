"""Training speed of the debug model on the CPU: Titanium against PyTorch eager with torchtitan's model, in one run.

    PYTHONPATH=tests/support <venv>/bin/python bench/cpu_step.py [--threads 2] [--precision float32|bfloat16]

Both train with the same sizes, batch, sequence length, precision and number of threads, without activation checkpointing,
with AdamW and clipping. They take turns, so that a machine whose speed drifts is fair to both; the figure is the median of
all steps after the warm-up of each round. Titanium's steps include reading and tokenising the text; PyTorch gets random
tokens.
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


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=ROOT / "build" / "titanium")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq-len", type=int, default=512)
    parser.add_argument("--steps", type=int, default=8, help="of each round, after 2 for warm-up")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def titanium_round(options):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [options.program, "train", "--job.config_file=configs/llama3/debug_model.toml", f"--job.dump_folder={folder}",
             "--training.device=cpu", f"--training.steps={WARM_UP + options.steps}",
             f"--training.local_batch_size={options.batch}", f"--training.seq_len={options.seq_len}",
             f"--training.dtype={options.precision}", f"--training.mixed_precision_param={options.precision}",
             "--activation_checkpoint.mode=none", "--metrics.log_freq=1"],
            cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": str(options.threads)})
        lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
    times = [json.loads(line)["time_s"] for line in lines]
    return [after - before for before, after in zip(times[WARM_UP - 1:], times[WARM_UP:])]


class PyTorch:
    def __init__(self, options):
        sys.path.insert(0, str(ROOT / "tests" / "support"))
        import torch
        import torchtitan_import  # noqa: F401
        from torchtitan.models.llama3 import llama3_args
        from torchtitan.models.llama3.model.model import Transformer

        torch.set_num_threads(options.threads)
        self.torch, self.options = torch, options
        self.model = Transformer(dataclasses.replace(llama3_args["debugmodel"], max_seq_len=options.seq_len))
        with torch.no_grad():
            self.model.init_weights()
        if options.precision == "bfloat16":
            for parameter in self.model.parameters():
                parameter.data = parameter.data.bfloat16()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=8e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def step(self):
        torch = self.torch
        tokens = torch.randint(0, 2000, (self.options.batch, self.options.seq_len + 1))
        self.optimizer.zero_grad()
        logits = self.model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten(), reduction="sum")
        (loss / (self.options.batch * self.options.seq_len)).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimizer.step()

    def round(self):
        times = []
        for _ in range(WARM_UP + self.options.steps):
            begin = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - begin)
        return times[WARM_UP:]


def main():
    options = arguments()
    pytorch = PyTorch(options)
    ours, theirs = [], []
    for _ in range(options.rounds):
        ours += titanium_round(options)
        theirs += pytorch.round()
    tokens = options.batch * options.seq_len
    print(f"llama3 debugmodel, batch {options.batch} x {options.seq_len}, {options.precision}, {options.threads} threads")
    for name, times in (("Titanium", ours), ("PyTorch", theirs)):
        print(f"{name:9} {tokens / statistics.median(times):9,.0f} tok/s  (median step {statistics.median(times):.3f} s, "
              f"fastest {min(times):.3f} s)")
    print(f"Titanium / PyTorch: {statistics.median(theirs) / statistics.median(ours):.2f}x "
          f"(fastest steps: {min(theirs) / min(ours):.2f}x)")


if __name__ == "__main__":
    main()
