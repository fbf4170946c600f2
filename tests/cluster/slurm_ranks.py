"""Ranks that srun starts without a launcher: deploy/slurm/multinode_ranks.slurm, arrays, heterogeneous jobs, hosts that do not exist, and
what the settings of a site make of srun's line."""

import stat
import unittest

import slurm_case
import slurm_cluster

RANKS = ("--ntasks-per-node=2",)
# In place of srun: keeps its arguments, and hands on what this SLURM knows. It has no pyxis.
SRUN = """#!/usr/bin/env bash
printf '%s\\n' "$@" >>"{folder}/srun.arguments"
words=()
for word in "$@"; do case $word in --container-*|--no-container-*) ;; *) words+=("$word") ;; esac; done
exec {srun} "${{words[@]}}"
"""
NSYS = """#!/usr/bin/env bash
printf '%s\\n' "$@" >"{folder}/nsys.$SLURM_PROCID"
while [ "$1" != "$TITANIUM" ]; do shift; done
exec "$@"
"""


class SlurmRanksTest(slurm_case.SlurmCase):
    def log(self, job, rank=0):
        return (self.folder / f"logs/{job}/{rank}.log").read_text()

    def program(self, name, text):
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.format(folder=self.folder, srun=slurm_cluster.find("srun")))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def test_ranks_without_a_launcher_train_as_one_rank_does(self):
        job = self.submit("multinode_ranks.slurm", *self.options("run", 3), sbatch=RANKS)
        expected = self.train_alone(3)
        self.completed(job)
        self.assert_same_losses(self.steps(), expected)
        self.assertEqual(sorted(path.name for path in (self.folder / f"logs/{job}").iterdir()), [f"{rank}.log" for rank in range(4)])
        self.assertIn("step:  3", self.log(job))

    def test_jobs_of_an_array_do_not_meet_each_other(self):
        job = self.submit("multinode_ranks.slurm", *self.options("run_%a", 2, ranks=2), sbatch=("--array=0-1", "--nodes=1", *RANKS), name="array_%a")
        for task in (0, 1):
            self.cluster.wait_until(lambda: self.cluster.state(f"{job}_{task}") in ("COMPLETED", "FAILED"), f"task {task}")
            self.assertEqual(self.cluster.state(f"{job}_{task}"), "COMPLETED", self.output(f"array_{task}") + self.logs())
        self.assert_same_losses(self.steps("run_1"), self.steps("run_0"))
        self.assertEqual(len(self.steps("run_0")), 2)

    def test_a_heterogeneous_job_is_one_job_of_all_its_parts(self):
        options = ["--training.steps", 1, "--training.seq_len", 32, "--training.local_batch_size", 1, "--job.dump_folder", self.folder / "run"]
        job = self.cluster.submit("--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--cpus-per-task=1", "--gpus-per-node=1", f"--output={self.folder}/run.out",
                                  ":", "--nodes=1", "--ntasks=3", "--ntasks-per-node=3", "--cpus-per-task=1", "--gpus-per-node=3",
                                  slurm_case.ROOT / "deploy/slurm/multinode_ranks.slurm", *options, cwd=slurm_case.ROOT, TITANIUM=slurm_case.PROGRAM,
                                  CONFIG_FILE="configs/llama3/debug_model_cpu.toml", LOG_DIR=str(self.folder / "logs"), OMP_NUM_THREADS="1")
        self.completed(job)
        self.assertEqual(len(list((self.folder / f"logs/{job}").iterdir())), 4)
        self.assertIn('"tokens": 128,', (self.folder / "run/metrics.jsonl").read_text())  # 32 of each rank

    def test_a_host_that_does_not_exist_is_one_sentence(self):
        job = self.submit("multinode_ranks.slurm", *self.options("run", 1), "--comm.init_timeout_seconds", 3, sbatch=RANKS,
                          MASTER_ADDR="no-such-host.invalid")
        record = self.cluster.wait_for_end(job)
        self.assertEqual(record["JobState"], "FAILED")
        text = self.logs()
        self.assertRegex(text, r"no store answers at no-such-host\.invalid:\d+ within 3 s: the host name cannot be resolved")

    def test_containers_profilers_and_options_come_from_the_site(self):
        self.program("srun", SRUN)
        self.program("nsys", NSYS)
        job = self.submit("multinode_ranks.slurm", *self.options("run", 1), sbatch=RANKS, CONTAINER_IMAGE="/images/titanium.sqsh", NSYS="--trace nvtx",
                          PATH=f"{self.folder}/bin:{self.cluster.environment['PATH']}")
        self.completed(job)
        words = (self.folder / "srun.arguments").read_text().splitlines()
        self.assertIn("--container-image=/images/titanium.sqsh", words)
        self.assertIn(f"--container-mounts={slurm_case.ROOT}:{slurm_case.ROOT}", words)
        profiled = (self.folder / "nsys.3").read_text().splitlines()
        self.assertEqual(profiled[:3], ["profile", "--trace", "nvtx"])
        self.assertIn(f"{self.folder}/logs/{job}/nsys_%q{{SLURM_PROCID}}", profiled)


if __name__ == "__main__":
    unittest.main()
