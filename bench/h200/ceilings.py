"""What the GPU reaches in matrix products, attention and copies, sustained; and the floor that follows for a training step."""

import json
import sys

import torch

DIM, HIDDEN, KV, VOCABULARY, HEADS, KV_HEADS, HEAD_DIM = 4096, 14336, 1024, 128256, 32, 8, 128
ROWS = 16384


def seconds(function, at_least=0.4):
    """Of one call, after a warm-up, over `at_least` seconds: a GPU at its power limit slows down."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    function()
    torch.cuda.synchronize()
    begin.record()
    function()
    end.record()
    torch.cuda.synchronize()
    calls = max(3, int(at_least * 1e3 / max(begin.elapsed_time(end), 1e-3)))
    begin.record()
    for _ in range(calls):
        function()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3 / calls


def normal(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def linears_of_a_step():
    """All products of one block and the head, forward and both gradients; their operations."""
    sizes = {(DIM, DIM): 2, (KV, DIM): 2, (HIDDEN, DIM): 2, (DIM, HIDDEN): 1}
    matrices = [(normal(ROWS, i), normal(o, i), normal(ROWS, o), torch.empty(o, i, device="cuda", dtype=torch.bfloat16), count)
                for (o, i), count in sizes.items()]

    def run():
        for x, w, g, dw, count in matrices:
            for _ in range(count):
                torch.mm(x, w.t())
                torch.mm(g, w)
                torch.addmm(dw, g.t(), x, beta=1, out=dw)

    return run, sum(6 * ROWS * o * i * count for (o, i), count in sizes.items())


def float8_linears_of_a_step():
    """The same for one block with operands that are in float8 already, and lie as Hopper wants them."""
    sizes = {(DIM, DIM): 2, (KV, DIM): 2, (HIDDEN, DIM): 2, (DIM, HIDDEN): 1}
    one = torch.ones((), device="cuda")
    cast = lambda x, dtype=torch.float8_e4m3fn: x.to(dtype)
    operands = [(cast(normal(ROWS, i)), cast(normal(o, i)), cast(normal(ROWS, o), torch.float8_e5m2), cast(normal(i, o)),
                 cast(normal(o, ROWS), torch.float8_e5m2), cast(normal(i, ROWS)), count) for (o, i), count in sizes.items()]

    def run():
        for x, w, g, w_t, g_t, x_t, count in operands:
            for _ in range(count):
                torch._scaled_mm(x, w.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True)
                torch._scaled_mm(g, w_t.t(), one, one, out_dtype=torch.bfloat16)
                torch._scaled_mm(g_t, x_t.t(), one, one, out_dtype=torch.bfloat16)

    return run, sum(6 * ROWS * o * i * count for (o, i), count in sizes.items())


def gain_of_fusing(*widths):
    """How much faster one product for layers that read the same input is than one for each: forward and both gradients."""
    x, dx = normal(ROWS, DIM), normal(ROWS, DIM)

    def products(widths):
        matrices = [(normal(o, DIM), normal(ROWS, o), torch.empty(o, DIM, device="cuda", dtype=torch.bfloat16)) for o in widths]

        def run():
            for w, g, dw in matrices:
                torch.mm(x, w.t())
                torch.addmm(dx, g, w, beta=1, out=dx)
                torch.addmm(dw, g.t(), x, beta=1, out=dw)

        return run

    each, fused = products(widths), products([sum(widths)])
    rounds = [(seconds(each), seconds(fused)) for _ in range(3)]
    return sum(r[0] for r in rounds) / sum(r[1] for r in rounds)


def attention(tokens, batch):
    q, k, v = (normal(batch, tokens, heads, HEAD_DIM).transpose(1, 2) for heads in (HEADS, KV_HEADS, KV_HEADS))
    ops = torch.ops.aten
    forward = lambda: ops._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, True)
    out = forward()
    grad = torch.randn_like(out[0])
    backward = lambda: ops._scaled_dot_product_cudnn_attention_backward(
        grad, q, k, v, out[0], out[1], out[6], out[7], None, out[2], out[3], tokens, tokens, 0.0, True)
    operations = 2 * batch * tokens * tokens * HEADS * HEAD_DIM
    return {"forward": operations / seconds(forward), "backward": 2.5 * operations / seconds(backward)}


def measure():
    torch.manual_seed(0)
    run, operations = linears_of_a_step()
    found = {"linear": operations / seconds(run, 1.5)}
    run, operations = float8_linears_of_a_step()
    found["float8"] = operations / seconds(run, 1.5)
    found["fused"] = {"q, k and v": gain_of_fusing(DIM, KV, KV), "w1 and w3": gain_of_fusing(HIDDEN, HIDDEN)}
    found["attention"] = {tokens: attention(tokens, batch) for tokens, batch in ((1024, 16), (2048, 8), (4096, 4), (8192, 2), (32768, 1), (65536, 1))}
    source = torch.empty(1 << 30, device="cuda", dtype=torch.uint8).random_()
    target = torch.empty_like(source)
    found["copy"] = 2 * source.numel() / seconds(lambda: target.copy_(source))
    return found


if __name__ == "__main__":
    json.dump(measure(), open(sys.argv[1], "w"))
