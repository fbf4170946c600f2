"""Whether training with our kernels follows training with ATen's operators: losses of the same runs, step by step.

    LD_LIBRARY_PATH=... python3 bench/h200/follow_reference.py [part of a run's name]

The yardstick is what rounding alone does: a second reference run whose batch is computed in two halves, so that sums are rounded in
another order. Prints the mean and the largest difference of the losses; fails where ours is beyond twice the yardstick's.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

from run import SETTINGS

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONG = ["--training.seq_len", "4096", "--training.steps", "50", "--optimizer.lr", "3e-4", "--lr_scheduler.warmup_steps", "10"]
# Options, and the batch.
RUNS = {
    "debugmodel, 200 steps": (["--job.config_file", "configs/llama3/debug_model.toml", "--training.steps", "200"], 8),
    "1B, 50 steps": (["--model.flavor", "1B", *LONG], 2),
}
# Models with experts of fewer layers, as bench/h200/run.py has them.
EXPERTS = {"DeepSeek V3 16B, 14 layers, 4096, batch 4": 2, "GPT-OSS 20B, 12 layers, 4096, batch 2": 2}


def with_experts(folder):
    """Their runs, with the folders of their config.json."""
    for setting in SETTINGS:
        if setting.name not in EXPERTS:
            continue
        place = pathlib.Path(folder) / setting.model
        place.mkdir()
        setting.write_assets(place)
        yield f"{setting.name.rsplit(', 4096', 1)[0]}, 50 steps", (
            ["--model.name", setting.model, "--model.flavor", "auto", "--model.hf_assets_path", str(setting.assets),
             "--training.dtype", "bfloat16", *LONG], EXPERTS[setting.name])


def losses(options, batch, *more):
    with tempfile.TemporaryDirectory() as folder:
        command = [ROOT / "build" / "titanium", "train", *options, "--training.local_batch_size", str(batch), "--metrics.log_freq", "1",
                   "--activation_checkpoint.mode", "none", "--job.dump_folder", folder, *more]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
        return [json.loads(line)["loss"] for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()]


def difference(a, b):
    each = [abs(x - y) for x, y in zip(a, b)]
    return sum(each) / len(each), max(each)


def main():
    beyond = False
    print("| run | last loss | ours: mean / largest difference | rounding alone: mean / largest |\n|---|---|---|---|")
    folder = tempfile.TemporaryDirectory()
    for name, (options, batch) in [*RUNS.items(), *with_experts(folder.name)]:
        if len(sys.argv) > 1 and sys.argv[1] not in name:
            continue
        whole = [*options, "--training.global_batch_size", str(batch)]
        reference = losses(whole, batch, "--debug.reference_ops")
        ours = difference(losses(whole, batch), reference)
        rounding = difference(losses(whole, batch // 2, "--debug.reference_ops"), reference)
        print(f"| {name} | {reference[-1]:.4f} | {ours[0]:.5f} / {ours[1]:.5f} | {rounding[0]:.5f} / {rounding[1]:.5f} |", flush=True)
        beyond |= ours[0] > 2 * rounding[0]
    sys.exit("training with our kernels leaves the reference" if beyond else 0)


if __name__ == "__main__":
    main()
