#!/usr/bin/env python3
"""Runs clang-tidy 19 with the checks of .clang-tidy over the library, or over the files given.

  tools/run_clang_tidy.py [--jobs N] [titanium/ops/linear/linear.cpp ...]

It takes the flags of build/compile_commands.json, so `./run_tests.sh -N` or any build comes first. A file without findings is
remembered in build/tidy/done and passed over until it, .clang-tidy or this tool changes (not when a header does: remove the folder
to check everything again), so that a run that was ended goes on where it was. Two things make it quick: the two precompiled headers
are built for clang as well, and, where the headers of clang are installed (`apt-get install libclang-19-dev llvm-19-dev`),
tools/clang_tidy_scope.cpp keeps the checks out of the files of others. LLVM_INCLUDE names another folder that has these headers.
Exit code 1 if there are findings.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build/tidy"
# Flags of gcc that clang does not know, and what it would say about them.
GCC_ALONE = {"-fpch-preprocess", "-Winvalid-pch"}
# libstdc++ itself uses what it calls deprecated.
QUIET = ["-Wno-deprecated-declarations", "-Wno-unknown-warning-option", "-Wno-ignored-optimization-argument", "-Wno-unused-command-line-argument"]


def is_older(made, *sources):
    return not made.exists() or any(made.stat().st_mtime < source.stat().st_mtime for source in sources)


def call(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(map(str, command))} failed:\n{done.stdout}")


def build_scope():
    """The module that keeps checks inside our files, or None where clang's headers are missing."""
    include = pathlib.Path(os.environ.get("LLVM_INCLUDE", "/usr/lib/llvm-19/include"))
    source, module = ROOT / "tools/clang_tidy_scope.cpp", WORK / "scope.so"
    if not (include / "clang-tidy/ClangTidyModule.h").exists() or not (include / "llvm/ADT/StringRef.h").exists():
        print("without libclang-19-dev and llvm-19-dev this takes ten times as long", file=sys.stderr)
        return None
    if is_older(module, source):
        call(["c++", "-std=c++17", "-O1", "-fPIC", "-fno-rtti", "-shared", "-isystem", include, source, "-o", module])
    return module


def precompile(header, flags):
    """The header for clang, with the flags of a file that includes it."""
    built = WORK / f"{header.parent.name}.pch"
    source = ROOT / "titanium" / re.search(r"titanium_(\w+)\.dir", str(header)).group(1) / "precompiled.h"
    if is_older(built, header, source, ROOT / "titanium/base/precompiled.h"):
        call(["clang++-19", *flags, "-w", "-x", "c++-header", header, "-o", built])
    return built


def clang_command(entry, headers, include):
    """The command of a file as clang takes it; `headers` gets the precompiled headers that it needs, `include` comes last of all folders."""
    words, result = iter(shlex.split(entry["command"])[1:]), ["clang++-19"]
    header = None
    for word in words:
        if word == "-include":
            header = pathlib.Path(next(words))
        elif word in ("-o", "-c"):
            next(words)
        elif word not in GCC_ALONE:
            result.append(word)
    if header:
        if header not in headers:
            headers[header] = precompile(header, [word for word in result[1:] if not word.startswith("-DUSE_C10D")])
        result += ["-include-pch", str(headers[header])]
    return {"directory": entry["directory"], "file": entry["file"], "arguments": [*result, *QUIET, "-idirafter", include, "-c", entry["file"]]}


def write_database():
    """build/tidy/compile_commands.json; gives the files of the library that it has."""
    # clang's own omp.h is not installed; gcc's is in this folder, which must not come before clang's.
    include = subprocess.run(["c++", "-print-file-name=include"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    path = ROOT / "build/compile_commands.json"
    if not path.exists():
        sys.exit("build first: ./run_tests.sh -N")
    entries = {entry["file"]: entry for entry in json.loads(path.read_text()) if entry["file"].startswith(f"{ROOT}/titanium/")}
    headers = {}
    (WORK / "compile_commands.json").write_text(json.dumps([clang_command(entry, headers, include) for entry in entries.values()]))
    return sorted(map(pathlib.Path, entries))


def check(file, scope):
    """What clang-tidy says of the file, or nothing."""
    done = WORK / "done" / file.relative_to(ROOT)
    if not is_older(done, file, ROOT / ".clang-tidy", ROOT / "tools/clang_tidy_scope.cpp"):
        return ""
    options = [f"--load={scope}", "--checks=titanium-scope"] if scope else []
    result = subprocess.run(["nice", "-n", "19", "clang-tidy-19", "-p", WORK, f"--config-file={ROOT}/.clang-tidy", "--quiet", *options, file],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    places = re.findall(r"^(/[^:\n]+):\d+", result.stdout, re.MULTILINE)
    of_others = places and not any(place.startswith(f"{ROOT}/") for place in places)  # gcc's omp.h is not clang's
    if of_others or (result.returncode == 0 and not result.stdout.strip()):
        done.parent.mkdir(parents=True, exist_ok=True)
        done.touch()
        return ""
    return result.stdout.strip() or result.stderr.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    files, scope = write_database(), build_scope()
    if options.files:
        wanted = {file.resolve() for file in options.files}
        if missing := sorted(str(file) for file in wanted - set(files)):
            sys.exit(f"not part of this build: {', '.join(missing)}")
        files = sorted(wanted)
    findings = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for number, (file, said) in enumerate(zip(files, pool.map(lambda file: check(file, scope), files)), 1):
            if said:
                findings += 1
                print(said, flush=True)
            if number % 20 == 0 or number == len(files):
                print(f"{number} of {len(files)} files, {findings} with findings", file=sys.stderr, flush=True)
    sys.exit(findings > 0)


if __name__ == "__main__":
    main()
