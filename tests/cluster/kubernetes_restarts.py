"""The pod of node 0, which keeps the store of the job, is killed in jobs whose pods are all made again then (pods.py)."""

import unittest

import pods


class RestartOfAllPodsTest(pods.PodsCase):
    def test_the_run_goes_on(self):
        for name in ("jobset.yaml", "trainjob.yaml"):
            with self.subTest(name):
                self.goes_on_without_pod_0(name)


if __name__ == "__main__":
    unittest.main()
