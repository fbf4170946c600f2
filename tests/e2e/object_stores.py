"""Data, tokenizers and weights at addresses: the same bytes as from the disk, through a proxy that fails in every way, or one sentence."""

import email.utils
import gzip
import hashlib
import json
import os
import pathlib
import subprocess
import threading
import time
import unittest

import flipped_bytes
import hub_server
import numpy
import paged_bucket
import role_server
import s3_case
import s3_server
import safetensors.numpy
import tiny_assets

TITANIUM = os.environ["TITANIUM"]
DRIVER = os.path.join(os.environ["TITANIUM_BUILD"], "object_stores_driver")
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LINES = "".join(json.dumps({"text": f"document {i} " + "word " * (i % 50)}) + "\n" for i in range(60_000)).encode()
FILES = {
    "a.jsonl": LINES,  # larger than a piece that is read at once
    "sub/b with space+plus.jsonl.gz": gzip.compress(LINES[:200_000].rsplit(b"\n", 1)[0] + b"\n"),
    "sub/c.txt": "Grüße\n".encode(),
    "notes.md": b"no data",
}
DATA = {name: hashlib.sha256(gzip.decompress(content) if name.endswith(".gz") else content).hexdigest() for name, content in FILES.items() if name != "notes.md"}


class ObjectStores(s3_case.S3Case):
    @classmethod
    def put_objects(cls):
        for name, content in FILES.items():
            cls.server.put("corpus", f"texts/{name}", content)
        for path in (ROOT / "tests/assets/tokenizer").iterdir():
            cls.server.put("corpus", f"tokenizer/{path.name}", path.read_bytes())
        cls.server.put("open", "x.txt", b"x")

    def read(self, path, code=0, **options):
        run = subprocess.run([DRIVER, path], capture_output=True, text=True, env=self.environment(**options), timeout=200)
        self.assertEqual(run.returncode, code, run.stderr)
        for secret in (s3_server.SECRET, s3_server.READER_SECRET, "Signature"):
            self.assertNotIn(secret, run.stdout + run.stderr)
        if code:
            self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
            return run.stderr.strip()
        return {line.rsplit(" ", 2)[0]: line.rsplit(" ", 1)[1] for line in run.stdout.splitlines()}

    def test_a_folder_of_a_bucket_has_the_bytes_of_the_disk(self):
        self.assertEqual(self.read("s3://corpus/texts"), DATA)
        self.assertEqual(self.read("s3://corpus/texts/sub/c.txt"), {"c.txt": DATA["sub/c.txt"]})
        ranges = [wanted for method, path, wanted in self.proxy.requests if path.endswith("a.jsonl") and method == "GET"]
        self.assertGreater(len(ranges), 1)  # read in pieces

    def test_every_fault_is_mended(self):
        self.proxy.faults = [503, "reset", None, "short", 503, "wrong range", "less", "reset", None, "short", "less", None, 503]
        self.assertEqual(self.read("s3://corpus/texts"), DATA)
        self.assertEqual(self.proxy.faults, [])

    def test_ten_seconds_without_the_server_and_an_answer_that_stalls_are_survived(self):
        stalling = s3_server.FaultyProxy(self.server.host)
        self.addCleanup(stalling.stop)
        stalling.faults = [None, "stall"]  # the list, then the first bytes
        environment = self.environment(AWS_ENDPOINT_URL_S3=f"http://{stalling.host}")
        other = subprocess.Popen([DRIVER, "s3://corpus/texts/a.jsonl"], stdout=subprocess.PIPE, text=True, env=environment)
        self.proxy.down = True
        timer = threading.Timer(10, setattr, (self.proxy, "down", False))
        timer.start()
        self.assertEqual(self.read("s3://corpus/texts"), DATA)
        timer.join()
        output, _ = other.communicate(timeout=200)
        self.assertEqual((other.returncode, output.split()[-1:], stalling.faults), (0, [DATA["a.jsonl"]], []))

    def test_credentials_come_from_profiles_too(self):
        (self.home / ".aws").mkdir()
        (self.home / ".aws/credentials").write_text(f"[default]\naws_access_key_id = wrong\n[work]\naws_access_key_id = {s3_server.KEY}\naws_secret_access_key={s3_server.SECRET}\n")
        self.assertEqual(self.read("s3://corpus/texts", key="", AWS_PROFILE="work"), DATA)
        self.assertIn("AWS_PROFILE = play is not a section of", self.read("s3://corpus/texts", key="", AWS_PROFILE="play", code=1))
        (self.home / ".aws/config").write_text(f"[profile keys]\naws_access_key_id = {s3_server.KEY}\naws_secret_access_key={s3_server.SECRET}\nregion = us-east-1\n[profile sso]\nsso_session = x\n")
        self.assertEqual(self.read("s3://corpus/texts", key="", AWS_PROFILE="keys"), DATA)
        self.assertIn('AWS_PROFILE = sso has no aws_access_key_id in ', self.read("s3://corpus/texts", key="", AWS_PROFILE="sso", code=1))

    def test_credentials_come_from_the_roles_of_machines_containers_and_pods(self):
        (self.home / "token").write_text("pod token")
        with role_server.RoleServer(s3_server.KEY, s3_server.SECRET) as role:
            machine = dict(AWS_EC2_METADATA_DISABLED="", AWS_EC2_METADATA_SERVICE_ENDPOINT=role.url + "/", http_proxy="http://127.0.0.1:1", no_proxy=self.proxy.host.split(":")[0])
            container = dict(AWS_CONTAINER_CREDENTIALS_FULL_URI=role.url + "/container", AWS_CONTAINER_AUTHORIZATION_TOKEN="container token")
            pod = dict(AWS_WEB_IDENTITY_TOKEN_FILE=str(self.home / "token"), AWS_ROLE_ARN="arn:aws:iam::1:role/r+s", AWS_ENDPOINT_URL_STS=role.url)
            for environment in (machine, container, pod):
                role.busy = 2
                self.assertEqual(self.read("s3://corpus/texts", key="", **environment), DATA)
                self.assertEqual(role.busy, 0)
            role.requests.clear()
            self.assertEqual(self.read("s3://corpus/texts", **machine), DATA)  # keys of the environment come first
            self.assertEqual(role.requests, [])
            self.assertIn("Credentials of this container are refused by", self.read("s3://corpus/texts", key="", code=1, **{**container, "AWS_CONTAINER_AUTHORIZATION_TOKEN": "other"}))
            self.assertIn("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI = http://169.254.170.2:1@example.org/x is neither HTTPS nor a server of this machine.", self.read("s3://corpus/texts", key="", code=1, AWS_CONTAINER_CREDENTIALS_RELATIVE_URI=":1@example.org/x"))
            self.assertIn("AWS_CONTAINER_CREDENTIALS_FULL_URI = http://example.org/x is neither HTTPS nor a server of this machine.", self.read("s3://corpus/texts", key="", code=1, AWS_CONTAINER_CREDENTIALS_FULL_URI="http://example.org/x"))
        nobody = dict(AWS_EC2_METADATA_DISABLED="", AWS_EC2_METADATA_SERVICE_ENDPOINT="http://127.0.0.1:1")
        self.assertIn("access is denied without credentials", self.read("s3://corpus/texts", key="", code=1, **nobody))

    def test_a_metadata_service_that_does_not_answer_at_once_is_asked_again(self):
        with role_server.RoleServer(s3_server.KEY, s3_server.SECRET) as role:
            machine = dict(key="", AWS_EC2_METADATA_DISABLED="", AWS_EC2_METADATA_SERVICE_ENDPOINT=role.url)
            role.silent = lambda path: len(role.requests) < 5
            self.assertEqual(self.read("s3://corpus/texts/sub/c.txt", **machine), {"c.txt": DATA["sub/c.txt"]})
            role.silent = lambda path: path.startswith("/latest/meta-data/")
            self.assertIn(f"{role.url} has begun a session and does not answer any more. Check the metadata service of this machine.", self.read("s3://corpus/texts", code=1, **machine))

    def test_servers_of_credentials_may_take_their_time(self):
        with role_server.RoleServer(s3_server.KEY, s3_server.SECRET) as role:
            role.delay = 5
            container = dict(AWS_CONTAINER_CREDENTIALS_FULL_URI=role.url + "/container", AWS_CONTAINER_AUTHORIZATION_TOKEN="container token")
            self.assertEqual(self.read("s3://corpus/texts/sub/c.txt", key="", **container), {"c.txt": DATA["sub/c.txt"]})
            self.assertEqual(role.requests, [("GET", "/container")])

    def test_credentials_of_a_role_are_renewed_before_they_expire(self):
        with role_server.RoleServer(s3_server.KEY, s3_server.SECRET, seconds=4) as role:
            self.proxy.faults = [503] * 5  # pauses of 3 to 6 s together
            machine = dict(AWS_EC2_METADATA_DISABLED="", AWS_EC2_METADATA_SERVICE_ENDPOINT=role.url)
            self.assertEqual(self.read("s3://corpus/texts/a.jsonl", key="", **machine), {"a.jsonl": DATA["a.jsonl"]})
            self.assertGreater(role.requests.count(("PUT", "/latest/api/token")), 1)
            self.assertLess(len(role.requests), 16)  # and not for every request

    # What TLS protects arrives as it was sent, or is asked for again.
    def test_bytes_that_change_on_the_way_are_found_and_read_again(self):
        certificate = self.home / "certificate.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", certificate, "-out", self.home / "public.pem"], check=True, capture_output=True)
        certificate.write_bytes(certificate.read_bytes() + (self.home / "public.pem").read_bytes())
        secure = s3_server.FaultyProxy(self.server.host, certificate)
        self.addCleanup(secure.stop)
        relay = flipped_bytes.FlippedBytes(secure.host, 1_000_000, 3)
        self.addCleanup(relay.stop)
        environment = dict(AWS_ENDPOINT_URL_S3=f"https://{relay.host}", SSL_CERT_FILE=str(self.home / "public.pem"))
        self.assertEqual(self.read("s3://corpus/texts", **environment), DATA)
        self.assertEqual(relay.left, 0)

    def test_mistakes_have_their_sentences(self):
        for path, options, sentence in (
            ("s3://corpus/texts", dict(secret="wrong"), "s3://corpus/texts: access is denied: the key or its secret is wrong. Check the credentials and the bucket's permissions."),
            ("s3://corpus/texts", dict(key=s3_server.READER_KEY, secret=s3_server.READER_SECRET), "s3://corpus/texts: access is denied. Check the credentials and the bucket's permissions."),
            ("s3://corpus/texts/a.jsonl", dict(key=s3_server.READER_KEY, secret=s3_server.READER_SECRET), "s3://corpus/texts/a.jsonl: access is denied. Check the credentials and the bucket's permissions."),
            ("s3://corpus/texts", dict(key=""), "s3://corpus/texts: access is denied without credentials. Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."),
            ("s3://nowhere/texts", {}, "s3://nowhere/texts: there is no bucket nowhere. Check its name and the region."),
            ("s3://corpus/empty", {}, "Data path s3://corpus/empty has no data files."),
            ("ftp://corpus/texts", {}, "ftp://corpus/texts: addresses of ftp:// are not supported. Supported are https://, http://, s3://, gs://, az:// and hf://, and mounted folders."),
        ):
            with self.subTest(sentence):
                self.assertIn(sentence, self.read(path, code=1, **options))
        allowed = self.read("s3://corpus/texts/sub", key=s3_server.READER_KEY, secret=s3_server.READER_SECRET)  # the prefix that this key may read
        self.assertEqual(set(allowed.values()), {DATA[name] for name in DATA if name.startswith("sub/")})

    def test_the_token_of_google_is_sent_and_told_to_nobody(self):
        token = "ya29.secret-token"
        with paged_bucket.PagedBucket({"t/c.txt": FILES["sub/c.txt"]}, token) as bucket:
            google = dict(key="", STORAGE_EMULATOR_HOST=bucket.host)
            self.assertEqual(self.read("gs://b/t", CLOUDSDK_AUTH_ACCESS_TOKEN=token, **google), {"c.txt": DATA["sub/c.txt"]})
            self.assertEqual(self.read("gs://b/t", CLOUDSDK_AUTH_ACCESS_TOKEN=token + "x", code=1, **google), "gs://b/t: access is denied. Check the credentials and the bucket's permissions.")
            self.assertIn("gs://b/t: access is denied without credentials. Check GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY, or CLOUDSDK_AUTH_ACCESS_TOKEN.", self.read("gs://b/t", code=1, **google))
            with role_server.RoleServer(token=token) as role:
                self.assertEqual(self.read("gs://b/t", NO_GCE_CHECK="", GCE_METADATA_HOST=role.host, **google), {"c.txt": DATA["sub/c.txt"]})

    def test_application_default_credentials_of_google_get_tokens(self):
        token = "ya29.secret-token"
        file = self.home / "application_default_credentials.json"
        user = {"type": "authorized_user", "client_id": "the id", "client_secret": "a&b", "refresh_token": "long"}
        with paged_bucket.PagedBucket({"t/c.txt": FILES["sub/c.txt"]}, token) as bucket, role_server.RoleServer(token=token) as role:
            google = dict(key="", STORAGE_EMULATOR_HOST=bucket.host, GCE_METADATA_HOST=role.host)
            file.write_text(json.dumps({**user, "token_uri": role.url + "/oauth2"}))
            for place in ({"GOOGLE_APPLICATION_CREDENTIALS": str(file)}, {"CLOUDSDK_CONFIG": str(self.home)}):
                self.assertEqual(self.read("gs://b/t", **google, **place), {"c.txt": DATA["sub/c.txt"]})
            self.assertEqual({path for _, path in role.requests}, {"/oauth2"})
            for content, sentence in (
                ({**user, "refresh_token": "secret", "token_uri": role.url + "/oauth2"}, f"The credentials of Google's tools are refused by {role.url}/oauth2 (status 403). Check the role and the variables that name it."),
                ({**user, "token_uri": "http://example.org/token"}, f"token_uri of {file} is neither HTTPS nor a server of this machine."),
                ({"type": "service_account", "private_key": "secret"}, f'{file} holds credentials of the kind service_account, and only those of "gcloud auth application-default login" are used. Put a token into CLOUDSDK_AUTH_ACCESS_TOKEN, or an HMAC key into GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY.'),
                ({"secret": 1}, f'{file} holds no credentials, and only those of'),
            ):
                file.write_text(json.dumps(content))
                error = self.read("gs://b/t", code=1, GOOGLE_APPLICATION_CREDENTIALS=str(file), **google)
                self.assertIn(sentence, error)
                self.assertNotIn("secret", error.replace("client_secret", ""))

    def test_folders_of_long_lists_are_listed_at_the_same_time(self):
        names = [f"{folder}{i}.txt" for folder in ("t/", "t/a/", "t/a/b/", "t/c+d/", "t/z/", "t2/", "t/") for i in range(4)]
        expected = {name.removeprefix("t/") for name in names if name.startswith("t/")}
        with paged_bucket.PagedBucket({name: name.encode() for name in names}, "token") as bucket:
            found = self.read("gs://b/t", key="", STORAGE_EMULATOR_HOST=bucket.host, CLOUDSDK_AUTH_ACCESS_TOKEN="token")
            self.assertEqual(found, {name: hashlib.sha256(f"t/{name}".encode()).hexdigest() for name in expected})
            self.assertLessEqual({"t/a/", "t/c+d/", "t/z/"}, {query["prefix"] for query in bucket.lists})

    def test_long_lists_of_one_folder_are_shared_out(self):
        names = [f"t/part-{i:04}.txt" for i in range(0, 3000, 25)] + ["t/part-1000", "t/part-1000x.txt", "t/q.txt", "t/A.txt", "t/zz/1.txt"]
        with paged_bucket.PagedBucket({name: name.encode() for name in names}, "token") as bucket:
            found = self.read("gs://b/t", key="", STORAGE_EMULATOR_HOST=bucket.host, CLOUDSDK_AUTH_ACCESS_TOKEN="token")
            self.assertEqual(found, {name[2:]: hashlib.sha256(name.encode()).hexdigest() for name in names if name.endswith(".txt")})
            begins = [query.get("start-after") for query in bucket.lists]
            self.assertLessEqual({"t/part-1", "t/part-2"}, set(begins))
            longest = max(begins.count(begin) for begin in set(begins) - {None})
            self.assertLess(longest, 20)  # pages in a row, of 42

    def test_an_object_that_changes_is_not_mixed_with_what_it_was(self):
        self.server.put("corpus", "moving/a.jsonl", LINES)
        self.proxy.faults = ["reset"] * 2
        original = self.proxy.faults

        def change():
            while original and len(self.proxy.requests) < 4:
                time.sleep(0.01)
            self.server.put("corpus", "moving/a.jsonl", LINES[::-1])

        thread = threading.Thread(target=change)
        thread.start()
        run = subprocess.run([DRIVER, "s3://corpus/moving"], capture_output=True, text=True, env=self.environment(), timeout=200)
        thread.join()
        digests = [hashlib.sha256(content).hexdigest() for content in (LINES, LINES[::-1])]
        if run.returncode == 0:
            self.assertIn(run.stdout.split()[-1], digests)
        else:
            self.assertIn("has changed while it was read", run.stderr)

    def test_tokenizers_are_read_from_buckets_and_from_the_hub(self):
        text = "hello world\n"
        tokenizer = ROOT / "tests/assets/tokenizer"
        command = lambda path: [TITANIUM, "tokenize", "--tokenizer", str(path)]
        expected = subprocess.run(command(tokenizer), input=text, capture_output=True, text=True, check=True).stdout
        self.proxy.faults = [503, "short"]
        run = subprocess.run(command("s3://corpus/tokenizer"), input=text, capture_output=True, text=True, env=self.environment())
        self.assertEqual((run.returncode, run.stdout), (0, expected), run.stderr)
        files = {path.name: path.read_bytes() for path in tokenizer.iterdir()}
        with hub_server.Hub("acme/tok", {**files, "model.safetensors": b"not wanted"}, ["model.safetensors"]) as hub:
            run = subprocess.run(command("hf://acme/tok"), input=text, capture_output=True, text=True, env=self.environment(HF_ENDPOINT=hub.url))
            self.assertEqual((run.returncode, run.stdout), (0, expected), run.stderr)
            self.assertEqual(hub.cdn.requests, [])

    def test_data_of_the_hub(self):
        with hub_server.Hub("acme/texts", dict(FILES), ["a.jsonl"], kind="datasets") as hub:
            hub.cdn.content_faults = ["short"]
            self.assertEqual(self.read("hf://datasets/acme/texts", HF_ENDPOINT=hub.url), DATA)
            compressed = {name: digest for name, digest in DATA.items() if name.endswith(".gz")}
            self.assertEqual(self.read("hf://datasets/acme/texts/sub/b*.gz", HF_ENDPOINT=hub.url), compressed)
            listed = [path for _, path, _ in hub.hub.requests if "/tree/" in path]
            self.assertIn(f"/tree/{hub_server.COMMIT}/sub?", listed[-1])  # nothing else is listed
            self.assertEqual(self.read("hf://datasets/acme/texts/*.gz", HF_ENDPOINT=hub.url), compressed)  # * passes slashes
            self.assertIn("Data path hf://datasets/acme/texts/*.parquet has no data files.", self.read("hf://datasets/acme/texts/*.parquet", code=1, HF_ENDPOINT=hub.url))
            self.assertIn(f"the dataset acme/texts has no such file or folder ({hub.url}/api/datasets/acme/texts/tree/{hub_server.COMMIT}/other). Check the path.",
                          self.read("hf://datasets/acme/texts/other/*.gz", code=1, HF_ENDPOINT=hub.url))

    def test_what_the_cache_has_is_not_fetched_and_is_read_without_the_hub(self):
        home = self.home / "hugging face"
        snapshot = home / f"hub/datasets--acme--texts/snapshots/{hub_server.COMMIT}"
        with hub_server.Hub("acme/texts", dict(FILES), ["a.jsonl"], kind="datasets") as hub:
            online = dict(HF_ENDPOINT=hub.url, HF_HOME=str(home))
            offline = {**online, "HF_HUB_OFFLINE": "1"}
            lacks = lambda what, revision="main": f"HF_HUB_OFFLINE is set, so {hub.url} is not asked, and the cache {home}/hub does not have {what} of the dataset acme/texts at the revision {revision}. Unset it, or name files of this machine."
            self.assertEqual(self.read("hf://datasets/acme/texts", code=1, **offline), lacks("anything"))
            subprocess.run([TITANIUM, "download", "acme/texts", "--repo-type", "dataset"], env=self.environment(**online), check=True, capture_output=True)
            hub.hub.requests.clear(), hub.cdn.requests.clear()
            self.assertEqual(self.read("hf://datasets/acme/texts", **online), DATA)
            self.assertEqual([path for _, path, _ in hub.hub.requests + hub.cdn.requests if "/api/" not in path], [])
            hub.hub.requests.clear()
            for path in ("hf://datasets/acme/texts", f"hf://datasets/acme/texts@{hub_server.COMMIT}"):
                self.assertEqual(self.read(path, **offline), DATA)
            self.assertEqual(self.read("hf://datasets/acme/texts/sub/c.txt", **offline), {"c.txt": DATA["sub/c.txt"]})
            self.assertEqual(self.read("hf://datasets/acme/texts/*.gz", **offline), {name: digest for name, digest in DATA.items() if name.endswith(".gz")})
            (snapshot / "a.jsonl").resolve().unlink()
            self.assertEqual(self.read("hf://datasets/acme/texts", **offline), {name: digest for name, digest in DATA.items() if name != "a.jsonl"})
            self.assertEqual(self.read("hf://datasets/acme/texts/a.jsonl", code=1, **offline), lacks("a.jsonl"))
            self.assertEqual(self.read("hf://datasets/acme/texts@v2", code=1, **offline), lacks("anything", "v2"))
            self.assertEqual(self.read("hf://datasets/acme/texts@../refs/main", code=1, **offline), lacks("anything", ".."))
            self.assertEqual(hub.hub.requests + hub.cdn.requests, [])
            self.assertEqual(self.read("hf://datasets/acme/texts", **online), DATA)  # what the cache lacks is fetched

    def test_a_hub_that_wants_to_be_asked_later_is_asked_then(self):
        for status, wait in ((429, lambda: "3"), (503, lambda: email.utils.formatdate(time.time() + 4, usegmt=True))):  # a date has whole seconds
            with hub_server.Hub("acme/texts", {"sub/c.txt": FILES["sub/c.txt"]}, kind="datasets") as hub:
                begin = time.monotonic()
                hub.hub.faults = [{"status": status, "Retry_After": wait()}]
                self.assertEqual(self.read("hf://datasets/acme/texts", HF_ENDPOINT=hub.url), {"sub/c.txt": DATA["sub/c.txt"]})
                self.assertGreater(time.monotonic() - begin, 2.9)  # without it 0.2 s
                self.assertEqual(sum("/revision/" in path for _, path, _ in hub.hub.requests), 2)

    def test_weights_are_read_from_buckets_and_from_the_hub(self):
        folder = self.home / "model"
        tiny_assets.make(folder)
        random_numbers = numpy.random.default_rng(1)
        weight = lambda *shape: random_numbers.standard_normal(shape, dtype=numpy.float32) * 0.1
        weights = {"model.embed_tokens.weight": weight(2048, 32), "lm_head.weight": weight(2048, 32), "model.norm.weight": weight(32)}
        shapes = {"self_attn.q_proj": (32, 32), "self_attn.k_proj": (16, 32), "self_attn.v_proj": (16, 32), "self_attn.o_proj": (32, 32), "mlp.gate_proj": (64, 32), "mlp.up_proj": (64, 32), "mlp.down_proj": (32, 64), "input_layernorm": (32,), "post_attention_layernorm": (32,)}
        weights |= {f"model.layers.{layer}.{name}.weight": weight(*shape) for layer in range(2) for name, shape in shapes.items()}
        safetensors.numpy.save_file(weights, folder / "model.safetensors")
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        for name, content in files.items():
            self.server.put("corpus", f"model/{name}", content)

        def generate(path, **environment):
            command = [TITANIUM, "generate", "--checkpoint", path, "--prompt", "The", "--temperature", "0", "--max-new-tokens", "5", "--training.device=cpu"]
            run = subprocess.run(command, capture_output=True, text=True, env=self.environment(**environment))
            self.assertEqual(run.returncode, 0, run.stderr)
            return run.stdout

        expected = generate(str(folder))
        self.proxy.faults = [None, 503, "short"]
        self.assertEqual(generate("s3://corpus/model"), expected)
        with hub_server.Hub("acme/tiny", files, ["model.safetensors"]) as hub:
            self.assertEqual(generate("hf://acme/tiny", HF_ENDPOINT=hub.url), expected)

    def train(self, out, *options, ranks=1, code=0):
        launch = ["launch", "--nproc-per-node", str(ranks), "--"] if ranks > 1 else []
        command = [TITANIUM, *launch, "train", "--job.config_file", str(ROOT / "configs/llama3/debug_model.toml"), "--training.device=cpu", "--job.dump_folder", str(out), "--training.seq_len", "64", "--training.local_batch_size", "2", "--metrics.log_freq", "1", *options]
        run = subprocess.run(command, capture_output=True, text=True, env=self.environment(), timeout=300)
        self.assertIn(run.returncode, code if isinstance(code, tuple) else (code,), run.stdout[-2000:] + run.stderr)
        return run

    def losses(self, kind, *options):
        """Of a run with a small model, and what it said."""
        out = self.home / kind
        run = self.train(out, *options)
        (metrics,) = out.rglob("metrics.jsonl")
        return [json.loads(line)["loss"] for line in metrics.read_text().splitlines()], run.stdout + run.stderr

    def test_a_run_survives_ten_seconds_without_the_server(self):
        local = self.home / "parts"
        local.mkdir()
        lines = LINES.splitlines(keepends=True)
        for i in range(20):
            (local / f"{i:02}.jsonl").write_bytes(b"".join(lines[i * 10 : i * 10 + 10]))
            self.server.put("corpus", f"parts/{i:02}.jsonl", (local / f"{i:02}.jsonl").read_bytes())
        options = ["--training.steps", "40", "--training.data_streams", "2", "--model.hf_assets_path", str(ROOT / "tests/assets/tokenizer")]
        expected, _ = self.losses("disk", *options, "--training.dataset_path", str(local))
        timers = []

        def go_away(method, path):
            if path.endswith("/03.jsonl") and not timers:
                timers.append(threading.Timer(10, setattr, (self.proxy, "down", False)))
                self.proxy.down = True
                timers[0].start()

        self.proxy.on_read = go_away
        found, output = self.losses("s3", *options, "--training.dataset_path", "s3://corpus/parts")
        self.assertEqual((len(timers), self.proxy.down), (1, False))
        self.assertRegex(output, r"03\.jsonl: .*; trying again")
        self.assertLess(output.index("step:  1 "), output.index("; trying again"))  # it was under way
        self.assertEqual(found, expected)

    def test_one_rank_lists_for_all(self):
        for i in range(4):
            self.server.put("corpus", f"listed/{i:02}.jsonl", LINES[:200_000].rsplit(b"\n", 1)[0] + b"\n")
        options = ["--training.dataset_path", "s3://corpus/listed", "--training.steps", "2", "--training.data_streams", "2", "--training.global_batch_size", "4", "--model.hf_assets_path", str(ROOT / "tests/assets/tokenizer")]
        losses = []
        for ranks in (1, 2):
            self.proxy.requests.clear()
            self.train(self.home / str(ranks), *options, ranks=ranks)
            if ranks == 2:
                self.assertEqual(sum("list-type=2" in path for _, path, _ in self.proxy.requests), 1)
            (metrics,) = (self.home / str(ranks)).rglob("metrics.jsonl")
            losses.append([round(json.loads(line)["loss"], 3) for line in metrics.read_text().splitlines()])
        self.assertEqual(*losses)
        missing = self.train(self.home / "missing", *options, "--training.dataset_path", "s3://nowhere/listed", ranks=2, code=(1, 2))  # of the rank that says it, or of one that hears of it first
        self.assertIn("s3://nowhere/listed: there is no bucket nowhere. Check its name and the region.", missing.stdout + missing.stderr)

    # One rank reads the file that does not come, and the other one waits for it in a collective.
    def test_a_read_gives_up_before_the_collectives_of_other_ranks_do(self):
        lines = LINES.splitlines(keepends=True)
        for i in range(20):
            self.server.put("corpus", f"dealt/{i:02}.jsonl", b"".join(lines[i * 40 : i * 40 + 40]))
        self.proxy.on_read = lambda method, path: 503 if path.endswith("/05.jsonl") else None
        options = ["--training.dataset_path", "s3://corpus/dealt", "--training.steps", "400", "--training.data_streams", "2", "--training.data_striping", "blocks", "--training.data_lanes", "2"]
        run = self.train(self.home / "given_up", *options, "--model.hf_assets_path", str(ROOT / "tests/assets/tokenizer"), "--comm.train_timeout_seconds=12", ranks=2, code=1)
        output = run.stdout + run.stderr
        self.assertIn("step:  1 ", output)  # it was under way
        self.assertRegex(output, r"s3://corpus/dealt/05\.jsonl answers 503, after \d+ attempts in [0-7] s\. Check the network and the server\.")
        self.assertNotIn("comm.train_timeout_seconds", output)

    # The file can be opened after a while, and then not be read: each would have 12 s by itself.
    def test_failures_that_follow_each_other_share_the_time_of_a_step(self):
        lines = LINES.splitlines(keepends=True)
        for i in range(20):
            self.server.put("corpus", f"slow/{i:02}.jsonl", b"".join(lines[i * 40 : i * 40 + 40]))
        opened = []

        def fail(method, path):
            if not path.endswith("/05.jsonl"):
                return None
            opened.append(method)
            return 503 if method == "GET" or opened.count("HEAD") <= 5 else None  # pauses of 3 to 6 s together

        self.proxy.on_read = fail
        options = ["--training.dataset_path", "s3://corpus/slow", "--training.steps", "400", "--training.data_streams", "2", "--training.data_striping", "blocks", "--training.data_lanes", "2"]
        run = self.train(self.home / "given_up", *options, "--model.hf_assets_path", str(ROOT / "tests/assets/tokenizer"), "--comm.train_timeout_seconds=20", "--training.dataloader.prefetch_factor=1", ranks=2, code=1)
        output = run.stdout + run.stderr
        self.assertIn("step:  1 ", output)  # it was under way
        self.assertEqual(opened[:7], ["HEAD"] * 6 + ["GET"])
        self.assertRegex(output, r"s3://corpus/slow/05\.jsonl answers 503, after \d+ attempts in \d+ s, with [1-9] s of failures just before\. Check the network and the server\.")
        self.assertNotIn("comm.train_timeout_seconds", output)

    def test_training_from_a_bucket_gives_the_losses_of_the_disk(self):
        losses = {}
        local = self.home / "texts"
        for name in ("a.jsonl", "sub/c.txt"):
            (local / name).parent.mkdir(parents=True, exist_ok=True)
            (local / name).write_bytes(FILES[name][:300_000].rsplit(b"\n", 1)[0] + b"\n")
            self.server.put("corpus", f"small/{name}", (local / name).read_bytes())
        for kind, path, assets in (("disk", str(local), str(ROOT / "tests/assets/tokenizer")), ("s3", "s3://corpus/small", "s3://corpus/tokenizer")):
            self.proxy.faults = [None, 503, "reset", "short", "short"]
            losses[kind], _ = self.losses(kind, "--training.dataset_path", path, "--model.hf_assets_path", assets, "--training.steps", "2")
        self.assertTrue(losses["disk"] and losses["disk"][0])
        self.assertEqual(losses["disk"], losses["s3"])


if __name__ == "__main__":
    unittest.main()
