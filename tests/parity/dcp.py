"""Checkpoints of torch.distributed.checkpoint, read by us, and ours, loaded by torch: bit for bit, on any layout."""

import ast
import json
import os
import pathlib
import subprocess
import tempfile
import unittest
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, zeros

DRIVER = os.path.join(os.environ["TITANIUM_BUILD"], "dcp_driver")
RANKS = 4
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int64,
          torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8, torch.bool]
OBJECTS = {"train_state": {"step": 5, "note": "über 'quotes' \\ \n"}, "lr_scheduler": {"last_epoch": -7, "base_lrs": [1e-3, 0.5, 1e300]},
           "dataloader": {"dp_rank_0": bytes(range(256)), "empty": b"", "world_size": 2**40, "flags": (True, None, ())},
           "nested": {"list": [{"lr": 0.1, "betas": (0.9, 0.95)}, {"lr": 0.2, "params": ["a", "b"]}]}}
# name -> global shape, and placements on a mesh of 2 x 2: uneven, empty on some ranks, one dim cut twice, replicas.
SHARDED = {"layers.0.wq.weight": ((7, 5), [Shard(0), Shard(1)]), "layers.0.wo.weight": ((5, 6, 3), [Shard(1), Shard(0)]),
           "norm.weight": ((3,), [Shard(0), Shard(0)]), "output.weight": ((6, 4), [Replicate(), Shard(1)]),
           "bias": ((9,), [Replicate(), Replicate()])}
LOAD_PLACEMENTS = {"layers.0.wq.weight": [Shard(1), Shard(0)], "layers.0.wo.weight": [Shard(2), Replicate()],
                   "norm.weight": [Replicate(), Shard(0)], "output.weight": [Shard(0), Shard(0)], "bias": [Shard(0), Shard(0)]}


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def plain_tensors():
    torch.manual_seed(1)
    noise = torch.randint(0, 256, (3, 5, 8), dtype=torch.uint8)
    tensors = {str(dtype): noise.clone().view(dtype) if dtype is not torch.bool else noise > 100 for dtype in DTYPES}
    return tensors | {"scalar": torch.tensor(3.5), "empty": torch.empty(0, 4), "transposed": torch.arange(12.0).reshape(3, 4).t(),
                      "part": torch.arange(100.0)[17:63:5], "complex": torch.randn(3, 2, dtype=torch.complex64),
                      "parameter": torch.nn.Parameter(torch.randn(4, 3))}


def sharded_tensors():
    generator = torch.Generator().manual_seed(2)
    return {name: torch.randn(shape, generator=generator) for name, (shape, _) in SHARDED.items()}


def nested(model):
    """As a trainer has it: the model on top, optimizer and others below."""
    state = {name: {"exp_avg": tensor * 2, "step": torch.tensor(3.0)} for name, tensor in model.items()}
    return model | {"optimizer": {"state": state, "param_groups": [{"lr": 0.25, "betas": (0.9, 0.95)}]}} | OBJECTS


def run_ranks(function, *arguments):
    """Calls function(mesh, *arguments) on RANKS processes."""
    with tempfile.NamedTemporaryFile() as store:
        mp.start_processes(start_rank, (store.name, function, arguments), nprocs=RANKS, start_method="fork")


def start_rank(rank, store, function, arguments):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS, init_method=f"file://{store}")
    function(init_device_mesh("cpu", (2, 2)), *arguments)
    dist.barrier()
    dist.destroy_process_group()


def save_sharded(mesh, folder):
    model = {name: distribute_tensor(tensor, mesh, SHARDED[name][1]) for name, tensor in sharded_tensors().items()}
    dcp.save(nested(model), checkpoint_id=folder)


