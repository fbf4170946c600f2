"""Draws the loss curve of runs as an SVG picture, from the metrics.jsonl that `titanium train` writes.

    python3 tools/plot_loss.py outputs/metrics.jsonl [more.jsonl ...] --out loss.svg [--title TEXT]

Each file is one curve: the logged losses as a thin line, the mean of the 9 logged steps around each as a thick one.
"""

import argparse
import html
import json
import math
import pathlib
import sys

WIDTH, HEIGHT = 800, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 48, 56
COLORS = ["#1f6feb", "#d1541b", "#2a8f4c", "#8250df"]
MEAN_OVER = 9


def read_losses(path):
    """[(step, loss)] of the logged steps; a loss that was not finite is null in the file and left out."""
    points = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            record = json.loads(line)
            if record.get("loss") is not None:
                points.append((record["step"], record["loss"]))
        except (ValueError, KeyError, TypeError) as error:
            sys.exit(f"{path}:{number}: not a line of metrics.jsonl ({error})")
    if not points:
        sys.exit(f"{path}: no losses. The file of a run has one line for each logged step.")
    return points


def running_mean(points):
    means = []
    for i, (step, _) in enumerate(points):
        window = [loss for _, loss in points[max(0, i - MEAN_OVER // 2) : i + MEAN_OVER // 2 + 1]]
        means.append((step, sum(window) / len(window)))
    return means


def tick_step(span, wanted):
    """The step of 1, 2 or 5 times a power of ten that cuts `span` into about `wanted` parts."""
    rough = span / wanted
    power = 10 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)


def ticks(low, high, step):
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


class Frame:
    """The plot's ranges and how they map to the picture."""

    def __init__(self, curves):
        points = [point for curve in curves for point in curve]
        self.x_max = max(step for step, _ in points)
        low, high = min(loss for _, loss in points), max(loss for _, loss in points)
        self.y_step = tick_step(high - low or 1, 7)
        self.y_min = math.floor(low / self.y_step) * self.y_step
        self.y_max = max(math.ceil(high / self.y_step) * self.y_step, self.y_min + self.y_step)

    def x(self, step):
        return LEFT + (WIDTH - LEFT - RIGHT) * step / self.x_max

    def y(self, loss):
        return TOP + (HEIGHT - TOP - BOTTOM) * (self.y_max - loss) / (self.y_max - self.y_min)

    def line(self, points, color, width, opacity):
        coordinates = " ".join(f"{self.x(step):.1f},{self.y(loss):.1f}" for step, loss in points)
        return (
            f'<polyline points="{coordinates}" fill="none" stroke="{color}" stroke-width="{width}" '
            f'stroke-opacity="{opacity}" stroke-linejoin="round"/>'
        )


def text(x, y, content, anchor="middle", size=13, color="#57606a", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{color}" {extra}>{html.escape(content)}</text>'


def axes(frame):
    bottom = HEIGHT - BOTTOM
    for loss in ticks(frame.y_min, frame.y_max, frame.y_step):
        y = frame.y(loss)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#d8dee4"/>'
        yield text(LEFT - 10, y + 4, f"{loss:g}", "end")
    for step in ticks(0, frame.x_max, max(1, tick_step(frame.x_max, 8))):
        x = frame.x(step)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}" stroke="#57606a"/>'
        yield text(x, bottom + 20, f"{step:g}")
    yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}" stroke="#57606a"/>'
    yield text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "step", size=14)
    middle = (TOP + bottom) / 2
    yield text(18, middle, "loss", size=14, extra=f'transform="rotate(-90 18 {middle:.1f})"')


def legend(names):
    y = TOP + 18
    if len(names) == 1:
        names = [f"mean of {MEAN_OVER} logged steps; thin: each logged step"]
    for name, color in zip(names, COLORS):
        yield text(WIDTH - RIGHT - 34, y + 4, name, "end")
        yield f'<line x1="{WIDTH - RIGHT - 26}" x2="{WIDTH - RIGHT - 4}" y1="{y}" y2="{y}" stroke="{color}" stroke-width="2.5"/>'
        y += 20


def draw(curves, names, title):
    frame = Frame(curves)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="Helvetica, Arial, DejaVu Sans, sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        text(LEFT, 28, title, "start", 16, "#1f2328"),
        *axes(frame),
    ]
    for curve, color in zip(curves, COLORS):
        parts += [frame.line(curve, color, 1, 0.35), frame.line(running_mean(curve), color, 2.5, 1)]
    return "\n".join([*parts, *legend(names), "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="metrics.jsonl")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--title", default="Training loss")
    arguments = parser.parse_args()
    if len(arguments.files) > len(COLORS):
        parser.error(f"at most {len(COLORS)} files fit into one picture")
    curves = [read_losses(path) for path in arguments.files]
    names = [path.parent.name or path.name for path in arguments.files]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(draw(curves, names, arguments.title))


if __name__ == "__main__":
    main()
