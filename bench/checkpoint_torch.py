"""PyTorch's distributed checkpoint of 8 blocks of Llama 3 8B and its embeddings in bf16 (5.6 GB) from a GPU, and dd with as many bytes.

    python3 bench/checkpoint_torch.py FOLDER

Saving ends with fsync; before reading, the files are dropped from the page cache.
"""

import os
import pathlib
import shutil
import sys

import torch
import torch.distributed.checkpoint as dcp

from checkpoint_io import dd, forget_cached_files, seconds

DIM, LAYERS, KV, HIDDEN, VOCABULARY = 4096, 8, 1024, 14336, 128256
BLOCK = {"wq": (DIM, DIM), "wk": (KV, DIM), "wv": (KV, DIM), "wo": (DIM, DIM), "w1": (HIDDEN, DIM), "w2": (DIM, HIDDEN), "w3": (HIDDEN, DIM)}


def weights():
    shapes = {"tok_embeddings": (VOCABULARY, DIM), "output": (VOCABULARY, DIM)}
    shapes |= {f"layers.{i}.{name}": shape for i in range(LAYERS) for name, shape in BLOCK.items()}
    return {name: torch.randn(shape, device="cuda", dtype=torch.bfloat16) for name, shape in shapes.items()}


def main():
    folder = pathlib.Path(sys.argv[1])
    state = weights()
    size = sum(tensor.nbytes for tensor in state.values())
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    def report(what, time):
        print(f"{what}: {time:.1f} s, {size / time / 1e9:.2f} GB/s", flush=True)

    count = str((size >> 24) // 4)
    report("4 dd, direct, write", dd(4, "if=/dev/zero", f"of={folder}/dd_#", f"count={count}", "oflag=direct", "conv=fsync"))
    report("4 dd, direct, read", dd(4, f"if={folder}/dd_#", "of=/dev/null", "iflag=direct"))
    for path in folder.iterdir():
        path.unlink()
    for threads in (1, 4):
        shutil.rmtree(folder / "saved", ignore_errors=True)
        os.sync()
        writer = dcp.FileSystemWriter(folder / "saved", thread_count=threads)
        report(f"torch DCP, {threads} threads, save", seconds(dcp.save, state, storage_writer=writer, no_dist=True))
    forget_cached_files(folder)
    report("torch DCP, load", seconds(dcp.load, state, checkpoint_id=folder / "saved", no_dist=True))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
