"""Checks of the source tree that are tests: layers, sizes, headers, models, axes, notes, citations, format, linkage.

    python tools/check_structure.py layers|sizes|headers|models|axes|notes|citations|format
    python tools/check_structure.py linkage build/titanium
"""

import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE_SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
MAX_KERNEL_LINES = 120
FORBIDDEN_HEADERS = {"torch/torch.h", "torch/nn.h", "torch/extension.h", "torch/all.h", "ATen/ATen.h", "ATen/Functions.h"}
FORBIDDEN_NAMES = re.compile(r"(^|_)(utils?|helpers?|misc|manager|v2|fast|new)(_|$)")
# What the program may need at run time besides the torch wheel: the C and C++ runtimes that every machine has.
SYSTEM_LIBRARIES = re.compile(r"^(ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|gomp|asan|ubsan))\.so(\.\d+)*$")
WHEEL_LIBRARIES = re.compile(r"^lib(c10|c10_cuda|torch|torch_cpu|torch_cuda|cudart|cublas|cublasLt|cudnn|nccl)\.so(\.\d+)*$")

# Which files may spell the name of a mesh axis. Everything else asks parallel/placement.h over which axes a parameter is cut
# or replicated, so that a parameter in another view of the ranks needs no change elsewhere.
AXIS_HOMES = ("titanium/parallel/parallel_dims.cpp", "titanium/parallel/mesh.cpp", "titanium/parallel/placement.cpp")
EXCHANGES = ("titanium/models/parallelize.cpp", "titanium/parallel/context_parallel.cpp", "titanium/parallel/expert_parallel.cpp")  # they connect the axis with the model
# Which ranks read and count which tokens, and which have the last stage.
TOKENS = ("titanium/train/train_state.cpp", "titanium/train/train_step.cpp", "titanium/train/task/text_task.cpp")
STAGES = ("titanium/train/train_state.cpp", "titanium/train/train_step.cpp", "titanium/train/pipeline.cpp",
          "titanium/train/trainer.cpp", "titanium/train/validate.cpp", "titanium/train/report/expert_balance.cpp")
AXIS_FILES = {
    "dp_replicate": AXIS_HOMES,
    "fsdp": AXIS_HOMES,
    "efsdp": AXIS_HOMES,
    "ep": AXIS_HOMES + EXCHANGES,
    "etp": AXIS_HOMES,
    "tp": AXIS_HOMES + EXCHANGES + TOKENS,
    "cp": AXIS_HOMES + EXCHANGES + TOKENS,
    "pp": AXIS_HOMES + STAGES + ("titanium/parallel/matrix_owners.cpp",),  # a matrix stays inside its stage
}
# Asking ParallelDims for the degree of an axis names it as well. These files do so and do not spell the name: they plan or check
# a run by its degrees before there is a mesh, or choose how data parallelism is applied.
PLAN = ("titanium/train/memory_plan.cpp",)
APPLY = ("titanium/models/parallelize.cpp",)
DEGREE_FILES = {
    "dp_replicate": APPLY + PLAN + ("titanium/doctor/doctor.cpp",),
    "dp_shard": (),
    "fsdp": APPLY + ("titanium/train/task/image_encoders.cpp",),
    "efsdp": (),
    "ep": ("titanium/cli/commands/estimate.cpp",),
    "etp": ("titanium/parallel/expert_parallel.cpp",),
    "tp": PLAN + ("titanium/models/model_converters.cpp",),
    "cp": PLAN,
    "pp": APPLY + PLAN + ("titanium/models/model_converters.cpp", "titanium/checkpoint/state_dict.cpp", "titanium/train/check_run.cpp"),
}


# Files outside of models/ that speak of one: options as torchtitan names them, examples in help, vocabularies and file
# formats that a family has made.
NAMES_MODELS = {
    "titanium/config/job_config.h", "titanium/config/schema/schema.cpp", "titanium/config/schema/flux_schema.cpp", "titanium/config/schema/extension.cpp",
    "titanium/cli/help.cpp", "titanium/cli/commands/init.cpp", "titanium/cli/commands/inspect.cpp",
    "titanium/cli/commands/download.cpp", "titanium/cli/commands/convert.cpp", "titanium/remote/stores/object_stores.cpp",
    "titanium/data/tokenizer/files/token_ranks.cpp", "titanium/checkpoint/torch_file/meta_shards.cpp",
}


