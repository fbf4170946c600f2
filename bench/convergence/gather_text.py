"""Gathers English text and source code of Debian packages and folders into JSONL files to train a small model on.

    python3 bench/convergence/gather_text.py SOURCE ... --out FOLDER [--megabytes 450] [--most-of-one 40]

A source is a Debian package (a .deb file, which is unpacked into a temporary folder, with the archives of source code in it) or a
folder. Read are documentation (.txt, .rst, .md, .html, manual pages) and source code (.py, .h, .c, .cpp, .rs, .java, ...), plain or with
.gz. Left out are changelogs, tests, indexes, files that are not UTF-8 or mostly not words, tables (such as definitions of registers and
lists of links), paragraphs that state a copyright and its licence, documents that were there before, and paragraphs of more than 200
characters that were there before. The files of a source are read in an order that follows from their paths alone, until the source has
given --most-of-one megabytes. One document in 256, chosen by its hash, goes to validation.jsonl, the others to train.jsonl. Where there
is more than --megabytes, every source gives the same share of its documents.

manifest.json names each source with its version, the file that states its licence, and the SHA-256 of the text that it gave.
"""

import argparse
import collections
import concurrent.futures
import gzip
import hashlib
import html
import itertools
import json
import os
import pathlib
import re
import string
import subprocess
import tempfile
import zlib

ENDINGS = {".txt", ".rst", ".md", ".html", ".htm", ".tex", ".texi", ".py", ".pyi", ".pyx", ".h", ".hh", ".hpp", ".hxx", ".cuh", ".c", ".cc", ".cpp",
           ".cxx", ".cu", ".pl", ".pm", ".pod", ".sh", ".cmake", ".el", ".rb", ".js", ".java", ".go", ".rs", ".erl", ".hrl", ".ml", ".mli", ".lisp", ".scm",
           ".rkt", ".pas", ".pp", ".php", ".ads", ".adb", ".m"}
MANUAL = re.compile(r"\.[1-9][a-z]*$")
SKIPPED_NAMES = re.compile(
    r"changelog|copyright|^NEWS|genindex|searchindex|doc-index|-members\.html|_source\.html|\.min\.js|_pb2\.py|unicode|^test_|_test\.|contents-all"
    r"|\.(de|es|fr|ja|ko|pt-br|tr|da|zh-cn|ru|it|cs|nl|hu|ca)\.html?", re.I)
SKIPPED_FOLDERS = re.compile(r"tests?|testsuite|testdata|fixtures|_sources|_modules|class-use")  # Sphinx and javadoc repeat what they document
OTHER_LANGUAGES = re.compile(r"(locale|ar|cs|ca|da|de|el|es|fa|fi|fr|hr|hu|id|it|ja|ko|nb|nl|nn|pl|pt|ro|ru|sv|tr|uk|vi|zh)([-_][A-Za-z]{2,4})?")
NO_LETTERS = bytes(set(range(128)) - set(string.ascii_letters.encode()))
LICENCE_WORDS = ("license", "licence", "warranty", "permission", "redistribut")
SMALLEST, LARGEST = 400, 400_000


def plain_html(text):
    text = re.sub(r"(?is)<(script|style|head|nav|footer)\b.*?</\1>|<div class=\"sphinxsidebar\"(?!.*class=\"body\").*", " ", text)
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


def is_wanted(path):
    """Whether a file with this path inside its source is read."""
    name = path.name.removesuffix(".gz")
    manual = MANUAL.search(name) is not None and path.parent.name.startswith("man")
    ending = pathlib.PurePath(name).suffix.lower()
    folders = path.parts[:-1]
    return ((manual or ending in ENDINGS) and not SKIPPED_NAMES.search(name)
            and not any(map(SKIPPED_FOLDERS.fullmatch, folders)) and not any(map(OTHER_LANGUAGES.fullmatch, folders)))


def text_of(path):
    """The text of a file, or nothing if it is not text."""
    name = path.name.removesuffix(".gz")
    manual = MANUAL.search(name) is not None and "/man" in str(path.parent)
    ending = pathlib.PurePath(name).suffix.lower()
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
    others = sample.encode().translate(None, (string.ascii_letters + string.whitespace).encode())
    return len(others) < 0.3 * len(sample) and max(map(len, sample.splitlines() or [""])) < 2_000


def is_table(text):
    """Whether most lines are alike but for their words and numbers, or the text repeats itself so much that it shrinks to a seventh."""
    sample = text[:20_000]
    shapes = [shape for line in re.sub(r"\w+", "w", sample).splitlines() if (shape := line.strip())]
    alike = sum(count for _, count in collections.Counter(shapes).most_common(3))
    data = text[:50_000].encode()
    return len(shapes) >= 30 and alike > 0.5 * len(shapes) or len(data) > 7 * len(zlib.compress(data))


def is_licence(paragraph):
    """Whether a paragraph states who holds a copyright and what is allowed, as most files of source code begin."""
    words = paragraph.lower()
    begins = words.lstrip(" \t*/#;%-").startswith(("copyright", "distributed under", "licensed under"))
    return len(paragraph) < 4_000 and (begins or "copyright" in words and any(word in words for word in LICENCE_WORDS))


def read(path):
    """A document's paragraphs as pairs of key and text; short ones have no key, since they may repeat. Nothing if it is no document."""
    text = text_of(path)
    if text is None or not is_language(text) or is_table(text):
        return None
    return [(len(paragraph) > 200 and hashlib.sha256(paragraph.encode().translate(None, NO_LETTERS)).digest()[:12], paragraph)
            for paragraph in re.split(r"\n\s*\n", text) if not is_licence(paragraph)]


