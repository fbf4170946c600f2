"""How training with experts slows down where micro-batches are small: tokens per second of a DeepSeek V3 16B of 14 layers over the tokens
of a micro-batch, at 16,384 tokens a step; beside it the rate of the experts' nine grouped products of one layer with torch's kernels.

    LD_LIBRARY_PATH=... python3 bench/h200/token_curve.py
"""

import dataclasses
import pathlib
import tempfile
import time

import torch

from run import SETTINGS, measure, new_folder

SEQUENCE, STEP = 1024, 16384
DIM, HIDDEN, EXPERTS, CHOICES = 2048, 1408, 64, 6


def seconds_of(work):
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    begin, calls = time.time(), 20
    for _ in range(calls):
        work()
    torch.cuda.synchronize()
    return (time.time() - begin) / calls


def grouped_rate(tokens):
    """TFLOP/s of a layer's products, rows dealt out evenly."""
    rows = tokens * CHOICES
    options = {"device": "cuda", "dtype": torch.bfloat16}
    x, h = torch.randn(rows, DIM, **options), torch.randn(rows, HIDDEN, **options)
    up, down = torch.randn(EXPERTS, HIDDEN, DIM, **options), torch.randn(EXPERTS, DIM, HIDDEN, **options)
    ends = (torch.arange(1, EXPERTS + 1, device="cuda") * rows // EXPERTS).int()

    def layer():
        for _ in range(2):  # w1 and w3
            torch._grouped_mm(x, up.transpose(1, 2), ends)
            torch._grouped_mm(h, up, ends)
            torch._grouped_mm(h.t(), x, ends)
        torch._grouped_mm(h, down.transpose(1, 2), ends)
        torch._grouped_mm(x, down, ends)
        torch._grouped_mm(x.t(), h, ends)

    return 9 * 2 * rows * DIM * HIDDEN / seconds_of(layer) / 1e12


def main():
    work = pathlib.Path(tempfile.mkdtemp())
    model = next(setting for setting in SETTINGS if setting.name == "DeepSeek V3 16B, 14 layers, 4096, batch 4")
    model.write_assets(new_folder(work, "assets"))
    print("| tokens of a micro-batch | micro-batches | tok/s | torch's grouped products, TFLOP/s |\n|---|---|---|---|", flush=True)
    for tokens in (1024, 2048, 4096, 8192, 16384):
        setting = dataclasses.replace(model, tokens=SEQUENCE, batch=tokens // SEQUENCE, accumulation=STEP // tokens, steps=9)
        setting.assets = model.assets
        found = measure(setting, new_folder(work, str(tokens)))
        speed = found.get("error") or f"{found['tps']:,.0f}"
        print(f"| {tokens:,} | {STEP // tokens} | {speed} | {grouped_rate(tokens):.0f} |", flush=True)


if __name__ == "__main__":
    main()
