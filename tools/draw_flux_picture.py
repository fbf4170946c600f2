#!/usr/bin/env python3
"""The two ends of tools/draw_flux_picture.sh: the captions to draw, and one picture of what was drawn.

    tools/draw_flux_picture.py captions SET PROMPTS       # a caption on each line
    tools/draw_flux_picture.py picture SET IMAGES OUT     # above: drawn by the model, below: the image that has this caption
"""

import io
import pathlib
import sys
import tarfile
import textwrap

import PIL.Image
import PIL.ImageDraw

COLUMNS, CELL, GAP, TEXT = 8, 96, 8, 44
SHOWN = range(16)


def samples(folder):
    """(image, caption) of each sample, in the order of the archives."""
    found = {}
    for path in sorted(pathlib.Path(folder).glob("*.tar")):
        with tarfile.open(path) as archive:
            for member in archive:
                key, ending = member.name.split(".", 1)
                found.setdefault((path.name, key), {})[ending] = archive.extractfile(member).read()
    for parts in found.values():
        picture = next(content for ending, content in parts.items() if ending not in ("txt", "json"))
        yield PIL.Image.open(io.BytesIO(picture)).convert("RGB"), parts["txt"].decode()


def square(image):
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, top, left + side, top + side)).resize((CELL, CELL), PIL.Image.LANCZOS)


def write_picture(folder, drawn, out):
    chosen = [sample for i, sample in enumerate(samples(folder)) if i in SHOWN]
    rows, width, height = -(-len(chosen) // COLUMNS), CELL + GAP, 2 * CELL + TEXT + GAP
    sheet = PIL.Image.new("RGB", (COLUMNS * width + GAP, rows * height + GAP), "white")
    pen = PIL.ImageDraw.Draw(sheet)
    for i, (original, caption) in enumerate(chosen):
        x, y = GAP + i % COLUMNS * width, GAP + i // COLUMNS * height
        made = PIL.Image.open(pathlib.Path(drawn) / f"image_prompt{i}.png")
        sheet.paste(made.resize((CELL, CELL), PIL.Image.NEAREST), (x, y))
        sheet.paste(square(original), (x, y + CELL + 2))
        pen.multiline_text((x, y + 2 * CELL + 4), textwrap.fill(caption, 16), fill="black", font_size=10, spacing=1)
    sheet.save(out, optimize=True)


def main():
    if sys.argv[1:2] == ["captions"]:
        lines = [caption for i, (_, caption) in enumerate(samples(sys.argv[2])) if i in SHOWN]
        pathlib.Path(sys.argv[3]).write_text("\n".join(lines) + "\n")
    else:
        write_picture(*sys.argv[2:5])


if __name__ == "__main__":
    main()
