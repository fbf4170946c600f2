"""Draws the speed of Llama 3 8B on one H200 against other systems as an SVG picture, from the tables in bench/results.

    python3 tools/draw_speed_chart.py [--out docs/images/speed_8b.svg]
"""

import argparse
import html
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
RUN, PEERS = RESULTS / "2026-11-15_h200_run.md", RESULTS / "2026-11-16_h200_peers.md"

# Title of a group; then label, file, how the line begins that has the figure, whether it is ours.
GROUPS = [
    ("bf16", [
        ("Titanium", RUN, "| 8B, 8192, batch 3, nothing recomputed |", True),
        ("llmq", PEERS, "| llmq b77d969 | bf16, no recomputation, batch 1, 2 accumulation steps |", False),
        ("torchtitan, compiled", PEERS, "| torchtitan 0.2.2 | bf16, compile, no recomputation, batch 2 |", False),
        ("PyTorch, eager", RUN, "Eager PyTorch, 8B, 8192, batch 1: ", False),
    ]),
    ("float8, one scale per tensor", [
        ("Titanium", RUN, "| 8B, float8 tensorwise, batch 2, nothing recomputed |", True),
        ("torchtitan + torchao, compiled", PEERS, "| torchtitan 0.2.2, torchao 0.16 | float8 tensorwise, compile, no recomputation, batch 2 |", False),
    ]),
]
WIDTH, LEFT, RIGHT, BAR, GAP = 800, 260, 90, 24, 8
OURS, OTHERS = "#1f6feb", "#9aa4b2"


def figure(path, beginning):
    for line in path.read_text().splitlines():
        if line.startswith(beginning):
            return int(re.search(r"[\d,]+", line[len(beginning):]).group().replace(",", ""))
    raise SystemExit(f"{path} has no line that begins with {beginning!r}")


def text(x, y, content, anchor="start", weight="normal", size=14, color="#1b1f24"):
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}" font-size="{size}" fill="{color}">{html.escape(content)}</text>'


def draw():
    groups = [(title, [(label, figure(path, begin), ours) for label, path, begin, ours in bars]) for title, bars in GROUPS]
    most = max(value for _, bars in groups for _, value, _ in bars)
    parts, y = [], 64
    for title, bars in groups:
        parts.append(text(16, y, title, weight="bold"))
        y += 14
        for label, value, ours in bars:
            width = round(value / most * (WIDTH - LEFT - RIGHT), 1)
            parts.append(text(LEFT - 10, y + 17, label, "end", "bold" if ours else "normal"))
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{width}" height="{BAR}" rx="3" fill="{OURS if ours else OTHERS}"/>')
            parts.append(text(LEFT + width + 8, y + 17, f"{value:,}", weight="bold" if ours else "normal"))
            y += BAR + GAP
        y += 26
    head = text(16, 30, "Llama 3 8B, sequence 8192, one H200: tokens per second", weight="bold", size=17)
    foot = text(16, y - 4, "Each at its fastest measured setting: bf16 parameters and Adam states, nothing recomputed. Sources: bench/results", size=12, color="#57606a")
    body = "\n".join([head, *parts, foot])
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 12}" width="{WIDTH}" height="{y + 12}" '
            f'font-family="Helvetica, Arial, sans-serif">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "images" / "speed_8b.svg")
    parser.parse_args().out.write_text(draw())


if __name__ == "__main__":
    main()
