"""Two nodes that are hosts of their own, each a network namespace of this machine, and whose own names mean loopback, as they often do: ranks meet by the
addresses between the hosts."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import skipped

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import check_test_run  # noqa: E402

PROGRAM = os.path.abspath(os.environ["TITANIUM"])
DROPPED = re.compile(r"(RANK|WORLD_SIZE|LOCAL_.*|GROUP_RANK|MASTER_.*|TORCHELASTIC_.*|SLURM_.*|PET_.*|LOG_RANK|.*_SOCKET_IFNAME)$")
ADDRESSES = ["10.213.7.1", "10.213.7.2"]


class TwoHostsTest(unittest.TestCase):
    def setUp(self):
        if not check_test_run.has_namespaces():
            skipped.skip(self, "network namespaces cannot be made here")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.hosts = [f"titanium-{os.getpid()}-{node}" for node in range(2)]
        links = [f"ti{os.getpid()}{side}" for side in "ab"]
        for host in self.hosts:
            self.ip("netns", "add", host)
            self.addCleanup(self.ip, "netns", "delete", host)  # and the link with them
        self.ip("link", "add", links[0], "netns", self.hosts[0], "type", "veth", "peer", "name", links[1], "netns", self.hosts[1])
        for host, link, address in zip(self.hosts, links, ADDRESSES):
            self.ip("-n", host, "link", "set", "lo", "up")
            self.ip("-n", host, "address", "add", address + "/24", "dev", link)
            self.ip("-n", host, "link", "set", link, "up")

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def start(self, node, *words):
        inside = ["unshare", "--uts", "sh", "-c", 'hostname localhost && exec "$@"', "sh"]
        environment = {name: value for name, value in os.environ.items() if not DROPPED.match(name)} | {"LOGLEVEL": "DEBUG", "LOG_RANK": str(node)}
        process = subprocess.Popen(["ip", "netns", "exec", self.hosts[node], *inside, PROGRAM, "launch", "--nnodes", "2", "--node-rank", str(node),
                                    "--rdzv-endpoint", f"{ADDRESSES[0]}:29500", "--", *words],
                                   cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_ranks_train_over_the_network_between_the_hosts(self):
        words = ["train", "--job.config_file", "configs/llama3/debug_model_cpu.toml", "--job.dump_folder", str(self.folder), "--training.steps", "2",
                 "--training.seq_len", "32", "--training.local_batch_size", "1", "--comm.init_timeout_seconds", "60", "--comm.train_timeout_seconds", "60"]
        nodes = [self.start(node, *words) for node in range(2)]
        texts = [node.communicate(timeout=180)[0] for node in nodes]
        self.assertEqual([node.returncode for node in nodes], [0, 0], "\n".join(texts))
        for text, address in zip(texts, ADDRESSES):
            self.assertRegex(text, rf"rank \d on localhost uses tcp, .*addr=\[{re.escape(address)}\]")

    def test_the_doctor_tells_of_names_that_mean_loopback(self):
        nodes = [self.start(node, "doctor", "--storage-mib", "1") for node in range(2)]
        text = nodes[0].communicate(timeout=180)[0]
        nodes[1].communicate(timeout=180)
        self.assertRegex(text, r"this machine's name localhost is (127\.0\.0\.1|::1), which other machines cannot reach")
        self.assertIn("set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to its interface", re.sub(r"\s+", " ", re.sub(r"\[rank0\]:", "", text)))


if __name__ == "__main__":
    unittest.main()
