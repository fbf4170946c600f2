"""A job whose node is set down queues again and goes on from its last checkpoint."""

import unittest

import slurm_case


class SlurmNodeDownTest(slurm_case.SlurmCase):
    def test_a_job_whose_node_is_set_down_queues_again_and_resumes(self):
        job = self.submit("multinode_trainer.slurm", *self.options("run", 100000), "--checkpoint.enable", "--checkpoint.interval", 2)
        self.wait_for_step(4, job)
        self.cluster.command("scontrol", "update", "nodename=n2", "state=down", "reason=test")
        self.cluster.wait_until(lambda: self.cluster.job(job)["Restarts"] == "1", "the requeue")
        self.cluster.bring_back("n2")
        self.cluster.wait_until(lambda: f"run {job}.1, attempt 1" in self.output(), "the next run")
        self.goes_on_after(2, job)


if __name__ == "__main__":
    unittest.main()
