"""The checks in bench/ that run on a machine with a GPU end with an exit code of 1 when one of their parts fails.

The programs that they start are replaced by scripts here, so that no GPU is needed.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Trains nothing: writes the lines and metrics of a run into its --job.dump_folder. $FAULT is the name of a folder whose
# run fails, $WRONG of one whose losses are wrong.
TITANIUM = """#!/usr/bin/env bash
while (($# > 0)); do
  if [[ $1 == --job.dump_folder ]]; then folder=$2; fi
  shift
done
[[ -n ${folder:-} ]] || exit 0
name=$(basename "$folder")
[[ $name != "${FAULT:-}" ]] || { echo "titanium: the fault of this test"; exit 1; }
loss=2.5
[[ $name != "${WRONG:-}" ]] || loss=2.6
mkdir -p "$folder"
for step in 1 2 3; do
  echo "INFO - step: $step"
  echo "{\\"step\\": $step, \\"loss\\": $loss, \\"tps\\": 1, \\"tflops\\": 1, \\"memory_gib\\": 1, \\"time_s\\": $step}" >>"$folder/metrics.jsonl"
done
"""
GPU_TESTS = '#!/usr/bin/env bash\n[[ ${FAULT:-} != gpu_tests ]] || { echo "[  FAILED  ] 1 test"; exit 1; }\n'
OTHER = '#!/usr/bin/env bash\n[[ ${FAULT:-} != $(basename "$0") ]]\n'
# Stands for the venv's Python, whose torch sees no GPU here.
PYTHON = """#!/usr/bin/env bash
case $* in
  *"import torch"*) echo /nowhere ;;
  *gpu_report.py*) [[ ${FAULT:-} != report ]] ;;
  *checkpoint_torch.py* | *forget_cached_files* | -\\ *) true ;;
  *) exec /usr/bin/python3 "$@" ;;
esac
"""


class GpuChecks(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        shutil.copytree(ROOT / "bench", self.folder / "bench", ignore=shutil.ignore_patterns("results", "__pycache__"))
        for name, text in {"build/titanium": TITANIUM, "build/gpu_tests": GPU_TESTS, "build/bench_context_attention": OTHER,
                           "bin/nvidia-smi": OTHER, "bin/python3": PYTHON}.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)

    def check(self, script, *arguments, **faults):
        environment = dict(os.environ, PATH=f"{self.folder}/bin:{os.environ['PATH']}", **faults)
        done = subprocess.run(["bash", self.folder / "bench" / script, *arguments], cwd=self.folder, env=environment,
                              capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    def expect(self, script, faults):
        """Passes as it is; with each of the faults it fails and names it, or what the dictionary says."""
        results = self.folder / "results"
        code, output = self.check(script, results)
        self.assertEqual(code, 0, output)
        self.assertIn("All passed", output)
        for fault, named in (faults if isinstance(faults, dict) else dict(zip(faults, faults))).items():
            with self.subTest(script=script, fault=fault):
                code, output = self.check(script, results, FAULT=fault)
                self.assertEqual(code, 1, output)
                self.assertRegex(output, rf"(?m)^\d+ failed: .*\b{named}\b")

    def test_one_gpu(self):
        self.expect("gpu_check.sh", ["gpu_tests", "debug_gpu", "debug_cpu", "llama3_8b", "llama3_1b", "report"])

    def test_several_ranks_on_one_gpu(self):
        self.expect("distributed_gpu_check.sh", ["gpu_tests", "gpu_one", "gpu_cp2_ring", "gpu_cp2_documents",
                                                 "bench_context_attention", "8b_plain_2", "8b_fsdp_one_card"])
        code, output = self.check("distributed_gpu_check.sh", self.folder / "results", WRONG="gpu_tp2")
        self.assertEqual(code, 1, output)
        self.assertIn("1 failed: gpu_tp2 against gpu_one", output)

    def test_saving_on_one_gpu(self):
        self.expect("checkpoint_gpu.sh", {"run": "async to step 59, disabled to step 31"})


if __name__ == "__main__":
    unittest.main()
