"""An emulated cluster for the manifests of deploy/kubernetes: what an operator would make of them, as processes on loopback.

The pods' command and environment are those of the manifest and of the operator. Emulated are: names of pods, which all mean 127.0.0.1;
the mount /checkpoints; the image, which is the checkout and the program under test; GPUs, of which there are none."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

import yaml
from free_ports import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.path.abspath(os.environ["TITANIUM"])
DROPPED = re.compile(r"(RANK|WORLD_SIZE|LOCAL_.*|GROUP_RANK|MASTER_.*|TORCHELASTIC_.*|SLURM_.*|PET_.*|LOG_.*|NGPU|NNODES|NODE_RANK|MAX_RESTARTS|STOP_CODE)$")


def read_manifest(name):
    """The documents of a file, without members that are null."""
    def cleaned(value):
        if isinstance(value, dict):
            return {key: cleaned(item) for key, item in value.items() if item is not None}
        return [cleaned(item) for item in value] if isinstance(value, list) else value

    return [cleaned(document) for document in yaml.safe_load_all((ROOT / "deploy/kubernetes" / name).read_text())]


class Pod:
    """One container: what it runs, and how it is restarted."""

    def __init__(self, index, container, injected, grace=30):
        self.index, self.grace = index, grace
        self.words = [*container["command"], *container.get("args", [])]
        self.environment = dict(injected)
        for variable in container.get("env", []):  # the user's win
            if "value" in variable:
                self.environment[variable["name"]] = variable["value"]
            else:
                field = variable["valueFrom"]["fieldRef"]["fieldPath"]
                assert field == "metadata.annotations['batch.kubernetes.io/job-completion-index']", field
                self.environment[variable["name"]] = str(index)
        self.process = None
        self.starts = 0


def injected_by_training_operator(name, index, nodes, newer_operator=True):
    """Variables that Kubeflow's training operator gives a pod of a PyTorchJob."""
    injected = {"MASTER_ADDR": f"{name}-master-0", "MASTER_PORT": "23456", "RANK": str(index), "WORLD_SIZE": str(nodes)}
    if newer_operator:
        injected |= {"PET_NNODES": str(nodes), "PET_NODE_RANK": str(index), "PET_NPROC_PER_NODE": "auto"}
    return injected


def pytorchjob_pods(job, nodes, newer_operator=True):
    specs, pods = job["spec"]["pytorchReplicaSpecs"], []
    for index in range(nodes):
        spec = specs["Master" if index == 0 else "Worker"]["template"]["spec"]
        injected = injected_by_training_operator(job["metadata"]["name"], index, nodes, newer_operator)
        pods.append(Pod(index, spec["containers"][0], injected, spec["terminationGracePeriodSeconds"]))
    return pods


def runai_words(name, *words, **environment):
    """What runai_submit.sh asks Run:ai's command line for, as (options, variables, command)."""
    with tempfile.TemporaryDirectory() as folder:
        runai = pathlib.Path(folder) / "runai"
        runai.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
        runai.chmod(0o755)
        done = subprocess.run([ROOT / "deploy/kubernetes/runai_submit.sh", name, *words], capture_output=True, text=True, check=True,
                              env={"PATH": f"{folder}:/usr/bin:/bin", **environment})
    given = done.stdout.splitlines()
    assert given[:2] == ["submit-dist", "pytorch"], given
    end = given.index("--")
    options, variables, place = {}, {}, 2
    while place < end:
        has_value = not given[place + 1].startswith("-")
        if given[place] == "-e":
            variables |= [given[place + 1].split("=", 1)]
        else:
            assert given[place] not in options, given
            options[given[place]] = given[place + 1] if has_value else None
        place += 2 if has_value else 1
    return options, variables, given[end + 1:]


