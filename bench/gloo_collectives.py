"""Collectives over Gloo between processes of this machine: Titanium against torch.distributed, in milliseconds.

    python bench/gloo_collectives.py build/bench_gloo_collectives [ranks]
"""

import os
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist

RUNS = 20


def milliseconds(collective):
    collective()
    dist.barrier()
    start = time.perf_counter()
    for _ in range(RUNS):
        collective()
    return 1000 * (time.perf_counter() - start) / RUNS


def measure(rank, size, port, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    for elements in (1 << 8, 1 << 14, 1 << 20, 1 << 23):
        whole, part = torch.ones(elements), torch.ones(elements // size)
        times = (milliseconds(lambda: dist.all_reduce(whole, dist.ReduceOp.MAX)),
                 milliseconds(lambda: dist.all_gather_into_tensor(whole, part)),
                 milliseconds(lambda: dist.reduce_scatter_tensor(part, whole)))
        if rank == 0:
            results.put((elements, times))
    dist.destroy_process_group()


def main():
    program, size = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    output = subprocess.run([program, str(size)], check=True, capture_output=True, text=True, env=environment).stdout
    ours = {int(line.split()[0]): [float(word) for word in line.split()[1:]] for line in output.splitlines()}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    results = torch.multiprocessing.get_context("spawn").SimpleQueue()
    torch.multiprocessing.spawn(measure, args=(size, port, results), nprocs=size)
    print(f"{size} ranks, ms: titanium / torch")
    print(f"{'fp32 elements':>14}{'all_reduce':>20}{'all_gather':>20}{'reduce_scatter':>20}")
    while not results.empty():
        elements, times = results.get()
        cells = "".join(f"{f'{mine:.2f} / {theirs:.2f}':>20}" for mine, theirs in zip(ours[elements], times))
        print(f"{elements:>14}{cells}")


if __name__ == "__main__":
    main()
