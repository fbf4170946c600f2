"""Import this before torchtitan: makes it importable on machines without Triton.

One module of torchtitan needs Triton: the kernel that sorts tokens by expert on a GPU. It is replaced by one that says so
when it is called.
"""

import importlib.util
import sys
import types


def generate_permute_indices(*_, **__):
    raise RuntimeError("torchtitan's generate_permute_indices needs Triton, which is not installed")


if importlib.util.find_spec("triton") is None:
    kernels = types.ModuleType("torchtitan.models.moe.kernels")
    kernels.generate_permute_indices = generate_permute_indices
    sys.modules[kernels.__name__] = kernels