def runai_pods(nodes):
    """Run:ai makes a PyTorchJob with a master and the workers; its pods have Kubernetes' default time to end."""
    options, variables, command = runai_words("titanium", IMAGE="registry/titanium", NODES=str(nodes))
    assert int(options["--workers"]) == nodes - 1, options
    container = {"command": command, "env": [{"name": name, "value": value} for name, value in variables.items()]}
    return [Pod(index, container, injected_by_training_operator(options["--name"], index, nodes)) for index in range(nodes)]


def indexed_pods(spec, nodes):
    """Of a Job whose pods have completion indices; NNODES is the number that a user edits with `completions`."""
    pods = []
    for index in range(nodes):
        pod = Pod(index, spec["containers"][0], {"JOB_COMPLETION_INDEX": str(index)}, spec["terminationGracePeriodSeconds"])
        pods.append(pod)
        pod.environment["NNODES"] = str(nodes)
    return pods


def trainjob_pods(job, nodes):
    trainer = job["spec"]["trainer"]
    jobs = job["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    grace = jobs[0]["template"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    return [Pod(index, trainer, {"PET_NNODES": str(nodes), "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]), "PET_NODE_RANK": str(index),
                                 "PET_MASTER_ADDR": f"{job['metadata']['name']}-node-0-0.{job['metadata']['name']}", "PET_MASTER_PORT": "29400"}, grace)
            for index in range(nodes)]


