"""Jobs whose time is over before they have ended: they save, queue again and go on in their next run."""

import unittest

import slurm_case


class SlurmTimeLimitTest(slurm_case.SlurmCase):
    def saved(self):
        return {path.name for path in (self.folder / "run/checkpoint").glob("step-*")}

    def stop_before_the_end(self, script, *sbatch):
        job = self.submit(script, *self.options("run", 100000), "--checkpoint.enable", "--checkpoint.interval", 100000, sbatch=sbatch)
        self.wait_for_step(2, job)
        # What `#SBATCH --signal=B:USR1@120` does 120 s before the end. SLURM then signals every process of the step at once.
        self.cluster.command("scancel", "--batch", "--signal=USR1", job)
        self.cluster.wait_until(lambda: self.cluster.job(job)["Restarts"] == "1", "the requeue")
        self.assertIn("The time is over: the step ended with code 0;", self.output(), self.output() + self.logs())
        self.assertEqual(len(self.saved()), 1, self.output() + self.logs())
        self.goes_on_after(int(self.saved().pop().removeprefix("step-")), job)

    def test_before_its_time_is_over_a_job_of_launchers_saves_and_goes_on_in_its_next_run(self):
        self.stop_before_the_end("multinode_trainer.slurm")

    def test_before_its_time_is_over_a_job_of_ranks_saves_and_goes_on_in_its_next_run(self):
        self.stop_before_the_end("multinode_ranks.slurm", "--ntasks-per-node=2")


if __name__ == "__main__":
    unittest.main()
