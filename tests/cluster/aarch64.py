"""The cross-compilation for aarch64 (tools/cross_aarch64.sh) is a target of its own, which nobody builds by chance, and covers every layer that it promises.
What it does takes too long for these tests: docs/aarch64.md."""

import os
import pathlib
import re
import subprocess
import tempfile
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

    def test_a_failed_step_does_not_keep_the_others_from_being_tried(self):
        with tempfile.TemporaryDirectory() as folder:
            kept, programs = pathlib.Path(folder) / "kept", pathlib.Path(folder) / "programs"
            for path in (kept / "wheel", programs):
                path.mkdir(parents=True)
            pins = subprocess.run(["bash", "-c", 'source tools/setup.sh; for name in program arrow; do group "$pins_file" $name; done'], cwd=ROOT,
                                  capture_output=True, text=True, check=True).stdout
            (kept / "wheel/.complete").write_text(pins)  # nothing is fetched, compiled or run
            for name, text in {"dpkg-query": 'echo "ok installed"', "apt-get": "", "dpkg-deb": "", "cmake": "", "ninja": 'echo "builds $*"',
                               "qemu-aarch64-static": 'case "$*" in *unit_base*) exit 3 ;; *) echo "runs ${@: -2}" ;; esac'}.items():
                (programs / name).write_text(f"#!/bin/bash\n{text}\n")
                (programs / name).chmod(0o755)
            done = subprocess.run([SCRIPT, "unit_base", "unit_kernels"], capture_output=True, text=True,
                                  env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "TITANIUM_AARCH64_DIR": str(kept), "JOBS": "2"})
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, r"wheels: \d+ s\nbuilds -C build-aarch64 -j 2 -k 0 unit_base unit_kernels\nbuild of unit_base unit_kernels: \d+ s\n"
                                      r"unit_base: failed after \d+ s\nruns build-aarch64/unit_kernels --gtest_brief=1\nunit_kernels: \d+ s\n$")
        self.assertTrue(done.stderr.endswith("[setup] error: these steps failed: unit_base\n"), done.stderr)


if __name__ == "__main__":
    unittest.main()