def pods_of(name, nodes):
    if name == "runai_submit.sh":
        return runai_pods(nodes)
    document = read_manifest(name)[-1]
    kind = document["kind"]
    if kind == "PyTorchJob":
        return pytorchjob_pods(document, nodes)
    if kind == "Job":
        return indexed_pods(document["spec"]["template"]["spec"], nodes)
    if kind == "JobSet":
        return indexed_pods(document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"], nodes)
    assert kind == "TrainJob", kind
    return trainjob_pods(document, nodes)


# What is done when a container ends with a code that is not 0: make this pod again, all pods, or give the job up.
POLICIES = {
    "pytorchjob.yaml": lambda code: "this" if code >= 128 else "give up",  # restartPolicy ExitCode
    "job.yaml": lambda code: "this",  # restartPolicy OnFailure
    "jobset.yaml": lambda code: "all",  # failurePolicy maxRestarts
    "trainjob.yaml": lambda code: "all",  # its runtime makes a JobSet
    "runai_submit.sh": lambda code: "this",  # --backoff-limit, 6 if it is not given
}


class Cluster:
    """Runs the pods of one job. `steps` of the debug model on the CPU, one rank in each pod."""

    def __init__(self, name, folder, steps, nodes=2, pods=None, arguments=()):
        self.folder, self.policy = pathlib.Path(folder), POLICIES[name]
        self.pods = pods or pods_of(name, nodes)
        self.restarts, self.failed = 0, False
        port = str(free_port())
        for pod in self.pods:
            words = [word.replace("/checkpoints", str(self.folder)) for word in pod.words]
            words = [re.sub(r"(--metrics\.port=).*", rf"\g<1>{free_port()}", word) for word in words]
            pod.words = [*words, "--training.steps", str(steps), "--training.seq_len", "32", "--training.local_batch_size", "1", *arguments]
            environment = {name: value.replace("/checkpoints", str(self.folder)) for name, value in pod.environment.items()}
            for prefix in ("", "PET_"):
                if prefix + "MASTER_ADDR" in environment:
                    assert re.fullmatch(r"titanium-[a-z0-9.-]+", environment[prefix + "MASTER_ADDR"]), environment
                    environment |= {prefix + "MASTER_ADDR": "127.0.0.1", prefix + "MASTER_PORT": port}
            ranks = {"PET_NPROC_PER_NODE": "1"} if "NGPU" not in environment else {"NGPU": "1"}
            inherited = {name: value for name, value in os.environ.items() if not DROPPED.match(name)}
            pod.environment = inherited | environment | ranks | {"CONFIG_FILE": "configs/llama3/debug_model_cpu.toml", "TITANIUM": PROGRAM,
                                                                   "OMP_NUM_THREADS": "1"}  # pods share the cores of this machine

    def start(self, pod):
        pod.starts += 1
        log = open(self.folder / f"pod{pod.index}.log", "a")
        pod.process = subprocess.Popen(pod.words, cwd=ROOT, env=pod.environment, stdout=log, stderr=log, start_new_session=True)
        log.close()

    def log(self, index=0):
        path = self.folder / f"pod{index}.log"
        return path.read_text() if path.exists() else ""

    def logs(self):
        return "\n".join(f"== pod {pod.index}\n{self.log(pod.index)[-4000:]}" for pod in self.pods)

    def start_all(self, order=None):
        for index in order or range(len(self.pods)):
            self.start(self.pods[index])

    def kill(self, index):
        """As the kernel does when a container is out of memory, or a machine is switched off."""
        self.pods[index].process.kill()  # the kernel kills its ranks
        self.pods[index].process.wait()

    def evict(self, index):
        """SIGTERM to the first process, its grace time, SIGKILL. The code that the container ends with."""
        process = self.pods[index].process
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(self.pods[index].grace)
        except subprocess.TimeoutExpired:
            self.kill(index)
            return process.returncode

    def reconcile(self):
        """What an operator does about containers that have ended. True when the job is over."""
        ended = [pod for pod in self.pods if pod.process and pod.process.poll() is not None]
        for pod in ended:
            code = pod.process.returncode if pod.process.returncode >= 0 else 128 - pod.process.returncode
            action = self.policy(code) if code != 0 else "nothing"
            if action == "give up":
                self.failed = True
                return True
            if action == "nothing":
                continue
            self.restarts += 1
            for other in [pod] if action == "this" else self.pods:
                if other.process.poll() is None:
                    self.evict(other.index)
                self.start(other)
            return False
        return len(ended) == len(self.pods)

    def run_until(self, condition, what, seconds=180):
        deadline = time.monotonic() + seconds
        while not condition():
            assert not (self.reconcile() and not condition()), f"the job is over before {what}:\n{self.logs()}"
            assert time.monotonic() < deadline, f"waited for {what} in vain:\n{self.logs()}"
            time.sleep(0.05)

    def run_to_the_end(self):
        over = []
        self.run_until(lambda: bool(over) or (self.reconcile() and not over.append(True)), "the end")
        return [pod.process.poll() for pod in self.pods]

    def steps(self):
        path = self.folder / "outputs/metrics.jsonl"
        return [int(step) for step in re.findall(r'"step": (\d+)', path.read_text())] if path.exists() else []

    def stop(self):
        for pod in self.pods:
            if pod.process and pod.process.poll() is None:
                self.kill(pod.index)


class PodsCase(unittest.TestCase):
    def cluster(self, name, steps, **options):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        cluster = Cluster(name, pathlib.Path(folder.name), steps, **options)
        self.addCleanup(cluster.stop)
        return cluster

    def saved(self, cluster):
        return sorted(int(path.name.removeprefix("step-")) for path in cluster.folder.glob("step-*"))

    def goes_on(self, cluster):
        """The run has resumed from a checkpoint, and goes on without a gap."""
        cluster.run_until(lambda: "Loading the checkpoint" in cluster.log(0), "a resumed run")
        first = cluster.steps()[-1]
        cluster.run_until(lambda: cluster.steps()[-1] > first + 1, "further steps")
        steps = cluster.steps()  # once: the run goes on
        self.assertEqual(steps, list(range(1, len(steps) + 1)))

    def goes_on_without_pod_0(self, name):
        """The cluster of a job whose first pod was killed after a checkpoint, when both pods train again."""
        cluster = self.cluster(name, steps=100000, arguments=["--checkpoint.interval", "2"])
        cluster.start_all()
        cluster.run_until(lambda: self.saved(cluster), "a checkpoint")
        cluster.kill(0)
        self.goes_on(cluster)
        self.assertEqual([pod.starts for pod in cluster.pods], [2, 2], cluster.logs())
        cluster.stop()
        return cluster
