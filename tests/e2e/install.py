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
import zipfile

BUILD = pathlib.Path(os.environ["TITANIUM_BUILD"])
ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = (BUILD / "CMakeCache.txt").read_text()
TORCH = re.search(r"^TITANIUM_TORCH_DIR:PATH=(.*)$", CACHE, re.M).group(1)
SANITIZED = re.search(r"^TITANIUM_SANITIZE:STRING=(.+)$", CACHE, re.M) is not None
RUN = ["train", "--job.config_file", "configs/llama3/debug_model_cpu.toml", "--training.seq_len=32", "--training.local_batch_size=1", "--training.steps=2"]


def run(*args, cwd, environment=None, **options):
    clean = {key: value for key, value in os.environ.items() if key not in ("LD_LIBRARY_PATH", "TITANIUM_TORCH_DIR", "VIRTUAL_ENV")}
    return subprocess.run([str(arg) for arg in args], cwd=cwd, capture_output=True, text=True, timeout=300, env={**clean, **(environment or {})}, **options)


def linked_libraries(prefix):
    return subprocess.run(["readelf", "-d", prefix / "lib/titanium/titanium"], capture_output=True, text=True, check=True).stdout


def pins(groups):
    """[(name, version)] of groups of tools/requirements.txt."""
    current, found = None, []
    for line in (ROOT / "tools" / "requirements.txt").read_text().splitlines():
        words = line.partition("#")[0].split()
        if words and words[0].startswith("["):
            current = words[0].strip("[]")
        elif words and current in groups:
            found.append(words[0].split("=="))
    return found


def write_wheel(folder, name, version):
    """A wheel of that name with a file, and torch's with what it is recognised by."""
    module = name.replace("-", "_")
    files = {f"{module}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
             f"{module}-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
             f"{module}/version.py": f"__version__ = '{version}'\n", f"{module}/lib/lib{module}_cpu.so": ""}
    record = f"{module}-{version}.dist-info/RECORD"
    files[record] = "".join(f"{path},,\n" for path in [*files, record])
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)


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

    def link_wheels(self, packages):
        for part in ("torch", "nvidia"):
            (packages / part).symlink_to(pathlib.Path(TORCH).parent / part)

    def test_the_installed_program_trains_in_any_folder(self):
        program = self.prefix / "bin" / "titanium"
        self.trains(program, {"TITANIUM_TORCH_DIR": TORCH})
        venv = self.folder / "deps" / "runtime" / "lib" / "python3.11" / "site-packages"
        venv.mkdir(parents=True)
        self.link_wheels(venv)
        version = run(program, "--version", cwd=self.elsewhere, environment={"TITANIUM_DEPS_DIR": str(self.folder / "deps")})
        self.assertIn("titanium 0.1.0 (torch 2.11", version.stdout)
        checked = run(program, "config", "check", "configs/flux/flux_debug.toml", cwd=self.elsewhere, environment={"TITANIUM_TORCH_DIR": TORCH})
        self.assertEqual((checked.returncode, checked.stderr), (0, ""))  # its encoders are found as well
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

    def test_another_version_of_torch_is_passed_over(self):
        old = self.folder / "old" / "torch"
        (old / "lib").mkdir(parents=True)
        (old / "lib" / "libtorch_cpu.so").touch()
        (old / "version.py").write_text("__version__ = '2.5.1+cpu'\n")
        program = self.prefix / "bin" / "titanium"
        wrong = run(program, "--version", cwd=self.elsewhere, environment={"TITANIUM_TORCH_DIR": str(old)})
        self.assertEqual(wrong.returncode, 2)
        self.assertIn(f"TITANIUM_TORCH_DIR={old} is not torch 2.11. Run titanium-setup and unset the variable", wrong.stderr)
        active = self.folder / "active" / "lib" / "python3.11"
        active.mkdir(parents=True)
        (active / "site-packages").symlink_to(old.parent)
        environment = {"TITANIUM_DEPS_DIR": "/nowhere", "HOME": "/nowhere", "PATH": "/bin", "VIRTUAL_ENV": str(self.folder / "active")}
        if subprocess.run(["/bin/python3", "-c", "import torch"], capture_output=True).returncode != 0:
            self.assertIn("no torch 2.11 was found", run(program, "--version", cwd=self.elsewhere, environment=environment).stderr)

    def test_the_set_up_makes_a_venv_that_the_program_uses(self):
        wheels, deps = self.folder / "wheels", self.folder / "set_up"
        wheels.mkdir()
        groups = (self.prefix / "share/titanium/wheel_groups").read_text().split()
        self.assertEqual(groups, ["program", "arrow", *(["cuda"] if "torch_cuda" in linked_libraries(self.prefix) else [])])
        for name, version in pins(groups):
            write_wheel(wheels, name, version)
        environment = {"TITANIUM_DEPS_DIR": str(deps), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_CONFIG_FILE": os.devnull,
                       "TITANIUM_TORCH_DIR": "/nowhere"}  # the venv has to do without
        set_up = self.prefix / "bin" / "titanium-setup"
        broken = run(set_up, cwd=self.elsewhere, environment=environment)  # these wheels have no libraries
        self.assertEqual(broken.returncode, 1, broken.stdout)
        self.assertIn(f"titanium does not start with the wheels in {deps}/runtime; the message above says why.", broken.stderr)
        packages, = (deps / "runtime" / "lib").glob("python3*/site-packages")
        for part in ("torch", "nvidia"):
            shutil.rmtree(packages / part, ignore_errors=True)
        self.link_wheels(packages)
        done = run(set_up, cwd=self.elsewhere, environment=environment)  # again, now that they are right
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, rf"titanium 0\.1\.0 \(torch 2\.11.*\) uses {deps}/runtime\n$")
        del environment["TITANIUM_TORCH_DIR"]
        self.trains(self.prefix / "bin" / "titanium", environment)

    def test_the_set_up_says_what_is_wrong(self):
        set_up = self.prefix / "bin" / "titanium-setup"
        deps = {"TITANIUM_DEPS_DIR": str(self.folder / "lost")}
        self.assertIn(f"{self.folder}/lost/runtime", run(set_up, "--help", cwd=self.elsewhere, environment=deps).stdout)
        argument = run(set_up, "--force", cwd=self.elsewhere, environment=deps)
        self.assertEqual((argument.returncode, argument.stderr), (2, "titanium-setup: it takes no argument --force. titanium-setup --help says what it does.\n"))
        nowhere = run(set_up, cwd=self.elsewhere, environment={"TITANIUM_DEPS_DIR": os.devnull})
        self.assertEqual(nowhere.returncode, 1)
        self.assertIn("cannot be made. Set TITANIUM_DEPS_DIR to one that can.", nowhere.stderr)
        empty = {**deps, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.elsewhere), "PIP_CONFIG_FILE": os.devnull}
        failed = run(set_up, cwd=self.elsewhere, environment=empty)
        self.assertEqual(failed.returncode, 1)
        self.assertIn("titanium-setup: pip failed; its message above says why.", failed.stderr)

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
