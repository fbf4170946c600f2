"""Expert parallelism on paper: what a layer of experts sends, which work the program queues beside it, and what is left exposed.

    python3 bench/expert_parallel.py [--tokens 8192]

Volumes follow from the models; times of products from rates that one H200 reached (bench/results/2026-11-16_h200_experts_3.md), times of exchanges from
the bandwidth of a GPU's links. What runs beside an exchange is the order of launches in ops/experts/mixture_of_experts.cpp:

  forward   counts travel beside the shared experts; rows to experts: nothing beside; rows back to tokens: nothing beside
  backward  gradients of rows to experts: nothing beside; gradients of rows back to tokens: beside the weight gradients of w1 and w3

Two half-batches (or the pairs of DualPipeV, which the program runs in turns) put the products of one half beside the exchanges of the other.
Deduplication sends a token once to each rank, however many of its experts are there. Routing is uniform here; skew makes the slowest rank slower.
"""

import argparse
import dataclasses

GROUPED, DENSE = 600e12, 670e12  # operations per second
NODE = 8  # GPUs that NVLink joins
INSIDE, OUTSIDE = 400e9, 48e9  # bytes per second and direction of a GPU: NVLink, and 400 Gbit/s of InfiniBand
BYTES = 2  # bf16


@dataclasses.dataclass
class Model:
    name: str
    dim: int
    hidden: int
    experts: int
    choices: int
    shared: int  # hidden columns of the shared experts
    layers: int  # with experts
    published: str


MODELS = [
    Model("DeepSeek V3 16B", 2048, 1408, 64, 6, 2816, 26, "7,670 to 11,300 (torchtitan, H100)"),
    Model("Qwen 3 30B-A3B", 2048, 768, 128, 8, 0, 48, "12,040 (NeMo, 8 H100), 9,058 (Megatron-Bridge, 16 H100, fp8)"),
    Model("Qwen 3 235B-A22B", 4096, 1536, 128, 8, 0, 94, "1,712 (Megatron-Bridge, 256 H100, fp8)"),
    Model("DeepSeek V3 671B", 7168, 2048, 256, 8, 2048, 58, "1,297 (Megatron-Bridge, 1024 H100, fp8)"),
]


def rows_sent(model, ranks, tokens, deduplicated):
    """Rows that leave a rank for others, of its tokens."""
    if not deduplicated:
        return tokens * model.choices * (ranks - 1) / ranks
    local = model.experts // ranks
    missed = 1.0  # that none of a token's choices is on a given rank
    for k in range(model.choices):
        missed *= (model.experts - local - k) / (model.experts - k)
    return tokens * (ranks - 1) * (1 - missed)


def exchange_seconds(model, ranks, tokens, deduplicated):
    """Both kinds of links at once."""
    sent = rows_sent(model, ranks, tokens, deduplicated) * model.dim * BYTES
    inside = sent * (NODE - 1) / (ranks - 1)
    return max(inside / INSIDE, (sent - inside) / OUTSIDE)


def layer(model, ranks, tokens, deduplicated=False):
    """Seconds of one layer, forward and backward: computed, exchanged, exposed, and exposed with two half-batches."""
    rows = tokens * model.choices
    product = 2 * rows * model.dim * model.hidden / GROUPED  # of one weight, one way
    shared = 3 * 2 * tokens * model.dim * model.shared / DENSE
    computed = 9 * product + 3 * shared
    exchange = exchange_seconds(model, ranks, tokens, deduplicated)
    exposed = 3 * exchange + max(0.0, exchange - 2 * product)
    halves = max(0.0, 4 * exchange - computed)
    return computed, 4 * exchange, exposed, halves


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=8192, help="of a micro-batch on each rank")
    tokens = parser.parse_args().tokens
    print(f"{tokens:,} tokens a rank; per layer of experts, forward and backward; volume leaves one GPU, each way counted once\n")
    print("| model | EP | MB | products ms | exchanges ms | exposed ms | two half-batches | deduplicated | both | published tok/s per GPU |\n"
          "|---|---|---|---|---|---|---|---|---|---|")
    for model in MODELS:
        for ranks in (8, 16, 64):
            computed, exchanged, exposed, halves = layer(model, ranks, tokens)
            _, _, fewer, both = layer(model, ranks, tokens, deduplicated=True)
            volume = 4 * rows_sent(model, ranks, tokens, False) * model.dim * BYTES
            print(f"| {model.name} | {ranks} | {volume / 1e6:,.0f} | {1e3 * computed:.2f} | {1e3 * exchanged:.2f} | {1e3 * exposed:.2f} | "
                  f"{1e3 * halves:.2f} | {1e3 * fewer:.2f} | {1e3 * both:.2f} | {model.published if ranks == 8 else ''} |")


if __name__ == "__main__":
    main()
