"""The recipe of the image (deploy/kubernetes/Dockerfile) as far as it can be read without building it, what build_image.sh asks buildah for, and what of a build goes
into the image. Which of its stages were built is in docs/launching.md."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import pyarrow
import pyarrow.parquet

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
IMAGE = ROOT / "deploy/kubernetes"
BUILD = pathlib.Path(os.environ["TITANIUM_BUILD"])
# What debian:12-slim has of the libraries that a C++ program needs.
BASE_PACKAGES = {"libc6", "libstdc++6", "libgcc-s1"}
BUILDAH = """#!/bin/bash
printf '%s\\n' "$*" >>"$FOLDER/buildah.words"
"""


def stages():
    """Name or number -> lines of the recipe, each without its continuation."""
    found = {}
    for line in (IMAGE / "Dockerfile").read_text().splitlines():
        if match := re.match(r"FROM (\S+)(?: AS (\w+))?$", line):
            found[match[2] or str(len(found))] = lines = []
        if line and not line.startswith("#"):
            lines.append(line)
    return found


def environment_of(app):
    return {"LD_LIBRARY_PATH": str(app / "lib"), "PATH": os.environ["PATH"]}


def from_elsewhere(app, name):
    """The libraries that `name` of an image finds neither in the image nor in its base system: name -> path on this machine."""
    found = {}
    listed = subprocess.run(["ldd", app / name], capture_output=True, text=True, check=True, env=environment_of(app)).stdout
    for library, path in re.findall(r"^\s+(\S+) => (not found|\S+)", listed, re.MULTILINE):
        if path.startswith(str(app)):
            continue
        real = os.path.realpath(path)  # dpkg knows some files below /lib alone, which is /usr/lib
        owners = subprocess.run(["dpkg", "-S", real, real.removeprefix("/usr")], capture_output=True, text=True).stdout
        if not BASE_PACKAGES & set(re.findall(r"^([^:\s]+):", owners, re.MULTILINE)):
            found[library] = path
    return found


class ImageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_the_last_stage_has_no_compiler_no_python_and_no_root(self):
        self.assertEqual(list(stages()), ["needs", "build", "2"])
        last = stages()["2"]
        self.assertEqual(last[0], "FROM debian:12-slim")
        self.assertEqual([line for line in last if line.startswith("COPY")], ["COPY --from=build /image /"])
        command = self.command_of("2")
        self.assertIn("apt-get install -y -qq --no-install-recommends libcurl4 ca-certificates && rm -rf /var/lib/apt/lists/*", command)
        self.assertIn("useradd --uid 1000 --create-home titanium", command)
        self.assertLess(last.index("USER 1000:1000"), len(last) - 1)

    def test_what_is_copied_exists_and_the_needs_do_not_follow_the_sources(self):
        copied = [line.split()[1:-1] for name in ("needs", "build") for line in stages()[name] if line.startswith("COPY")]
        self.assertEqual(copied, [["tools/setup.sh", "tools/packages.txt", "tools/requirements.txt"], ["."]])
        for name in copied[0]:
            self.assertTrue((ROOT / name).exists(), name)

    def command_of(self, stage):
        """What the one command of a stage gives to its shell."""
        (command,) = [line for line in stages()[stage] if line.startswith("RUN")]
        words = json.loads(command[command.index("["):])
        self.assertEqual(words[:4], ["bash", "-euo", "pipefail", "-c"])
        return words[4]

    def test_commands_name_their_shell_because_images_of_oci_forget_it(self):
        for name in stages():
            subprocess.run(["bash", "-n", "-c", self.command_of(name)], check=True)
        self.assertNotIn("SHELL", "\n".join(line for lines in stages().values() for line in lines))

    def test_kernels_are_those_of_the_release_preset(self):
        presets = {preset["name"]: preset for preset in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}
        release = presets["release"]["cacheVariables"]
        self.assertEqual((release["TITANIUM_CUDA_ARCHS"], release["TITANIUM_CUDA_PTX"]), ("80;90;100", "ON"))
        self.assertIn(f"ARG CUDA_ARCHS={release['TITANIUM_CUDA_ARCHS']}", stages()["build"])

    def test_buildah_is_asked_for_the_kind_of_image_that_the_variables_say(self):
        (self.folder / "buildah").write_text(BUILDAH)
        (self.folder / "buildah").chmod(0o755)
        environment = {"PATH": f"{self.folder}:/usr/bin:/bin", "FOLDER": str(self.folder), "TMPDIR": str(self.folder), "TRY": ""}
        for variables in ({}, {"CUDA": "off"}, {"CUDA_ARCHS": "80;90", "TAG": "mine"}):
            subprocess.run([IMAGE / "build_image.sh"], check=True, env=environment | variables)
        lines = (self.folder / "buildah.words").read_text().splitlines()
        recipe = "-f deploy/kubernetes/Dockerfile --ignorefile deploy/kubernetes/Dockerfile.dockerignore"
        self.assertEqual(lines, [f"bud --layers {recipe} -t titanium .", f"bud --layers --build-arg CUDA=off {recipe} -t titanium .",
                                 f"bud --layers --build-arg CUDA_ARCHS=80;90 {recipe} -t mine ."])

    def collect(self, build):
        image = self.folder / "image"
        subprocess.run([IMAGE / "collect_image.sh", image, build], check=True, env={"PATH": os.environ["PATH"], "LINK": "1"})
        return image / "app"

    def test_of_this_build_the_image_has_the_program_its_libraries_and_what_a_run_reads(self):
        app = self.collect(BUILD)
        names = {str(path.relative_to(app)) for path in app.rglob("*") if path.is_file()}
        self.assertLessEqual({"titanium", "libtitanium_arrow.so", "run_train.sh", "LICENSE", "tools/train_command.sh", "configs/llama3/debug_model_cpu.toml"}, names)
        self.assertEqual([name for name in names if name.endswith((".py", ".h", ".cpp", ".cu", ".a")) or "python" in name], [])
        for name in ("titanium", "libtitanium_arrow.so"):
            self.assertEqual(from_elsewhere(app, name), {})
        table = self.folder / "a.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"text": ["one", "two"]}), table)
        shown = subprocess.run([app / "titanium", "data", "inspect", table], capture_output=True, text=True, env=environment_of(app))
        self.assertEqual(shown.returncode, 0, shown.stderr)
        for name in ("libtorch_cpu.so", next(name for name in names if name.startswith("lib/libarrow.so"))):
            (app / "lib" / pathlib.Path(name).name).unlink()
        self.assertIn("libtorch_cpu.so", from_elsewhere(app, "titanium"))
        self.assertRegex(" ".join(from_elsewhere(app, "libtitanium_arrow.so")), r"^libarrow\.so\.\d+$")

    def test_a_build_without_the_plug_in_is_told(self):
        build = self.folder / "build"
        build.mkdir()
        shutil.copy(BUILD / "titanium", build / "titanium")
        told = subprocess.run([IMAGE / "collect_image.sh", self.folder / "image", build], capture_output=True, text=True, check=True,
                              env={"PATH": os.environ["PATH"], "LINK": "1"})
        self.assertIn("has no plug-in libtitanium_arrow.so, so the image will not read Parquet and Arrow files", told.stderr)

    def test_who_builds_the_program_builds_the_plug_in(self):
        commands = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", "titanium"], capture_output=True, text=True, check=True).stdout
        self.assertIn("-o libtitanium_arrow.so", commands)

    def test_the_last_stage_installs_what_the_program_loads_by_name(self):
        loaded = set()
        for source in (ROOT / "titanium").rglob("*.cpp"):
            loaded |= set(re.findall(r'dlopen\("(lib[\w.]+)"', source.read_text()))
        self.assertEqual(loaded, {"libcurl.so.4"})  # of the package libcurl4


if __name__ == "__main__":
    unittest.main()
