"""Which command run_train.sh starts for the variables that users of torchtitan, PyTorchJob and Run:ai set, how set-ups of one build
folder get along, and that the files in deploy/ are well-formed."""

import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import tomllib
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = """
set -euo pipefail
fail() { echo "$*"; exit 1; }
has_gpu_driver() { [ -n "${GPU:-}" ]; }
source tools/train_command.sh
train_command titanium "$@"
echo "${command[*]}${COMM_MODE:+ NGPU=$NGPU}"
"""
LAUNCH = "titanium launch --nproc-per-node {} --max-restarts {}"
NODES = " --nnodes {} --node-rank {} --rdzv-endpoint {}"
TRAIN = " -- train --training.steps 3"


def train_command(code=0, **environment):
    result = subprocess.run(["bash", "-c", SCRIPT, "bash", "--training.steps", "3"], capture_output=True, text=True, cwd=ROOT,
                            env={"PATH": "/usr/bin:/bin", **environment})
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout.strip()


# As srun starts a task on each of two nodes, or one where it is asked for one.
SRUN = """#!/usr/bin/env bash
nodes=2
while [[ $1 == -* ]]; do
  [[ $1 == --nodes=1 ]] && nodes=1
  [[ $1 == -w ]] && shift
  shift
done
for ((node = 0; node < nodes; ++node)); do SLURM_NODEID=$node SLURM_PROCID=$node SLURM_STEP_ID=0 SLURM_NTASKS=$nodes "$@" & tasks+=($!); done
code=0
for task in "${tasks[@]}"; do wait "$task" || code=$?; done
exit $code
"""


class RunTrainTest(unittest.TestCase):
    def test_one_rank_needs_no_launcher(self):
        self.assertEqual(train_command(), "titanium train --training.steps 3")
        self.assertEqual(train_command(NGPU="1", MAX_RESTARTS="0", PET_NNODES="1"), "titanium train --training.steps 3")

    def test_several_ranks_and_restarts_go_through_the_launcher(self):
        self.assertEqual(train_command(NGPU="8"), LAUNCH.format(8, 0) + TRAIN)
        self.assertEqual(train_command(MAX_RESTARTS="2", RDZV_TIMEOUT="60"), LAUNCH.format(1, 2) + " --rdzv-timeout 60" + TRAIN)
        self.assertEqual(train_command(NGPU="2", LOG_DIR="logs", RUN_ID="r"), LAUNCH.format(2, 0) + " --log-dir logs --run-id r" + TRAIN)

    def test_pods_are_nodes(self):
        pod = {"MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456", "RANK": "1", "WORLD_SIZE": "2"}
        nodes = NODES.format(2, 1, "job-master-0:23456")
        self.assertEqual(train_command(**pod), LAUNCH.format(1, 0) + nodes + TRAIN)
        petted = {**pod, "WORLD_SIZE": "16", "PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_NPROC_PER_NODE": "8"}
        self.assertEqual(train_command(**petted), LAUNCH.format(8, 0) + nodes + TRAIN)
        self.assertEqual(train_command(**{**petted, "NGPU": "4"}), LAUNCH.format(4, 0) + nodes + TRAIN)
        automatic = {**petted, "PET_NPROC_PER_NODE": "auto"}
        self.assertEqual(train_command(**automatic), LAUNCH.format(1, 0) + nodes + TRAIN)
        self.assertEqual(train_command(**automatic, GPU="1"), LAUNCH.format("gpu", 0) + nodes + TRAIN)
        trainer = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_NPROC_PER_NODE": "8", "PET_MASTER_ADDR": "job-node-0-0.job", "PET_MASTER_PORT": "29400"}
        self.assertEqual(train_command(**trainer), LAUNCH.format(8, 0) + NODES.format(2, 1, "job-node-0-0.job:29400") + TRAIN)

    def test_a_stop_may_have_an_exit_code_of_its_own(self):
        self.assertEqual(train_command(STOP_CODE="143"), LAUNCH.format(1, 0) + " --stop-code 143" + TRAIN)

    def test_the_users_number_of_nodes_wins(self):
        base = {"MASTER_ADDR": "m", "PET_NNODES": "4", "PET_NODE_RANK": "1", "OVERRIDE_PET_NNODES": "2"}
        self.assertEqual(train_command(**base), LAUNCH.format(1, 0) + NODES.format(2, 1, "m:29500") + TRAIN)
        self.assertEqual(train_command(**base, NNODES="3", NODE_RANK="2"), LAUNCH.format(1, 0) + NODES.format(3, 2, "m:29500") + TRAIN)

    def test_a_rank_of_another_launcher_is_just_started(self):
        self.assertEqual(train_command(RANK="1", WORLD_SIZE="2", LOCAL_RANK="1"), "titanium train --training.steps 3")

    def test_incomplete_variables_are_refused(self):
        self.assertIn("MASTER_ADDR is missing", train_command(NNODES="2", code=1))
        self.assertIn("'1:4'", train_command(PET_NNODES="1:4", code=1))

    def test_the_fake_backend_is_one_process(self):
        self.assertEqual(train_command(COMM_MODE="fake_backend", NGPU="64"),
                         "titanium train --comm.mode=fake_backend --training.steps=1 --training.steps 3 NGPU=64")


