"""The manifests of deploy/kubernetes against the schemas of Kubernetes, JobSet, Kubeflow's training operator and Trainer, and Run:ai's submit line."""

import ast
import copy
import importlib.metadata
import re
import unittest

import kubeflow_trainer_api.models as schemas
import pods

# What their references list; the schemas know only that these are texts.
JOBS_PODS, REPLICAS = {"Never", "OnFailure"}, {"Always", "ExitCode", "Never", "OnFailure"}
CHOICES = {"cleanPodPolicy": {"All", "None", "Running"}, "completionMode": {"Indexed", "NonIndexed"}, "medium": {"", "Memory"}}
# Those of the options in the reference of `runai submit-dist pytorch` that a run of ours may need.
RUNAI_OPTIONS = {"--name", "--image", "--workers", "-g", "--large-shm", "--existing-pvc", "--command", "--backoff-limit", "--clean-pod-policy", "--annotation", "--extended-resource",
                 "--node-pools", "--project", "--run-as-user"}


def check(schema, value):
    """Types are checked by the model; a member that it does not know is missing from what it gives back."""
    model = schema.from_dict(copy.deepcopy(value))
    given_back = model.to_dict()
    unknown = list(differences(value, given_back))
    assert not unknown, f"not in the schema of {schema.__name__}: {', '.join(unknown)}"


