"""deploy/slurm/multinode_trainer.slurm under a real SLURM of two nodes: it trains as one rank does, and survives a rank that is killed."""

import os
import signal
import unittest

import slurm_case


class SlurmTrainerTest(slurm_case.SlurmCase):
    def test_two_nodes_of_two_ranks_train_as_one_rank_does(self):
        job = self.submit("multinode_trainer.slurm", *self.options("run", 3))
        expected = self.train_alone(3)
        self.completed(job)
        self.assertIn(f"Launching 4 ranks on 2 nodes: run {job}.0, attempt 1 of 1", self.output())
        self.assert_same_losses(self.steps(), expected)
        logs = sorted(path.name for path in (self.folder / f"logs/{job}.0/attempt_0").iterdir())
        self.assertEqual(logs, list("0123"))

    def test_launchers_of_a_heterogeneous_job_are_nodes_of_one_job(self):
        part = ("--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=1", "--gpus-per-node=1")
        job = self.submit("multinode_trainer.slurm", *self.options("run", 1, ranks=2), sbatch=(*part, ":", *part), NGPU="1")
        self.completed(job)
        self.assertIn(f"Launching 2 ranks on 2 nodes: run {job}.0, attempt 1 of 1", self.output())
        self.assertEqual(list(self.steps()), [1])

    def test_a_killed_rank_is_restarted_and_goes_on_from_the_checkpoint(self):
        job = self.submit("multinode_trainer.slurm", *self.options("run", 100000), "--checkpoint.enable", "--checkpoint.interval", 2, MAX_RESTARTS="1")
        self.wait_for_step(3, job)
        os.kill(self.ranks_of_job(job)[3], signal.SIGKILL)
        self.cluster.wait_until(lambda: "attempt 2 of 2" in self.output(), "the restart")
        self.assertIn("rank 3 (node 1, process", self.output())
        self.goes_on_after(3, job)


if __name__ == "__main__":
    unittest.main()
