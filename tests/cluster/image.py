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

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
IMAGE = ROOT / "deploy/kubernetes"
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
        self.assertEqual([line for line in last if line.startswith("RUN")], ["RUN useradd --uid 1000 --create-home titanium"])
        self.assertLess(last.index("USER 1000:1000"), len(last) - 1)

    def test_what_is_copied_exists_and_the_needs_do_not_follow_the_sources(self):
        copied = [line.split()[1:-1] for name in ("needs", "build") for line in stages()[name] if line.startswith("COPY")]
        self.assertEqual(copied, [["tools/setup.sh", "tools/packages.txt", "tools/requirements.txt"], ["."]])
        for name in copied[0]:
            self.assertTrue((ROOT / name).exists(), name)

    def test_commands_name_their_shell_because_images_of_oci_forget_it(self):
        for name in ("needs", "build"):
            (command,) = [line for line in stages()[name] if line.startswith("RUN")]
            words = json.loads(command[command.index("["):])
            self.assertEqual(words[:4], ["bash", "-euo", "pipefail", "-c"])
            subprocess.run(["bash", "-n", "-c", words[4]], check=True)
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

    def test_of_a_build_the_image_has_the_program_and_what_a_run_reads(self):
        build, image = self.folder / "build", self.folder / "image"
        build.mkdir()
        shutil.copy("/bin/true", build / "titanium")  # without the gigabytes of libraries that the real one names
        subprocess.run([IMAGE / "collect_image.sh", image, build], check=True, env={"PATH": os.environ["PATH"]})
        names = {str(path.relative_to(image / "app")) for path in image.rglob("*") if path.is_file()}
        self.assertLessEqual({"titanium", "run_train.sh", "LICENSE", "tools/train_command.sh", "configs/llama3/debug_model_cpu.toml"}, names)
        self.assertEqual([name for name in names if name.endswith((".py", ".h", ".cpp", ".cu", ".a"))], [])


if __name__ == "__main__":
    unittest.main()
