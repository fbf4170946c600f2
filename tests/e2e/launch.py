"""`titanium launch` as a user meets it, with small scripts as ranks: environment, output, failures, restarts, nodes."""

import concurrent.futures
import errno
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid

from free_ports import free_port

PROGRAM = os.environ["TITANIUM"]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MARKER = "TITANIUM_LAUNCH_TEST"  # what the launchers of one test start carries its value

# Writes what it was given, and reads commands from its arguments. Python, since it must not have children.
WORKER = """
import json, os, signal, sys, time
rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
def waits(): time.sleep(300)
exec(sys.argv[1])
"""


def clean_environment(**changes):
    dropped = re.compile(r"(RANK|WORLD_SIZE|LOCAL_.*|GROUP_RANK|MASTER_.*|TORCHELASTIC_.*|SLURM_.*|PET_.*|LOG_RANK|OMP_NUM_THREADS)$")
    return {name: value for name, value in os.environ.items() if not dropped.match(name)} | changes


def listens(host, port):
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def entry(text):
    """Of c10d's store, as it travels."""
    return struct.pack("<Q", len(text)) + text


def beats(endpoint, node):
    """How often the launcher of a node has made itself heard in the first attempt; what c10d's ADD of 0 gives back."""
    host, port = endpoint.split(":")
    try:
        with socket.create_connection((host, int(port))) as client:
            client.sendall(struct.pack("<BI", 0, 0x3C85F7CE) + b"\4" + entry(f"/launch/0/beat/{node}".encode()) + struct.pack("<q", 0))
            return struct.unpack("<q", client.recv(8, socket.MSG_WAITALL))[0]
    except (ConnectionError, struct.error):
        return 0


