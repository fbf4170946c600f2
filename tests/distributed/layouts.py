"""One layout of each kind trains as one rank does, over Gloo, one process per rank; tests/unit/train/layouts_test.cpp has all
others, with ranks that are threads.

Losses, gradient norms, final parameters and states of Adam and Muon agree within 1e-5 in fp32 (a stated tolerance in bf16), initial parameters
bit by bit, token counts exactly. The same eight processes play all layouts, one after the other.
"""

import json
import os
import pathlib
import subprocess
import tempfile

import torch
from safetensors import safe_open

ROOT = pathlib.Path(__file__).resolve().parents[2]
DRIVER = pathlib.Path(os.environ["TITANIUM_BUILD"]) / "layouts_driver"
BATCH = 12
MAX_NORM = 0.1  # of about 0.4, so that every update is clipped

COMMON = f"""
--model.hf_assets_path={ROOT}/tests/assets/tokenizer --training.dataset=c4_test
--training.dataset_path={ROOT}/tests/assets/c4_test --training.seq_len=32 --training.steps=10
--training.global_batch_size={BATCH} --training.data_streams={BATCH} --optimizer.lr=2e-4 --lr_scheduler.warmup_steps=2
--training.max_norm={MAX_NORM}
""".split()

FP32 = "--training.mixed_precision_param=float32"
BF16 = "--training.mixed_precision_param=bfloat16"
FULL = "--activation_checkpoint.mode=full"
BY_OPERATOR = "--activation_checkpoint.mode=selective --activation_checkpoint.selective_ac_option=op"
NONE = "--activation_checkpoint.mode=none"
OFFLOAD = "--training.enable_cpu_offload"
REDUCE_ONCE = "--parallelism.fsdp_reduce_once"
ASYNC = "--parallelism.enable_async_tensor_parallel"
NO_LOSS_PARALLEL = "--parallelism.disable_loss_parallel"
RING = "--parallelism.context_parallel_rotate_method=alltoall"
SCHEDULE = "--parallelism.pipeline_parallel_schedule="
# Emulated, with micro-batches of one sample, so that scales of activations are those of one rank.
FLOAT8 = "--model.converters=quantize.linear.float8 --quantize.linear.float8.emulate"
ROWWISE = f"{FLOAT8} --quantize.linear.float8.recipe_name=rowwise"
PRECOMPUTED = f"""{FLOAT8} --quantize.linear.float8.enable_fsdp_float8_all_gather
--quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp"""
MUON = "--optimizer.name=Muon --optimizer.muon.ns_dtype=float32"


def layout(name, replicate, shard, tensor, options="", local=None, precision=FP32, recompute=NONE, context=1, pipeline=1):
    ranks = replicate * shard * tensor * context * pipeline
    local = local or BATCH // (replicate * shard)
    degrees = [
        f"--parallelism.data_parallel_replicate_degree={replicate}",
        f"--parallelism.data_parallel_shard_degree={shard}",
        f"--parallelism.tensor_parallel_degree={tensor}",
        f"--parallelism.context_parallel_degree={context}",
        f"--parallelism.pipeline_parallel_degree={pipeline}",
        f"--training.local_batch_size={local}",
    ]
    words = [name, str(ranks), *COMMON, *degrees, precision, *recompute.split(), *options.split()]
    return " ".join(words)


IN_FP32 = [
    layout("one", 1, 1, 1),
    layout("dp2", 2, 1, 1),
    layout("fsdp3+offload", 1, 3, 1, OFFLOAD),
    layout("fsdp2xtp2+accumulation+once+async+op", 1, 2, 2, f"{REDUCE_ONCE} {ASYNC}", local=2, recompute=BY_OPERATOR),
    layout("hsdp2x2xtp2-loss_parallel", 2, 2, 2, NO_LOSS_PARALLEL),
    layout("hsdp2x2xcp2", 2, 2, 1, context=2),
    layout("fsdp2xtp2xcp2+ring+full", 1, 2, 2, RING, recompute=FULL, context=2),
    layout("pp2xcp2", 1, 1, 1, f"{SCHEDULE}ZBVZeroBubble", context=2, pipeline=2),
    layout("pp2xfsdp2xtp2", 1, 2, 2, f"{SCHEDULE}Interleaved1F1B", pipeline=2),
]
IN_BF16 = [layout("bf16_one", 1, 1, 1, precision=BF16), layout("bf16_fsdp2xtp2", 1, 2, 2, precision=BF16)]
WITH_MUON = [
    layout("muon_one", 1, 1, 1, MUON),
    layout("muon_fsdp3", 1, 3, 1, MUON),
    layout("muon_hsdp2x2xtp2", 2, 2, 2, MUON),
    layout("muon_pp2xfsdp2+offload", 1, 2, 1, f"{MUON} {OFFLOAD}", pipeline=2),
]
IN_FLOAT8 = {
    "tensorwise": [layout("tensorwise_one", 1, 1, 1, FLOAT8, local=1),
                   layout("tensorwise_fsdp2xtp2+precomputed", 1, 2, 2, PRECOMPUTED, local=1)],
    "rowwise": [layout("rowwise_one", 1, 1, 1, ROWWISE, local=1), layout("rowwise_fsdp2xtp4", 1, 2, 4, ROWWISE, local=1)],
}


