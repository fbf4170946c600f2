"""`titanium doctor` of a run whose checkpoints go to a bucket (a real S3 server): rates of ranks together, and what it says of a bucket that is closed to the run."""

import json
import os
import subprocess
import unittest

import s3_case
import s3_server

TITANIUM = os.environ["TITANIUM"]


class DoctorBucketTest(s3_case.S3Case):
    @classmethod
    def put_objects(cls):
        cls.server.put("runs", "readme.txt", b"a bucket")
        cls.server.put("open", "readme.txt", b"a bucket for readers")

    def doctor(self, folder, *options, ranks=1, code=0, **environment):
        output = self.home / "report.json"
        launch = ["launch", "--nproc-per-node", str(ranks), "--"] if ranks > 1 else []
        words = [TITANIUM, *launch, "doctor", "--json", "--output", output, "--storage-mib", "2", "--training.device", "cpu", "--job.dump_folder", self.home,
                 "--model.hf_assets_path", "tests/assets/tokenizer", "--checkpoint.enable", "--checkpoint.folder", folder, *options]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=100, env=self.environment(**environment))
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertNotIn(s3_server.SECRET, done.stdout + done.stderr + output.read_text())
        return [{finding["check"]: finding for finding in rank["findings"]} for rank in json.loads(output.read_text())["ranks"]]

    def test_ranks_write_read_and_list_the_bucket_and_leave_nothing(self):
        for found in self.doctor("s3://runs/new", ranks=2):
            self.assertGreater(found["bucket"]["figures"]["write_gbs"], 0)
            self.assertGreater(found["bucket"]["figures"]["read_gbs"], 0)
            self.assertEqual(found["list of the bucket"]["fact"], "has the objects of all 2 rank(s)")
            self.assertIn("storage", found)  # of job.dump_folder
        self.assertEqual(self.server.names("runs", "new"), set())

    def test_a_bucket_that_is_closed_to_the_run_is_an_error_with_its_address(self):
        for folder, credentials in (("s3://runs/run", {"secret": "wrong"}), ("s3://open/run", {"key": s3_server.READER_KEY, "secret": s3_server.READER_SECRET})):
            with self.subTest(folder):
                (found,) = self.doctor(folder, code=1, **credentials)
                self.assertEqual(found["bucket"]["severity"], "error")
                self.assertIn(folder, found["bucket"]["fact"])
                self.assertNotIn("list of the bucket", found)

    def test_a_list_with_other_objects_than_those_of_the_ranks_is_an_error(self):
        self.proxy.on_write = lambda method, path: self.server.request("PUT", path.rsplit("/", 1)[0] + "/rank_7", b"left by another") if method == "PUT" else None
        (found,) = self.doctor("s3://runs/other", code=1)
        self.assertRegex(found["list of the bucket"]["fact"], r"^s3://runs/other/titanium_doctor\S+ has the objects of 2 of 1 ranks$")


if __name__ == "__main__":
    unittest.main()
