"""Eager PyTorch: Llama 3 8B in bf16 with fused AdamW in bf16, one sequence of 8192 tokens. Prints tokens per second and peak GiB.

Attention by cuDNN without repeated keys, the head and its loss in pieces, nothing recomputed: what a careful user writes.
"""

import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

DIM, LAYERS, HEADS, KV_HEADS, HIDDEN, VOCABULARY, TOKENS, PIECES = 4096, 32, 32, 8, 14336, 128256, 8192, 8


def rotate(x, cos, sin):
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        linear = lambda i, o: torch.nn.Linear(i, o, bias=False)
        self.wq, self.wo = linear(DIM, DIM), linear(DIM, DIM)
        self.wk, self.wv = linear(DIM, DIM // HEADS * KV_HEADS), linear(DIM, DIM // HEADS * KV_HEADS)
        self.w1, self.w3, self.w2 = linear(DIM, HIDDEN), linear(DIM, HIDDEN), linear(HIDDEN, DIM)
        self.norm1, self.norm2 = torch.nn.RMSNorm(DIM, 1e-5), torch.nn.RMSNorm(DIM, 1e-5)

    def forward(self, x, cos, sin):
        y = self.norm1(x)
        q, k, v = (w(y).unflatten(-1, (-1, DIM // HEADS)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            out = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=True)
        x = x + self.wo(out.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))


class Llama(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, DIM)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = torch.nn.RMSNorm(DIM, 1e-5)
        self.head = torch.nn.Linear(DIM, VOCABULARY, bias=False)

    def loss(self, tokens, labels, cos, sin):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        x, total = self.norm(x).flatten(0, 1), 0
        for piece, label in zip(x.chunk(PIECES), labels.flatten().chunk(PIECES)):
            total = total + torch.utils.checkpoint.checkpoint(
                lambda p, l: F.cross_entropy(self.head(p).float(), l, reduction="sum"), piece, label, use_reentrant=False)
        return total / labels.numel()


def main():
    torch.manual_seed(0)
    torch.set_default_device("cuda")
    torch.set_default_dtype(torch.bfloat16)
    model = Llama()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    angles = torch.outer(torch.arange(TOKENS).float(), 500000.0 ** (-torch.arange(0, DIM // HEADS, 2).float() / (DIM // HEADS)))
    cos, sin = angles.cos(), angles.sin()
    tokens, times = torch.randint(VOCABULARY, (1, TOKENS)), []
    for _ in range(10):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        model.loss(tokens, tokens, cos, sin).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    print(json.dumps({"tps": TOKENS / statistics.median(times[4:]), "memory_gib": torch.cuda.max_memory_allocated() / 2**30}))


if __name__ == "__main__":
    main()
