#!/usr/bin/env python3
"""Pictures per second of one core, decoded and cut to squares: Titanium against Pillow, on the same files.

    bench/images.py BUILD [COUNT] [SIZE]
"""

import io
import math
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy
import PIL.Image


def photo(width, height, seed):
    """Noise of all scales, which compresses as photographs do."""
    random = numpy.random.default_rng(seed)
    picture = numpy.zeros((height, width, 3))
    for scale in (4, 8, 16, 32, 64, 128):
        small = random.normal(0, scale**0.8, (height // scale + 2, width // scale + 2, 3))
        image = [PIL.Image.fromarray(small[..., c].astype("float32")).resize((width, height)) for c in range(3)]
        picture += numpy.stack([numpy.asarray(channel) for channel in image], -1)
    return PIL.Image.fromarray(numpy.clip(picture * 0.8 + 128, 0, 255).astype(numpy.uint8))


def pillow_square(data, size):
    image = PIL.Image.open(io.BytesIO(data))
    width, height = image.size
    if width >= height:
        image = image.resize((math.ceil(size / height * width), size))
        left = (image.width - size) // 2
        image = image.crop((left, 0, left + size, size))
    else:
        image = image.resize((size, math.ceil(size / width * height)))
        top = (image.height - size) // 2
        image = image.crop((0, top, size, top + size))
    return numpy.array(image.convert("RGB")).transpose(2, 0, 1).copy()


def main():
    build, count, size = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 60, int(sys.argv[3]) if len(sys.argv) > 3 else 256
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for i in range(count):
            image = photo(*[(640, 480), (1024, 683), (512, 768)][i % 3], i)
            image.save(folder / f"{i}.jpg", quality=85)
            if i % 4 == 0:
                image.save(folder / f"{i}.png")
                image.save(folder / f"{i}.webp", quality=80)
        result = subprocess.run([f"{build}/bench_images", folder, str(size)], capture_output=True, text=True, check=True)
        for line in result.stdout.splitlines():
            ending, seconds, pictures = line.split()
            files = [path.read_bytes() for path in folder.glob(f"*{ending}")]
            begin = time.process_time()
            for data in files:
                pillow_square(data, size)
            theirs = time.process_time() - begin
            print(f"{ending[1:]:5} {sum(map(len, files)) // len(files) // 1024:4} KB  Titanium {int(pictures) / float(seconds):7.1f}/s  Pillow {len(files) / theirs:7.1f}/s")


if __name__ == "__main__":
    main()
