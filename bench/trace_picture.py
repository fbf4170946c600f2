"""Draws what the GPU did in one step of a trace, and says where its time went.

    python3 bench/trace_picture.py rank0_trace.json [--step 10] [--out trace.svg]

The picture has two rows of the whole step (its parts, and the kind of work in each of 720 columns), the same two rows of one block's forward and
backward, magnified, and the shares. The table on stdout is the same in Markdown. Needs a trace with kernels (titanium train
--profiling.enable_profiling on a GPU); nothing but Python itself.
"""

import argparse
import collections
import html
import json
import sys

# Kinds of work, the first that matches a kernel's name; colours are told apart by people who see few.
KINDS = [
    ("matrix products", ("nvjet", "gemm", "cutlass", "cublas"), "#3b6fb6"),
    ("attention", ("sdpa", "flash", "fmha", "cudnn::fusion"), "#d9822b"),
    ("optimizer and norm", ("adamw", "sum_of_squares", "SumOfSquares", "partials_kernel"), "#7a4fa3"),
    ("collectives", ("nccl",), "#a33f3f"),
    ("other kernels", ("",), "#4f9d69"),
]
COPIES, IDLE = ("copies", "#8c8c8c"), ("idle", "#ffffff")
COLUMNS, LEFT, HEIGHT = 720, 70, 18


def kind_of(event):
    if event["cat"] != "kernel":
        return COPIES[0]
    return next(kind for kind, words, _ in KINDS if any(word in event["name"] for word in words))


