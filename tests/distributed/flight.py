"""The dumps of the flight recorder name the culprit: to PyTorch's own analyser, and in one sentence to people.

Three processes over Gloo (flight_driver.cpp), of which rank 1 goes wrong; and a run of the program that is asked for dumps.
"""

import os
import pathlib
import pickle
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TITANIUM = os.environ["TITANIUM"]
DRIVER = pathlib.Path(os.environ["TITANIUM_BUILD"]) / "flight_driver"
KEYS = {"frames", "record_id", "pg_id", "process_group", "collective_seq_id", "p2p_seq_id", "op_id", "profiling_name", "time_created_ns",
        "input_sizes", "input_dtypes", "output_sizes", "output_dtypes", "state", "time_discovered_started_ns",
        "time_discovered_completed_ns", "retired", "timeout_ms", "is_p2p"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def analyze(folder):
    return subprocess.run([TITANIUM, "flight", "analyze", folder], capture_output=True, text=True, timeout=60)


class Flight(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def run_ranks(self, fault):
        """Starts three ranks; returns what PyTorch's analyser and ours say about their dumps."""
        port = free_port()
        ranks = [subprocess.Popen([DRIVER, fault, self.folder],
                                  env=dict(os.environ, RANK=str(rank), WORLD_SIZE="3", MASTER_ADDR="127.0.0.1",
                                           MASTER_PORT=str(port)))
                 for rank in range(3)]
        try:
            codes = [rank.wait(timeout=60) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        self.assertEqual(sorted(file.name for file in self.folder.iterdir()), ["rank_0", "rank_1", "rank_2"])
        theirs = subprocess.run([pathlib.Path(sys.executable).parent / "torchfrtrace", self.folder, "-p", "rank_"],
                                capture_output=True, text=True, timeout=120)
        self.assertEqual(theirs.returncode, 0, theirs.stdout + theirs.stderr)
        ours = analyze(self.folder)
        self.assertEqual((ours.returncode, ours.stderr), (0, ""))
        self.assertEqual(len(ours.stdout.splitlines()), 1)
        return codes, theirs.stdout + theirs.stderr, ours.stdout.strip()

    def test_a_job_without_a_fault(self):
        codes, theirs, ours = self.run_ranks("none")
        self.assertEqual(codes, [0, 0, 0])
        self.assertNotIn("Culprit", theirs)
        self.assertNotIn("Not all ranks", theirs)
        self.assertRegex(ours, r"^nothing is wrong: the \d+ collectives and messages of 3 ranks fit together, and nobody waits\.$")
        dump = pickle.loads((self.folder / "rank_2").read_bytes())
        self.assertEqual(dump["version"], "2.10")
        self.assertEqual(dump["pg_config"]["dp"], {"name": "dp", "desc": "dp", "ranks": "[0, 1, 2]"})
        self.assertEqual(dump["pg_status"]["0"], {"last_enqueued_collective": 6, "last_started_collective": 6, "last_completed_collective": 6})
        for index, entry in enumerate(dump["entries"]):
            self.assertLessEqual(KEYS, set(entry))
            self.assertEqual((entry["record_id"], entry["state"]), (index, "completed"))
            self.assertLessEqual(entry["time_created_ns"], entry["time_discovered_started_ns"])
            self.assertLessEqual(entry["time_discovered_started_ns"], entry["time_discovered_completed_ns"])
        first = dump["entries"][0]
        self.assertEqual((first["profiling_name"], first["process_group"], first["collective_seq_id"], first["input_sizes"],
                          first["input_dtypes"], first["timeout_ms"], first["step"]),
                         ("nccl:all_reduce", ("dp", "dp"), 1, [[8]], ["Float"], 3000, 1))

    def test_a_mismatched_collective(self):
        _, theirs, ours = self.run_ranks("mismatched")
        self.assertRegex(theirs, r"Culprit rank 1; Error type: COLLECTIVE_TYPE_MISMATCH")
        self.assertNotRegex(theirs, r"Culprit rank [02]")
        self.assertEqual(ours, "rank 1 called all_gather of [8] Float where ranks 0 and 2 called all_reduce of [8] Float: collective 6 on axis dp, step 3.")

    def test_a_missing_collective(self):
        codes, theirs, ours = self.run_ranks("missing")
        self.assertEqual(codes, [1, 1, 1])
        self.assertIn("Not all ranks joining collective, sequence number: 6", theirs)
        self.assertIn("missing ranks: {1}", theirs)
        self.assertEqual(ours, "rank 1 left out collective 6 on axis dp, step 3 (all_reduce of [8] Float), for which ranks 0 and 2 wait, and waits "
                               "itself in collective 3 on axis tp, step 3 (barrier) for ranks 0 and 2.")

    def test_a_hanging_rank(self):
        codes, theirs, ours = self.run_ranks("hanging")
        self.assertEqual(codes, [1, 1, 1])
        self.assertIn("Not all ranks joining collective, sequence number: 6", theirs)
        self.assertIn("missing ranks: {1}", theirs)
        self.assertIn("training step 3", theirs)
        self.assertEqual(ours, "rank 1 did not join collective 6 on axis dp, step 3 (all_reduce of [8] Float), for which ranks 0 and 2 wait; the last "
                               "that it began was all_reduce of [8] Float, collective 5 on axis dp, step 3, which is completed.")
        (self.folder / "rank_1").unlink()
        self.assertRegex(analyze(self.folder).stdout, r"^rank 1 did not join collective 6 on axis dp, .* for which ranks 0 and 2 wait; rank 1 left "
                                                      r"no dump, as a rank does that was killed or stopped\.\n$")

    def test_a_message_that_nobody_receives(self):
        _, theirs, ours = self.run_ranks("messages")
        self.assertIn("missing ranks: {1}", theirs)
        self.assertIn("group info: pp 0->1:pp", theirs)
        self.assertRegex(ours, "^rank 1 did not join ")

    def test_folders_without_dumps_and_damaged_ones_are_refused(self):
        empty = analyze(self.folder)
        self.assertEqual(empty.returncode, 2)
        self.assertIn("has no dumps of a flight recorder (rank_0, rank_1, ...). Give the folder comm.save_traces_folder", empty.stderr)
        (self.folder / "rank_0").write_bytes(b"no pickle")
        self.assertEqual(analyze(self.folder).returncode, 1)
        (self.folder / "rank_0").write_bytes(pickle.dumps({"entries": 3}, protocol=2))
        damaged = analyze(self.folder)
        self.assertEqual(damaged.returncode, 1)
        self.assertRegex(damaged.stderr, r"rank_0 is no dump of a flight recorder: .*pg_config")

    def test_names_in_dumps_do_not_steer_the_terminal(self):
        entry = {"record_id": 0, "process_group": ("a\x1b[2Jb", "a\x1b[2Jb"), "collective_seq_id": 1, "profiling_name": "nccl:all_reduce",
                 "time_created_ns": 1, "input_sizes": [[1]], "input_dtypes": ["Float"], "output_sizes": [[1]], "state": "started", "is_p2p": False}
        dump = {"pg_config": {"a\x1b[2Jb": {"ranks": "[0, 1]"}}, "entries": [entry]}
        (self.folder / "rank_0").write_bytes(pickle.dumps(dump, protocol=2))
        self.assertIn(r"collective 1 on axis a\x1b[2Jb (all_reduce of [1] Float), for which rank 0 waits", analyze(self.folder).stdout)

    def test_a_running_job_writes_dumps_when_it_is_asked(self):
        """SIGUSR2 to the launcher reaches all ranks, which go on; dumps of the run before are set aside."""
        traces = self.folder / "comm_traces"
        traces.mkdir()
        (traces / "rank_7").write_text("old")
        command = [TITANIUM, "launch", "--nproc-per-node", "2", "--", "train", f"--job.config_file={ROOT}/configs/llama3/debug_model.toml",
                   f"--model.hf_assets_path={ROOT}/tests/assets/tokenizer", "--training.dataset=c4_test",
                   f"--training.dataset_path={ROOT}/tests/assets/c4_test", "--training.seq_len=16", "--training.local_batch_size=1",
                   "--training.steps=100000", "--training.device=cpu", "--metrics.log_freq=1", "--metrics.disable_color_printing",
                   f"--job.dump_folder={self.folder}"]
        output, steps_after = "", 0
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
            for line in job.stdout:
                output += line
                if re.search(r"step:  2 ", line):
                    job.send_signal(signal.SIGUSR2)
                if "Wrote the last collectives to" in output and "step:" in line:
                    steps_after += 1
                    if steps_after == 3:
                        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.returncode, 0, output)
        self.assertEqual(sorted(file.name for file in traces.iterdir()), ["rank_0", "rank_1"], output)
        self.assertEqual((self.folder / "comm_traces_previous/rank_7").read_text(), "old")
        names = {entry["profiling_name"] for entry in pickle.loads((traces / "rank_1").read_bytes())["entries"]}
        self.assertLessEqual({"nccl:_all_gather_base", "nccl:_reduce_scatter_base", "nccl:all_reduce"}, names)
        self.assertEqual(analyze(traces).returncode, 0)


if __name__ == "__main__":
    unittest.main()
