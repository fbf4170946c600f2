"""What Kubernetes' operators make of the manifests in deploy/kubernetes, as processes (pods.py): pods that start late and in any order, and
jobs that end as configured."""

import time
import unittest

import pods


class PodsTest(pods.PodsCase):
    def test_pods_of_every_kind_train_whatever_the_order_of_their_start(self):
        for name in pods.POLICIES:
            with self.subTest(name):
                older = pods.pytorchjob_pods(pods.read_manifest(name)[0], 2, newer_operator=False) if name == "pytorchjob.yaml" else None
                cluster = self.cluster(name, steps=2, pods=older)
                cluster.start(cluster.pods[1])
                time.sleep(0.5)  # rank 0's pod comes late
                cluster.start(cluster.pods[0])
                self.assertEqual(cluster.run_to_the_end(), [0, 0], cluster.logs())
                self.assertEqual(cluster.steps(), [1, 2])
                self.assertIn("Launching 2 ranks on 2 nodes", cluster.log(0))
                self.assertEqual(self.saved(cluster), [2])

    def test_a_mistake_ends_the_job(self):
        cluster = self.cluster("pytorchjob.yaml", steps=1, arguments=["--training.dataset", "no_such_data"])
        for pod in cluster.pods:
            pod.environment["MAX_RESTARTS"] = "0"
        cluster.start_all()
        cluster.run_to_the_end()
        self.assertTrue(cluster.failed, cluster.logs())
        self.assertIn("no_such_data", cluster.logs())
        self.assertEqual([pod.starts for pod in cluster.pods], [1, 1])


if __name__ == "__main__":
    unittest.main()
