"""Summary of bench/gpu_check.sh as Markdown: losses of GPU and CPU, speed and memory, and the GEMM ceiling of this run."""

import json
import pathlib
import sys
import time

import torch

LIMIT = 1e-3  # of the relative difference between GPU and CPU, which was 2e-5


def steps(folder):
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def gemm_ceiling(rows=16384, inner=4096, columns=14336, seconds=3.0):
    """TFLOP/s of torch.mm in bf16 on random data, sustained."""
    a = torch.randn(rows, inner, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(inner, columns, device="cuda", dtype=torch.bfloat16)
    for _ in range(20):
        a @ b
    torch.cuda.synchronize()
    begin, count = time.time(), 0
    while time.time() - begin < seconds:
        for _ in range(20):
            a @ b
        torch.cuda.synchronize()
        count += 20
    return 2 * rows * inner * columns * count / (time.time() - begin) / 1e12


def main(folder):
    folder = pathlib.Path(folder)
    ceiling = gemm_ceiling()
    print(f"GPU: {torch.cuda.get_device_name()}, torch {torch.__version__}, bf16 GEMM ceiling {ceiling:.0f} TFLOP/s\n")
    failed = []
    gpu, cpu = steps(folder / "debug_gpu"), steps(folder / "debug_cpu")
    if gpu and cpu:
        worst = max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(gpu, cpu))
        if not worst <= LIMIT:
            failed.append(f"the losses of GPU and CPU differ by more than {LIMIT}")
        print(f"debug model, {len(gpu)} steps: largest relative difference of the loss between GPU and CPU {worst:.2e}\n")
    print("| run | steps | first loss | last loss | tok/s (median) | TFLOP/s | of the GEMM ceiling | peak memory GiB |")
    print("|---|---|---|---|---|---|---|---|")
    for name in ("debug_gpu", "llama3_1b", "llama3_8b"):
        rows = steps(folder / name)
        if not rows:
            print(f"| {name} | failed | | | | | | |")
            failed.append(f"{name} has no steps")
            continue
        steady = sorted(rows[2:], key=lambda row: row["tps"])
        middle = steady[len(steady) // 2]
        print(
            f"| {name} | {len(rows)} | {rows[0]['loss']:.5f} | {rows[-1]['loss']:.5f} | {middle['tps']:,.0f} | "
            f"{middle['tflops']:.1f} | {middle['tflops'] / ceiling:.1%} | {max(row['memory_gib'] for row in rows):.2f} |"
        )

    if failed:
        sys.exit("; ".join(failed))


if __name__ == "__main__":
    main(sys.argv[1])
