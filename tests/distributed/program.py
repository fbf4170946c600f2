"""The whole program on several ranks: under our launcher, under torchrun, on two nodes, and simulated."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TITANIUM = os.environ["TITANIUM"]
TORCHRUN = pathlib.Path(sys.executable).parent / "torchrun"

OPTIONS = f"""
--model.hf_assets_path={ROOT}/tests/assets/tokenizer --training.dataset=c4_test
--training.dataset_path={ROOT}/tests/assets/c4_test --training.seq_len=16 --training.global_batch_size=8
--training.steps=3 --training.mixed_precision_param=float32 --activation_checkpoint.mode=none --training.device=cpu
--metrics.log_freq=1 --metrics.disable_color_printing --validation.enable --validation.dataset=c4_validation
--validation.dataset_path={ROOT}/tests/assets/c4_test --validation.seq_len=16 --validation.local_batch_size=2
--validation.steps=2 --validation.freq=3
""".split()


def run(command, folder, environment=None, **options):
    done = subprocess.run([*map(str, command), *OPTIONS, f"--job.dump_folder={folder}"], cwd=ROOT, text=True,
                          env=dict(os.environ, **(environment or {})), capture_output=True, timeout=180, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def steps(folder):
    """Logged steps. Validations are left out: more ranks validate on more samples."""
    lines = map(json.loads, (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if "validation_loss" not in line]


def expect_same_steps(folder, reference):
    assert len(steps(folder)) == len(reference)
    for here, there in zip(steps(folder), reference):
        for key, value in there.items():
            if "loss" in key or key == "grad_norm":
                if "max" not in key:
                    assert abs(here[key] - value) <= 1e-5 * abs(value), f"{key}: {here[key]} and {value}"
            elif key in ("step", "lr", "tokens"):
                assert here[key] == value, f"{key}: {here[key]} and {value}"


def check_launcher(folder, reference):
    out = run([TITANIUM, "launch", "--nproc-per-node", 4, "--", "train", "--training.local_batch_size=2",
               "--parallelism.tensor_parallel_degree=2", "--parallelism.data_parallel_replicate_degree=2"], folder)
    assert "[rank0]:" in out and "[rank1]:" not in out
    assert "Building device mesh with parallelism: pp=1, dp_replicate=2, dp_shard=1, cp=1, tp=2, ep=1, etp=1" in out
    assert "Applied DDP to the model" in out and "Applied Tensor Parallelism to the model" in out
    assert "Synchronizing and adjusting timeout for all ProcessGroups to 0:01:40" in out
    expect_same_steps(folder, reference)


def check_torchrun(folder, reference):
    out = run([TORCHRUN, "--no-python", "--nproc-per-node", 2, "--local-ranks-filter", 0, "--role", "rank", "--tee", 3,
               TITANIUM, "train", "--training.local_batch_size=4"], folder)
    assert "Applied FSDP to the model" in out and "Training completed" in out
    expect_same_steps(folder, reference)


def check_two_nodes(folder, reference):
    """Two launchers, on two loopback addresses, with four ranks each."""
    port = 20000 + os.getpid() % 20000
    nodes = []
    for node in range(2):
        command = [TITANIUM, "launch", "--nproc-per-node", "4", "--nnodes", "2", "--node-rank", str(node),
                   "--rdzv-endpoint", f"127.0.0.2:{port}", "--", "train", "--training.local_batch_size=2",
                   "--parallelism.tensor_parallel_degree=2", *OPTIONS, f"--job.dump_folder={folder}"]
        nodes.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    outputs = [node.communicate(timeout=180)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], "\n".join(outputs)
    expect_same_steps(folder, reference)


def check_stop(folder):
    """A signal to the launcher stops all ranks after the same step."""
    ranks = 2
    command = [TITANIUM, "launch", "--nproc-per-node", str(ranks), "--log-dir", folder / "logs", "--run-id", "stop", "--",
               "train", *OPTIONS, "--training.steps=100000", "--training.local_batch_size=4", "--validation.no_enable",
               f"--job.dump_folder={folder}"]
    job = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output = ""
    for line in job.stdout:
        output += line
        if "step:  2" in line:
            job.terminate()
    assert job.wait(timeout=60) == 0, output
    stopped = re.findall(r"Stopped by a signal after step (\d+)", output)
    assert len(stopped) == 1, output
    for rank in range(ranks):
        log = "".join((folder / f"logs/stop/attempt_0/{rank}/{stream}.log").read_text() for stream in ("stdout", "stderr"))
        assert re.findall(r"Stopped by a signal after step (\d+)", log) == stopped, f"rank {rank}:\n{log}"


EMBEDDING_405B = 128256 * 16384
LAYER_405B = (405_853_388_800 - 2 * EMBEDDING_405B - 16384) // 126
PLANS = [
    # config, ranks, tensor parallel, parameters of one rank
    ("llama3_8b", 8, 1, 8_030_261_248 / 8),
    ("llama3_8b", 64, 1, 8_030_261_248 / 64),
    ("llama3_70b", 64, 8, 70_553_706_496 / 64),
    ("llama3_405b", 128, 8, 405_853_388_800 / 128),
    ("llama3_405b", 512, 8, 405_853_388_800 / 512),
    ("llama3_70b_256gpus", 256, 8, 70_553_706_496 / 256),
    ("llama3_405b_512gpus_1f1b", 512, 8, (EMBEDDING_405B + 15 * LAYER_405B) / 64),
    ("llama3_405b_512gpus_interleaved", 512, 8, (EMBEDDING_405B + 15 * LAYER_405B) / 64),
    ("llama3_405b_512gpus_context", 512, 8, (EMBEDDING_405B + 15 * LAYER_405B) / 64),
    ("llama3_405b_512gpus_context", 4096, 8, (EMBEDDING_405B + 15 * LAYER_405B) / 512,
     ["--parallelism.data_parallel_shard_degree=8", "--training.seq_len=1048576"]),
]


def check_plan(config, ranks, tensor, parameters, options=()):
    """Large models are built and placed without their memory."""
    command = ["/usr/bin/env", "python3", "-c", MEASURE, TITANIUM, "train", "--job.config_file",
               ROOT / f"configs/llama3/{config}.toml", "--comm.mode=fake_backend", "--memory_estimation.enable",
               f"--model.hf_assets_path={ROOT}/tests/assets/tokenizer", "--training.device=cpu",
               f"--parallelism.tensor_parallel_degree={tensor}", "--checkpoint.no_enable", *options]
    done = subprocess.run([str(word) for word in command], env=dict(os.environ, NGPU=str(ranks)), cwd=ROOT, text=True,
                          capture_output=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"This rank holds ([\d,]+) of [\d,]+ parameters, ([\d.]+) GiB with gradients and optimizer states",
                      done.stdout)
    assert found, done.stdout
    held = int(found.group(1).replace(",", ""))
    # Norms are whole on every tensor-parallel rank, and pieces are rounded up.
    assert parameters <= held <= 1.01 * parameters, f"{held} parameters instead of {parameters}"
    peak_gib = int(re.search(r"PEAK_KIB (\d+)", done.stdout).group(1)) / 2**20
    assert peak_gib < 1, f"planning took {peak_gib:.2f} GiB"
    print(f"{config} on {ranks} ranks, tp {tensor}: {found.group(0)}; planned in {peak_gib:.2f} GiB")


MEASURE = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:])
print("PEAK_KIB", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)
"""


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run([TITANIUM, "train", "--training.local_batch_size=8"], folder / "one")
        reference = steps(folder / "one")
        check_launcher(folder / "launcher", reference)
        check_torchrun(folder / "torchrun", reference)
        check_two_nodes(folder / "nodes", reference)
        check_stop(folder / "stop")
    for plan in PLANS:
        check_plan(*plan)


if __name__ == "__main__":
    main()
