"""Pictures as Pillow and torchtitan read them: decoding, resizing and cutting squares, and the PNG writer.

`images.py --write DIR` only writes the pictures, for tests/fuzz/images.cpp.
"""

import io
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

import datasets
import numpy
import PIL.Image
import PIL.ImageOps

SIZE = 64


def picture(width, height, mode="RGB", seed=0):
    """Smooth colours with sharp edges and some noise."""
    random = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[0:height, 0:width]
    channels = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}[mode]
    planes = []
    for c in range(channels):
        wave = 127 + 90 * numpy.sin(x / (9 + 3 * c) + seed) * numpy.cos(y / (13 - 2 * c)) + 30 * ((x // 17 + y // 11) % 2)
        planes.append(numpy.clip(wave + random.integers(-12, 12, wave.shape), 0, 255).astype(numpy.uint8))
    if mode in ("LA", "RGBA"):
        planes[-1][: height // 4] = 0
        planes[-1][-height // 4 :] = 255
    pixels = numpy.stack(planes, -1)
    return PIL.Image.fromarray(pixels[..., 0] if channels == 1 else pixels, mode)


def encoded(image, form, **options):
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, depth, color, rows, interlace=0, extra=b""):
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def interlaced(image):
    """Adam7, which Pillow reads and does not write."""
    pixels = numpy.asarray(image)
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    rows = b"".join(b"\0" + row.tobytes() for x, y, dx, dy in passes for row in pixels[y::dy, x::dx] if row.size)
    return png(image.width, image.height, 8, 2, rows, interlace=1)


def good_files():
    files = {}
    for width, height in [(64, 64), (65, 64), (100, 80), (81, 300), (511, 333), (200, 64), (64, 129), (300, 1200), (1200, 300), (1, 1), (3, 70)]:
        files[f"rgb_{width}x{height}.jpg"] = encoded(picture(width, height), "JPEG", quality=90)
        files[f"rgb_{width}x{height}.png"] = encoded(picture(width, height), "PNG")
    image = picture(230, 150, seed=3)
    for subsampling in (0, 1, 2):
        files[f"sub{subsampling}.jpg"] = encoded(image, "JPEG", quality=75, subsampling=subsampling)
    files["progressive.jpg"] = encoded(image, "JPEG", quality=85, progressive=True)
    files["restarts.jpg"] = encoded(image, "JPEG", quality=85, restart_marker_blocks=4)
    for mode in ("L", "CMYK"):
        files[f"{mode}.jpg"] = encoded(picture(170, 111, mode), "JPEG", quality=92)
    for orientation in range(1, 9):
        exif = PIL.Image.Exif()
        exif[0x0112] = orientation
        for form in ("jpeg", "png", "webp"):
            files[f"turned{orientation}.{form}"] = encoded(picture(90, 70, seed=orientation), form.upper(), exif=exif.tobytes())
    for mode in ("L", "LA", "RGBA"):
        files[f"{mode}.png"] = encoded(picture(123, 87, mode), "PNG")
    files["interlaced.png"] = interlaced(picture(77, 90))
    files["lossy.webp"] = encoded(image, "WEBP", quality=80)
    files["lossless.webp"] = encoded(image, "WEBP", lossless=True)
    files["alpha.webp"] = encoded(picture(130, 95, "RGBA"), "WEBP", lossless=True, exact=True)
    files["alpha_lossy.webp"] = encoded(picture(130, 95, "RGBA"), "WEBP", quality=80)
    files["animated.webp"] = encoded(picture(99, 88), "WEBP", lossless=True, save_all=True, append_images=[picture(99, 88, seed=5)])
    return files


def ours_only():
    """Pictures for which Pillow's own way to resize loses quality: what they are in red, green and blue or grey."""
    rgb = picture(140, 92, seed=8)
    palette = rgb.quantize(64)
    wide = numpy.asarray(picture(90, 77, "L")).astype(">u2") * 257
    rows = b"".join(b"\0" + row.tobytes() for row in wide)
    return {
        "palette.png": (encoded(palette, "PNG"), palette.convert("RGB")),
        "palette_transparent.png": (encoded(palette, "PNG", transparency=3), palette.convert("RGB")),
        "bits.png": (encoded(rgb.convert("1"), "PNG"), rgb.convert("1").convert("L")),
        "grey16.png": (png(90, 77, 16, 0, rows), picture(90, 77, "L")),
    }


def bad_files():
    jpeg, progressive = encoded(picture(200, 150), "JPEG"), encoded(picture(200, 150), "JPEG", progressive=True)
    image = encoded(picture(200, 150), "PNG")
    webp = encoded(picture(200, 150), "WEBP")
    gif = encoded(picture(80, 80), "GIF")
    flipped = bytearray(image)
    flipped[len(image) // 2] ^= 0x10
    frame = jpeg.index(b"\xff\xc0") + 5
    huge = jpeg[:frame] + struct.pack(">HH", 65500, 65500) + jpeg[frame + 4 :]
    return {
        "empty.jpg": (b"", "has no bytes"),
        "page.jpg": (b"<html>404</html>", "is neither JPEG, PNG nor WebP"),
        "a.gif": (gif, "is neither JPEG, PNG nor WebP"),
        "short.jpg": (jpeg[: len(jpeg) * 2 // 3], "is damaged (Premature end of JPEG file)"),
        "short_progressive.jpg": (progressive[: len(progressive) // 2], "is damaged (Premature end of JPEG file)"),
        "short.png": (image[: len(image) * 2 // 3], "is damaged (it ends too early)"),
        "crc.png": (bytes(flipped), "is damaged (IDAT: incorrect data check)"),
        "short.webp": (webp[: len(webp) * 2 // 3], "is damaged ("),
        "header.webp": (webp[:20], "is damaged ("),
        "huge.png": (png(1 << 20, 1 << 20, 8, 2, b""), "is 1048576 x 1048576 pixels large, more than the 67108864 that one may have"),
        "huge.jpg": (huge, "is 65500 x 65500 pixels large"),
    }


def write_files(folder):
    folder.mkdir(exist_ok=True)
    for name, data in good_files().items():
        (folder / name).write_bytes(data)
    for name, (data, _) in (ours_only() | bad_files()).items():
        (folder / name).write_bytes(data)


def reference_square(image, place):
    """What torchtitan 0.2.2 makes of a picture, with the place of the cut given."""
    width, height = image.size
    if width < SIZE or height < SIZE:
        return None
    if width >= height:
        size = (math.ceil(SIZE / height * width), SIZE)
        left = (size[0] - SIZE) * place // 1000
        box = (left, 0, left + SIZE, SIZE)
    else:
        size = (SIZE, math.ceil(SIZE / width * height))
        top = (size[1] - SIZE) * place // 1000
        box = (0, top, SIZE, top + SIZE)
    return numpy.asarray(image.resize(size).crop(box).convert("RGB")).transpose(2, 0, 1)


class Images(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        source, cls.found = pathlib.Path(folder.name, "in"), pathlib.Path(folder.name, "out")
        cls.found.mkdir()
        cls.good, cls.ours, cls.bad = good_files(), ours_only(), bad_files()
        write_files(source)
        driver = pathlib.Path(os.environ["TITANIUM_BUILD"], "images_driver")
        subprocess.run([driver, source, cls.found, str(SIZE), "377"], check=True)

    def decoded(self, name):
        head, pixels = (self.found / f"{name}.decoded").read_bytes().split(b"\n", 1)
        self.assertNotIn(b"error", head, name)
        width, height, mode = head.decode().split()
        return PIL.Image.frombytes(mode, (int(width), int(height)), pixels)

    def square(self, name):
        return numpy.fromfile(self.found / f"{name}.square", numpy.uint8).reshape(3, SIZE, SIZE)

    def opened(self, name):
        return PIL.ImageOps.exif_transpose(PIL.Image.open(io.BytesIO(self.good[name])))

    def test_pixels_are_those_of_pillow(self):
        for name in self.good:
            ours, theirs = self.decoded(name), self.opened(name)
            self.assertEqual((ours.size, ours.mode), (theirs.size, theirs.mode), name)
            numpy.testing.assert_array_equal(numpy.asarray(ours), numpy.asarray(theirs), name)

    def test_squares_are_those_of_the_reference(self):
        squares = 0
        for name in self.good:
            expected = reference_square(self.opened(name), 377)
            self.assertEqual(expected is not None, (self.found / f"{name}.square").exists(), name)
            if expected is not None:
                numpy.testing.assert_array_equal(self.square(name), expected, name)
                squares += 1
        self.assertGreater(squares, 40)

    def test_palettes_and_other_depths_are_resized_in_their_colours(self):
        for name, (_, image) in self.ours.items():
            numpy.testing.assert_array_equal(numpy.asarray(self.decoded(name)), numpy.asarray(image), name)
            numpy.testing.assert_array_equal(self.square(name), reference_square(image, 377), name)

    def test_what_is_damaged_or_too_large_is_refused(self):
        for name, (_, expected) in self.bad.items():
            text = (self.found / f"{name}.decoded").read_text()
            self.assertTrue(text.startswith("error: "), f"{name}: {text[:80]}")
            self.assertIn(expected, text, name)

    def test_written_png_has_the_pixels(self):
        for name in self.good:
            written = PIL.Image.open(self.found / f"{name}.png")
            self.assertEqual(written.text, {"Description": "grün"})
            numpy.testing.assert_array_equal(numpy.asarray(written), numpy.asarray(self.decoded(name).convert("RGB")), name)

    def test_archives_have_the_samples_that_datasets_finds(self):
        folder = "tests/assets/cc12m_test"
        result = subprocess.run([os.environ["TITANIUM"], "data", "inspect", folder, "--records", "100", "--json"], capture_output=True, check=True)
        found = json.loads(result.stdout)
        expected = list(datasets.load_dataset(folder, split="train", data_files={"train": "*.tar"}, streaming=True))
        self.assertEqual(found["records"], len(expected))
        self.assertEqual([sample["text"] for sample in found["samples"]], [sample["txt"] for sample in expected])
        sizes = [f"JPEG {sample['jpg'].width} x {sample['jpg'].height}" for sample in expected]
        self.assertEqual([sample["image"] for sample in found["samples"]], sizes)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write_files(pathlib.Path(sys.argv[2]))
    else:
        unittest.main()