def sources(*folders):
    for folder in folders or ("titanium", "tests", "bench"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SOURCE_SUFFIXES:
                yield path


def relative(path):
    return path.relative_to(ROOT)


def includes(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = re.match(r'\s*#\s*include\s*[<"]([^">]+)[">]', line)
        if found:
            yield number, found.group(1)


def layer_table():
    """Layer -> every layer that it may include, read from the table in CMakeLists.txt."""
    allowed = {}
    for line in (ROOT / "CMakeLists.txt").read_text().splitlines():
        found = re.match(r"titanium_layer\((\w+)(.*)\)", line)
        if not found:
            continue
        depends = re.search(r"DEPENDS ((?:[a-z_]+ ?)+)", found.group(2))
        closure = {found.group(1)}
        for name in depends.group(1).split() if depends else ():
            closure |= allowed[name]  # a KeyError here is an upward or cyclic dependency
        allowed[found.group(1)] = closure
    return allowed


def check_layers():
    allowed = layer_table()
    for path in sources("titanium"):
        layer = relative(path).parts[1]
        if layer not in allowed:
            yield f"{relative(path)}: folder titanium/{layer} is not in the table of CMakeLists.txt"
            continue
        for number, name in includes(path):
            parts = name.split("/")
            if parts[0] == "titanium" and parts[1] not in allowed[layer]:
                yield f"{relative(path)}:{number}: {layer}/ may not include {name} (allowed: {', '.join(sorted(allowed[layer]))})"
            if parts[0] in ("torch", "ATen", "c10") and "tensor" not in allowed[layer]:
                yield f"{relative(path)}:{number}: {layer}/ stands below tensor/ and may not include {name}"
        if FORBIDDEN_NAMES.search(path.stem):
            yield f"{relative(path)}: the name says nothing about what the file is for"


def function_lengths(lines):
    """Yields (first line, length, text) of every function body that begins at namespace level or inside a class."""
    start, depth_at_start = None, 0
    depth = 0
    scopes = []  # for each open brace: is it a namespace/class/struct/enum/initialiser?
    statement = ""
    in_block_comment = False
    for number, line in enumerate(lines, 1):
        code = re.sub(r'R"(\w*)\((.*?)\)\1"', '""', line)
        code = re.sub(r'"(\\.|[^"\\])*"', '""', code)
        code = re.sub(r"'(\\.|[^'\\])'", "' '", code)
        if in_block_comment:
            if "*/" not in code:
                continue
            code = code.split("*/", 1)[1]
            in_block_comment = False
        code = re.sub(r"/\*.*?\*/", "", code)
        if "/*" in code:
            code, in_block_comment = code.split("/*", 1)[0], True
        code = code.split("//")[0]
        if code.lstrip().startswith("#"):
            continue
        for character in code:
            if character == "{":
                container = re.search(r"\b(namespace|class|struct|union|enum)\b[^()]*$", statement) is not None
                is_function = ")" in statement and not container and start is None
                if is_function:
                    start, depth_at_start, text = number, depth, statement.strip()
                scopes.append(container)
                depth += 1
                statement = ""
            elif character == "}":
                depth -= 1
                scopes.pop() if scopes else None
                if start is not None and depth == depth_at_start:
                    yield start, number - start + 1, text
                    start = None
                statement = ""
            elif character == ";":
                statement = ""
            else:
                statement += character
        statement += " "


def check_sizes():
    for path in sources():
        lines = path.read_text().splitlines()
        if len(lines) > MAX_FILE_LINES:
            yield f"{relative(path)}: {len(lines)} lines; split it (at most {MAX_FILE_LINES})"
        limit = MAX_KERNEL_LINES if path.suffix in (".cu", ".cuh") else MAX_FUNCTION_LINES
        for first, length, text in function_lengths(lines):
            if length > limit:
                yield f"{relative(path)}:{first}: {length} lines in '{text[-80:]}'; at most {limit}"


def check_headers():
    for path in sources():
        for number, name in includes(path):
            if name in FORBIDDEN_HEADERS:
                yield f"{relative(path)}:{number}: {name} is an umbrella header; include <ATen/ops/...> instead"
            if path.suffix in (".cu", ".cuh") and name.split("/")[0] in ("torch", "ATen", "c10"):
                yield f"{relative(path)}:{number}: kernels do not see torch ({name})"
        if path.suffix in (".h", ".cuh") and "#pragma once" not in path.read_text():
            yield f"{relative(path)}: no #pragma once"


def check_models():
    """Other layers know models by their specification: no name of a family or of a model's children outside of models/.

    Inside models/ a literal that is the name of a family stands in its own folder alone. Elsewhere no literal may contain
    the word of a family ("llama" of llama3), however it is spelled.
    """
    families = sorted(path.parent.name for path in (ROOT / "titanium" / "models").glob("*/spec.h"))
    names = re.compile(rf"{'|'.join(families)}|tok_embeddings.*|layers\..*")
    stems = sorted({re.sub(r"_?v?\d+$", "", family).replace("_", "[-_ ]?") for family in families})
    words = re.compile("|".join(stems), re.IGNORECASE)
    for path in sources("titanium"):
        parts = relative(path).parts
        if str(relative(path)) in NAMES_MODELS or parts[1:3] == ("models", "decoder"):
            continue
        in_models = parts[1] == "models"
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.lstrip().startswith(("#", "//")):
                continue
            for literal in re.findall(r'"((?:\\.|[^"\\])*)"', line.split(" //")[0]):
                if in_models and (literal not in families or parts[2] == literal):
                    continue
                if names.fullmatch(literal) or words.search(literal):
                    yield f'{relative(path)}:{number}: "{literal}" is a name that only a model\'s own folder has'


def axes_in(line):
    """What in a line of code names a mesh axis, and the files that may: literals of axes alone, and degrees of ParallelDims."""
    literal = r'"((?:\\.|[^"\\])*)"'
    code = re.sub(rf"({literal})|//.*", lambda found: found.group(1) or "", line)
    for text in re.findall(literal, code):
        names = re.findall(r"\w+", text) if re.fullmatch(r"[\w ,;|+()]*", text) else []
        if all(name in AXIS_FILES for name in names):
            yield from ((f'"{text}"', AXIS_FILES[name]) for name in names)
    for name in re.findall(r"(?<=[\w)\]])(?:\.|->)(\w+)", re.sub(literal, '""', code)):
        if name in DEGREE_FILES:
            yield f"the degree {name}", AXIS_FILES.get(name, AXIS_HOMES) + DEGREE_FILES[name]


def check_axes():
    for path in sources("titanium"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for what, files in axes_in(line):
                if str(relative(path)) not in files:
                    yield f"{relative(path)}:{number}: {what} names a mesh axis; ask parallel/placement.h which axes matter"


def check_notes():
    """A note is defined by a comment line that holds its name alone; everything else cites it."""
    defined, cited = {}, []
    pages = [path for suffix in ("md", "py") for path in sorted(ROOT.rglob(f"*.{suffix}")) if not skipped(path)]
    for path in [*sources(), *pages]:
        text = path.read_text()
        for found in re.finditer(r"Note(?:\s|//)+\[([^]]+)\]", text):
            name = re.sub(r"\s*\n\s*(//)?\s*", " ", found.group(1))  # a citation may go over two lines
            before, after = text[: found.start()].rpartition("\n")[2], text[found.end() :].partition("\n")[0]
            place = f"{relative(path)}:{text.count(chr(10), 0, found.start()) + 1}"
            if before.strip() == "//" and not after:
                defined.setdefault(name, []).append(place)
            else:
                cited.append((place, name))
    for name, places in defined.items():
        if len(places) > 1:
            yield f"{places[1]}: Note [{name}] is defined at {places[0]} as well"
    for place, name in cited:
        if name not in defined and name != "Name":  # CONTRIBUTING.md shows the form
            yield f"{place}: there is no Note [{name}]"


def check_citations():
    """A source file that a comment or a page names with its folder is there."""
    known = ["/" + str(relative(path)) for path in sources("titanium", "tests", "bench", "examples")]
    cited = re.compile(r"(?<![\w/.<-])((?:\w+/)+\w+\.(?:h|cuh|cpp|cu))\b")
    pages = [path for path in sorted(ROOT.rglob("*.md")) if not skipped(path) and relative(path).parts[:2] != ("bench", "results")]
    for path in [*sources("titanium"), *pages]:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            text = line if path.suffix == ".md" else line.partition("//")[2]
            for name in cited.findall(text):
                if not name.startswith(("torch/", "ATen/", "c10/")) and not any(file.endswith("/" + name) for file in known):
                    yield f"{relative(path)}:{number}: there is no {name}"


def skipped(path):
    """Build folders, and this file, which speaks of notes in general."""
    return relative(path).parts[0].startswith("build") or path == pathlib.Path(__file__).resolve()


def check_format():
    formatter = shutil.which("clang-format-19") or shutil.which("clang-format")
    if formatter is None:
        print("skipped: clang-format-19 is not installed")
        sys.exit(77)
    files = [str(path) for path in sources()]
    result = subprocess.run([formatter, "--dry-run", "--ferror-limit=3", *files], capture_output=True, text=True, cwd=ROOT)
    yield from (line for line in result.stderr.splitlines() if "warning:" in line or "error:" in line)


def check_linkage(program):
    """The program must run on a machine that has the torch wheel and none of Debian's libraries."""
    text = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True).stdout
    for name in re.findall(r"NEEDED.*\[(.*)\]", text):
        if not SYSTEM_LIBRARIES.match(name) and not WHEEL_LIBRARIES.match(name):
            yield f"{program} needs {name}, which only this machine may have: link it statically"


def main(check, *arguments):
    problems = list(globals()[f"check_{check}"](*arguments))
    print("\n".join(problems) or f"{check}: no findings")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