def run_all(folder):
    in_float8 = [line for lines in IN_FLOAT8.values() for line in lines]
    (folder / "layouts").write_text("\n".join(IN_FP32 + IN_BF16 + WITH_MUON + in_float8) + "\n")
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(store.port))
    processes = [
        subprocess.Popen([DRIVER, folder, folder / "layouts"], env=dict(environment, RANK=str(rank)), cwd=ROOT)
        for rank in range(8)
    ]
    codes = [process.wait(timeout=600) for process in processes]
    assert codes == [0] * 8, codes


def whole_parameters(folder, name, ranks):
    """Puts the shards of all ranks together. Every element must come from somewhere."""
    whole = {}
    for rank in range(ranks):
        with safe_open(folder / f"{name}.{rank}.safetensors", "pt") as file:
            for key, offset in file.metadata().items():
                shard = file.get_tensor(key)
                first = [int(index) for index in offset.split(",")]
                whole.setdefault(key, []).append((first, shard))
    for key, shards in whole.items():
        shape = [max(first[d] + shard.shape[d] for first, shard in shards) for d in range(shards[0][1].dim())]
        tensor = torch.full(shape, float("nan"))
        for first, shard in shards:
            place = tuple(slice(f, f + n) for f, n in zip(first, shard.shape))
            known = tensor[place]
            assert ((known == shard) | known.isnan()).all(), f"{name}: replicas of {key} differ"
            tensor[place] = shard
        assert not tensor.isnan().any(), f"{name}: {key} has holes"
        whole[key] = tensor
    return whole


def compare(folder, line, reference, limits):
    name, ranks = line.split()[0], int(line.split()[1])
    one, here = (json.loads((folder / f"{n}.json").read_text()) for n in (reference, name))
    assert min(one["grad_norm"]) > MAX_NORM, "nothing is clipped"
    worst = {}
    for key in ("loss", "grad_norm"):
        worst[key] = max(abs(a - b) / abs(b) for a, b in zip(here[key], one[key], strict=True))
    assert here["valid_tokens"] == one["valid_tokens"] and here["tokens_seen"] == one["tokens_seen"], name
    expected, found = whole_parameters(folder, reference, 1), whole_parameters(folder, name, ranks)
    assert expected.keys() == found.keys()
    worst["parameters"] = worst["moments"] = 0.0
    for key, tensor in expected.items():
        assert tensor.shape == found[key].shape, f"{name}: {key}"
        if key.startswith("initial."):
            assert torch.equal(tensor, found[key]), f"{name}: {key} differs"
        else:
            error = ((tensor - found[key]).norm() / tensor.norm()).item()
            kind = "moments" if key.endswith((".exp_avg", ".exp_avg_sq", ".momentum_buffer")) else "parameters"
            worst[kind] = max(worst[kind], error)
    print(f"{name:34}" + "  ".join(f"{key} {value:.1e}" for key, value in worst.items()))
    for key, value in worst.items():
        assert value <= limits[key], f"{name}: {key} differs by {value:.2e}, more than {limits[key]:.0e}"


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run_all(folder)
        for line in IN_FP32[1:]:
            compare(folder, line, "one", {"loss": 1e-5, "grad_norm": 1e-5, "parameters": 1e-5, "moments": 1e-5})
        for line in IN_BF16[1:]:
            compare(folder, line, "bf16_one", {"loss": 1e-4, "grad_norm": 1e-3, "parameters": 2e-3, "moments": 2e-2})
        for line in WITH_MUON[1:]:
            compare(folder, line, "muon_one", {"loss": 1e-5, "grad_norm": 1e-5, "parameters": 1e-5, "moments": 1e-5})
        # Numbers between two of float8 may fall to the other side when sums are taken in another order.
        for recipe, lines in IN_FLOAT8.items():
            for line in lines[1:]:
                compare(folder, line, f"{recipe}_one",
                        {"loss": 1e-6, "grad_norm": 1e-5, "parameters": 1e-4, "moments": 1e-3})


if __name__ == "__main__":
    main()