# tools/setup.sh in a tree where configuring writes only what the set-up reads, and two steps at the same time are a failure.
SET_UP = """
set -euo pipefail
source tools/setup.sh
alone() { mkdir busy || { echo "two at once" >&2; exit 9; }; sleep 0.2; rmdir busy; }
configure() {
  alone
  echo "TITANIUM_TESTS:BOOL=$([ "$1" = test ] && echo ON || echo OFF)" >"$2/CMakeCache.txt"
  echo "configured for $1"
}
ninja() { alone; }
titanium_setup "$@"
"""

# Its parts alone, with nothing installed and nothing configured.
PARTS = """
set -euo pipefail
source tools/setup.sh
install_needs() { torch=/torch nvcc=/nvcc venv=/venv; echo "installed for $purpose"; }
cmake() { printf '%s\n' "$@"; }
"$@" 2>&1
"""


class SetUpTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name)
        (self.tree / "tools").mkdir()
        for name in ("setup.sh", "requirements.txt", "packages.txt"):
            shutil.copy(ROOT / "tools" / name, self.tree / "tools")
        self.cache = self.tree / "build/CMakeCache.txt"

    def start(self, purpose, after=""):
        return subprocess.Popen(["bash", "-c", SET_UP + after, "bash", purpose], cwd=self.tree, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env={"PATH": "/usr/bin:/bin", "HOME": str(self.tree)})

    def finish(self, process):
        output, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, errors)
        return output

    def test_two_at_once_take_turns_and_the_tests_stay(self):
        processes = [self.start(purpose) for purpose in ("test", "program", "test", "program")]
        for process in processes:
            self.finish(process)
        self.assertIn("TITANIUM_TESTS:BOOL=ON", self.cache.read_text())
        self.assertEqual(self.finish(self.start("test")), "")

    def test_a_folder_that_is_not_what_its_stamp_says_is_configured_again(self):
        self.assertEqual(self.finish(self.start("test")), "configured for test\n")
        self.assertEqual(self.finish(self.start("program")), "")
        self.cache.write_text("TITANIUM_TESTS:BOOL=OFF\n")
        self.assertEqual(self.finish(self.start("test")), "configured for test\n")

    def part(self, *words, **environment):
        return subprocess.run(["bash", "-c", PARTS, "bash", *words], capture_output=True, text=True, cwd=self.tree, check=True,
                              env={"PATH": "/usr/bin:/bin", "HOME": str(self.tree), **environment}).stdout.splitlines()

    def test_an_image_installs_first_and_configures_later(self):
        self.assertEqual(self.part("titanium_install", "program"), ["installed for program"])
        words = self.part("configure", "program", "build", "release")
        self.assertEqual((words[0], [word for word in words if "ARCHS" in word]), ("installed for program", []))
        self.assertIn("-DTITANIUM_NVCC=/nvcc", words)

    def test_compute_capabilities_are_given_and_make_an_older_set_up_stale(self):
        self.assertIn("-DTITANIUM_CUDA_ARCHS=90;100", self.part("configure", "program", "build", "release", TITANIUM_CUDA_ARCHS="90;100"))
        self.assertNotEqual(self.part("setup_key", "program", TITANIUM_CUDA_ARCHS="90"), self.part("setup_key", "program"))

    def test_what_runs_after_a_set_up_does_not_hold_the_folder(self):
        self.finish(self.start("test", after="exec flock --nonblock build/.setup.lock true"))


# Eight steps as Ninja tells them, of which four end within three seconds; then a compiler's line, whose end comes late.
STEPS = r"""
set -euo pipefail
source tools/setup.sh
{ for step in 1 2 3 4; do echo "[step of 8] Building $step"; sleep 0.7; done; echo "ninja: no work"; printf "a "; sleep 1.3; echo "warning"; exit "${1:-0}"; } |
  show_progress building 0 '^\[step of ' '^\[step of ([0-9]+)\]' '^ninja: ' || fail "it failed"
"""


