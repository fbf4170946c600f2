"""The settings of bench/h200/run.sh, how they are measured, and the table."""

import argparse
import dataclasses
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

import image_training
from floor import MODELS, floor_seconds

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NONE = "--activation_checkpoint.mode none"
FLOAT8 = "--model.converters quantize.linear.float8 --quantize.linear.float8.filter_fqns output"
ROWWISE = FLOAT8 + " --quantize.linear.float8.recipe_name rowwise"
BY_OPERATOR = "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op"


def budget(part):
    return f"--activation_checkpoint.mode memory_budget --activation_checkpoint.memory_budget {part}"


@dataclasses.dataclass
class Setting:
    name: str
    flavor: str
    tokens: int
    batch: int
    options: str
    peer: str
    mark: int = 0  # tokens per second
    most_gib: float = 140.0
    steps: int = 24
    accumulation: int = 1
    bf16_states: bool = True
    float8: bool = False
    tuned: bool = False
    model: str = "llama3"
    shape: dict = dataclasses.field(default_factory=dict)  # config.json of a model that no flavor has, such as one of fewer layers
    alone: int = 0  # tokens per second of the products and attentions alone, measured elsewhere

    @property
    def size(self):
        """The name in floor.MODELS; empty for the debug model, which has no floor."""
        return self.flavor if self.model == "llama3" else f"{self.model} {self.flavor}"

    def write_assets(self, folder):
        """What flavor auto reads, for the lifetime of the run."""
        if not self.shape:
            return
        self.assets = folder / "assets"
        shutil.copytree(ROOT / "tests" / "assets" / "tokenizer", self.assets)
        (self.assets / "config.json").write_text(json.dumps(self.shape))

    def arguments(self):
        model = ["--model.name", self.model, "--model.flavor", self.flavor] if self.flavor else ["--job.config_file", "configs/llama3/debug_model.toml"]
        if self.shape:
            model += ["--model.hf_assets_path", str(self.assets)]
        if self.bf16_states:
            model += ["--training.dtype", "bfloat16"]
        return model + ["--training.seq_len", str(self.tokens), "--training.local_batch_size", str(self.batch),
                        "--training.global_batch_size", str(self.batch * self.accumulation), "--lr_scheduler.warmup_steps", "2",
                        "--optimizer.lr", "3e-4", *self.options.split()]


def experts_of_qwen3(layers):
    return {"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": layers, "num_attention_heads": 32, "num_key_value_heads": 4,
            "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
            "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 151936, "rms_norm_eps": 1e-6,
            "rope_theta": 1e6, "max_position_embeddings": 40960, "tie_word_embeddings": False, "hidden_act": "silu"}


def experts_of_deepseek(layers):
    return {"model_type": "deepseek_v2", "hidden_size": 2048, "num_hidden_layers": layers, "num_attention_heads": 16, "num_key_value_heads": 16,
            "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
            "first_k_dense_replace": 1, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
            "vocab_size": 102400, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "max_position_embeddings": 4096, "scoring_func": "softmax",
            "topk_method": "greedy", "norm_topk_prob": False, "routed_scaling_factor": 1.0, "hidden_act": "silu"}