def load_on_another_layout(mesh, folder):
    whole = sharded_tensors()
    state = nested({name: zeros(tensor.shape, device_mesh=mesh, placements=LOAD_PLACEMENTS[name]) for name, tensor in whole.items()})
    state["train_state"] = {"step": 0, "note": ""}
    dcp.load(state, checkpoint_id=folder)
    for name, tensor in whole.items():
        assert torch.equal(state[name].full_tensor(), tensor), name
        assert torch.equal(state["optimizer"]["state"][name]["exp_avg"].full_tensor(), tensor * 2), name
    assert state["train_state"] == OBJECTS["train_state"]


class Dcp(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        warnings.filterwarnings("ignore")

    def drive(self, *arguments):
        result = subprocess.run([DRIVER, *map(str, arguments)], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def read(self, checkpoint, boxes):
        (self.folder / "boxes.json").write_text(json.dumps({"boxes": boxes}))
        text = self.drive("read", checkpoint, self.folder / "boxes.json", self.folder / "out.safetensors")
        tensors = load_file(self.folder / "out.safetensors")
        lines = [line.split("\t", 1) for line in text.splitlines()]
        return [tensors[str(i)] for i in range(len(boxes))], {name: ast.literal_eval(value) for name, value in lines}

    def write(self, source, target, ranks, files=1):
        (self.folder / "plan.json").write_text(json.dumps({"ranks": ranks}))
        self.drive("write", source, target, self.folder / "plan.json", files)
        self.drive("verify", target)

    def assert_same(self, found, expected, name):
        self.assertEqual((found.dtype, found.shape), (expected.dtype, expected.shape), name)
        self.assertTrue(torch.equal(bits(found), bits(expected)), name)

    def assert_boxes_agree(self, checkpoint, tensors):
        """Whole tensors, and boxes with odd ends in every dim."""
        boxes, expected = [], []
        for name, tensor in tensors.items():
            tensor = tensor.detach()
            for cut in (0, 1, 2):
                begin = [min(cut, size) for size in tensor.shape]
                size = [max(0, n - 2 * cut) for n in tensor.shape]
                boxes.append({"name": name, "shape": list(tensor.shape), "offset": begin, "size": size})
                expected.append(tensor[tuple(slice(b, b + s) for b, s in zip(begin, size))])
        found, objects = self.read(checkpoint, boxes)
        for box, a, b in zip(boxes, found, expected):
            self.assert_same(a, b, box)
        return objects

    def without_complex(self, tensors):  # safetensors, which the driver answers with, cannot hold it
        return {name: tensor for name, tensor in tensors.items() if not tensor.is_complex()}

    def test_plain_tensors_of_every_dtype_and_objects_are_read_and_written_back(self):
        tensors = plain_tensors()
        for kind, options in {"one file": {}, "a file each": {"single_file_per_rank": False}, "threads": {"thread_count": 3}}.items():
            with self.subTest(kind=kind):
                source = self.folder / kind
                dcp.save(tensors | OBJECTS, storage_writer=dcp.FileSystemWriter(source, **options))
                self.drive("verify", source)
                objects = self.assert_boxes_agree(source, self.without_complex(tensors))
                self.assertEqual(objects["train_state.note"], OBJECTS["train_state"]["note"])
                self.assertEqual(objects["dataloader.dp_rank_0"], bytes(range(256)))
        target = self.folder / "ours"
        whole = [{"name": name, "offset": [0] * t.dim(), "size": list(t.shape)} for name, t in tensors.items()]
        self.write(self.folder / "one file", target, [whole[::2], whole[1::2]], files=3)
        loaded = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
        loaded |= {"train_state": {"step": 0, "note": ""}, "dataloader": dict.fromkeys(OBJECTS["dataloader"])}
        dcp.load(loaded, checkpoint_id=target)
        for name, tensor in tensors.items():
            self.assert_same(loaded[name].detach(), tensor.detach(), name)
        self.assertEqual(loaded["train_state"], OBJECTS["train_state"])
        self.assertEqual(loaded["dataloader"], OBJECTS["dataloader"])
        # Without knowing what is inside, too: torch's converter to one file rebuilds the nested dict.
        dcp_to_torch_save(target, self.folder / "all.pt")
        everything = torch.load(self.folder / "all.pt", weights_only=False)
        self.assertEqual({name: everything[name] for name in OBJECTS}, OBJECTS)
        self.assertEqual(set(everything), set(tensors) | set(OBJECTS))

    def test_each_stored_tensor_is_an_archive_that_torch_load_reads(self):
        tensors = plain_tensors()
        dcp.save(tensors | OBJECTS, checkpoint_id=self.folder / "theirs")
        whole = [{"name": name, "offset": [0] * t.dim(), "size": list(t.shape)} for name, t in tensors.items()]
        self.write(self.folder / "theirs", self.folder / "ours", [whole])
        metadata = dcp.FileSystemReader(self.folder / "ours").read_metadata()
        self.assertEqual(metadata.version, "1.0.0")
        for index, place in metadata.storage_data.items():
            content = (self.folder / "ours" / place.relative_path).read_bytes()[place.offset:place.offset + place.length]
            (self.folder / "one.pt").write_bytes(content)
            for mmap in (False, True):
                value = torch.load(self.folder / "one.pt", weights_only=True, mmap=mmap)
                if index.fqn in tensors:
                    self.assert_same(value, tensors[index.fqn].detach(), index.fqn)
        theirs = dcp.FileSystemReader(self.folder / "theirs").read_metadata()
        self.assertEqual(metadata.planner_data, theirs.planner_data)
        for name, entry in theirs.state_dict_metadata.items():
            if name in tensors:
                self.assertEqual(metadata.state_dict_metadata[name].size, entry.size)
                self.assertEqual(metadata.state_dict_metadata[name].chunks, entry.chunks)
                self.assertEqual(metadata.state_dict_metadata[name].properties.dtype, entry.properties.dtype)

    def test_floating_point_is_converted_while_reading(self):
        tensor = torch.randn(33, 65)
        dcp.save({"w": tensor}, checkpoint_id=self.folder / "theirs")
        box = {"name": "w", "shape": [33, 65], "offset": [3, 7], "size": [20, 50]}
        found, _ = self.read(self.folder / "theirs", [box | {"dtype": f"torch.{d}"} for d in ("bfloat16", "float16", "float64")])
        for actual, dtype in zip(found, (torch.bfloat16, torch.float16, torch.float64)):
            self.assert_same(actual, tensor[3:23, 7:57].to(dtype), dtype)

    def test_sharded_tensors_survive_both_directions_on_any_layout(self):
        whole = sharded_tensors()
        run_ranks(save_sharded, self.folder / "theirs")
        self.assertGreater(len(list((self.folder / "theirs").glob("*.distcp"))), 1)
        everything = whole | {f"optimizer.state.{name}.exp_avg": tensor * 2 for name, tensor in whole.items()}
        everything |= {f"optimizer.state.{name}.step": torch.tensor(3.0) for name in whole}
        objects = self.assert_boxes_agree(self.folder / "theirs", everything)
        self.assertEqual(objects["optimizer.param_groups.0.betas"], (0.9, 0.95))
        self.assertEqual(objects["nested.list.1.params"], ["a", "b"])

        # Three ranks of ours: dim 0 in uneven parts, the last one empty where there are few rows; scalars on rank 0.
        ranks = [[], [], []]
        for name, tensor in everything.items():
            shape, begin = list(tensor.shape), 0
            for rank, items in enumerate(ranks):
                rows = min((shape[0] + 1) // 2, shape[0] - begin) if shape else 0
                if shape or rank == 0:
                    items.append({"name": name, "offset": [begin] + [0] * (len(shape) - 1) if shape else [],
                                  "size": [rows] + shape[1:] if shape else []})
                begin += rows
        self.write(self.folder / "theirs", self.folder / "ours", ranks, files=2)
        self.assertEqual(self.assert_boxes_agree(self.folder / "ours", everything), objects)
        run_ranks(load_on_another_layout, self.folder / "ours")


if __name__ == "__main__":
    unittest.main()
