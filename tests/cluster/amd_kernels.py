"""The kernels of titanium/kernels/cuda compile for AMD's gfx90a (MI250X) through the names of titanium/kernels/hip: code for the device,
and the launchers' syntax. Nothing is run: docs/amd.md."""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
KERNELS = ROOT / "titanium/kernels"
HEADER = pathlib.Path("/usr/include/hip/hip_runtime.h")
COMMON = ["-x", "hip", "--rocm-path=/usr", "-std=c++17", "-Wall", "-Werror", "-Wno-unused-result", "-Wno-pass-failed", "-Wno-unknown-pragmas",
          "-Wno-unused-function", f"-I{KERNELS / 'hip'}", f"-I{ROOT}"]


def compiler():
    return shutil.which("clang++-19")


def compile_for_device(source, folder):
    """Assembly, and what the compiler says. Without the device libraries: calls of mathematical functions stay calls."""
    assembly = folder / f"{source.stem}.s"
    words = [compiler(), *COMMON, "--offload-arch=gfx90a", "--cuda-device-only", "-nogpulib", "-O1", "-S", "-o", assembly, source]
    result = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    return result.returncode, result.stderr, assembly.read_text() if assembly.exists() else ""


class AmdKernelsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if compiler() and HEADER.exists():
            return
        reason = "HIP cannot compile here: clang-19 or libamdhip64-dev is not installed"
        if "TITANIUM_SKIPPED" in os.environ:
            with open(os.environ["TITANIUM_SKIPPED"], "a") as file:
                file.write(f"{cls.__name__}: {reason}\n")
        raise unittest.SkipTest(reason)

    def test_every_kernel_becomes_code_of_the_device(self):
        sources = sorted((KERNELS / "cuda").glob("*.cu"))
        self.assertGreaterEqual(len(sources), 26)
        with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
            for source, (code, errors, assembly) in zip(sources, pool.map(lambda path: compile_for_device(path, pathlib.Path(folder)), sources)):
                with self.subTest(source.name):
                    self.assertEqual(code, 0, errors)
                    self.assertIn('.amdgcn_target "amdgcn-amd-amdhsa--gfx90a"', assembly)
                    # Products on NVIDIA's tensor cores say on other GPUs that there are none.
                    self.assertEqual(bool(re.search(r"\.amdhsa_kernel ", assembly)), source.stem not in ("grouped_multiply", "grouped_float8"))

    def test_launchers_are_well_formed(self):
        for name in ("rms_norm_backward", "cross_entropy"):  # a ring, and clusters that AMD does not have
            words = [compiler(), *COMMON, "--cuda-host-only", "-fsyntax-only", KERNELS / "cuda" / f"{name}.cu"]
            result = subprocess.run(list(map(str, words)), capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)


if __name__ == "__main__":
    unittest.main()