def experts_of_gpt_oss(layers):
    return {"model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": layers, "num_attention_heads": 64, "num_key_value_heads": 8,
            "head_dim": 64, "intermediate_size": 2880, "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128,
            "layer_types": ["full_attention" if layer % 2 else "sliding_attention" for layer in range(layers)], "vocab_size": 201088,
            "rms_norm_eps": 1e-5, "rope_theta": 150000, "max_position_embeddings": 131072, "attention_bias": True, "hidden_act": "silu",
            "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                             "original_max_position_embeddings": 4096}, "swiglu_limit": 7.0, "tie_word_embeddings": False}


def experts_of_llama4(layers):
    return {"model_type": "llama4_text", "hidden_size": 5120, "num_hidden_layers": layers, "num_attention_heads": 40, "num_key_value_heads": 8,
            "head_dim": 128, "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_local_experts": 16, "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 1, "attention_chunk_size": 8192, "no_rope_layers": [1] * layers, "use_qk_norm": False,
            "attn_temperature_tuning": False, "vocab_size": 202048, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
            "max_position_embeddings": 131072, "tie_word_embeddings": False}


EXPERTS_FLOAT8 = ("--model.converters quantize.linear.float8,quantize.grouped_mm.float8 --quantize.linear.float8.filter_fqns output,router.gate "
                  "--quantize.grouped_mm.float8.fqns experts")
SETTINGS = [
    Setting("8B, 8192, batch 2, nothing recomputed", "8B", 8192, 2, NONE, "11,122 (llmq), 10,858 (torchtitan, 121 GiB)", 11300, tuned=True),
    Setting("8B, 8192, batch 3, nothing recomputed", "8B", 8192, 3, NONE, "11,122 (llmq), 10,858 (torchtitan, 121 GiB)", 11300, tuned=True),
    Setting("8B, 8192, batch 2, memory_budget 0.72", "8B", 8192, 2, budget(0.72), "9,914 (torchtitan)", 10500, 80.5),
    Setting("8B, 8192, batch 1, selective op", "8B", 8192, 1, BY_OPERATOR, "9,660 (torchtitan)", 10000, 64.0, tuned=True),
    Setting("8B, float8 tensorwise, batch 2, nothing recomputed", "8B", 8192, 2, f"{NONE} {FLOAT8}", "14,526 (torchtitan)", 15800, 102.0,
            float8=True, tuned=True),
    Setting("8B, float8 tensorwise, batch 2, memory_budget 0.62", "8B", 8192, 2, f"{budget(0.62)} {FLOAT8}", "13,557 (torchtitan)", 14800,
            80.5, float8=True),
    Setting("8B, float8 rowwise, batch 2, memory_budget 0.62", "8B", 8192, 2, f"{budget(0.62)} {ROWWISE}", "11,573 (torchtitan)", 14000, 80.8,
            float8=True),
    Setting("8B, 32768, memory_budget 0.7", "8B", 32768, 1, budget(0.7), "6,078 (torchtitan, full)", 6900, steps=21),
    Setting("8B, 65536, memory_budget 0.4", "8B", 65536, 1, budget(0.4), "4,291 (torchtitan, full)", 4650, steps=21),
    Setting("8B, 1024, batch 16, 8 accumulation steps", "8B", 1024, 16, NONE, "13,165 (llmq)", 13600, steps=21, accumulation=8, tuned=True),
    Setting("3B, fp32 states, 8192, batch 2", "3B", 8192, 2, NONE, "21,500 (torchtitan)", 23300, 95.9, bf16_states=False, tuned=True),
    Setting("1B, fp32 states, 4096, batch 4", "1B", 4096, 4, NONE, "56,100 (torchtitan)", 62500, bf16_states=False),
    Setting("1B, fp32 states, 4096, batch 4, Muon", "1B", 4096, 4, f"{NONE} --optimizer.name Muon", "the row with AdamW", 1, bf16_states=False),
    Setting("8B, 8192, batch 2, nothing recomputed, Muon", "8B", 8192, 2, f"{NONE} --optimizer.name Muon", "the row with AdamW", 1),
    Setting("8B, 8192, batch 2, 8 accumulation steps, Muon", "8B", 8192, 2, f"{NONE} --optimizer.name Muon", "", 1, steps=6, accumulation=8),
    Setting("Qwen 3 1.7B, fp32 states, 4096, batch 4", "1.7B", 4096, 4, NONE, "44,400 (torchtitan, 50.1 GiB)", 47500, 50.0, bf16_states=False,
            tuned=True, model="qwen3"),
    Setting("DeepSeek V3 16B, 14 layers, 4096, batch 4", "auto", 4096, 4, NONE, "32,200 (torchtitan, 88.3 GiB)", 50000, 88.0,
            tuned=True, model="deepseek_v3", shape=experts_of_deepseek(14), alone=64400),
    Setting("DeepSeek V3 16B, 14 layers, 4096, batch 4, float8", "auto", 4096, 4, f"{NONE} {EXPERTS_FLOAT8}", "the row in bf16", 64600,
            model="deepseek_v3", shape=experts_of_deepseek(14)),
    Setting("Llama 4 17Bx16e, 4 layers, 4096, batch 2", "auto", 4096, 2, NONE, "27,197 (torchtitan, 87.8 GiB)", 33000, 88.0, tuned=True,
            model="llama4", shape=experts_of_llama4(4), alone=44000),
    Setting("DeepSeek V3 16B, 27 layers, 4096, batch 2", "16B", 4096, 2, f"{NONE} --model.attn_type sdpa", "11,709 (torchtitan, 119 GiB, full)",
            22000, model="deepseek_v3", alone=34100),
    Setting("DeepSeek V3 16B, 27 layers, 4096, batch 2, float8", "auto", 4096, 2, f"{NONE} {EXPERTS_FLOAT8}",
            "the row in bf16", 30600, model="deepseek_v3", shape=experts_of_deepseek(27)),
    Setting("GPT-OSS 20B, 12 layers, 4096, batch 2", "auto", 4096, 2, NONE, "17,048 (torchtitan, 94.4 GiB)", 31000, 94.0, tuned=True, model="gpt_oss",
            shape=experts_of_gpt_oss(12), alone=43500),
    Setting("Qwen 3 30B-A3B, 16 layers, 4096, batch 4", "auto", 4096, 4, NONE, "28,903 (torchtitan, 108.6 GiB)", 47000, 108.0, tuned=True, model="qwen3",
            shape=experts_of_qwen3(16), alone=63000),
    Setting("Qwen 3 30B-A3B, 16 layers, 4096, batch 4, forced balance", "auto", 4096, 4, f"{NONE} --debug.moe_force_load_balance",
            "30,994 (torchtitan)", 47000, 108.0, model="qwen3", shape=experts_of_qwen3(16), alone=63000),
    Setting("Qwen 3 30B-A3B, 8 layers, 4096, batch 4", "auto", 4096, 4, NONE, "", 1, model="qwen3", shape=experts_of_qwen3(8)),
    Setting("8B, 131072, full", "8B", 131072, 1, "--activation_checkpoint.mode full", "out of memory (torchtitan)", 1, steps=2),
    Setting("debugmodel, fp32 states, 2048, batch 8", "", 2048, 8, NONE, "421,000 (torchtitan)", 1200000, steps=40, bf16_states=False),
]


@dataclasses.dataclass
class ImageSetting:
    """The step of an image model alone (bench/train/image_step.cpp)."""
    name: str
    pixels: int
    text: int
    batch: int
    options: str
    peer: str
    mark: float  # images per second
    most_gib: float


IMAGES = [
    ImageSetting("Flux-dev, 256 + 512 tokens, batch 8, nothing recomputed", 256, 512, 8, NONE, "15.3 (torchtitan compiled, 105 GiB)", 15.7, 105),
    ImageSetting("Flux-dev, 256 + 512 tokens, batch 16, memory_budget 0.45", 256, 512, 16, budget(0.45), "13.1 (torchtitan compiled, 92 GiB)", 14.5, 92),
    ImageSetting("Flux-dev, 4096 + 512 tokens, batch 2, nothing recomputed", 1024, 512, 2, NONE, "1.93 (torchtitan compiled, full, 90 GiB)", 2.05, 125),
]

OURS = ROOT / "build" / "titanium"


def image_row(setting):
    done = subprocess.run([ROOT / "build" / "bench_image_step", str(setting.pixels), str(setting.text), "13",
                           "--job.custom_config_module=torchtitan.models.flux.job_config", "--model.name=flux", "--model.flavor=flux-dev",
                           "--training.dtype=bfloat16", f"--training.local_batch_size={setting.batch}", *setting.options.split()], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        return f"| {setting.name} | {done.stderr.strip().splitlines()[-1][:200]} | | {setting.peer} | missed |"
    found = json.loads(done.stdout.splitlines()[-1])
    reached = found["images_per_s"] >= setting.mark and found["memory_gib"] <= setting.most_gib
    return (f"| {setting.name} | {found['images_per_s']:.2f} | {found['memory_gib']:.1f} | {setting.peer} | "
            f"{setting.mark} at {setting.most_gib} GiB: {'reached' if reached else 'missed'} |")


def from_images_row(folder):
    setting = image_training.REAL
    try:
        return image_training.row(setting, image_training.compare(setting, folder=folder))
    except RuntimeError as error:
        return f"| {setting.name} | {error} | | | | missed |"


def program(*arguments, folder, titanium=OURS):
    log = open(folder / "log", "w")
    return subprocess.Popen([titanium, *arguments, "--job.dump_folder", str(folder)], cwd=ROOT, stdout=log, stderr=log)


def tune(setting, folder):
    steps = 12 if setting.accumulation == 1 else 2
    done = program("tune", "--steps", str(steps), *setting.arguments(), folder=folder)
    text = (folder / "log").read_text() if done.wait() == 0 else "failed"
    found = re.findall(r"^in .* less time .*$", text, re.MULTILINE)
    print(f"tuned {setting.name}: {'; '.join(found) or text[-300:]}", flush=True)


def planned_gib(setting):
    """What titanium estimate says of the run."""
    done = subprocess.run([OURS, "estimate", *setting.arguments()], cwd=ROOT, capture_output=True, text=True)
    found = re.search(r"^together +([\d.]+)$", done.stdout, re.MULTILINE)
    return float(found[1]) if found else 0.0


def measure(setting, folder, titanium=OURS):
    """Tokens per second (median of the last 20 steps), peak GiB, and seconds from the start to the first finished step."""
    begin, first = time.time(), None
    running = program("train", *setting.arguments(), "--training.steps", str(setting.steps), "--metrics.log_freq", "1", folder=folder,
                      titanium=titanium)
    lines = folder / "metrics.jsonl"
    while running.poll() is None:
        if first is None and lines.exists() and lines.stat().st_size:
            first = time.time() - begin
        time.sleep(0.02)
    if running.returncode:
        return {"error": (folder / "log").read_text().strip().splitlines()[-1][:200]}
    steps = [json.loads(line) for line in lines.read_text().splitlines()]
    late = steps[-min(20, len(steps) - 1):]
    return {"tps": statistics.median(step["tps"] for step in late), "mfu": statistics.median(step["mfu"] for step in late),
            "memory_gib": max(step["memory_gib"] for step in steps),
            "active_gib": max(step["memory_active_gib"] for step in steps), "planned_gib": planned_gib(setting), "first_step_s": first,
            "steps": len(late)}


def against(found, older):
    """The column for an older build that was measured before and after: its mean, and our gain over it."""
    speeds = [run["tps"] for run in older if "tps" in run]
    if not speeds:
        return ""
    mean = statistics.mean(speeds)
    return f" {mean:,.0f} ({100 * (found['tps'] / mean - 1):+.1f} %) |"


def row(setting, found, ceilings, older=()):
    if "error" in found:
        return f"| {setting.name} | {found['error']} | | | | | | | {setting.peer} | missed |"
    ratio = ""
    if setting.alone:
        ratio = f"products alone: {setting.alone:,} ({100 * found['tps'] / setting.alone:.0f} %)"
    elif setting.flavor and not setting.shape:
        tokens = setting.batch * setting.accumulation * setting.tokens
        lowest = floor_seconds(MODELS[setting.size], setting.tokens, tokens, 2 if setting.bf16_states else 4, ceilings, setting.float8)
        ratio = f"{1 / lowest:,.0f} ({100 * found['tps'] * lowest:.0f} %)"
    reached = found["tps"] >= setting.mark and found["memory_gib"] <= setting.most_gib
    limit = f" at {setting.most_gib} GiB" if setting.most_gib < 140 else ""
    wanted = f"{setting.mark:,}{limit}" if setting.mark > 1 else "runs"
    return (f"| {setting.name} | {found['tps']:,.0f} | {found['mfu']:.1f} % | {found['memory_gib']:.1f} | {100 * (1 - found['active_gib'] / found['memory_gib']):.1f} % | "
            f"{found['planned_gib']:.1f} ({100 * (found['planned_gib'] / found['active_gib'] - 1):+.1f} %) | {ratio} | {found['first_step_s']:.1f} | "
            f"{setting.peer} | {wanted}: {'reached' if reached else 'missed'} |" + against(found, older))


def environment():
    ask = lambda *command: subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout.strip()
    gpu = ask("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
    version = ask(ROOT / "build" / "titanium", "--version").splitlines()[0]
    return f"{gpu}; {version}; commit {ask('git', 'rev-parse', '--short', 'HEAD') or 'unknown'}; bench/h200/run.sh"


def describe(ceilings):
    rates = ", ".join(f"{tokens} tokens {a['forward'] / 1e12:.0f} / {a['backward'] / 1e12:.0f}" for tokens, a in ceilings["attention"].items())
    return (f"Ceilings of this run: linear layers {ceilings['linear'] / 1e12:.0f} TFLOP/s, in float8 with one scale {ceilings['float8'] / 1e12:.0f}; cuDNN attention forward / backward, TFLOP/s: {rates}; "
            f"copy {ceilings['copy'] / 1e12:.2f} TB/s. "
            + "; ".join(f"{name} fused: {100 * (gain - 1):+.1f} % speed" for name, gain in ceilings["fused"].items()) + ".")


def new_folder(parent, name):
    (parent / name).mkdir()
    return parent / name


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--result", type=pathlib.Path, required=True)
    parser.add_argument("--rows", default=".")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--against", type=pathlib.Path, help="an older build of titanium, measured before and after each setting")
    options = parser.parse_args()
    subprocess.run([sys.executable, HERE / "ceilings.py", options.work / "ceilings.json"], check=True)
    ceilings = json.loads((options.work / "ceilings.json").read_text())
    table = ["# One H200: training speed", "", environment(), "", describe(ceilings)]
    if not options.no_peer:
        done = subprocess.run([sys.executable, HERE / "torch_step.py"], capture_output=True, text=True)
        peer = json.loads(done.stdout) if done.returncode == 0 else None
        table.append(f"Eager PyTorch, 8B, 8192, batch 1: {peer['tps']:,.0f} tok/s, {peer['memory_gib']:.1f} GiB." if peer
                     else f"Eager PyTorch failed: {done.stderr.strip().splitlines()[-1][:200]}")
    table += ["Medians of the last 20 steps (fewer in runs of fewer steps), logging of every step included. GiB: reserved, at the peak; unused: the part "
              "of it that was in no tensor; plan: what titanium estimate says, and how far that is from what tensors held. First step: seconds from the start of the process.", "",
              "| setting | tok/s | MFU | GiB | unused | plan | floor | first step | best peer | mark |" + (" older build |" if options.against else ""),
              "|---|---|---|---|---|---|---|---|---|---|" + ("---|" if options.against else "")]
    print("\n".join(table), flush=True)
    options.result.parent.mkdir(parents=True, exist_ok=True)
    for i, setting in enumerate(SETTINGS):
        if not re.search(options.rows, setting.name):
            continue
        setting.write_assets(new_folder(options.work, f"assets_{i}"))
        if setting.tuned:
            tune(setting, new_folder(options.work, f"tune_{i}"))
        older = [measure(setting, new_folder(options.work, f"before_{i}"), options.against)] if options.against else []
        found = measure(setting, new_folder(options.work, f"train_{i}"))
        if options.against:
            older.append(measure(setting, new_folder(options.work, f"after_{i}"), options.against))
        table.append(row(setting, found, ceilings, older))
        print(table[-1], flush=True)
        options.result.write_text("\n".join(table) + "\n")
    images = [setting for setting in IMAGES if re.search(options.rows, setting.name)]
    if images:
        table += ["", "Image models, the step alone, without encoders and data:", "", "| setting | images/s | GiB | best peer | mark |", "|---|---|---|---|---|"]
    for setting in images:
        table.append(image_row(setting))
        print(table[-1], flush=True)
        options.result.write_text("\n".join(table) + "\n")
    if re.search(options.rows, image_training.REAL.name):
        table += ["", "Training from images, against the model's step in the same run:", "", *image_training.HEADER, from_images_row(new_folder(options.work, "images"))]
        print("\n".join(table[-3:]), flush=True)
        options.result.write_text("\n".join(table) + "\n")


if __name__ == "__main__":
    main()
