"""The sample corpus in tests/assets is what tools/make_corpus.py makes, byte for byte, and is fit for training."""

import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def texts(path):
    return [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()]


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, ROOT / "tools" / "make_corpus.py", folder], check=True)
        for name in ("c4_test", "c4_test_validation"):
            made = (pathlib.Path(folder) / name / "data.jsonl").read_bytes()
            kept = (ROOT / "tests" / "assets" / name / "data.jsonl").read_bytes()
            assert made == kept, f"tests/assets/{name} is not what tools/make_corpus.py makes: run it and commit the result"

    training = texts(ROOT / "tests/assets/c4_test/data.jsonl")
    validation = texts(ROOT / "tests/assets/c4_test_validation/data.jsonl")
    assert len(training) == 2000 and 2_900_000 < sum(len(text.encode()) for text in training) + 30_000 < 3_100_000
    assert len(set(training)) == len(training), "documents are repeated"
    assert not set(training) & set(validation), "the validation set must not repeat training documents"
    assert min(map(len, training)) >= 50 and max(map(len, training)) <= 8000
    assert sum(not text.isascii() for text in training) > 500, "too few documents with letters beyond ASCII"
    print("ok")


if __name__ == "__main__":
    main()
