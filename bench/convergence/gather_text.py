"""Gathers English text and source code that a Debian machine has into JSONL files to train a small model on.

    python3 bench/convergence/gather_text.py FOLDER ... --out FOLDER [--megabytes 280]

Reads documentation (.txt, .rst, .md, .html, manual pages) and source code (.py, .h, .c, .cpp, .pl, .sh, ...), plain or with .gz,
in the order of their paths. Left out are changelogs, files that are not UTF-8 or mostly not words, documents that were there before, and
paragraphs of more than 200 characters that were there before, such as licenses. One document in 256, chosen by its hash, goes to
validation.jsonl, the others to train.jsonl. Where there is more than --megabytes, every folder gives the same share of its documents.
"""

import argparse
import gzip
import hashlib
import html
import json
import pathlib
import re

ENDINGS = {".txt", ".rst", ".md", ".html", ".htm", ".py", ".pyi", ".h", ".hpp", ".cuh", ".c", ".cc", ".cpp", ".cu", ".pl", ".pm", ".pod", ".sh",
           ".cmake", ".el", ".rb", ".js", ".tex", ".texi"}
MANUAL = re.compile(r"\.[1-9][a-z]*$")
SKIPPED_NAMES = re.compile(r"changelog|copyright|NEWS|genindex|searchindex|\.min\.js|_pb2\.py|unicode|test_|/locale/|contents-all|\.(de|es|fr|ja|ko|pt-br|tr|da|zh-cn|ru|it|cs|nl|hu|ca)\.html?", re.I)
SMALLEST, LARGEST = 400, 400_000


def plain_html(text):
    text = re.sub(r"(?is)<(script|style|head|nav|footer)\b.*?</\1>", " ", text)
    text = re.sub(r"(?i)<(br|p|div|li|tr|h[1-6]|pre|dt|dd|table|ul|ol)\b[^>]*>", "\n", text)
    text = html.unescape(re.sub(r"<[^>]*>", "", text)).replace("\u00b6", "")
    return re.sub(r"\n[ \t\n]*\n", "\n\n", text)


def plain_manual(text):
    lines = []
    for line in text.splitlines():
        if line.startswith((".SH", ".SS", ".Sh", ".Ss", ".B ", ".I ", ".BR ", ".IR ", ".TP", ".PP", ".P", ".Pp", ".It")):
            words = re.sub(r"^\.[A-Za-z]+ ?", "", line).replace('"', "")
            line = "\n" + words if line[1:2] in "STP" else words
        elif line.startswith((".", "'")):
            continue
        lines.append(re.sub(r"\\f[A-Z]|\\f\(..|\\&|\\[cs][-+0-9]*", "", line).replace("\\-", "-").replace("\\e", "\\").replace("\\(aq", "'"))
    return re.sub(r"\n[ \t\n]*\n", "\n\n", "\n".join(lines))


def read(path):
    """The text of a file, or nothing if it is not one."""
    name = path.name.removesuffix(".gz")
    manual = MANUAL.search(name) is not None and "/man" in str(path.parent)
    ending = pathlib.PurePath(name).suffix.lower()
    if not (manual or ending in ENDINGS) or SKIPPED_NAMES.search(str(path)):
        return None
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.name.endswith(".gz") else data).decode()
    except (OSError, ValueError, EOFError):
        return None
    if manual:
        return plain_manual(text)
    return plain_html(text) if ending in (".html", ".htm") else text


def is_language(text):
    if not SMALLEST <= len(text) <= LARGEST or "\0" in text:
        return False
    sample = text[:20_000]
    letters = sum(c.isascii() and (c.isalpha() or c.isspace()) for c in sample)
    return letters > 0.7 * len(sample) and max(map(len, sample.splitlines() or [""])) < 2_000


def without_repeats(text, seen):
    """`text` without long paragraphs that are in `seen`; puts its own there."""
    kept = []
    for paragraph in re.split(r"\n\s*\n", text):
        if len(paragraph) > 200:
            key = hashlib.sha256(re.sub(r"[\W\d]+", "", paragraph).encode()).digest()[:12]
            if key in seen:
                continue
            seen.add(key)
        kept.append(paragraph)
    return "\n\n".join(kept).strip()


def documents(folders):
    seen = set()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_symlink() or not path.is_file():
                continue
            text = read(path)
            if text is None or not is_language(text):
                continue
            text = without_repeats(text, seen)
            if is_language(text):
                yield text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--megabytes", type=int, default=280)
    args = parser.parse_args()
    found = [(hashlib.sha256(text.encode()).digest(), text) for text in documents(args.folders)]
    size = sum(len(text.encode()) for _, text in found)
    share = min(1.0, args.megabytes * 1e6 / max(size, 1))
    args.out.mkdir(parents=True, exist_ok=True)
    with open(args.out / "train.jsonl", "w") as train, open(args.out / "validation.jsonl", "w") as validation:
        for key, text in found:
            if int.from_bytes(key[4:8], "big") >= share * 2**32:
                continue
            (validation if key[0] == 0 else train).write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
    print(f"{len(found):,} documents, {size / 1e6:,.0f} MB, of which {share:.0%} were taken")


if __name__ == "__main__":
    main()
