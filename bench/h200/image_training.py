#!/usr/bin/env python3
"""Training of Flux from images against the step of its model alone, both in the same run: what encoders, autoencoder, decoding
of pictures and logging cost together. Encoders and autoencoder have the published sizes and made-up weights, pictures are made
here, and nothing is downloaded. Takes build/titanium and build/bench_image_step (`ninja -C build titanium bench_image_step`).

    bench/h200/image_training.py                    flux-dev, 256 x 256 pixels, 512 tokens, batch 8: about 5 minutes on an H200
    bench/h200/image_training.py --tiny             small sizes on the CPU, to see that it runs
    bench/h200/image_training.py -- OPTIONS         further options of titanium train, for both

On a machine that has torch in its Python and none of our packages: source bench/torch_libraries.sh before.
"""

import argparse
import dataclasses
import io
import json
import os
import pathlib
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tarfile
import tempfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
PART = 0.85  # of the speed of the model's step

# config.json of the published encoders, as models/encoders/text_encoder.cpp knows them.
T5_XXL = {"model_type": "t5", "vocab_size": 32128, "d_model": 4096, "d_kv": 64, "d_ff": 10240, "num_layers": 24, "num_heads": 64,
          "feed_forward_proj": "gated-gelu"}
CLIP_L = {"model_type": "clip_text_model", "vocab_size": 49408, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
          "num_attention_heads": 12}
SMALL_FLUX = {"attention_head_dim": 32, "num_attention_heads": 2, "in_channels": 64, "pooled_projection_dim": 768,
              "joint_attention_dim": 4096, "num_layers": 1, "num_single_layers": 1, "axes_dims_rope": [8, 12, 12]}


@dataclasses.dataclass
class Setting:
    name: str
    pixels: int
    text: int
    batch: int
    steps: int
    t5: dict
    clip: dict
    options: list


REAL = Setting("Flux-dev from images, 256 + 512 tokens, batch 8, nothing recomputed", 256, 512, 8, 24, T5_XXL, CLIP_L,
               ["--model.flavor=flux-dev", "--training.dtype=bfloat16", "--activation_checkpoint.mode=none"])
TINY = Setting("a small Flux from images, on the CPU", 32, 16, 2, 6, T5_XXL | {"d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 4},
               CLIP_L | {"intermediate_size": 64, "num_hidden_layers": 1},
               ["--model.flavor=auto", "--training.device=cpu", "--training.mixed_precision_param=float32"])


def png(width, height, seed):
    """A picture whose pixels are noise of 16 values, so that reading it is work."""
    values = bytes(16 * (i // 16) for i in range(256))
    noise = random.Random(seed).randbytes(3 * width * height).translate(values)
    rows = b"".join(b"\0" + noise[3 * width * y:3 * width * (y + 1)] for y in range(height))

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")


def write_pictures(folder, count=64):
    """An archive of WebDataset: pictures of 512 x 384 with captions of a dozen words."""
    words = "a photo of the red blue old small house river under bright sky near green hills with two birds".split()
    folder.mkdir()
    with tarfile.open(folder / "pictures-0000.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
        for i in range(count):
            caption = " ".join(random.Random(i).choices(words, k=12)).encode()
            for ending, content in (("png", png(512, 384, i)), ("txt", caption)):
                member = tarfile.TarInfo(f"{i:06}.{ending}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


def write_inputs(setting, folder):
    """Pictures, sizes of encoders and tokenizer, and the options that name them."""
    write_pictures(folder / "pictures")
    for name, sizes in (("t5", setting.t5), ("clip", setting.clip)):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(sizes))
    shutil.copytree(ROOT / "tests/assets/tokenizer", folder / "assets")
    (folder / "assets/config.json").write_text(json.dumps(SMALL_FLUX))
    return ["--training.test_mode", f"--encoder.t5_encoder={folder / 't5'}", f"--encoder.clip_encoder={folder / 'clip'}",
            f"--training.dataset_path={folder / 'pictures'}", "--checkpoint.no_enable", "--validation.no_enable"]


def run(command, log):
    with open(log, "w") as output:
        done = subprocess.run([str(part) for part in command], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    text = log.read_text().strip()
    if done.returncode:
        raise RuntimeError(f"{pathlib.Path(command[0]).name} ended with {done.returncode}: {text.splitlines()[-1][:300] if text else ''}")
    return text


def model_options(setting, folder, more):
    """Of the model's step and of training alike."""
    return ["--job.config_file=configs/flux/flux_dev.toml", f"--model.hf_assets_path={folder / 'assets'}",
            f"--training.local_batch_size={setting.batch}", f"--training.img_size={setting.pixels}",
            f"--encoder.max_t5_encoding_len={setting.text}", "--lr_scheduler.warmup_steps=2", *setting.options, *more]


def step_alone(setting, folder, more, build):
    text = run([build / "bench_image_step", setting.pixels, setting.text, setting.steps, *model_options(setting, folder, more)],
               folder / "step.log")
    return json.loads(text.splitlines()[-1])


def from_images(setting, folder, inputs, more, build):
    """Medians of the steps after the third, logging of every step included."""
    run([build / "titanium", "train", *model_options(setting, folder, more), *inputs, f"--training.steps={setting.steps}",
         "--metrics.log_freq=1", "--metrics.no_enable_tensorboard", f"--job.dump_folder={folder / 'run'}"], folder / "train.log")
    steps = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    steps = [step for step in steps if "images_per_s" in step]
    median = lambda name: statistics.median(step[name] for step in steps[3:])
    return {"images_per_s": median("images_per_s"), "data_wait_percent": median("data_wait_percent"),
            "memory_gib": max(step["memory_gib"] for step in steps)}


def compare(setting=REAL, more=(), build=ROOT / "build", folder=None):
    """Both speeds; `folder` is empty and stays."""
    if folder is None:
        with tempfile.TemporaryDirectory() as temporary:
            return compare(setting, more, build, pathlib.Path(temporary))
    inputs = write_inputs(setting, folder)
    alone = step_alone(setting, folder, more, build)
    whole = from_images(setting, folder, inputs, more, build)
    return {"step_images_per_s": alone["images_per_s"], "step_memory_gib": alone["memory_gib"], **whole,
            "part": whole["images_per_s"] / alone["images_per_s"]}


def row(setting, found):
    part = found["part"]
    return (f"| {setting.name} | {found['images_per_s']:.2f} | {found['memory_gib']:.1f} | {found['step_images_per_s']:.2f} | {100 * part:.1f} % | "
            f"{100 * PART:.0f} %: {'reached' if part >= PART else 'missed'} |")


HEADER = ["| setting | images/s | GiB | the model's step alone, images/s | part | mark |", "|---|---|---|---|---|---|"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(os.environ.get("TITANIUM_BUILD", ROOT / "build")))
    parser.add_argument("more", nargs="*", help="options of titanium train")
    options = parser.parse_args()
    setting = TINY if options.tiny else REAL
    try:
        found = compare(setting, options.more, options.build.resolve())
    except RuntimeError as error:
        sys.exit(str(error))
    print(json.dumps(found))
    print("\n".join([*HEADER, row(setting, found)]))


if __name__ == "__main__":
    main()
