"""Texts through `titanium tokenize`."""

import json
import os
import subprocess


def titanium(path, lines, *flags, environment=None):
    command = [os.environ["TITANIUM"], "tokenize", "--tokenizer", str(path), "--json", *flags]
    run = subprocess.run(
        command,
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, **(environment or {})},
    )
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.split("\n")[:-1]]
