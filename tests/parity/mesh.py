"""The groups of all ranks on all mesh axes, against PyTorch's DeviceMesh."""

import os
import pathlib
import subprocess

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

DRIVER = pathlib.Path(os.environ["TITANIUM_BUILD"]) / "mesh_driver"

# pp, dp_replicate, dp_shard, cp, tp, ep, etp
LAYOUTS = [
    (1, 1, 64, 1, 1, 1, 1),
    (1, 2, 4, 1, 8, 1, 1),
    (2, 2, 2, 2, 4, 1, 1),
    (2, 2, 4, 2, 2, 4, 1),
    (1, 2, 4, 2, 4, 8, 4),
    (4, 1, 2, 1, 8, 16, 1),
]


def expected_groups(pp, dp_replicate, dp_shard, cp, tp, ep, etp):
    """Axis -> rank -> members, out of PyTorch's meshes."""
    fsdp, batch = dp_shard * cp, dp_replicate * dp_shard
    views = [
        {"pp": pp, "batch": batch, "cp": cp, "tp": tp},
        {"pp": pp, "loss": batch * cp, "tp": tp},
        {"pp": pp, "dp_replicate": dp_replicate, "fsdp": fsdp, "tp": tp},
        {"pp": pp, "dp_replicate": dp_replicate, "efsdp": fsdp * tp // (ep * etp), "ep": ep, "etp": etp},
    ]
    groups = {}
    for view in views:
        mesh = init_device_mesh("cpu", tuple(view.values()), mesh_dim_names=tuple(view)).mesh
        for dim, axis in enumerate(view):
            members = mesh.movedim(dim, -1).reshape(-1, mesh.shape[dim]).tolist()
            by_rank = {rank: row for row in members for rank in row}
            assert groups.setdefault(axis, by_rank) == by_rank, f"{axis} differs between views"
    return groups


def main():
    dist.init_process_group("fake", rank=0, world_size=64, store=FakeStore())
    for layout in LAYOUTS:
        expected = expected_groups(*layout)
        found = {}
        for line in subprocess.check_output([DRIVER, *map(str, layout)], text=True).splitlines():
            axis, rank, *members = line.split()
            found.setdefault(axis, {})[int(rank)] = [int(member) for member in members]
        assert found == expected, f"{layout}"
        print(f"{layout}: {len(found)} axes of 64 ranks agree")


if __name__ == "__main__":
    main()
