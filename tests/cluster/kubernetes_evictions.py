"""Pods of the manifests in deploy/kubernetes that are evicted with a grace time, and probed (pods.py)."""

import unittest
import urllib.request

import pods


class PodEvictionsTest(pods.PodsCase):
    def test_an_evicted_pod_lets_the_job_save_and_all_pods_go_on(self):
        for name in ("job.yaml", "jobset.yaml", "pytorchjob.yaml", "trainjob.yaml"):
            with self.subTest(name):
                self.save_and_go_on(name)

    def save_and_go_on(self, name):
        cluster = self.cluster(name, steps=100000, arguments=["--checkpoint.interval", "100000"])
        cluster.start_all(order=[1, 0])
        cluster.run_until(lambda: len(cluster.steps()) >= 2, "a step")
        self.assertEqual(cluster.evict(1), 143, cluster.logs())
        self.assertEqual(cluster.pods[0].process.wait(90), 143, cluster.logs())  # or the job would count as complete
        self.assertEqual(len(self.saved(cluster)), 1)
        self.goes_on(cluster)
        cluster.stop()

    def test_the_probe_of_rank_0_is_answered(self):
        cluster = self.cluster("pytorchjob.yaml", steps=100000)
        port = next(word.split("=")[1] for word in cluster.pods[0].words if word.startswith("--metrics.port="))
        path = pods.read_manifest("pytorchjob.yaml")[0]["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["livenessProbe"]["httpGet"]["path"]
        cluster.start_all()
        cluster.run_until(lambda: len(cluster.steps()) >= 1, "a step")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            self.assertEqual(answer.status, 200)


if __name__ == "__main__":
    unittest.main()
