"""torchtitan's own checkpointing loads the checkpoints of Titanium, and Titanium goes on from those of torchtitan: on one
rank, and from and to four ranks of PyTorch that hold FSDP2 x TP shards."""

import pathlib
import socket
import tempfile
import unittest

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as processes
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torchtitan_checkpoints import STANDSTILL, Torchtitan, debug_llama, expect_standstill, join_group, read_all, train


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
        theirs = Torchtitan(self.folder / "ours", debug_llama())
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
        fresh = Torchtitan(self.folder / "nothing", debug_llama())
        for _ in range(3):
            fresh.step()
        self.assertEqual(set(state), set(fresh.optimizer.state_dict()))
        groups = {name: value for name, value in state.items() if name.startswith("param_groups.")}
        for name, value in groups.items():
            self.assertEqual(value, fresh.optimizer.state_dict()[name], name)
        self.assertEqual(theirs.schedule.state_dict(), fresh.schedule.state_dict())
        theirs.step()

    def test_we_go_on_from_torchtitans(self):
        theirs = Torchtitan(self.folder / "theirs", debug_llama())
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