class LaunchTest(unittest.TestCase):
    def setUp(self):
        self.marker = uuid.uuid4().hex
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, script, *options, before=(), **environment):
        """A launcher whose ranks run the Python text `script`. `before`: a command that becomes the launcher."""
        command = [*before, PROGRAM, "launch", *map(str, options), "--program", sys.executable, "--", "-c", WORKER, script]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=clean_environment(**{MARKER: self.marker}, **environment))
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def end(self, launcher, code):
        """stdout and stderr of a launcher that is to end with `code`, and to leave nothing behind."""
        out, err = launcher.communicate(timeout=120)
        self.assertEqual(launcher.returncode, code, out + err)
        return out, err

    def launch(self, script, *options, code=0, **environment):
        out, err = self.end(self.start(script, *options, **environment), code)
        self.assertEqual(self.processes(), [])
        return out, err

    def refused(self, *arguments):
        result = subprocess.run([PROGRAM, "launch", *arguments], capture_output=True, text=True, env=clean_environment())
        self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
        return result.stderr

    def processes(self):
        """Processes of this test that are alive."""
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARKER}={self.marker}".encode() in (folder / "environ").read_bytes():
                    found.append(folder.name)
            except OSError:
                pass
        return found

    def wait_until(self, condition):
        deadline = time.monotonic() + 120
        while not condition():
            self.assertLess(time.monotonic(), deadline, "nothing happened")
            time.sleep(0.02)

    def ranks_of(self, text):
        return sorted(set(re.findall(r"^\[rank(\d+)\]:", text, re.MULTILINE)))

    # One node

    def test_ranks_get_the_environment_of_torchrun(self):
        out, _ = self.launch("print(json.dumps(dict(os.environ)))", "--nproc_per_node=3", "--log_rank", "0,1,2", "--run-id", "r1")
        worlds = {}
        for line in out.splitlines():
            found = re.match(r"\[rank(\d)\]:(\{.*)", line)
            if found:
                worlds[int(found.group(1))] = json.loads(found.group(2))
        self.assertEqual(sorted(worlds), [0, 1, 2])
        for rank, world in worlds.items():
            expected = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 3, "LOCAL_WORLD_SIZE": 3, "GROUP_RANK": 0,
                        "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_RUN_ID": "r1",
                        "TORCHELASTIC_USE_AGENT_STORE": True, "OMP_NUM_THREADS": max(1, len(os.sched_getaffinity(0)) // 3)}
            self.assertEqual({name: world.get(name) for name in expected}, {name: str(value) for name, value in expected.items()})
            self.assertEqual(world["MASTER_PORT"], worlds[0]["MASTER_PORT"])

    def test_cpu_is_a_rank_for_each_core_that_the_launcher_may_use(self):
        core = str(min(os.sched_getaffinity(0)))
        out, _ = self.launch('print(os.environ["WORLD_SIZE"])', "--nproc-per-node", "cpu", before=("taskset", "-c", core))
        self.assertIn("[rank0]:1\n", out)

    def test_ends_of_ranks_are_noticed_where_the_parent_ignores_them(self):
        self.launch("sys.exit(0)", "--nproc-per-node", 2, before=("bash", "-c", 'trap "" CHLD; exec "$@"', "bash"))

    def test_only_the_chosen_ranks_are_shown_and_all_are_logged(self):
        script = 'print("out", rank); sys.stderr.write(f"err {rank}")'
        for options, environment, shown in (([], {}, ["0"]), ([], {"LOG_RANK": "1,2"}, ["1", "2"]), (["--log-rank", "2"], {"LOG_RANK": "1"}, ["2"])):
            out, err = self.launch(script, "--nproc-per-node", 3, "--log-dir", self.folder, "--run-id", "r" + shown[0], *options, **environment)
            self.assertEqual((self.ranks_of(out), self.ranks_of(err)), (shown, shown))
            self.assertIn(f"[rank{shown[0]}]:err {shown[0]}\n", err)
            for rank in range(3):
                logs = self.folder / ("r" + shown[0]) / "attempt_0" / str(rank)
                self.assertEqual((logs / "stdout.log").read_text(), f"out {rank}\n")
                self.assertEqual((logs / "stderr.log").read_text(), f"err {rank}")

    def test_the_first_failure_is_named_with_its_last_lines(self):
        script = """
if rank == 2:
    for i in range(30): print("line", i)
    sys.exit(7)
time.sleep(5); sys.exit(9)"""
        out, err = self.launch(script, "--nproc-per-node", 4, code=7)
        self.assertRegex(err, r"(?m)^titanium launch: rank 2 \(node 0, process \d+\) failed first: exit code 7\. Its last lines:$")
        self.assertEqual(re.findall(r"\[rank2\]:line (\d+)", err), [str(i) for i in range(10, 30)])
        self.assertNotIn("[rank2]", out)

    def test_a_killed_rank_takes_the_job_along(self):
        # Rank 0 does not listen to SIGTERM either.
        script = "signal.signal(signal.SIGTERM, signal.SIG_IGN) if rank == 0 else None\nos.kill(os.getpid(), signal.SIGKILL) if rank == 1 else waits()"
        _, err = self.launch(script, "--nproc-per-node", 3, code=137)
        self.assertIn("rank 1", err)
        self.assertIn("failed first: SIGKILL. If nobody sent it, the kernel did because the machine ran out of memory", err)

    def test_a_restart_is_a_new_attempt_of_all_ranks(self):
        script = 'print("attempt", attempt)\nif attempt == 0: sys.exit(3 if rank == 1 else 0)'
        out, err = self.launch(script, "--nproc-per-node", 2, "--max-restarts", 2, "--log-dir", self.folder, "--run-id", "r")
        self.assertIn("[rank0]:attempt 0\n", out)
        self.assertIn("WARNING - Restarting all ranks: 1 of 2 restarts\n", out)
        self.assertIn("[rank0]:attempt 1\n", out)
        self.assertIn("rank 1", err)
        self.assertEqual((self.folder / "r/attempt_1/1/stdout.log").read_text(), "attempt 1\n")
        self.launch("sys.exit(4)", "--max-restarts", 1, code=4)

    def test_signals_are_forwarded_and_end_the_job_without_restart(self):
        script = """
def stop(number, frame): os.write(1, b"stopped\\n"); sys.exit(0)
signal.signal(signal.SIGINT, stop)
print("ready", flush=True); waits()"""
        for number, code, line in ((signal.SIGINT, 0, "stopped"), (signal.SIGTERM, 143, "ready")):
            launcher = self.start(script, "--nproc-per-node", 2, "--max-restarts", 3, "--log-dir", self.folder, "--run-id", number.name)
            logs = [self.folder / number.name / "attempt_0" / rank / "stdout.log" for rank in "01"]
            self.wait_until(lambda: all(log.exists() and "ready" in log.read_text() for log in logs))
            launcher.send_signal(number)
            out, err = self.end(launcher, code)
            self.assertNotIn("Restarting", out)
            for log in logs:
                self.assertIn(line, log.read_text())
        self.assertEqual(self.processes(), [])

    def test_nothing_outlives_a_killed_launcher(self):
        launcher = self.start("waits()", "--nproc-per-node", 3)
        self.wait_until(lambda: len(self.processes()) == 4)
        launcher.kill()
        self.end(launcher, -signal.SIGKILL)
        self.wait_until(lambda: self.processes() == [])

    def test_what_a_rank_leaves_behind_ends_with_it(self):
        self.launch('import subprocess; subprocess.Popen(["sleep", "300"])', "--nproc-per-node", 2)

    def test_titanium_itself_is_started_without_a_program(self):
        command = [PROGRAM, "launch", "--standalone", "--nproc-per-node", "2", "--", "config", "check", "configs/llama3/debug_model.toml"]
        result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=clean_environment())
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("[rank0]:configs/llama3/debug_model.toml is valid.\n", result.stdout)

    def test_wrong_command_lines_are_refused(self):
        self.assertIn("nothing to start", self.refused("--nproc-per-node", "2"))
        self.assertIn("--nproc-per-node many", self.refused("--nproc-per-node", "many", "--", "train"))
        self.assertIn("--node-rank 2", self.refused("--nnodes", "2", "--node-rank", "2", "--rdzv-endpoint", "a:1", "--", "train"))
        self.assertIn("--rdzv-endpoint", self.refused("--nnodes", "2", "--", "train"))
        self.assertIn("--rdzv-endpoint a:b", self.refused("--nnodes", "2", "--rdzv-endpoint", "a:b", "--", "train"))
        self.assertIn("--log-rank 5", self.refused("--nproc-per-node", "2", "--log-rank", "5", "--", "train"))
        self.assertIn("--program /no/such", self.refused("--program", "/no/such", "--"))

    # Several nodes

    def nodes(self, script, count, *options, address="127.0.0.1", port=None):
        endpoint = f"{address}:{port or free_port()}"
        return [self.start(script, "--nnodes", count, "--node-rank", node, "--rdzv-endpoint", endpoint, *options) for node in range(count)]

    def test_two_nodes_are_one_job(self):
        script = 'print(os.environ["RANK"], os.environ["LOCAL_RANK"], os.environ["GROUP_RANK"], os.environ["WORLD_SIZE"], os.environ["MASTER_ADDR"], os.environ["TORCHELASTIC_RUN_ID"])'
        port = free_port()
        launchers = self.nodes(script, 2, "--nproc-per-node", 4, "--log-rank", "0,1,2,3,4,5,6,7", "--log-dir", self.folder, address="127.0.0.2", port=port)
        text = "".join(self.end(launcher, 0)[0] for launcher in launchers)
        lines = sorted(re.findall(r"^\[rank\d\]:(.*)$", text, re.MULTILINE))
        run_id = lines[0].split()[-1]
        self.assertEqual(lines, [f"{rank} {rank % 4} {rank // 4} 8 127.0.0.2 {run_id}" for rank in range(8)])
        with socket.socket() as probe:
            self.assertEqual(probe.connect_ex(("127.0.0.2", port)), errno.ECONNREFUSED, "the store's port is still open")
        self.assertEqual(sorted(path.name for path in (self.folder / run_id / "attempt_0").iterdir()), list("01234567"))

    def test_requests_to_ranks_do_not_end_a_launcher_that_waits_for_nodes(self):
        endpoint = f"127.0.0.1:{free_port()}"
        launchers = [self.start("pass", "--nnodes", 2, "--node-rank", 0, "--rdzv-endpoint", endpoint)]
        address = endpoint.split(":")
        self.wait_until(lambda: listens(address[0], int(address[1])))
        for request in (signal.SIGUSR1, signal.SIGUSR2):
            launchers[0].send_signal(request)
        launchers.append(self.start("pass", "--nnodes", 2, "--node-rank", 1, "--rdzv-endpoint", endpoint))
        for launcher in launchers:
            self.end(launcher, 0)

    def test_all_nodes_restart_together(self):
        script = """
if attempt == 0 and rank == 5: print("trouble"); sys.exit(3)
if attempt == 0 and rank < 4: time.sleep(5); sys.exit(5)  # as ranks do that miss a peer
print("fine")"""
        first, second = [self.end(launcher, 0) for launcher in self.nodes(script, 2, "--nproc-per-node", 4, "--max-restarts", 1)]
        for out, err in (first, second):
            self.assertIn("Restarting all ranks: 1 of 1 restarts", out)
            self.assertRegex(err, r"rank 5 \(node 1, process \d+\) failed first: exit code 3")
            self.assertIn("[rank5]:trouble", err)
        self.assertIn("[rank0]:fine", first[0])
        self.assertEqual(self.processes(), [])

    def test_the_last_failure_is_the_exit_code_of_all_nodes(self):
        script = "sys.exit(6) if rank == 1 else None"
        for launcher in self.nodes(script, 2):
            self.assertIn("rank 1 (node 1", self.end(launcher, 6)[1])

    def test_a_launcher_that_was_started_anew_joins_the_restart(self):
        script = 'print("attempt", attempt, flush=True)\nif attempt == 0: waits() if rank == 1 else (time.sleep(2), sys.exit(5))'
        endpoint = f"127.0.0.1:{free_port()}"
        options = ("--nnodes", 2, "--rdzv-endpoint", endpoint, "--max-restarts", 1, "--log-rank", "0,1", "--node-rank")
        first, lost = (self.start(script, *options, node) for node in range(2))
        self.assertIn("[rank1]:attempt 0", [lost.stdout.readline().strip() for _ in range(2)])
        lost.kill()
        self.end(lost, -signal.SIGKILL)
        while "Restarting all ranks" not in (line := first.stdout.readline()):
            self.assertNotEqual(line, "", "the first launcher has ended")
        anew = self.start(script, *options, 1)
        self.assertIn("[rank0]:attempt 1\n", self.end(first, 0)[0])
        self.assertIn("[rank1]:attempt 1\n", self.end(anew, 0)[0])

    def killed(self, launcher):
        launcher.kill()
        self.end(launcher, -signal.SIGKILL)

    def test_a_launcher_that_comes_before_anybody_missed_its_predecessor_joins_the_next_attempt(self):
        script = 'print("attempt", attempt, flush=True)\nif attempt == 0: waits()'  # nothing but the successor tells rank 0 of the loss
        endpoint = f"127.0.0.1:{free_port()}"
        options = ("--nnodes", 2, "--rdzv-endpoint", endpoint, "--max-restarts", 1, "--log-rank", "0,1", "--node-rank")
        first, lost = (self.start(script, *options, node) for node in range(2))
        self.assertIn("[rank1]:attempt 0", [lost.stdout.readline().strip() for _ in range(2)])
        self.killed(lost)
        anew = self.start(script, *options, 1)
        out, err = self.end(first, 0)
        self.assertIn("node 1 is lost: its launcher", err)
        self.assertIn("[rank0]:attempt 1\n", out)
        self.assertIn("[rank1]:attempt 1\n", self.end(anew, 0)[0])

    def test_a_launcher_whose_predecessor_only_waited_takes_its_place(self):
        endpoint = f"127.0.0.1:{free_port()}"
        options = ("--nnodes", 3, "--rdzv-endpoint", endpoint, "--log-rank", "0,1,2", "--node-rank")
        script = 'print("attempt", attempt)'
        first, lost = (self.start(script, *options, node) for node in range(2))
        self.wait_until(lambda: beats(endpoint, 1) > 0)
        self.killed(lost)
        for launcher in (first, self.start(script, *options, 1), self.start(script, *options, 2)):
            self.assertIn(":attempt 0\n", self.end(launcher, 0)[0])

    def test_a_second_living_launcher_of_a_node_is_refused(self):
        for nodes in (3, 2):  # while the first one waits for others, and while its ranks run
            endpoint = f"127.0.0.1:{free_port()}"
            options = ("--nnodes", nodes, "--rdzv-endpoint", endpoint, "--log-rank", "0,1", "--node-rank")
            launchers = [self.start("waits()", *options, node) for node in range(2)]
            self.wait_until(lambda: beats(endpoint, 1) > 0)
            _, err = self.end(self.start("waits()", *options, 1), 2)
            self.assertIn(f"another launcher at {endpoint} has --node-rank 1. Give every node its own, from 0 to {nodes - 1}.", err)
            for launcher in launchers:
                launcher.kill()  # all, before one of them misses another
            for launcher in launchers:
                self.end(launcher, -signal.SIGKILL)

    def test_a_lost_node_0_ends_the_others_with_the_code_that_asks_for_a_new_start(self):
        for options, code, end in (((), 1, ""), (("--stop-code", 143), 143, r" Exit code 143\.")):
            first, second = self.nodes('print("ready", flush=True); waits()', 2, "--log-rank", "0,1", *options)
            self.assertIn("[rank1]:ready", [second.stdout.readline().strip() for _ in range(2)])
            self.killed(first)
            _, err = self.end(second, code)
            self.assertRegex(err, rf"(?m)^titanium( launch)?: node 0's launcher is gone, so this one ends too: the store at .* does not answer: .*{end}$")

    def test_missing_nodes_are_named(self):
        endpoint = f"127.0.0.1:{free_port()}"
        common = ("--nnodes", 3, "--rdzv-endpoint", endpoint, "--rdzv-timeout", 1, "--node-rank")
        first = self.start("", *common, 0)
        _, err = self.end(first, 1)
        self.assertIn(f"of 3 nodes, these did not arrive at {endpoint} within 1 s: 1, 2.", err)
        _, err = self.end(self.start("", *common, 2), 1)
        self.assertIn(f"node 0 is missing: no store answers at {endpoint} within 1 s: Connection refused.", err)

    def test_nodes_that_contradict_each_other_are_refused(self):
        endpoint = f"127.0.0.1:{free_port()}"
        common = ("--nnodes", 2, "--rdzv-endpoint", endpoint, "--rdzv-timeout", 20)
        launchers = [self.start("", *common, "--node-rank", node, "--nproc-per-node", node + 1) for node in range(2)]
        errors = "".join(self.end(launcher, 2)[1] for launcher in launchers[:1])
        launchers[1].communicate(timeout=60)
        self.assertIn("node 1 was started with --nproc-per-node 2, node 0 with 1", errors)

    def test_a_host_that_is_no_launcher_is_one_sentence_in_time(self):
        def refusal(endpoint, code, *options, node=1):
            _, err = self.end(self.start("", "--nnodes", 2, "--node-rank", node, "--rdzv-endpoint", endpoint, *options), code)
            self.assertEqual(err.count("\n"), 1, err)
            return err
        patience = ("--rdzv-timeout", 2)
        self.assertRegex(refusal("no-such-host.invalid:29500", 1, *patience),
                         r"node 0 is missing: no store answers at no-such-host.invalid:29500 within 2 s: the host name cannot be resolved")
        self.assertIn("the host name no-such-host.invalid cannot be resolved", refusal("no-such-host.invalid:29500", 2, node=0))
        self.assertIn("192.0.2.1 is not an address of this machine", refusal("192.0.2.1:29500", 2, node=0))
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server, \
                socket.create_server(("127.0.0.1", 0)) as silent:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            for port in (server.server_address[1], silent.getsockname()[1]):
                self.assertRegex(refusal(f"127.0.0.1:{port}", 1, *patience),
                                 rf"no store answers at 127.0.0.1:{port} within 2 s: what listens there is no store \(it answers with .*\)\. ")
            server.shutdown()

    def test_the_store_is_open_at_the_given_address_alone(self):
        port = free_port()
        launchers = self.nodes("waits()", 2, port=port)
        self.wait_until(lambda: len(self.processes()) == 4)
        with socket.create_connection(("127.0.0.1", port)):
            pass
        for family, other in ((socket.AF_INET, "127.0.0.3"), (socket.AF_INET6, "::1")):
            try:
                probe = socket.socket(family)
            except OSError:
                continue  # a kernel without IPv6
            with probe:
                self.assertNotEqual(probe.connect_ex((other, port)), 0, f"{other} is open")
        for launcher in launchers:
            launcher.terminate()
            self.end(launcher, 143)

    def test_what_strangers_write_into_the_store_is_refused_in_words(self):
        for key, value in ((b"/launch/0/failure", b"no JSON"), (b"/launch/0/failure", b'{"node": 0}'), (b"/launch/0/failure", b"[" * 100000)):
            port = free_port()
            launchers = self.nodes("waits()", 2, port=port)
            self.wait_until(lambda: len(self.processes()) == 4)
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(struct.pack("<BI", 0, 0x3C85F7CE) + b"\1" + entry(key) + entry(value))  # c10d's VALIDATE, then SET
            for launcher in launchers:
                _, err = self.end(launcher, 1)
                self.assertRegex(err, rf"(?m)^titanium: what the store at 127.0.0.1:{port} holds under launch/0/failure was not written by a launcher\.")
                self.assertNotIn("terminate", err)
            self.assertEqual(self.processes(), [])

    def test_many_sigterms_are_one_request(self):
        script = """
def stop(number, frame): os.write(1, b"asked\\n"); time.sleep(1); os.write(1, b"saved\\n"); sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True); waits()"""
        launcher = self.start(script)
        while "ready" not in launcher.stdout.readline():
            pass
        while launcher.poll() is None:
            launcher.send_signal(signal.SIGTERM)
            time.sleep(0.01)
        out, _ = self.end(launcher, 0)
        self.assertEqual((out.count("asked"), out.count("saved")), (1, 1), out)

    def test_a_sigterm_after_a_stop_elsewhere_is_the_same_request(self):
        asked = self.folder / "asked"
        script = f"""
def stop(number, frame): open({str(asked)!r}, "w"); time.sleep(0.5); sys.exit(0)
if rank == 1: signal.signal(signal.SIGTERM, stop)
print("ready", flush=True); waits()"""
        first, second = nodes = self.nodes(script, 2, "--log-rank", "0,1")
        for node in nodes:
            while "ready" not in node.stdout.readline():
                pass
        first.terminate()
        self.wait_until(asked.exists)
        first.send_signal(signal.SIGSTOP)  # the store answers no more, so that the other launcher does not come to its end
        self.wait_until(lambda: len(self.processes()) == 2)  # launchers without ranks
        second.terminate()
        time.sleep(0.2)
        first.send_signal(signal.SIGCONT)
        for node in nodes:
            self.end(node, 143)

    def test_a_stop_gives_all_nodes_the_exit_code_that_was_asked_for(self):
        script = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", flush=True)
