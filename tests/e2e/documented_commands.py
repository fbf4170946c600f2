"""Every command in a fenced block of README.md, CONTRIBUTING.md and docs/ is run, in a folder where its placeholders are real files.

Every line of a block that is marked bash is a command, and so is a line after a prompt ("$ "), whose output is compared with the lines below. What
would take long or needs what is not here runs in its cheapest form that still reads every argument: `titanium train` as `config check`, commands
that need a network or several nodes with their options held against their help. What cannot run at all is listed with a reason. A command that is
of no kind below fails the test, so that a new one is thought about. No option is added to a command. The walk through own_text.md on a CPU runs as
it is printed, training included.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["TITANIUM"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
DEBUG = "configs/llama3/debug_model_cpu.toml"
TINY = ["--training.seq_len=32", "--training.local_batch_size=2", "--training.steps=2"]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

# First word, and why it does not run here.
NOT_RUN = {
    "./run_tests.sh": "it is what runs this test",
    "ninja": "builds; the build has been made",
    "build/unit_ops": "a test program of its own",
    "sbatch": "needs SLURM; tests/cluster runs the script",
    "srun": "needs SLURM; tests/cluster runs it",
    "torchrun": "needs Python's launcher; tests/distributed uses its environment",
    "nsys": "needs Nsight and a GPU",
    "clang++-19": "needs ROCm's headers; tests/cluster/amd_kernels.py compiles",
    "python": "a benchmark",
    "python3": "a tool or benchmark of the repository; checked to exist",
    "cmake": "configures a build; e2e_install runs it",
    "cpack": "packs a build; e2e_install runs it",
    "apt-get": "needs root and a network",
    "mkdir": "makes a folder for what cannot run here",
    "titanium-setup": "needs a network; e2e_install runs it with wheels from a folder",
    "sudo": "needs root",
    "pip": "needs a network",
    "git": "needs a network",
    "bench/convergence/run.sh": "trains for minutes; e2e_convergence runs it with a small model",
    "tools/draw_pictures.sh": "draws with a browser",
    "tools/cross_aarch64.sh": "installs a compiler for another machine",
    "export": "changes the shell that calls it",
    "aws": "needs a network",
    "source": "changes the shell that calls it",
    "man": "opens a pager",
}
# Commands of the program whose options are held against its help instead.
HELP_ONLY = {"download": "needs a network", "generate-image": "needs a trained model of images", "watch": "serves until it is stopped", "tune": "needs a GPU", "flight": "needs dumps of a job"}
TEXT = "tests/assets/c4_test_validation/data.jsonl"
PLACEHOLDERS = {"F": DEBUG, "FILE": DEBUG, "run.toml": DEBUG, "PATH": TEXT, "T": "tests/assets/tokenizer", "documents.jsonl": "few.jsonl", "a.jsonl": TEXT,
                "outputs/checkpoint/step-1000": "DIR", "outputs/checkpoint/step-20": "DIR", "outputs/checkpoint/step-500": "baseline/checkpoint/step-1", "my_8b.toml": DEBUG}


def fenced(page):
    """[(language, text)] of a page."""
    return re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.M | re.S)


def commands(language, block):
    """The commands of a block: lines joined at backslashes, without comments, prompts, optional parts and alternatives."""
    for line in re.sub(r"\\\n\s*", " ", block).splitlines():
        if language not in ("bash", "sh") and not line.startswith("$ "):
            continue
        line = re.sub(r"(^|\s+)#.*", "", line).removeprefix("$ ").strip()
        line = re.sub(r"\s\.\.\.$", "", re.sub(r"\[[^\]]*\]", "", line))
        if line:
            yield re.sub(r"(--to \w+)\|\S*", r"\1", line)


def unmarked_commands(language, block):
    """Lines that look like commands in a block that does not say that it has any."""
    return [] if language else re.findall(r"^(?:build/)?titanium [a-z-].*|^\./run_\w+\.sh.*|^python3? .*", block, re.M)


def run(*args, cwd, **options):
    return subprocess.run(args, cwd=cwd, capture_output=True, text=True, timeout=120, **options)


class DocumentedCommands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """A folder that looks like the repository, with a small run in ./outputs, its checkpoint in DIR and some data."""
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.scene = pathlib.Path(folder.name)
        for name in ("configs", "tests", "tools", "bench", "docs", "examples", "README.md"):
            (cls.scene / name).symlink_to(ROOT / name)
        (cls.scene / "few.jsonl").write_text("\n".join((ROOT / TEXT).read_text().split("\n")[:3]))
        (cls.scene / "text.txt").write_text("Once upon a time\nthere was a model.\n")
        (cls.scene / "b.txt").write_text("Once upon a time there was a model. " * 20)
        trained = run(PROGRAM, "train", "--job.config_file", DEBUG, "--job.dump_folder=baseline", "--checkpoint.enable", "--checkpoint.last_save_in_hf",
                      "--checkpoint.interval=1", *TINY, cwd=cls.scene)
        assert trained.returncode == 0, trained.stderr
        shutil.copytree(cls.scene / "baseline", cls.scene / "outputs", ignore=shutil.ignore_patterns("checkpoint"))
        (cls.scene / "outputs/text").mkdir()
        (cls.scene / "outputs/text/train.jsonl").symlink_to(ROOT / TEXT)
        (cls.scene / "higher_lr").symlink_to("baseline")
        weights = cls.scene / "baseline" / "checkpoint" / "step-2"
        for name in ("DIR", "SRC"):
            (cls.scene / name).symlink_to(weights)
        published = shutil.copytree(ROOT / "tests/assets/tokenizer", cls.scene / "assets/hf/Llama-3.1-8B")
        shutil.copy(weights / "config.json", published)
        cls.helps = {}
        transformer = cls.scene / "assets/hf/FLUX.1-dev/transformer"  # as docs/flux.md fetches it, but for the weights
        transformer.mkdir(parents=True)
        sizes = {"attention_head_dim": 32, "num_attention_heads": 2, "in_channels": 64, "pooled_projection_dim": 768, "joint_attention_dim": 4096,
                 "num_layers": 1, "num_single_layers": 1, "axes_dims_rope": [8, 12, 12], "guidance_embeds": True}
        (transformer / "config.json").write_text(json.dumps(sizes))

    made = 0  # folders that commands have written

    def help_of(self, *command):
        if command not in self.helps:
            self.helps[command] = run(PROGRAM, *command, "--help", cwd=self.scene).stdout
        return self.helps[command]

    def expect(self, args, **options):
        done = run(PROGRAM, *args, cwd=self.scene, **options)
        self.assertEqual(done.returncode, 0, f"{shlex.join(args)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def options_are_known(self, command, args):
        path = (command, args[0]) if args and re.fullmatch("[a-z][a-z-]*", args[0]) else (command,)
        for arg in args:
            if re.match("--[a-z]", arg) and "." not in arg:
                self.assertIn(arg.split("=")[0], self.help_of(*path), f"titanium {' '.join(path)} has no {arg}")

    def check_training(self, args, config=None):
        """The options of `titanium train`: the file is checked with them."""
        args = list(args)
        if "--job.config_file" in args:
            at = args.index("--job.config_file")
            config = self.real_file(args[at + 1])
            del args[at:at + 2]
        self.expect(["config", "check", config or DEBUG, *args])

    def real_file(self, name):
        """The file if it is there, else the configuration that stands for those of users."""
        name = PLACEHOLDERS.get(name, name)
        return DEBUG if name.endswith(".toml") and not (self.scene / name).exists() else name

    def run_titanium(self, args):
        command, rest = args[0], args[1:]
        if any("://" in arg for arg in rest):
            return self.options_are_known(command, rest)  # at an address, which needs a network
        if command == "train":
            return self.check_training(rest)
        if command in ("launch", "doctor") and (command == "launch" or rest):
            own, _, inner = (rest, "", []) if "--" not in rest else (rest[:rest.index("--")], "--", rest[rest.index("--") + 1:])
            if command == "doctor":
                own, inner = [], ["doctor", *rest]
            self.options_are_known(command, own)
            return self.check_training([arg for arg in inner[1:] if arg not in ("--then", "train")])
        runs_encoders = args[:2] == ["data", "prepare-images"]  # on all images of a set
        if command in HELP_ONLY or runs_encoders or "bfl" in rest:  # names of a model of images
            return self.options_are_known(command, rest)
        if command.startswith("-") or command == "<command>":
            return self.expect(["--help"])
        stdin = None
        if "<" in rest:
            stdin = open(self.scene / rest[rest.index("<") + 1])
            self.addCleanup(stdin.close)
        cut = next((i for i, arg in enumerate(rest) if arg in ("<", ">")), len(rest))
        target = rest[rest.index(">") + 1] if ">" in rest else None
        rest = self.real_arguments(command, rest[:cut])
        output = self.expect([command, *rest], stdin=stdin)
        if target:
            (self.scene / target).write_text(output)
        return output

    def real_arguments(self, command, rest):
        if command == "init" or (command == "config" and (self.scene / rest[1]).exists()):
            return rest
        rest = [self.real_file(arg) for arg in rest]
        if command == "checkpoint" and rest[0] == "list":
            rest = [arg if arg != "DIR" else "baseline/checkpoint" for arg in rest]
        if command == "eval" and "ids.json" in rest:
            (self.scene / "ids.json").write_text("[[1, 5, 6, 7, 8, 9]]")
        if command in ("eval", "generate"):
            rest = [arg if arg != "64" else "4" for arg in rest]
        if "--vocab-size" in rest:
            rest[rest.index("--vocab-size") + 1] = "300"
        for option in ("--out", "DST"):
            if option in rest:
                at = rest.index(option) + (option == "--out")
                if command != "report":
                    self.made += 1
                    rest[at] = f"made_{self.made}"
        if command == "inspect":
            rest = [arg if arg != TEXT else "DIR" for arg in rest]
        return rest

    def run_command(self, line):
        words = shlex.split(line)
        environment = {}
        while re.fullmatch(r"\w+=.*", words[0]):
            name, value = words.pop(0).split("=", 1)
            environment[name] = value
        if words[0] in NOT_RUN:
            if words[0] in ("python", "python3") and not words[1].startswith("-"):
                self.assertTrue((ROOT / words[1]).exists(), words[1])
            return None
        if words[0] == "./run_train.sh":
            return self.check_training(words[1:], environment.get("CONFIG_FILE"))
        if words[0] == "awk":
            return subprocess.run(line, shell=True, cwd=self.scene, check=True, timeout=120)
        self.assertIn(words[0], ("titanium", "build/titanium"), "say in this test how such a command is run")
        return self.run_titanium(words[1:])

    def test_every_command_of_the_pages_runs(self):
        count = 0
        for page in PAGES:
            for language, block in fenced(page):
                self.assertEqual(unmarked_commands(language, block), [], f"{page.name}: mark the block with bash, or the line with a prompt")
                for line in commands(language, block):
                    with self.subTest(f"{page.name}: {line}"):
                        output = self.run_command(line)
                        count += 1
                        if block.startswith("$ "):
                            self.assertEqual(output.strip(), block.split("\n", 1)[1].strip())
        self.assertGreater(count, 100)

    def test_the_walk_of_own_text_on_a_cpu_runs_as_printed(self):
        page = (ROOT / "docs/own_text.md").read_text()
        language, block = re.search(r"^## The same in a minute on a CPU\n+```(\w+)\n(.*?)^```", page, re.M | re.S).groups()
        walk = list(commands(language, block))
        self.assertEqual([shlex.split(line)[1] for line in walk], ["init", "train", "watch", "generate"])
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "tests").symlink_to(ROOT / "tests")
            for line in walk:
                done = subprocess.run([PROGRAM, *shlex.split(line)[1:]], cwd=folder, capture_output=True, text=True, timeout=300)
                self.assertEqual(done.returncode, 0, f"{line}\n{done.stdout}{done.stderr}")
            self.assertTrue(done.stdout.startswith("Once upon a time"), done.stdout)
            for name in ("config.json", "tokenizer.json", "model.safetensors"):  # a Hugging Face folder, which needs no options whatever its size is
                self.assertTrue((pathlib.Path(folder) / "outputs/checkpoint/step-20" / name).exists(), name)
            losses = [json.loads(line)["loss"] for line in (pathlib.Path(folder) / "outputs/metrics.jsonl").read_text().splitlines()]
            self.assertLess(losses[-1], losses[0])


if __name__ == "__main__":
    unittest.main()
