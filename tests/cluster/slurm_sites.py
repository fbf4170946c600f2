"""What the settings of each site (deploy/slurm/sites) make of a job: srun's line, the environment of its tasks, and what is refused. SLURM's own programs are
stand-ins here, because no SLURM here has such nodes; slurm_ranks.py and slurm_trainer.py have a real one."""

import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SLURM = ROOT / "deploy/slurm"
# One task: that of node 0.
SRUN = """#!/bin/bash
options=()
while [[ $1 == -* ]]; do options+=("$1"); [[ $1 == -w ]] && { options+=("$2"); shift; }; shift; done
[[ $1 == hostname ]] || printf '%s\\n' "${options[@]}" >"$FOLDER/options"
SLURM_NODEID=0 SLURM_PROCID=0 exec "$@"
"""
# Asked for the nodes' names, it may also tell the job's shell that its time is over.
SCONTROL = """#!/bin/bash
[[ $1 == show ]] || { echo "$@" >>"$FOLDER/scontrol.words"; exit; }
[[ -z ${TIME_IS_OVER:-} ]] || kill -USR1 "$(cat "$FOLDER/shell")"
echo node0
"""
PROGRAMS = {"srun": SRUN, "scontrol": SCONTROL, "scancel": "#!/bin/sh\n", "hostname": "#!/bin/sh\necho 10.0.0.1\n",
            "titanium": '#!/bin/sh\nprintf "%s\\n" "$@" >"$FOLDER/words"\nenv >"$FOLDER/environment"\n'}
PROGRAMS["nsys"] = PROGRAMS["titanium"]


class SlurmSitesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, text in PROGRAMS.items():
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)

    def submit(self, script, *words, code=0, **environment):
        """Runs a job script as sbatch would; what it has written to stderr."""
        base = {"PATH": f"{self.folder}:/usr/bin:/bin", "HOME": str(self.folder), "FOLDER": str(self.folder), "SLURM_SUBMIT_DIR": str(ROOT), "SLURM_JOB_ID": "77",
                "SLURM_JOB_NODELIST": "node0", "SLURM_NNODES": "1", "SLURM_CPUS_PER_TASK": "36", "TITANIUM": str(self.folder / "titanium"),
                "LOG_DIR": str(self.folder / "logs")}
        shell = f'echo $$ >{self.folder}/shell; exec bash "$0" "$@"'
        done = subprocess.run(["bash", "-c", shell, SLURM / script, *words], capture_output=True, text=True, env=base | environment)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr

    def lines(self, name):
        return (self.folder / name).read_text().splitlines()

    def variables(self):
        return dict(line.split("=", 1) for line in self.lines("environment") if "=" in line)

    def test_every_site_starts_the_program_from_both_scripts(self):
        sites = sorted(path.stem for path in (SLURM / "sites").glob("*.sh"))
        self.assertEqual(sites, ["aws_efa", "frontier", "gb200", "generic"])
        for site in sites:
            for script, command in (("multinode_trainer.slurm", "launch"), ("multinode_ranks.slurm", "train")):
                with self.subTest(f"{site} {script}"):
                    self.submit(script, "--training.steps", "3", SITE=site)
                    words = self.lines("words")
                    self.assertEqual((words[0], words[-2:]), (command, ["--training.steps", "3"]))
                    self.assertEqual([word for word in self.lines("options") if word.startswith("--container")], [])
                    self.assertTrue(self.variables()["NCCL_SOCKET_IFNAME"])

    def test_containers_and_profilers_are_set_at_every_site_in_the_same_way(self):
        for site in ("aws_efa", "frontier", "gb200", "generic"):
            with self.subTest(site):
                (self.folder / "words").unlink(missing_ok=True)
                self.submit("multinode_ranks.slurm", SITE=site, CONTAINER_IMAGE="/images/titanium.sqsh", NSYS="--trace nvtx")
                self.assertIn("--container-image=/images/titanium.sqsh", self.lines("options"))
                expected = ["train", "--job.config_file"] if site == "frontier" else ["profile", "--trace"]  # AMD's GPUs have no Nsight Systems
                self.assertEqual(self.lines("words")[:2], expected)

    def test_a_rack_of_gb200_has_four_ranks_on_a_node_and_nvlink_between_nodes(self):
        errors = self.submit("multinode_trainer.slurm", SITE="gb200", IMEX_CHANNELS=str(self.folder))
        words = self.lines("words")
        self.assertEqual(words[words.index("--nproc-per-node") + 1], "4")
        self.assertEqual({name: self.variables()[name] for name in ("NCCL_MNNVL_ENABLE", "NCCL_NVLS_ENABLE", "NCCL_CUMEM_ENABLE")},
                         {"NCCL_MNNVL_ENABLE": "2", "NCCL_NVLS_ENABLE": "2", "NCCL_CUMEM_ENABLE": "1"})
        self.assertIn("--mem-bind=none", self.lines("options"))
        self.assertIn("there is no channel of nvidia-imex", errors)
        (self.folder / "channel0").touch()
        for settings in ({"IMEX_CHANNELS": str(self.folder)}, {"NCCL_MNNVL_ENABLE": "0"}):
            self.assertEqual(self.submit("multinode_trainer.slurm", SITE="gb200", NGPU="2", **settings), "")
        words = self.lines("words")
        self.assertEqual(words[words.index("--nproc-per-node") + 1], "2")  # the user's number wins

    def test_frontier_has_the_variables_of_the_fork(self):
        self.submit("multinode_trainer.slurm", SITE="frontier")
        found, words = self.variables(), self.lines("words")
        self.assertEqual({name: found[name] for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_ALGO", "NCCL_IB_TIMEOUT", "HF_HUB_OFFLINE")},
                         {"NCCL_SOCKET_IFNAME": "hsn0", "GLOO_SOCKET_IFNAME": "hsn0", "NCCL_ALGO": "TREE", "NCCL_IB_TIMEOUT": "31", "HF_HUB_OFFLINE": "1"})
        self.assertEqual((words[words.index("--rdzv-endpoint") + 1], words[words.index("--max-restarts") + 1]), ("10.0.0.1:3442", "9"))

    def test_weights_are_converted_with_the_settings_of_the_site(self):
        self.submit("convert.slurm", "Llama-3.1-8B/original", "outputs/llama", "--to", "dcp", SITE="gb200", NCCL_MNNVL_ENABLE="0")
        self.assertEqual(self.lines("words"), ["convert", "Llama-3.1-8B/original", "outputs/llama", "--to", "dcp"])
        self.assertEqual(self.lines("options"), ["--cpu-bind=none", "--mem-bind=none"])
        self.assertEqual(self.variables()["SRUN_CPUS_PER_TASK"], "36")

    def test_the_examples_at_the_top_of_a_site_name_files_and_options_that_exist(self):
        for path in (SLURM / "sites").glob("*.sh"):
            text = path.read_text()
            for name in re.findall(r"\b(?:deploy|configs|docs)/[\w./]*\w", text):
                self.assertTrue((ROOT / name).exists(), f"{path.name}: {name}")

    def test_a_word_may_hold_the_number_of_a_job_of_an_array(self):
        self.submit("multinode_ranks.slurm", "--job.dump_folder", "runs/run_%a", "--job.description", "two words", SLURM_ARRAY_TASK_ID="3")
        self.assertEqual(self.lines("words")[-4:], ["--job.dump_folder", "runs/run_3", "--job.description", "two words"])
        self.submit("multinode_ranks.slurm", "--job.dump_folder", "runs/run_%a")
        self.assertEqual(self.lines("words")[-1], "runs/run_%a")

    def test_a_job_whose_time_is_over_before_its_step_starts_queues_again(self):
        for script in ("multinode_trainer.slurm", "multinode_ranks.slurm"):
            self.submit(script, TIME_IS_OVER="1")
            self.assertFalse((self.folder / "words").exists())
        self.assertEqual(self.lines("scontrol.words"), ["requeue 77", "requeue 77"])

    def test_a_site_that_does_not_exist_is_one_sentence(self):
        errors = self.submit("multinode_trainer.slurm", SITE="nowhere", code=1)
        self.assertEqual(errors, "SITE=nowhere: there is no deploy/slurm/sites/nowhere.sh. Copy deploy/slurm/sites/generic.sh to it, or name one of: "
                                 "aws_efa frontier gb200 generic\n")


if __name__ == "__main__":
    unittest.main()