class Step:
    """The GPU's work inside of one step: kernels and copies as (begin, end, kind), in microseconds since its begin, and named ranges."""

    def __init__(self, events, number):
        name = f"ProfilerStep#{number}"
        ranges = [e for e in events if e.get("cat") == "gpu_user_annotation"]
        steps = [e for e in ranges if e["name"] == name]
        if not steps:
            known = sorted({e["name"] for e in ranges if e["name"].startswith("ProfilerStep#")})
            sys.exit(f"the trace has no work of a GPU in {name}; it has {', '.join(known) or 'none at all'}. Choose with --step.")
        begin, self.length = steps[0]["ts"], steps[0]["dur"]

        def inside(event):
            return event["ts"] >= begin and event["ts"] + event.get("dur", 0) <= begin + self.length + 1

        self.ranges = sorted(((e["ts"] - begin, e["ts"] + e["dur"] - begin, e["name"]) for e in ranges if inside(e) and e["name"] != name))
        work = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and inside(e)]
        self.work = sorted((e["ts"] - begin, e["ts"] + e["dur"] - begin, kind_of(e)) for e in work)

    def parts(self):
        """Forward, loss, backward, gradient norm and optimizer: each lasts until the next one begins."""
        firsts = (("forward", lambda name: True), ("head and loss", lambda name: name == "head_loss"), ("backward", lambda name: name.endswith(" backward")),
                  ("gradient norm", lambda name: name == "gradient norm"), ("optimizer", lambda name: name == "optimizer"))
        begins = [(next((begin for begin, _, name in self.ranges if matches(name)), None), part) for part, matches in firsts]
        begins = [(0 if part == "forward" else begin, part) for begin, part in begins if begin is not None]
        return [(begin, end, part) for (begin, part), (end, _) in zip(begins, begins[1:] + [(self.length, "")])]

    def shares(self):
        """Microseconds by kind, idle time included. Where two streams work at once, the one that began first counts."""
        sums, until = collections.Counter(), 0
        for begin, end, kind in self.work:
            sums[IDLE[0]] += max(0, begin - until)
            sums[kind] += max(0, end - max(begin, until))
            until = max(until, end)
        sums[IDLE[0]] += max(0, self.length - until)
        return sums

    def gaps(self):
        """Stretches of more than 20 us without work."""
        until, gaps = 0, []
        for begin, end, _ in self.work:
            if begin - until > 20:
                gaps.append(begin - until)
            until = max(until, end)
        return gaps

    def magnified(self):
        """The range around one block in the middle of the forward, and one in the middle of the backward."""
        windows = []  # from one block's first operator to that of the next
        for title, name in (("one block, forward", "norm_qkv_rope"), ("one block, backward", "feed_forward backward")):
            found = [r for r in self.ranges if r[2] == name]
            if len(found) > 2:
                windows.append((title, found[len(found) // 2][0], found[len(found) // 2 + 1][0]))
        return windows


def cells(step, begin, end):
    """The kind that has most of each column, joined to runs of (first column, columns, kind)."""
    width = (end - begin) / COLUMNS
    columns = [collections.Counter() for _ in range(COLUMNS)]
    for work_begin, work_end, kind in step.work:
        first, last = max(work_begin, begin), min(work_end, end)
        if last <= first:
            continue
        for column in range(int((first - begin) / width), min(COLUMNS, int((last - begin) / width) + 1)):
            low = begin + column * width
            columns[column][kind] += max(0, min(last, low + width) - max(first, low))
    runs = []
    for index, column in enumerate(columns):
        kind = column.most_common(1)[0][0] if sum(column.values()) > width / 2 else IDLE[0]
        if runs and runs[-1][2] == kind:
            runs[-1][1] += 1
        else:
            runs.append([index, 1, kind])
    return runs


def rectangle(x, y, width, height, fill, title=""):
    inner = f"<title>{html.escape(title)}</title>" if title else ""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}">{inner}</rect>'


def text(x, y, words, size=11, anchor="start"):
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="#222">{html.escape(words)}</text>'


def timeline(step, y, title, begin, end, ranges):
    colors = {kind: color for kind, _, color in KINDS} | dict([COPIES, IDLE])
    scale = COLUMNS / (end - begin)
    drawn = [text(LEFT, y - 5, f"{title}: {(end - begin) / 1e3:.4g} ms")]
    for first, last, name in ranges:
        width = (last - first) * scale
        drawn.append(rectangle(LEFT + (first - begin) * scale, y, max(width - 0.7, 0.4), HEIGHT, "#e4e4e4", f"{name}, {(last - first) / 1e3:.4g} ms"))
        if width > 6.2 * len(name):
            drawn.append(text(LEFT + ((first + last) / 2 - begin) * scale, y + 13, name, 10, "middle"))
    for column, count, kind in cells(step, begin, end):
        drawn.append(rectangle(LEFT + column, y + HEIGHT + 2, count, HEIGHT * 1.6, colors[kind], kind))
    return drawn + [text(4, y + 13, "ranges", 10), text(4, y + HEIGHT + 20, "GPU", 10)]


def picture(step, title):
    y, drawn = 46, [text(4, 18, title, 13)]
    drawn += timeline(step, y, "the step", 0, step.length, step.parts())
    for name, begin, end in step.magnified():
        y += 84
        inside = [r for r in step.ranges if r[2] != "gemm" and r[0] >= begin - 1 and r[1] <= end + 1]
        drawn += timeline(step, y, name, begin, end, inside)
    y += 76
    x = LEFT
    shares = step.shares()
    for kind, color in [(kind, color) for kind, _, color in KINDS] + [COPIES, IDLE]:
        if shares[kind] == 0:
            continue
        drawn.append(f'<rect x="{x:g}" y="{y - 9}" width="10" height="10" fill="{color}" stroke="#888" stroke-width="0.5"/>')
        label = f"{kind} {100 * shares[kind] / step.length:.1f} %"
        drawn.append(text(x + 14, y, label))
        x += 26 + 5.6 * len(label)
    size = f'width="{LEFT + COLUMNS + 10}" height="{y + 14}" viewBox="0 0 {LEFT + COLUMNS + 10} {y + 14}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">\n<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(drawn) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trace")
    parser.add_argument("--step", type=int, default=10)
    parser.add_argument("--title", default="")
    parser.add_argument("--out", default="trace.svg")
    args = parser.parse_args()
    trace = json.load(open(args.trace))
    step = Step(trace["traceEvents"], args.step)
    device = (trace.get("deviceProperties") or [{"name": "GPU"}])[0]["name"]
    with open(args.out, "w") as file:
        file.write(picture(step, args.title or f"Step {args.step} on {device}"))
    print(f"{len(step.work)} kernels and copies in {step.length / 1e3:.1f} ms\n")
    print("| work | ms | share |\n|---|---|---|")
    for kind, time in step.shares().most_common():
        print(f"| {kind} | {time / 1e3:.1f} | {100 * time / step.length:.2f} % |")
    print("\n| part | ms |\n|---|---|")
    for begin, end, name in step.parts():
        print(f"| {name} | {(end - begin) / 1e3:.1f} |")
    gaps = step.gaps()
    print(f"\n{len(gaps)} stretches above 20 us without work" + (f", the longest {max(gaps):.0f} us" if gaps else ""))


if __name__ == "__main__":
    main()
