#!/usr/bin/env python3
"""Packs pictures and captions in Parquet, as Hugging Face's datasets keeps them, into archives of WebDataset, which Flux is trained from.

    titanium download howard-hou/COCO-Text --repo-type dataset --include '*validation-*.parquet' --local-dir data/coco
    tools/pack_pictures.py data/coco data/coco-validation

Bytes of pictures are taken as they are. A caption that is a list gives its first text, as torchtitan takes it. Rows without a picture or a caption are left out
and counted. Takes pyarrow.
"""

import argparse
import io
import os
import pathlib
import tarfile

import pyarrow.parquet

ENDINGS = {b"\xff\xd8\xff": "jpg", b"\x89PNG": "png", b"RIFF": "webp"}  # of other pictures training says what they are


def ending_of(picture):
    return next((ending for magic, ending in ENDINGS.items() if picture.startswith(magic)), "jpg")


def samples(file, image, caption):
    for batch in pyarrow.parquet.ParquetFile(file).iter_batches(batch_size=64, columns=[image, caption]):
        for row in batch.to_pylist():
            text = row[caption][0] if isinstance(row[caption], list) and row[caption] else row[caption]
            yield row[image] and row[image]["bytes"], text


def pack(file, archive, image, caption):
    """Returns how many samples the archive has, which appears when it is complete, and how many rows were left out."""
    packed = left_out = 0
    unfinished = archive.with_name(archive.name + ".tmp")
    with tarfile.open(unfinished, "w") as tar:
        for row, (picture, text) in enumerate(samples(file, image, caption)):
            if not picture or not text:
                left_out += 1
                continue
            for ending, content in ((ending_of(picture), picture), ("txt", text.encode())):
                member = tarfile.TarInfo(f"{row:08}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
            packed += 1
    os.replace(unfinished, archive)
    return packed, left_out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path, help="folder with .parquet files in its whole depth")
    parser.add_argument("out", type=pathlib.Path, help="folder for an archive of each")
    parser.add_argument("--image", default="image", help="column of pictures (image)")
    parser.add_argument("--caption", default="caption", help="column of captions (caption)")
    arguments = parser.parse_args()
    files = sorted(arguments.source.rglob("*.parquet"))
    if not files:
        parser.error(f"{arguments.source} has no .parquet files. Name a folder that has some.")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for file in files:
        archive = arguments.out / ("-".join(file.relative_to(arguments.source).with_suffix("").parts) + ".tar")
        packed, left_out = pack(file, archive, arguments.image, arguments.caption)
        print(f"{archive}: {packed} samples, {left_out} rows without a picture or a caption left out")


if __name__ == "__main__":
    main()
