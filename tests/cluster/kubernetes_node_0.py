"""The pod of node 0, which keeps the store of the job, is killed in jobs whose pods are made again one by one (pods.py). The other pod ends with
STOP_CODE, for which it is made again too."""

import unittest

import pods


class KilledNode0Test(pods.PodsCase):
    def test_all_pods_meet_again_and_the_run_goes_on(self):
        for name in ("pytorchjob.yaml", "job.yaml", "runai_submit.sh"):
            with self.subTest(name):
                cluster = self.goes_on_without_pod_0(name)
                self.assertIn("node 0's launcher is gone, so this one ends too", cluster.log(1))
                self.assertIn("Exit code 143.", cluster.log(1))


if __name__ == "__main__":
    unittest.main()