class SetUpProgressTest(unittest.TestCase):
    def run_steps(self, *arguments, code=0, terminal=False, **variables):
        command = ["bash", "-c", STEPS, "bash", *arguments]
        if terminal:
            command = ["script", "--quiet", "--return", "--command", shlex.join(command), "/dev/null"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, env={"PATH": "/usr/bin:/bin", "HOME": "/tmp", "SETUP_LINE_SECONDS": "1", **variables})
        self.assertEqual(done.returncode, code, done.stderr)
        return (done.stdout if terminal else done.stderr).decode()

    def test_without_a_terminal_a_line_now_and_then_has_rate_and_time_left(self):
        lines = self.run_steps().splitlines()
        self.assertIn("a warning", lines)
        shown = [line for line in lines if line.startswith("[setup] ")]
        self.assertGreaterEqual(len(shown), 2)
        for line in shown:
            self.assertRegex(line, r"^\[setup\] building: [1-4] of 8, \d+\.\d/s, \d+ s left$")
        self.assertEqual(set(lines) - set(shown), {"a warning"})
        self.assertEqual(self.run_steps(TITANIUM_QUIET="1"), "a warning\n")

    def test_a_terminal_has_one_line(self):
        shown = self.run_steps(terminal=True)
        self.assertRegex(shown, r"\rbuilding: 4 of 8, \d+\.\d/s, \d+ s left\x1b\[K")
        self.assertIn("\r\x1b[Ka warning\r\n", shown)

    def test_a_step_that_fails_is_not_hidden(self):
        self.assertIn("[setup] error: it failed", self.run_steps("3", code=1))


class DeployTest(unittest.TestCase):
    def test_scripts_are_well_formed(self):
        scripts = [ROOT / "run_train.sh", *(ROOT / "deploy").rglob("*.slurm"), *(ROOT / "deploy").rglob("*.sh")]
        self.assertGreaterEqual(len(scripts), 4)
        for script in scripts:
            subprocess.run(["bash", "-n", script], check=True)

    def test_the_slurm_script_makes_one_job_of_two_nodes(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
            root = pathlib.Path(folder)
            (root / "build").mkdir()
            (root / "build/titanium").symlink_to(os.path.abspath(os.environ["TITANIUM"]))
            (root / "deploy").symlink_to(ROOT / "deploy")
            for name, text in (("srun", SRUN), ("scontrol", "#!/bin/sh\necho node0\necho node1\n"), ("hostname", "#!/bin/sh\necho 127.0.0.1\n")):
                (root / name).write_text(text)
                (root / name).chmod(0o755)
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
            probe.close()
            environment = {"PATH": f"{folder}:/usr/bin:/bin", "SLURM_SUBMIT_DIR": folder, "SLURM_JOB_NODELIST": "node[0-1]", "SLURM_NNODES": "2",
                           "SLURM_JOB_ID": "77", "MASTER_PORT": port, "NGPU": "2", "CONFIG_FILE": "some.toml"}
            # All ranks get to know about the missing file, and say so.
            result = subprocess.run(["bash", ROOT / "deploy/slurm/multinode_trainer.slurm", "--job.description", "two words"],
                                    capture_output=True, text=True, env=environment)
            self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
            self.assertEqual(result.stdout.count(f"Launching 4 ranks on 2 nodes: run 77.0, attempt 1 of 1, store at 127.0.0.1:{port}"), 2, result.stdout)
            logs = sorted(path.parent.name for path in (root / "outputs/logs/77.0/attempt_0").glob("*/stderr.log") if "some.toml" in path.read_text())
            self.assertEqual(logs, list("0123"), result.stderr)

    def test_the_mix_of_frontier_has_its_data_fetched(self):
        mix = tomllib.loads((ROOT / "configs/llama3/llama3_8b_frontier.toml").read_text())["training"]["sources"]
        self.assertAlmostEqual(sum(source["weight"] for source in mix), 1)
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "titanium"
            program.write_text('#!/bin/sh\necho "$@"\n')
            program.chmod(0o755)
            done = subprocess.run([ROOT / "deploy/slurm/frontier_data.sh", "data", "*/part-0*"], capture_output=True, text=True,
                                  env={"PATH": "/usr/bin:/bin", "TITANIUM": str(program)})
        self.assertEqual(done.returncode, 0, done.stderr)
        fetched = re.findall(r"^download \S+ --repo-type dataset --local-dir (\S+) --include \*/part-0\*$", done.stdout, re.MULTILINE)
        self.assertEqual(len(fetched), 4)
        for source in mix:
            self.assertIn(source["path"].removeprefix("./"), done.stdout)

    def test_files_in_deploy_set_only_variables_that_run_train_knows(self):
        known = set(re.findall(r"\b[A-Z][A-Z_]+\b", (ROOT / "run_train.sh").read_text()))
        job = yaml.safe_load((ROOT / "deploy/kubernetes/pytorchjob.yaml").read_text())
        container = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
        names = {variable["name"] for variable in container["env"]}
        self.assertEqual({name for name in names if not name.startswith(("NCCL_", "GLOO_", "TORCH_"))} - known, set())


if __name__ == "__main__":
    unittest.main()
