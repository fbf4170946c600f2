"""Draws the losses of runs over their steps.

    python3 bench/h200/loss_curves.py OUT.svg NAME=metrics.jsonl ...
"""

import json
import math
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 360, 56, 16, 16, 40
COLOURS = ("#1f5fa8", "#c8501e", "#2e8b57", "#7a4ea3")


def read(path):
    return {record["step"]: record["loss"] for record in map(json.loads, open(path))}


def main():
    curves = {name: read(path) for name, path in (argument.split("=", 1) for argument in sys.argv[2:])}
    last = max(step for curve in curves.values() for step in curve)
    losses = [loss for curve in curves.values() for loss in curve.values()]
    low, high = math.log(min(losses)), math.log(max(losses))
    x = lambda step: LEFT + (WIDTH - LEFT - RIGHT) * (step - 1) / max(1, last - 1)
    y = lambda loss: TOP + (HEIGHT - TOP - BOTTOM) * (high - math.log(loss)) / (high - low)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for tick in (0.5, 1, 2, 5, 10):
        if low <= math.log(tick) <= high:
            parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#ddd"/>'
                         f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick}</text>')
    for step in range(0, last + 1, max(1, last // 5)):
        parts.append(f'<text x="{x(max(1, step)):.1f}" y="{HEIGHT - 20}" text-anchor="middle">{max(1, step)}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 4}" text-anchor="middle">step</text>')
    for i, (name, curve) in enumerate(curves.items()):
        points = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in sorted(curve.items()))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[i]}" stroke-width="1.2"/>'
                     f'<text x="{WIDTH - RIGHT - 120}" y="{TOP + 16 * (i + 1)}" fill="{COLOURS[i]}">{name}</text>')
    open(sys.argv[1], "w").write("\n".join(parts) + "\n</svg>\n")


if __name__ == "__main__":
    main()
