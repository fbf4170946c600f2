"""The cross-compilation for aarch64 (tools/cross_aarch64.sh) is a target of its own, which nobody builds by chance, and covers every layer that it promises.
What it does takes too long for these tests: docs/aarch64.md."""

import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "tools/cross_aarch64.sh"


class Aarch64Test(unittest.TestCase):
    def commands(self, target):
        return subprocess.run(["ninja", "-C", os.environ["TITANIUM_BUILD"], "-t", "commands", target], capture_output=True, text=True, check=True).stdout

    def test_it_is_a_nightly_target_and_no_part_of_all(self):
        last = self.commands("nightly").splitlines()[-1]
        self.assertIn(f"TITANIUM={os.environ['TITANIUM']} {SCRIPT} all", last)
        self.assertNotIn(SCRIPT.name, self.commands("all"))

    def test_every_layer_without_torch_is_tried(self):
        layers = re.findall(r"^titanium_layer\((\w+)(.*)\)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)
        expected = {f"unit_{name}" for name, rest in layers if "TORCH" not in rest.split()}
        self.assertGreaterEqual(expected, {"unit_base", "unit_kernels", "unit_schedule"})
        named = re.search(r"^without_torch=\((.*)\)", SCRIPT.read_text(), re.MULTILINE)[1].split()
        self.assertEqual(set(named), expected)

    def test_a_target_that_does_not_exist_is_refused_before_anything_is_fetched(self):
        done = subprocess.run([SCRIPT, "unit_base", "nonsense"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "[setup] error: nonsense is no target. Name unit_<layer>, titanium, cuda, all, or a kernel of titanium/kernels/cuda "
                                      "without its ending\n")


if __name__ == "__main__":
    unittest.main()