def differences(value, given_back, path=""):
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in given_back:
                yield f"{path}.{key}"
            else:
                yield from differences(item, given_back[key], f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from differences(item, given_back[index], f"{path}[{index}]")


def model_of(name):
    """Member -> type of a model in the wheel kubeflow-training. Its files are read and not imported, which would take the client of a cluster."""
    file = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    source = importlib.metadata.distribution("kubeflow-training").locate_file(f"kubeflow/training/models/{file}.py").read_text()
    tables = {node.targets[0].id: ast.literal_eval(node.value) for node in ast.walk(ast.parse(source))
              if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in ("openapi_types", "attribute_map")}
    return {tables["attribute_map"][member]: kind for member, kind in tables["openapi_types"].items()}


def check_member(kind, value, path):
    """A value against a type of the wheel kubeflow-training."""
    if several := re.fullmatch(r"(?:dict\(str, |list\[)(\w+)[)\]]", kind):
        assert isinstance(value, dict if kind.startswith("dict") else list), f"{path} is no {kind}"
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            check_member(several[1], item, f"{path}.{key}")
    elif kind in ("str", "int", "bool"):
        assert type(value).__name__ == kind, f"{path} is no {kind}"
    elif kind.startswith("KubeflowOrg"):
        members = model_of(kind)
        for name, item in value.items():
            assert name in members, f"{path}.{name} is not in the schema of {kind}"
            check_member(members[name], item, f"{path}.{name}")
    else:
        check({"V1ObjectMeta": schemas.IoK8sApimachineryPkgApisMetaV1ObjectMeta, "V1PodTemplateSpec": schemas.IoK8sApiCoreV1PodTemplateSpec}[kind], value)


def check_pytorchjob(job):
    assert job["apiVersion"] == "kubeflow.org/v1", job
    check_member("KubeflowOrgV1PyTorchJob", job, "")
    assert set(job["spec"]["pytorchReplicaSpecs"]) == {"Master", "Worker"}, job


def check_choices(value, restarts, path=""):
    """Words of which a cluster knows only some; `restarts`: those of restartPolicy."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        allowed = restarts if key == "restartPolicy" else CHOICES.get(key)
        assert allowed is None or item in allowed, f"{path}.{key} is {item}, which is none of {sorted(allowed)}"
        check_choices(item, restarts, f"{path}.{key}")


CHECKS = {
    "pytorchjob.yaml": {"PyTorchJob": check_pytorchjob},
    "job.yaml": {"Service": lambda service: check(schemas.IoK8sApiCoreV1Service, service), "Job": lambda job: check(schemas.IoK8sApiBatchV1Job, job)},
    "jobset.yaml": {"JobSet": lambda job: check(schemas.JobsetV1alpha2JobSet, job)},
    "trainjob.yaml": {"TrainJob": lambda job: check(schemas.TrainerV1alpha1TrainJob, job)},
}


def pod_specs(document):
    """Every specification of pods in a document."""
    if isinstance(document, dict):
        if "containers" in document:
            yield document
        for item in document.values():
            yield from pod_specs(item)
    elif isinstance(document, list):
        for item in document:
            yield from pod_specs(item)


class ManifestsTest(unittest.TestCase):
    def test_every_manifest_is_what_its_schema_says(self):
        self.assertEqual(sorted(path.name for path in (pods.ROOT / "deploy/kubernetes").glob("*.yaml")), sorted(CHECKS))
        for name, kinds in CHECKS.items():
            documents = pods.read_manifest(name)
            self.assertEqual([document["kind"] for document in documents], list(kinds))
            for document in documents:
                with self.subTest(f"{name} {document['kind']}"):
                    kinds[document["kind"]](document)
                    check_choices(document, REPLICAS if document["kind"] == "PyTorchJob" else JOBS_PODS)

    def test_the_check_finds_a_misspelt_member_and_a_wrong_type(self):
        job = pods.read_manifest("job.yaml")[1]
        pod = job["spec"]["template"]["spec"]
        pod["containers"][0]["volumeMount"] = pod["containers"][0].pop("volumeMounts")
        with self.assertRaisesRegex(AssertionError, r"\.spec\.template\.spec\.containers\[0\]\.volumeMount"):
            check(schemas.IoK8sApiBatchV1Job, job)
        job = pods.read_manifest("job.yaml")[1]
        job["spec"]["completions"] = "four"
        with self.assertRaisesRegex(ValueError, "completions"):
            check(schemas.IoK8sApiBatchV1Job, job)
        job["spec"]["template"]["spec"]["restartPolicy"] = "Always"  # which only a Deployment may have
        with self.assertRaisesRegex(AssertionError, r"\.spec\.template\.spec\.restartPolicy is Always, which is none of \['Never', 'OnFailure'\]"):
            check_choices(job, JOBS_PODS)

    def test_the_check_of_a_pytorchjob_finds_the_same(self):
        for change, message in ((lambda spec: spec["runPolicy"].update(cleanPods="All"), r"\.spec\.runPolicy\.cleanPods is not in the schema"),
                                (lambda spec: spec["pytorchReplicaSpecs"]["Worker"].update(replicas="3"), r"\.Worker\.replicas is no int"),
                                (lambda spec: spec["pytorchReplicaSpecs"]["Worker"]["template"]["spec"].update(graceSeconds=3), r"\.spec\.graceSeconds"),
                                (lambda spec: spec["pytorchReplicaSpecs"]["Worker"].update(restartPolicy="Sometimes"), r"restartPolicy is Sometimes")):
            job = copy.deepcopy(pods.read_manifest("pytorchjob.yaml")[0])
            change(job["spec"])
            with self.assertRaisesRegex(AssertionError, message):
                check_pytorchjob(job)
                check_choices(job, REPLICAS)

    def test_the_service_of_the_plain_job_is_its_pods_domain(self):
        service, job = pods.read_manifest("job.yaml")
        self.assertEqual(set(service["spec"]), {"clusterIP", "publishNotReadyAddresses", "selector"})
        self.assertEqual(service["spec"]["clusterIP"], "None")
        self.assertEqual(service["metadata"]["name"], job["spec"]["template"]["spec"]["subdomain"])
        self.assertEqual(service["spec"]["selector"], {"batch.kubernetes.io/job-name": job["metadata"]["name"]})

    def test_pods_have_the_mounts_time_and_rights_that_training_needs(self):
        for name in CHECKS:
            for spec in pod_specs(pods.read_manifest(name)):
                with self.subTest(name):
                    self.assertGreater(spec["terminationGracePeriodSeconds"], 60)
                    self.assertTrue(spec["securityContext"]["runAsNonRoot"])
                    mounts = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
                    self.assertEqual(mounts, {"checkpoints": "/checkpoints", "shared-memory": "/dev/shm"})
                    self.assertEqual({volume["name"] for volume in spec["volumes"]}, set(mounts))

    def test_gpus_ranks_and_nodes_agree(self):
        for name in ("job.yaml", "jobset.yaml"):
            document = pods.read_manifest(name)[-1]
            spec = document["spec"] if name == "job.yaml" else document["spec"]["replicatedJobs"][0]["template"]["spec"]
            container = spec["template"]["spec"]["containers"][0]
            variables = {variable["name"]: variable.get("value") for variable in container["env"]}
            self.assertEqual({spec["completions"], spec["parallelism"], int(variables["NNODES"])}, {4})
            self.assertEqual(str(container["resources"]["limits"]["nvidia.com/gpu"]), variables["NGPU"])

    def test_only_the_pod_of_rank_0_has_probes_and_they_ask_for_health(self):
        specs = pods.read_manifest("pytorchjob.yaml")[0]["spec"]["pytorchReplicaSpecs"]
        master, worker = (specs[name]["template"]["spec"]["containers"][0] for name in ("Master", "Worker"))
        for probe in ("startupProbe", "livenessProbe"):
            self.assertEqual(master[probe]["httpGet"], {"path": "/health", "port": "metrics"})
        self.assertEqual(worker, {key: value for key, value in master.items() if not key.endswith("Probe")})
        variables = {variable["name"]: variable["value"] for variable in master["env"]}
        self.assertEqual(str(master["resources"]["limits"]["nvidia.com/gpu"]), variables["NGPU"])
        self.assertEqual(master["name"], "pytorch")  # the only name that the operator looks for
        self.assertIn(f"--metrics.port={master['ports'][0]['containerPort']}", master["args"])

    def test_run_ais_line_is_a_job_of_all_nodes(self):
        options, variables, command = pods.runai_words("run-1", "--training.steps", "10", IMAGE="registry/titanium", NODES="4", RDZV_TIMEOUT="300")
        self.assertLessEqual(set(options), RUNAI_OPTIONS)
        self.assertEqual(options, {"--name": "run-1", "--image": "registry/titanium", "--workers": "3", "-g": "8", "--large-shm": None,
                                   "--existing-pvc": "claimname=titanium-checkpoints,path=/checkpoints", "--command": None})
        self.assertEqual({name: variables[name] for name in ("OVERRIDE_PET_NNODES", "NGPU", "MAX_RESTARTS", "STOP_CODE", "RDZV_TIMEOUT")},
                         {"OVERRIDE_PET_NNODES": "4", "NGPU": "8", "MAX_RESTARTS": "1", "STOP_CODE": "143", "RDZV_TIMEOUT": "300"})
        self.assertEqual((command[0], command[-2:]), ("./run_train.sh", ["--training.steps", "10"]))
        written = dict(word.split("=") for word in command if word.startswith("--") and "=" in word)
        for name in ("--checkpoint.folder", "--job.dump_folder"):  # the image's own folders belong to root
            self.assertTrue(written[name].startswith("/checkpoints"), name)
        self.assertLess(int(written["--checkpoint.grace_seconds"]), 30)  # Kubernetes' default time to end


if __name__ == "__main__":
    unittest.main()
