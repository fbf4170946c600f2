"""Folders as a run leaves them, for what reads them."""

import json
import math


def records(steps, log_freq=10, unix=1_790_000_000, loss=8.0, experts=0):
    for step in [1, *range(log_freq, steps + 1, log_freq)]:
        share = step / steps
        noise = math.sin(step * 12.9898) * 43758.5453 % 1 - 0.5  # the same in every run
        record = {"step": step, "loss": 2.4 + (loss - 2.4) * math.exp(-9 * share) + 0.06 * noise, "max_loss": 9.0,
                  "grad_norm": 0.4 + 2 * math.exp(-20 * share) + 0.1 * abs(noise), "lr": 3e-4 * min(1, 20 * share) * (1 - 0.9 * share),
                  "tps": 11_500 + 150 * noise, "tflops": 540, "mfu": 54.6 + noise, "memory_gib": 98.2 + 0.3 * noise, "memory_active_gib": 91.5,
                  "tokens": step * 524_288, "time_s": step * 0.71, "step_s": 0.71 + 0.02 * noise, "data_wait_percent": 0.4 + 0.3 * abs(noise),
                  "unix_s": unix + 40 + step * 0.71}
        if experts:
            record["experts"] = [{"layer": layer, "max_over_mean": 1.2 + 0.2 * layer + 0.1 * noise, "entropy": 0.97, "dead": 0} for layer in range(experts)]
        yield record


def write_run(folder, steps=1000, total=2000, log_freq=10, unix=1_790_000_000, loss=8.0, experts=0, ranks=0, events=(), changed=(), end=None, pipeline=None):
    folder.mkdir(parents=True, exist_ok=True)
    rows = list(records(steps, log_freq, unix, loss, experts))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for rank in range(ranks):
        by_rank = folder / "metrics_by_rank"
        by_rank.mkdir(exist_ok=True)
        (by_rank / f"rank_{rank}.jsonl").write_text("".join(json.dumps({**row, "step_s": row["step_s"] * (1 + 0.02 * rank)}) + "\n" for row in rows))
    start = {"event": "start", "unix_s": unix, "step": 0, "restarts": 0, "total_steps": total, "log_freq": log_freq, "description": "a run of the tests",
             "model": "llama3 8B", "planned_memory_gib": 97.1, "environment": {"ranks": "8", "layout": "fsdp 8", "host": "node-7"},
             "changed": [{"name": name, "value": value, "default": default, "source": "command line"} for name, value, default in changed],
             "config": {"training": {"steps": total}}}
    if pipeline:
        start["pipeline"] = pipeline
    lines = [start]
    for step in range(steps // 5, steps + 1, max(1, steps // 5)):
        lines.append({"event": "validation", "unix_s": unix + step, "step": step, "loss": 2.5 + (loss - 2.4) * math.exp(-9 * step / steps), "tps": 20_000})
        lines.append({"event": "checkpoint", "unix_s": unix + 40 + step * 0.71, "step": step, "seconds": 3.2})
    lines += events
    if end:
        lines.append({"event": "end", "unix_s": unix + steps, "step": steps, "how": end})
    (folder / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder
