"""Pods of the manifests in deploy/kubernetes that are killed and made again (pods.py)."""

import unittest

import pods


class PodFailuresTest(pods.PodsCase):
    def test_a_killed_pod_is_made_again_and_the_run_goes_on(self):
        for name, pods_made in (("pytorchjob.yaml", [1, 2]), ("jobset.yaml", [2, 2])):
            with self.subTest(name):
                cluster = self.cluster(name, steps=100000, arguments=["--checkpoint.interval", "2"])
                cluster.start_all()
                cluster.run_until(lambda: self.saved(cluster), "a checkpoint")
                cluster.kill(1)
                self.goes_on(cluster)
                self.assertEqual([pod.starts for pod in cluster.pods], pods_made, cluster.logs())
                cluster.stop()


if __name__ == "__main__":
    unittest.main()
