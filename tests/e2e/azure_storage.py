"""Data and tokenizers in Azure's storage: the bytes of the disk with a shared key, a token or a connection string, or one sentence."""

import hashlib
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import azure_server
import role_server

TITANIUM = os.environ["TITANIUM"]
DRIVER = os.path.join(os.environ["TITANIUM_BUILD"], "object_stores_driver")
TOKENIZER = pathlib.Path(__file__).resolve().parents[1] / "assets/tokenizer"
LINES = "".join(json.dumps({"text": f"document {i} " + "word " * (i % 50)}) + "\n" for i in range(60_000)).encode()
FILES = {"texts/a.jsonl": LINES, "texts/b & c+d.jsonl": LINES[:1000].rsplit(b"\n", 1)[0], "texts/sub/ü.txt": b"text", "texts/notes.md": b"no data", "texts2/x.jsonl": b"other"}
DATA = {name.removeprefix("texts/"): hashlib.sha256(content).hexdigest() for name, content in FILES.items() if name.startswith("texts/") and not name.endswith(".md")}


class AzureStorage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        tokenizer = {f"tokenizer/{path.name}": path.read_bytes() for path in TOKENIZER.iterdir()}
        cls.server = azure_server.AzureServer({"corpus": {**FILES, **tokenizer}})
        cls.addClassCleanup(cls.server.stop)

    def setUp(self):
        self.server.busy = 0
        home = tempfile.TemporaryDirectory()
        self.addCleanup(home.cleanup)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("AZURE_", "XDG_"))}
        self.clean = {**clean, "HOME": home.name, "AZURE_STORAGE_ACCOUNT": azure_server.ACCOUNT, "AZURE_STORAGE_ENDPOINT": self.server.url}

    def read(self, path, code=0, **environment):
        run = subprocess.run([DRIVER, path], capture_output=True, text=True, env={**self.clean, **environment}, timeout=100)
        self.assertEqual(run.returncode, code, run.stderr)
        for secret in (azure_server.KEY, "c2ln", "SharedKey", azure_server.TOKEN):
            self.assertNotIn(secret, run.stdout + run.stderr)
        return run.stderr.strip() if code else {line.rsplit(" ", 2)[0]: line.rsplit(" ", 1)[1] for line in run.stdout.splitlines()}

    def test_keys_tokens_and_connection_strings_give_the_bytes(self):
        connection = f"DefaultEndpointsProtocol=http;AccountName={azure_server.ACCOUNT};AccountKey={azure_server.KEY};BlobEndpoint={self.server.url}/"
        for environment in (dict(AZURE_STORAGE_KEY=azure_server.KEY), dict(AZURE_STORAGE_SAS_TOKEN="?" + azure_server.SAS), dict(AZURE_STORAGE_CONNECTION_STRING=connection, AZURE_STORAGE_ENDPOINT="http://127.0.0.1:1")):
            self.server.busy = 3
            self.assertEqual(self.read("az://corpus/texts", **environment), DATA)
            self.assertEqual(self.server.busy, 0)
        self.assertEqual(self.read("az://corpus/texts/sub/ü.txt", AZURE_STORAGE_KEY=azure_server.KEY), {"ü.txt": DATA["sub/ü.txt"]})

    def test_the_identity_of_the_machine_gives_the_bytes(self):
        with role_server.RoleServer(token=azure_server.TOKEN) as role:
            identity = dict(AZURE_STORAGE_AUTH_MODE="login", AZURE_POD_IDENTITY_AUTHORITY_HOST=role.url)
            self.assertEqual(self.read("az://corpus/texts", **identity), DATA)
            self.assertEqual(len(role.requests), 1)
        with role_server.RoleServer(token=azure_server.TOKEN + "x") as role:
            sentence = "az://corpus/texts: access is denied. Check the key or token of the storage account, and its permissions."
            self.assertEqual(self.read("az://corpus/texts", code=1, **{**identity, "AZURE_POD_IDENTITY_AUTHORITY_HOST": role.url}), sentence)

    def test_tokenizers_are_read_too(self):
        run = lambda path: subprocess.run([TITANIUM, "tokenize", "--tokenizer", path], input="hello world\n", capture_output=True, text=True, env={**self.clean, "AZURE_STORAGE_KEY": azure_server.KEY})
        self.assertEqual(run("az://corpus/tokenizer").stdout, run(str(TOKENIZER)).stdout)
        self.assertTrue(run(str(TOKENIZER)).stdout)

    def test_mistakes_have_their_sentences(self):
        key = dict(AZURE_STORAGE_KEY=azure_server.KEY)
        for path, environment, sentence in (
            ("az://corpus/texts", dict(AZURE_STORAGE_KEY="d3Jvbmc="), "az://corpus/texts: access is denied. Check the key or token of the storage account, and its permissions."),
            ("az://corpus/texts", dict(AZURE_STORAGE_KEY="not base64!"), "AZURE_STORAGE_KEY is not base64. Copy the key of the storage account again."),
            ("az://corpus/texts", {}, "az://corpus/texts: access is denied without credentials. Check AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN."),
            ("az://nowhere/texts", key, "az://nowhere/texts: the storage account acme has no container nowhere. Check both names."),
            ("az://corpus/none", key, "Data path az://corpus/none has no data files."),
            ("az://corpus/texts", dict(AZURE_STORAGE_ACCOUNT="", AZURE_STORAGE_ENDPOINT=""), "az://corpus/texts needs a storage account. Set AZURE_STORAGE_ACCOUNT, with AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, or AZURE_STORAGE_CONNECTION_STRING."),
        ):
            with self.subTest(sentence):
                self.assertIn(sentence, self.read(path, code=1, **environment))


if __name__ == "__main__":
    unittest.main()
