"""torchtitan's own checkpointing beside Titanium's: what comparisons of checkpoints share."""

import os
import pathlib
import socket
import subprocess

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

ROOT = pathlib.Path(__file__).resolve().parents[2]
TITANIUM = os.environ["TITANIUM"]
TOKENIZER = ROOT / "tests/assets/tokenizer"
# The learning rate of zero and gradients clipped to nothing show a loaded state as it was: parameters stay, the moments
# shrink by beta1 and beta2.
STANDSTILL = ["--optimizer.lr=0", "--training.max_norm=1e-30"]


def train(folder, *options, ranks=1, assets=TOKENIZER):
    command = [TITANIUM, "launch", "--nproc-per-node", str(ranks), "--"] if ranks > 1 else [TITANIUM]
    command += ["train", f"--model.hf_assets_path={assets}", "--training.dataset=c4_test",
                f"--training.dataset_path={ROOT}/tests/assets/c4_test", "--training.seq_len=16",
                "--training.local_batch_size=2", "--training.mixed_precision_param=float32", "--training.device=cpu",
                "--lr_scheduler.warmup_steps=2", "--lr_scheduler.total_steps=10000", f"--job.dump_folder={folder}", "--checkpoint.enable",
                "--checkpoint.no_last_save_model_only", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def join_group(rank=0, size=1, port=None):
    if port is None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)


class TrainState:
    """The part of torchtitan's Trainer that it saves."""

    def __init__(self):
        self.step, self.ntokens_seen = 0, 0

    def state_dict(self):
        return {"step": self.step, "ntokens_seen": self.ntokens_seen}

    def load_state_dict(self, state):
        self.step, self.ntokens_seen = state["step"], state["ntokens_seen"]


class NoData:
    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def debug_llama():
    import torchtitan_import  # noqa: F401
    from torchtitan.models.llama3 import llama3_args
    from torchtitan.models.llama3.model.model import Transformer

    model = Transformer(llama3_args["debugmodel"])
    with torch.no_grad():
        model.init_weights()
    return model


class Torchtitan:
    """A model of it with optimizer, schedule and CheckpointManager, on one rank."""

    def __init__(self, folder, model, **options):
        import torchtitan_import  # noqa: F401
        from torchtitan.components.checkpoint import CheckpointManager
        from torchtitan.components.lr_scheduler import build_lr_schedulers
        from torchtitan.components.optimizer import OptimizersContainer
        from torchtitan.config.job_config import JobConfig

        config = JobConfig()
        config.checkpoint.enable, config.checkpoint.interval = True, 1
        config.checkpoint.exclude_from_loading = ["dataloader"]
        for name, value in options.items():
            setattr(config.checkpoint, name, value)
        config.lr_scheduler.warmup_steps = 2
        self.model = model
        self.optimizer = OptimizersContainer([self.model], torch.optim.AdamW, {
            "lr": 8e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "fused": True, "foreach": False})
        self.schedule = build_lr_schedulers(self.optimizer, config.lr_scheduler, 10000)
        self.progress = TrainState()
        self.checkpoints = CheckpointManager(
            dataloader=NoData(), model_parts=[self.model], optimizers=self.optimizer, lr_schedulers=self.schedule,
            states={"train_state": self.progress}, checkpoint_config=config.checkpoint, sd_adapter=None,
            base_folder=str(folder))

    def step(self):
        """With gradients of chance: what is saved is not about the model."""
        for parameter in self.model.parameters():
            parameter.grad = torch.randn_like(parameter)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        self.progress.step += 1
        self.progress.ntokens_seen += 16


def read_all(folder):
    """Every tensor of a checkpoint by its name, as PyTorch reads it."""
    reader = dcp.FileSystemReader(folder)
    tensors = {name: torch.empty(entry.size, dtype=entry.properties.dtype)
               for name, entry in reader.read_metadata().state_dict_metadata.items() if hasattr(entry, "size")}
    dcp.load(tensors, storage_reader=reader, no_dist=True)
    return tensors


def expect_standstill(test, before, after):
    """`after` is `before` and one step in which nothing happened."""
    test.assertEqual(before.keys(), after.keys())
    for name, tensor in before.items():
        if name.endswith(".step"):
            test.assertEqual(after[name].item(), tensor.item() + 1)
        elif name.endswith(".exp_avg"):
            torch.testing.assert_close(after[name], 0.9 * tensor, rtol=1e-6, atol=1e-30)
        elif name.endswith(".exp_avg_sq"):
            torch.testing.assert_close(after[name], 0.95 * tensor, rtol=1e-6, atol=1e-30)
        elif name.endswith(".expert_bias"):  # moves by at most twice its coefficient, whatever the learning rate
            torch.testing.assert_close(after[name], tensor, rtol=0, atol=2.1e-3)
        else:
            test.assertTrue(torch.equal(after[name], tensor), name)