def without_frame(paragraphs, edges):
    """The paragraphs of a page without those at both ends that its source had there ten times before, such as menus; counts them in `edges`."""
    first, last = 0, len(paragraphs)
    edges.update({text.strip() for _, text in paragraphs[:20] + paragraphs[-20:]})
    while first < last and edges[paragraphs[first][1].strip()] > 10:
        first += 1
    while first < last and edges[paragraphs[last - 1][1].strip()] > 10:
        last -= 1
    return paragraphs[first:last]


def without_repeats(paragraphs, seen):
    """The text without paragraphs whose keys are in `seen`; puts its own there."""
    kept = [paragraph for key, paragraph in paragraphs if not key or key not in seen and not seen.add(key)]
    return "\n\n".join(kept).strip()


def unpack(package, folder):
    """Unpacks a .deb file, and the archives of source code that it brings."""
    subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
    for archive in [*folder.glob("usr/src/**/*.tar.*"), *folder.glob("usr/lib/jvm/**/src.zip")]:
        if archive.is_file() and not archive.is_symlink():
            command = ["unzip", "-q", archive, "-d", archive.parent] if archive.suffix == ".zip" else ["tar", "-xf", archive, "-C", archive.parent]
            subprocess.run(command, check=True)


def describe_package(package, folder):
    """Name, version and licence of a Debian package that was unpacked into `folder`."""
    fields = {name: subprocess.run(["dpkg-deb", "--field", package, name], check=True, capture_output=True, text=True).stdout.strip()
              for name in ("Package", "Version", "Section")}
    described = {"source": fields["Package"], "version": fields["Version"], "section": fields["Section"]}
    statement = folder / "usr/share/doc" / fields["Package"] / "copyright"
    described["licence_file"] = str(statement.relative_to(folder))
    if statement.is_file():
        text = statement.read_text(errors="replace")
        described["licences"] = sorted(set(re.findall(r"(?m)^License: *(\S.*)$", text)))[:20]
    return described


def describe_folder(folder):
    """The same for a folder; version and licence are known where it is a Python package."""
    described = {"source": folder.name}
    for metadata in sorted(folder.parent.glob(f"{folder.name}-*.dist-info/METADATA")):
        fields = dict(re.findall(r"(?m)^(Version|License(?:-Expression|-File)?): *(\S.*)$", metadata.read_text(errors="replace")))
        described |= {"version": fields.get("Version", ""), "licence_file": f"{metadata.parent.name}/{fields.get('License-File', 'METADATA')}",
                      "licences": [fields[name] for name in ("License-Expression", "License") if name in fields]}
    return described


def documents(folder, seen, most_bytes, pool):
    """What one source gives, as texts, until they have `most_bytes`."""
    names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    names = sorted((name for name in names if is_wanted(name)), key=lambda name: hashlib.sha256(str(name).encode()).digest())
    left = most_bytes
    edges = collections.Counter()
    for begin in range(0, len(names), 512):
        some = names[begin:begin + 512]
        for name, paragraphs in zip(some, pool.map(read, [folder / name for name in some], chunksize=16)):
            if paragraphs and ".htm" in name.suffix:
                paragraphs = without_frame(paragraphs, edges)
            text = without_repeats(paragraphs or [], seen)
            if not is_language(text):
                continue
            left -= len(text.encode())
            if left < 0:
                return
            yield text


def gather(sources, most_bytes, processes):
    """Every source's entry of the manifest, and its documents as pairs of hash and text."""
    seen = set()
    with concurrent.futures.ProcessPoolExecutor(processes) as pool:
        for source in sources:
            with tempfile.TemporaryDirectory() as unpacked:
                folder = source
                if source.suffix == ".deb":
                    folder = pathlib.Path(unpacked)
                    unpack(source, folder)
                described = describe_package(source, folder) if source.suffix == ".deb" else describe_folder(source.resolve())
                texts = documents(folder, seen, most_bytes, pool)
                yield described, [(hashlib.sha256(text.encode()).digest(), text) for text in texts]


def write(gathered, share, out):
    """Writes the two files and the manifest; `share` of the documents of each source are taken."""
    manifest = []
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "train.jsonl", "w") as train, open(out / "validation.jsonl", "w") as validation:
        for described, found in gathered:
            taken = [(key, text) for key, text in found if int.from_bytes(key[4:8], "big") < share * 2**32]
            for key, text in taken:
                (validation if key[0] == 0 else train).write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            digest = hashlib.sha256(b"".join(key for key, _ in taken)).hexdigest()
            manifest.append(described | {"documents": len(taken), "bytes": sum(len(text.encode()) for _, text in taken), "sha256": digest})
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--megabytes", type=int, default=450)
    parser.add_argument("--most-of-one", type=int, default=40)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    args = parser.parse_args()
    gathered = []
    for described, found in gather(args.sources, args.most_of_one * 1e6, args.processes):
        print(f"{described['source']}: {len(found):,} documents, {sum(len(text) for _, text in found) / 1e6:,.1f} million characters", flush=True)
        gathered.append((described, found))
    texts = list(itertools.chain.from_iterable(found for _, found in gathered))
    size = sum(len(text.encode()) for _, text in texts)
    share = min(1.0, args.megabytes * 1e6 / max(size, 1))
    write(gathered, share, args.out)
    print(f"{len(texts):,} documents, {size / 1e6:,.0f} MB, of which {share:.0%} were taken")


if __name__ == "__main__":
    main()
