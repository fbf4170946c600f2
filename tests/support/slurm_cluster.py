"""A real SLURM of two nodes on this machine: munged, slurmctld and two slurmd, on loopback, in a folder of its own."""

import ctypes
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from free_ports import free_ports

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel")
PR_SET_PDEATHSIG = 1

CONFIGURATION = """
ClusterName=titanium
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=10
CryptoType=crypto/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_min_interval=100000,batch_sched_delay=0,bf_interval=1,sched_interval=2
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdTimeout=300
KillWait=30
ReturnToService=2
JobRequeue=1
FirstJobId={first_job}
GresTypes=gpu
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def missing_reason():
    """Why there can be no SLURM here; nothing when there can."""
    lacking = [name for name in PROGRAMS if find(name) is None]
    if lacking:
        return f"SLURM cannot run here: {', '.join(lacking)} not installed"
    return "SLURM cannot run here: not root" if os.geteuid() != 0 else None


def find(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


class SlurmCluster:
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="slurm_"))
        self.daemons = {}
        self.jobs = []
        self.environment = {name: value for name, value in os.environ.items()
                            if not re.match(r"(SLURM|SBATCH|SRUN)_|(RANK|WORLD_SIZE|LOCAL_.*|MASTER_.*|TORCHELASTIC_.*|PET_.*|LOG_RANK|NGPU)$", name)}
        self.environment |= {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self):
        folder, host = self.folder, socket.gethostname()
        port, *node_ports = free_ports(3)
        nodes = "\n".join(f"NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={node_port} CPUs=16 RealMemory=1000 Gres=gpu:8 State=UNKNOWN"
                          for i, node_port in enumerate(node_ports, 1))
        (folder / "slurm.conf").write_text(CONFIGURATION.format(host=host, port=port, folder=folder, nodes=nodes,
                                                               first_job=random.randrange(1, 50000)))  # ports follow from it
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        for gpu in range(8):
            (folder / f"gpu{gpu}").touch()
        (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-7]\n")
        for name in ("state", "spool.n1", "spool.n2"):
            (folder / name).mkdir()
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o400)
        self._daemon("munged", "munged", "--foreground", "--force", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket",
                     f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed")
        self.wait_until(lambda: (folder / "munge.socket").exists(), "munged")
        self._daemon("slurmctld", "slurmctld", "-D", "-i")
        for node in ("n1", "n2"):
            self.start_node(node)
        self.wait_until(lambda: self.node_states() == {"n1": "idle", "n2": "idle"}, "idle nodes")

    def _daemon(self, name, program, *arguments):
        log = open(self.folder / f"{name}.out", "a")
        self.daemons[name] = subprocess.Popen([find(program), *arguments], stdout=log, stderr=log, env=self.environment, start_new_session=True,
                                              preexec_fn=lambda: ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM))  # with the test
        log.close()

    def start_node(self, node):
        self._daemon(node, "slurmd", "-D", "-N", node)

    def stop_node(self, node):
        self._end(self.daemons.pop(node))

    def bring_back(self, node):
        """Ends the time of a node that was set down. It may have registered itself again before (ReturnToService), and then there is nothing to resume."""
        def is_up():
            if not self.node_states().get(node, "down").startswith("down"):
                return True
            self.command("scontrol", "update", f"nodename={node}", "state=resume", check=False)
            return False

        self.wait_until(is_up, f"the return of {node}")

    @staticmethod
    def _end(process):
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def command(self, *words, check=True):
        result = subprocess.run([find(words[0]), *map(str, words[1:])], capture_output=True, text=True, env=self.environment, timeout=60)
        assert not check or result.returncode == 0, (words, result.stdout + result.stderr)
        return result.stdout

    def node_states(self):
        lines = self.command("sinfo", "-h", "-N", "-o", "%N %T", check=False).splitlines()
        return dict(line.split() for line in lines)

    def submit(self, *words, cwd, **environment):
        """The number of a new job."""
        result = subprocess.run([find("sbatch"), "--parsable", *map(str, words)], capture_output=True, text=True, cwd=cwd,
                                env=self.environment | environment, timeout=60)
        assert result.returncode == 0, result.stdout + result.stderr
        self.jobs.append(result.stdout.strip())
        return self.jobs[-1]

    def job(self, number):
        """What scontrol says of a job: JobState, ExitCode, Restarts ..."""
        text = self.command("scontrol", "-o", "show", "job", number)
        return dict(re.findall(r"(\w+)=(\S*)", text.splitlines()[0]))

    def state(self, number):
        return self.job(number)["JobState"]

    def wait_for_end(self, number, seconds=180):
        """The job's record when it has ended."""
        ends = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"}
        self.wait_until(lambda: self.state(number) in ends, f"the end of job {number}", seconds)
        return self.job(number)

    def wait_until(self, condition, what, seconds=180):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"waited for {what} in vain:\n{self.logs()}"
            time.sleep(0.1)

    def logs(self):
        return "\n".join(f"== {path.name}\n{path.read_text()[-2000:]}" for path in sorted(self.folder.glob("*.log")))

    def stop(self):
        for job in self.jobs:
            self.command("scancel", "--signal=KILL", "--full", job, check=False)
        for job in self.jobs:
            self.command("scancel", job, check=False)
        deadline = time.monotonic() + 20
        while self.jobs and self.command("squeue", "-h", check=False).strip() and time.monotonic() < deadline:
            time.sleep(0.2)
        for name in ("n1", "n2", "slurmctld", "munged"):  # the others cannot end without munged
            if name in self.daemons:
                self._end(self.daemons.pop(name))
        shutil.rmtree(self.folder, ignore_errors=True)
