"""torchtitan's own checkpointing loads the checkpoints of Titanium, and Titanium goes on from those of torchtitan: on one
rank, and from and to four ranks of PyTorch that hold FSDP2 x TP shards."""

import os
import pathlib
import socket
import subprocess
import tempfile
import unittest

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as processes
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

ROOT = pathlib.Path(__file__).resolve().parents[2]
TITANIUM = os.environ["TITANIUM"]
# The learning rate of zero and gradients clipped to nothing show a loaded state as it was: parameters stay, the moments
# shrink by beta1 and beta2.
STANDSTILL = ["--optimizer.lr=0", "--training.max_norm=1e-30"]


def train(folder, *options, ranks=1):
    command = [TITANIUM, "launch", "--nproc-per-node", str(ranks), "--"] if ranks > 1 else [TITANIUM]
    command += ["train", f"--model.hf_assets_path={ROOT}/tests/assets/tokenizer", "--training.dataset=c4_test",
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


class Torchtitan:
    """Its model, optimizer, schedule and CheckpointManager, on one rank."""

    def __init__(self, folder, **options):
        import torchtitan_import  # noqa: F401
        from torchtitan.components.checkpoint import CheckpointManager
        from torchtitan.components.lr_scheduler import build_lr_schedulers
        from torchtitan.components.optimizer import OptimizersContainer
        from torchtitan.config.job_config import JobConfig
        from torchtitan.models.llama3 import llama3_args
        from torchtitan.models.llama3.model.model import Transformer

        config = JobConfig()
        config.checkpoint.enable, config.checkpoint.interval = True, 1
        config.checkpoint.exclude_from_loading = ["dataloader"]
        for name, value in options.items():
            setattr(config.checkpoint, name, value)
        config.lr_scheduler.warmup_steps = 2
        self.model = Transformer(llama3_args["debugmodel"])
        with torch.no_grad():
            self.model.init_weights()
        self.optimizer = OptimizersContainer([self.model], torch.optim.AdamW, {
            "lr": 8e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "fused": True, "foreach": False})
        self.schedule = build_lr_schedulers(self.optimizer, config.lr_scheduler, 10000)
        self.progress = TrainState()
        self.checkpoints = CheckpointManager(
            dataloader=NoData(), model_parts=[self.model], optimizers=self.optimizer, lr_schedulers=self.schedule,
            states={"train_state": self.progress}, checkpoint_config=config.checkpoint, sd_adapter=None,
            base_folder=str(folder))

    def step(self):
        self.model(torch.randint(0, 2048, (1, 16))).sum().backward()
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
        else:
            test.assertTrue(torch.equal(after[name], tensor), name)


def placements(name):
    """FSDP cuts rows, tensor parallelism columns of some, rows of others, and no norms."""
    if "norm" in name:
        return [Shard(0), Replicate()]
    return [Shard(0), Shard(1 if ".wo." in name or ".w2." in name else 0)]


def four_ranks(rank, port, source, target, errors):
    """Loads `source` into DTensors of a 2 x 2 mesh and saves these again."""
    try:
        join_group(rank, 4, port)
        mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2))
        whole = read_all(source)
        state = {name: tensor if tensor.dim() == 0 else distribute_tensor(torch.zeros_like(tensor), mesh, placements(name))
                 for name, tensor in whole.items()}
        dcp.load(state, checkpoint_id=source)
        for name, tensor in state.items():
            if tensor.dim() > 0:
                assert torch.equal(tensor.full_tensor(), whole[name]), name
        nested = {name: value for name, value in state.items() if not name.startswith("optimizer.")}
        nested["optimizer"] = {name.removeprefix("optimizer."): value for name, value in state.items()
                               if name.startswith("optimizer.")}
        nested["train_state"] = {"step": 3, "ntokens_seen": 48}
        nested["lr_scheduler"] = {"last_epoch": 3, "base_lrs": [0.0]}
        dcp.save(nested, checkpoint_id=target)
        dist.destroy_process_group()
    except BaseException as error:
        errors.put(f"rank {rank}: {error!r}")
        raise


class TorchtitanCheckpoint(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder_ = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.folder_.name)
        train(cls.folder / "ours", "--training.steps=3", "--optimizer.lr=0.0008")
        cls.ours = cls.folder / "ours/checkpoint/step-3"
        join_group()

    @classmethod
    def tearDownClass(cls):
        dist.destroy_process_group()
        cls.folder_.cleanup()

    def test_torchtitan_goes_on_from_ours(self):
        theirs = Torchtitan(self.folder / "ours")
        self.assertTrue(theirs.checkpoints.load())
        saved = read_all(self.ours)
        for name, tensor in theirs.model.state_dict().items():
            self.assertTrue(torch.equal(tensor, saved[name]), name)
        state = theirs.optimizer.state_dict()
        for name, tensor in saved.items():
            if name.startswith("optimizer."):
                self.assertTrue(torch.equal(state[name.removeprefix("optimizer.")], tensor), name)
        self.assertEqual((theirs.progress.step, theirs.progress.ntokens_seen), (3, 3 * 2 * 16))
        self.assertEqual(theirs.schedule.schedulers[0].last_epoch, 3)
        fresh = Torchtitan(self.folder / "nothing")
        for _ in range(3):
            fresh.step()
        self.assertEqual(set(state), set(fresh.optimizer.state_dict()))
        groups = {name: value for name, value in state.items() if name.startswith("param_groups.")}
        for name, value in groups.items():
            self.assertEqual(value, fresh.optimizer.state_dict()[name], name)
        self.assertEqual(theirs.schedule.state_dict(), fresh.schedule.state_dict())
        theirs.step()

    def test_we_go_on_from_torchtitans(self):
        theirs = Torchtitan(self.folder / "theirs")
        for _ in range(3):
            theirs.step()
        theirs.checkpoints.save(3)
        source = self.folder / "theirs/checkpoint/step-3"
        out = train(self.folder / "next", "--training.steps=4", f"--checkpoint.initial_load_path={source}",
                    "--checkpoint.no_initial_load_model_only", "--checkpoint.exclude_from_loading=dataloader", *STANDSTILL)
        self.assertIn("Training starts at step 4", out)
        self.assertIn("optimizer.lr = 0 is used; the checkpoint was trained with 0.0008", out)
        expect_standstill(self, read_all(source), read_all(self.folder / "next/checkpoint/step-4"))

    def test_shards_of_four_ranks_of_pytorch_go_both_ways(self):
        context = processes.get_context("spawn")
        errors = context.SimpleQueue()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        target = self.folder / "pytorch/step-3"
        ranks = [context.Process(target=four_ranks, args=(rank, port, self.ours, target, errors)) for rank in range(4)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        self.assertTrue(errors.empty(), errors.empty() or errors.get())
        train(self.folder / "reloaded", "--training.steps=4", f"--checkpoint.initial_load_path={target}",
              "--checkpoint.no_initial_load_model_only", "--checkpoint.exclude_from_loading=dataloader",
              "--parallelism.tensor_parallel_degree=2", *STANDSTILL, ranks=4)
        expect_standstill(self, read_all(self.ours), read_all(self.folder / "reloaded/checkpoint/step-4"))


if __name__ == "__main__":
    unittest.main()
