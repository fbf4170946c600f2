"""The pods that deploy/kubernetes/runai_submit.sh asks Run:ai for, as processes (pods.py): started late, killed, and evicted."""

import time
import unittest

import pods


class RunaiTest(pods.PodsCase):
    def test_pods_meet_save_on_an_eviction_and_go_on_after_a_kill(self):
        cluster = self.cluster("runai_submit.sh", steps=100000, arguments=["--checkpoint.interval", "100000"])
        cluster.start(cluster.pods[1])
        time.sleep(0.5)  # the master's pod comes late
        cluster.start(cluster.pods[0])
        cluster.run_until(lambda: len(cluster.steps()) >= 2, "a step")
        self.assertIn("Launching 2 ranks on 2 nodes", cluster.log(0))
        self.assertEqual(cluster.evict(0), 143, cluster.logs())
        self.assertEqual(cluster.pods[1].process.wait(90), 143, cluster.logs())
        self.assertEqual(len(self.saved(cluster)), 1)
        self.goes_on(cluster)
        cluster.kill(1)
        cluster.run_until(lambda: cluster.log(0).count("Loading the checkpoint") == 2 and "step:" in cluster.log(0).rpartition("Loading the checkpoint")[2],
                          "a step of the restarted job")
        self.assertEqual([pod.starts for pod in cluster.pods], [2, 3], cluster.logs())
        self.assertTrue((cluster.folder / "outputs/metrics.jsonl").exists())


if __name__ == "__main__":
    unittest.main()
