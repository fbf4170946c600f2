"""What run_tests.sh says after the tests: tools/check_test_run.py."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_test_run  # noqa: E402


class TestRun(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.skipped = pathlib.Path(temporary.name) / "skipped"
        self.folder = pathlib.Path(temporary.name) / "files"
        self.folder.mkdir()

    def check(self):
        done = subprocess.run([sys.executable, ROOT / "tools/check_test_run.py", self.skipped, self.folder],
                              capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_nothing_skipped_and_nothing_left_is_silent(self):
        self.assertEqual(self.check(), (0, ""))

    def test_skips_are_told_by_reason_and_fail_where_the_reason_does_not_hold(self):
        self.skipped.write_text("Adam.B: no GPU (CUDA 13)\nAdam.A: no GPU (CUDA 13)\n")
        code, output = self.check()
        self.assertEqual(code, 1 if check_test_run.has_gpu() else 0, output)
        self.assertRegex(output, r"2 tests skipped.*: no GPU \(CUDA 13\)\n  Adam.A\n  Adam.B\n")
        self.skipped.write_text("Disk.Full: file systems cannot be mounted here\n")
        self.assertEqual(self.check()[0], 1 if check_test_run.may_mount() else 0)
        self.skipped.write_text("Page.A: no chromium\n")
        self.assertEqual(self.check()[0], 1 if check_test_run.installs_chromium() else 0)

    def test_a_reason_that_is_not_on_the_list_fails(self):
        self.skipped.write_text("Adam.A: not today\n")
        code, output = self.check()
        self.assertEqual(code, 1, output)
        self.assertIn("1 tests skipped, WHICH SHOULD HAVE RUN HERE: not today", output)
        self.assertIn("1 tests were skipped that should have run; 0 files or folders were left behind.", output)

    def test_files_that_are_left_fail(self):
        (self.folder / "titanium_Adam.A.17").mkdir()
        code, output = self.check()
        self.assertEqual(code, 1, output)
        self.assertIn("Tests left these in the temporary folder:\n  titanium_Adam.A.17\n", output)


if __name__ == "__main__":
    unittest.main()
