#!/usr/bin/env python3
"""Makes the image sets of tests/assets: drawn shapes with captions, as archives of WebDataset.

    tools/make_image_test_sets.py tests/assets

The pictures are drawn here and belong to nobody else. Sizes, formats and places differ, so that resizing and cutting have
something to do. The same versions of Pillow and NumPy write the same bytes.
"""

import argparse
import io
import json
import pathlib
import tarfile

import numpy
import PIL.Image

COLORS = {
    "red": (214, 40, 40), "orange": (247, 127, 0), "yellow": (252, 211, 77), "green": (45, 140, 70),
    "blue": (38, 84, 196), "purple": (124, 58, 190), "white": (245, 245, 240), "black": (25, 25, 28),
}
SHAPES = ("circle", "square", "triangle", "ring")
GROUNDS = {"grey": (150, 152, 155), "sand": (224, 205, 160), "sky": (150, 200, 235), "rose": (235, 180, 190)}


def inside(shape, x, y):
    """Distance to the edge of a shape of radius 1, negative inside."""
    radius = numpy.hypot(x, y)
    if shape == "circle":
        return radius - 1
    if shape == "ring":
        return numpy.abs(radius - 0.75) - 0.25
    if shape == "square":
        return numpy.maximum(numpy.abs(x), numpy.abs(y)) - 0.85
    return numpy.maximum(y - 0.7, numpy.abs(x) * 0.866 - (y + 1) * 0.5)  # a triangle that stands on its side


def draw(shape, color, ground, width, height, random):
    y, x = numpy.mgrid[0:height, 0:width].astype(float)
    shade = 1 + 0.12 * (y / height - 0.5)
    picture = numpy.array(ground, float) * shade[..., None]
    radius = min(width, height) * random.uniform(0.27, 0.36)
    center = width * random.uniform(0.42, 0.58), height * random.uniform(0.42, 0.58)
    distance = inside(shape, (x - center[0]) / radius, (y - center[1]) / radius) * radius
    cover = numpy.clip(0.5 - distance, 0, 1)[..., None]
    light = 1 + 0.15 * ((center[1] - y) / radius)[..., None]
    picture = picture * (1 - cover) + numpy.clip(numpy.array(color, float) * light, 0, 255) * cover
    return PIL.Image.fromarray(numpy.clip(picture, 0, 255).astype(numpy.uint8))


def encoded(image, form):
    buffer = io.BytesIO()
    options = {"JPEG": {"quality": 82}, "PNG": {"optimize": True}, "WEBP": {"quality": 80}}[form]
    image.save(buffer, form, **options)
    return buffer.getvalue()


def write_archive(path, samples):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in samples:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def captioned_shapes(count, seed, first_key, forms, caption_part):
    """`count` samples: every shape in turn, every colour, on other grounds each time."""
    random = numpy.random.default_rng(seed)
    members = []
    for i in range(count):
        shape, color = SHAPES[i % len(SHAPES)], list(COLORS)[(i // len(SHAPES) + i) % len(COLORS)]
        ground = list(GROUNDS)[(i // 3 + seed) % len(GROUNDS)]
        width, height = [(256, 256), (320, 256), (256, 300), (288, 272)][(i // 5) % 4]
        image = draw(shape, COLORS[color], GROUNDS[ground], width, height, random)
        form, ending = forms[i % len(forms)]
        key, article = f"{first_key + i:08}", "an" if color == "orange" else "a"
        members.append((f"{key}.{ending}", encoded(image, form)))
        members.append(caption_part(key, f"{article} {color} {shape} on a {ground} background"))
    return members


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    train = captioned_shapes(32, 1, 0, [("JPEG", "jpg")], lambda key, caption: (f"{key}.txt", caption.encode()))
    write_archive(folder / "cc12m_test" / "cc12m-train-0000.tar", train[:32])
    write_archive(folder / "cc12m_test" / "cc12m-train-0001.tar", train[32:])
    # As Common Objects in Context has them: several captions, of which the first one counts.
    forms = [("JPEG", "jpg"), ("JPEG", "jpg"), ("PNG", "png"), ("WEBP", "webp")]
    valid = captioned_shapes(16, 2, 500, forms, lambda key, caption: (
        f"{key}.json", json.dumps({"caption": [caption, "a drawn shape"], "image_id": int(key)}).encode()))
    write_archive(folder / "coco_test" / "coco-validation-0000.tar", valid)


if __name__ == "__main__":
    main()
