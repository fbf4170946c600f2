"""`cmake --install` and `cpack` make trees that run from any folder against a torch of a wheel, and that other programs can build on."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["TITANIUM_BUILD"])
ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = (BUILD / "CMakeCache.txt").read_text()
TORCH = re.search(r"^TITANIUM_TORCH_DIR:PATH=(.*)$", CACHE, re.M).group(1)
SANITIZED = re.search(r"^TITANIUM_SANITIZE:STRING=(.+)$", CACHE, re.M) is not None
RUN = ["train", "--job.config_file", "configs/llama3/debug_model_cpu.toml", "--training.seq_len=32", "--training.local_batch_size=1", "--training.steps=2"]


def run(*args, cwd, environment=None, **options):
    clean = {key: value for key, value in os.environ.items() if key not in ("LD_LIBRARY_PATH", "TITANIUM_TORCH_DIR", "VIRTUAL_ENV")}
    return subprocess.run([str(arg) for arg in args], cwd=cwd, capture_output=True, text=True, timeout=300, env={**clean, **(environment or {})}, **options)


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.prefix = cls.folder / "prefix"
        installed = run("cmake", "--install", BUILD, "--prefix", cls.prefix, cwd=cls.folder)
        assert installed.returncode == 0, installed.stderr
        cls.elsewhere = cls.folder / "elsewhere"
        cls.elsewhere.mkdir()

    def trains(self, program, environment):
        trained = run(program, *RUN, cwd=self.elsewhere, environment=environment)
        self.assertEqual(trained.returncode, 0, trained.stdout + trained.stderr)
        self.assertIn("Training completed", trained.stdout)

    def test_the_installed_program_trains_in_any_folder(self):
        program = self.prefix / "bin" / "titanium"
        self.trains(program, {"TITANIUM_TORCH_DIR": TORCH})
        venv = self.folder / "deps" / "runtime" / "lib" / "python3.11" / "site-packages"
        venv.mkdir(parents=True)
        for part in ("torch", "nvidia"):
            (venv / part).symlink_to(pathlib.Path(TORCH).parent / part)
        version = run(program, "--version", cwd=self.elsewhere, environment={"TITANIUM_DEPS_DIR": str(self.folder / "deps")})
        self.assertIn("titanium 0.1.0 (torch 2.11", version.stdout)
        link = self.folder / "titanium"
        link.symlink_to(program)
        self.assertEqual(run(link, "--version", cwd=self.elsewhere, environment={"TITANIUM_TORCH_DIR": TORCH}).returncode, 0)

    def test_without_torch_it_says_what_to_do(self):
        program = self.prefix / "bin" / "titanium"
        nowhere = {"TITANIUM_DEPS_DIR": "/nowhere", "HOME": "/nowhere", "PATH": "/usr/bin:/bin"}
        if subprocess.run(["/usr/bin/python3", "-c", "import torch"], capture_output=True).returncode != 0:
            lost = run(program, "--version", cwd=self.elsewhere, environment=nowhere)
            self.assertEqual(lost.returncode, 2)
            self.assertIn("no torch 2.11 was found. Run titanium-setup, or pip install torch==2.11.0, or set TITANIUM_TORCH_DIR", lost.stderr)
        wrong = run(program, "--version", cwd=self.elsewhere, environment={"TITANIUM_TORCH_DIR": "/nowhere"})
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("TITANIUM_TORCH_DIR=/nowhere has no lib/libtorch_cpu.so.", wrong.stderr)

    def test_the_manual_and_completions_are_installed(self):
        self.assertIn(".TH TITANIUM 1", (self.prefix / "share/man/man1/titanium.1").read_text())
        self.assertIn("complete -o default -F _titanium titanium", (self.prefix / "share/bash-completion/completions/titanium").read_text())
        self.assertTrue((self.prefix / "share/zsh/site-functions/_titanium").read_text().startswith("#compdef titanium"))

    def test_packages_run(self):
        packed = run("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", self.folder / "packages", cwd=self.folder)
        self.assertEqual(packed.returncode, 0, packed.stdout + packed.stderr)
        archive, = (self.folder / "packages").glob("*.tar.gz")
        with tarfile.open(archive) as files:
            files.extractall(self.folder / "unpacked")
        package, = (self.folder / "packages").glob("*.deb")
        self.assertEqual(run("dpkg-deb", "-x", package, self.folder / "debian", cwd=self.folder).returncode, 0)
        self.assertIn("Package: titanium", run("dpkg-deb", "-I", package, cwd=self.folder).stdout)
        programs = [*(self.folder / "unpacked").rglob("bin/titanium"), *(self.folder / "debian").rglob("bin/titanium")]
        self.assertEqual(len(programs), 2, programs)
        self.trains(programs[0], {"TITANIUM_TORCH_DIR": TORCH})
        self.assertEqual(run(programs[1], "config", "check", "configs/llama3/debug_model.toml", cwd=self.elsewhere,
                             environment={"TITANIUM_TORCH_DIR": TORCH}).returncode, 0)

    def test_another_program_builds_and_trains_with_the_library(self):
        if SANITIZED:
            return  # the example would need the same sanitizers
        source = shutil.copytree(ROOT / "examples" / "own_loop", self.folder / "own_loop")
        lines = [line for line in (source / "own_loop.cpp").read_text().splitlines() if line.strip()]
        self.assertLessEqual(len(lines), 40)
        configured = run("cmake", "-G", "Ninja", "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DTITANIUM_TORCH_DIR={TORCH}",
                         "-DCMAKE_BUILD_TYPE=Debug", cwd=self.folder)
        self.assertEqual(configured.returncode, 0, configured.stderr)
        built = run("cmake", "--build", source / "build", cwd=self.folder)
        self.assertEqual(built.returncode, 0, built.stdout[-4000:])
        trained = run(source / "build" / "own_loop", cwd=self.elsewhere)
        losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", trained.stdout)]
        self.assertEqual(len(losses), 20, trained.stdout + trained.stderr)
        self.assertLess(losses[-1], 0.5 * losses[0])

    def test_a_missing_torch_is_said_to_those_who_build(self):
        refused = run("cmake", "-G", "Ninja", "-S", ROOT / "examples" / "own_loop", "-B", self.folder / "lost", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                      "-DTITANIUM_TORCH_DIR=/nowhere", cwd=self.folder)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("Pass -DTITANIUM_TORCH_DIR=", " ".join(refused.stderr.split()))


if __name__ == "__main__":
    sys.exit(unittest.main())