if rank == 1: waits()
while not os.path.exists(os.environ["STOPPED"]): time.sleep(0.05)"""
        stopped, endpoint = self.folder / "stopped", f"127.0.0.1:{free_port()}"
        nodes = [self.start(script, "--nnodes", 2, "--node-rank", node, "--rdzv-endpoint", endpoint, "--stop-code", 75, "--log-rank", "0,1",
                            STOPPED=str(stopped)) for node in (0, 1)]
        while "ready" not in nodes[1].stdout.readline():
            pass
        nodes[1].send_signal(signal.SIGTERM)
        stopped.touch()  # rank 0 ends by itself, as one that all ranks have agreed to stop
        self.assertIn("Stopped on request: exit code 75", self.end(nodes[0], 75)[0])
        self.end(nodes[1], 75)
        self.launch("pass", "--stop-code", 75)
        self.assertIn("--stop-code 256 should be from 0 to 255", self.refused("--stop-code", "256", "--", "train"))

    def test_a_log_that_cannot_be_written_does_not_end_the_job(self):
        limit = ["bash", "-c", 'ulimit -f 1; trap "" XFSZ; exec "$@"', "bash"]
        script = 'print("x" * 5000, flush=True)'
        command = [*limit, PROGRAM, "launch", "--log-dir", self.folder, "--log-rank", "0", "--program", sys.executable, "--", "-c", WORKER, script]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"WARNING - .*/stdout.log cannot be written: File too large")
        self.assertRegex(done.stdout, r"WARNING - .*/stdout.log ends too early: 3,977 bytes could not be written")

    # Other launchers

    def test_real_torchrun_starts_titanium(self):
        torchrun = pathlib.Path(sys.executable).parent / "torchrun"
        config = "configs/llama3/debug_model_cpu.toml"
        command = [sys.executable, torchrun, "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2", "--no-python", PROGRAM, "config", "check", config]
        result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=clean_environment())
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.count(f"{config} is valid."), 2, result.stdout)


def main():
    """All tests, four at a time: they mostly wait."""
    failures = []
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for test, part in pool.map(lambda test: (test, test.run(unittest.TestResult())), unittest.defaultTestLoader.loadTestsFromTestCase(LaunchTest)):
            failures += part.failures + part.errors
            print("ok    " if part.wasSuccessful() else "FAILED", test.id())
    for _, trace in failures:
        print(trace)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
