"""`titanium doctor` alone, as the ranks of a job and as its preflight, with faults put in from outside: a rank that is slow, a disk
that is full, a host name that does not exist, limits that are low, links below expectation, data that is missing."""

import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

PROGRAM = os.environ["TITANIUM"]
DROPPED = re.compile(r"(RANK|WORLD_SIZE|LOCAL_.*|GROUP_RANK|MASTER_.*|TORCHELASTIC_.*|SLURM_.*|PET_.*|LOG_RANK)$")
CAP_SYS_ADMIN = 21


def clean_environment(**changes):
    return {name: value for name, value in os.environ.items() if not DROPPED.match(name)} | changes


def free_ports():
    """A port whose successor is free too, where doctor keeps its own store."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
                return port
            except OSError:
                continue


def may_mount():
    status = pathlib.Path("/proc/self/status").read_text()
    effective = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective, 16) >> CAP_SYS_ADMIN & 1)


def skip(test, reason):
    """Says so where run_tests.sh looks."""
    if "TITANIUM_SKIPPED" in os.environ:
        with open(os.environ["TITANIUM_SKIPPED"], "a") as file:
            file.write(f"{test.id()}: {reason}\n")
    test.skipTest(reason)


class DoctorTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.common = ["--storage-mib", "2", "--training.device", "cpu", "--job.dump_folder", folder.name,
                       "--model.hf_assets_path", "tests/assets/tokenizer"]

    def start(self, *options, wrapper=(), preexec_fn=None, **environment):
        return subprocess.Popen([*wrapper, PROGRAM, *map(str, options)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                preexec_fn=preexec_fn, env=clean_environment(**environment))

    def end(self, process, code=0):
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, code, out + err)
        return out

    def doctor(self, *options, code=0, **keywords):
        return self.end(self.start("doctor", *self.common, *options, **keywords), code)

    def ranks(self, size, *options, nodes=1, **keywords):
        """Processes as a launcher without a store of its own would start them."""
        port, per_node = str(free_ports()), size // nodes
        return [self.start("doctor", *self.common, *options, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE=str(size),
                           LOCAL_RANK=str(rank % per_node), LOCAL_WORLD_SIZE=str(per_node), GROUP_RANK=str(rank // per_node), **keywords)
                for rank in range(size)]

    def findings(self, text, check, rank=0):
        return [finding for finding in json.loads(text)["ranks"][rank]["findings"] if finding["check"] == check]

    def test_alone_it_measures_the_machine_and_leaves_nothing(self):
        report = json.loads(self.doctor("--json"))
        self.assertEqual(report["errors"], 0, report)
        found = {finding["check"]: finding for finding in report["ranks"][0]["findings"]}
        self.assertGreaterEqual(set(found), {"libraries", "open files", "locked memory", "shared memory", "name resolution", "cores", "GEMM",
                                             "memory copy", "configuration", "data, tokenizer", "checkpoint folder", "storage", "rename"})
        self.assertGreater(found["GEMM"]["figures"]["gflops"], 0)
        self.assertGreater(found["storage"]["figures"]["write_gbs"], 0)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_the_page_has_a_remedy_for_each_finding_and_goes_to_a_file(self):
        page = self.folder / "page.txt"
        self.assertEqual(self.doctor("--model.hf_assets_path", "no/such/folder", "--output", page, code=1), "")
        text = page.read_text()
        self.assertRegex(text, r"ERROR  data, tokenizer +.*no/such/folder.*\n +-> ")
        self.assertRegex(text, r"\n\d+ errors?, \d+ warnings?\.\n$")

    def test_ranks_of_two_nodes_measure_what_lies_between_them(self):
        processes = self.ranks(4, "--json", nodes=2)
        report = self.end(processes[0])
        self.assertEqual([self.end(process) for process in processes[1:]], ["", "", ""])
        self.assertEqual(json.loads(report)["errors"], 0, report)
        for collective in ("all-reduce", "all-gather", "all-to-all"):
            figures = self.findings(report, "Gloo " + collective)[0]["figures"]
            self.assertEqual(len([name for name in figures if name.startswith("bus_gbs_")]), 3)
            self.assertTrue(all(rate > 0 for rate in figures.values()))
        self.assertRegex(self.findings(report, "Gloo pairs")[0]["fact"], r"6 pair\(s\), middle .* slowest ranks \d and \d")
        self.assertEqual(self.findings(report, "ports")[0]["fact"], "1 other node(s) reached")
        self.assertLess(abs(self.findings(report, "clocks")[0]["figures"]["offset_seconds"]), 1)
        self.assertIn("whole for all ranks", self.findings(report, "rename", rank=3)[0]["fact"])

    def test_a_slow_rank_is_named(self):
        processes = self.ranks(2, "--json")
        ended = threading.Event()

        def slow_down(pid):  # a tenth of the time is left to it
            try:
                while not ended.is_set():
                    os.kill(pid, signal.SIGSTOP)
                    time.sleep(0.09)
                    os.kill(pid, signal.SIGCONT)
                    time.sleep(0.01)
            except ProcessLookupError:
                pass

        brake = threading.Thread(target=slow_down, args=(processes[1].pid,))
        brake.start()
        try:
            report = self.end(processes[0])
        finally:
            ended.set()
            brake.join()
        self.end(processes[1])
        slow = [finding for finding in self.findings(report, "GEMM") if finding["severity"] == "warning"]
        self.assertEqual(len(slow), 1, report)
        self.assertIn("rank 1 on", slow[0]["fact"])

    def test_a_full_disk_is_an_error(self):
        if not may_mount():
            skip(self, "file systems cannot be mounted here")
        disk = self.folder / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)], check=True)
        self.addCleanup(subprocess.run, ["umount", str(disk)], check=True)
        report = self.doctor("--json", "--job.dump_folder", disk, code=1)
        storage = self.findings(report, "storage")[0]
        self.assertEqual(storage["severity"], "error")
        self.assertRegex(storage["fact"], r"^cannot write .*/rank_0 \(No space left on device\)$")

    def test_a_wrong_host_is_an_error_on_every_rank_that_meets_it(self):
        process = self.start("doctor", *self.common, "--json", "--timeout", "3", MASTER_ADDR="no-such-host.invalid", MASTER_PORT="29500", RANK="1",
                             WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", GROUP_RANK="1")
        report = self.end(process, 1)
        facts = [finding["fact"] for finding in json.loads(report)["ranks"][0]["findings"] if finding["severity"] == "error"]
        self.assertTrue(any("no-such-host.invalid cannot be resolved" in fact for fact in facts), facts)
        self.assertTrue(any("no store answers at no-such-host.invalid:29501" in fact for fact in facts), facts)

    def test_low_limits_are_found(self):
        def lower():
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (4096, 4096))

        report = self.doctor("--json", preexec_fn=lower, code=1)
        self.assertEqual(self.findings(report, "open files")[0]["severity"], "error")
        self.assertNotEqual(self.findings(report, "locked memory")[0]["severity"], "fine")

    def test_links_below_expectation_are_a_warning_and_an_error_when_strict(self):
        for strict, code in (((), 0), (("--strict",), 1)):
            processes = self.ranks(2, "--json", "--expect-gbs", "100000", *strict)
            report = self.end(processes[0], code)
            self.end(processes[1], code)
            finding = self.findings(report, "Gloo all-reduce")[0]
            self.assertEqual(finding["severity"], "warning")
            self.assertIn("at least 1e+05 expected", finding["fact"])

    def test_as_preflight_the_run_follows_or_does_not(self):
        train = ["launch", "--nproc-per-node", "2", "--doctor", "--", "train", "--job.config_file", "configs/llama3/debug_model_cpu.toml",
                 "--training.steps", "1", "--training.seq_len", "64", "--training.local_batch_size", "1", "--job.dump_folder", str(self.folder)]
        out = self.end(self.start(*train))
        self.assertRegex(out, r"(?s)titanium doctor: 2 ranks on 1 node.*Gloo all-reduce.*step:  1 ")
        out = self.end(self.start(*train, "--model.hf_assets_path", "no/such/folder"), 1)
        self.assertIn("ERROR  data, tokenizer", out)
        self.assertNotIn("step:", out)

    def test_wrong_command_lines_are_refused(self):
        for arguments, sentence in ((["doctor", "--then", "eval"], "doctor --then is followed by train"),
                                    (["launch", "--doctor", "--", "eval"], "--doctor is for titanium train"),
                                    (["doctor", "--job.dump_foldr", "x"], "job.dump_foldr")):
            process = self.start(*arguments)
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 2, err)
            self.assertIn(sentence, err)


if __name__ == "__main__":
    unittest.main()
