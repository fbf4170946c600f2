"""Every help fits a screen and ends with an example; completion completes in real shells; the man page has no warnings."""

import functools
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

PROGRAM = os.environ["TITANIUM"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
LINES, COLUMNS = 48, 100


@functools.lru_cache(maxsize=None)
def program(*args):
    done = subprocess.run([PROGRAM, *args], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands():
    """{name: subcommands} as completion has them."""
    script = program("completion", "bash")
    return {name: words.split() for name, words in re.findall(r'^    ([a-z-]+)\) words="[^"]*" subcommands="([^"]*)"', script, re.M)}


class Help(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.commands = commands()
        cls.paths = [(name,) for name in cls.commands]
        cls.paths += [(name, sub) for name, subs in cls.commands.items() for sub in subs if name != "completion"]

    def test_the_program_lists_every_command_in_groups(self):
        text = program("--help")
        self.assertLessEqual(len(text.splitlines()), LINES)
        for name in self.commands:
            self.assertRegex(text, rf"(?m)^  {name} ")
        for group in ("Begin", "Plan", "Train", "Look", "Use", "Shell"):
            self.assertRegex(text, rf"(?m)^{group}$")
        self.assertRegex(text.splitlines()[-1], "^Example: titanium ")

    def test_every_help_fits_a_screen_and_ends_with_an_example(self):
        self.assertGreaterEqual(len(self.paths), 25)
        for path in self.paths:
            with self.subTest(path):
                lines = program(*path, "--help").splitlines()
                self.assertLessEqual(len(lines), LINES)
                self.assertLessEqual(max(map(len, lines)), COLUMNS)
                self.assertTrue(any(line.startswith("Usage:") for line in lines))
                self.assertRegex(lines[-1], "^Example: .*titanium ")
                self.assertNotRegex("\n".join(lines), r"INT:INT|:POSITIVE|Excludes|Option Group", "what CLI11 says of itself")
                self.assertNotRegex("\n".join(lines[:-1]), r"(?m)^ {6,}\S{1,12}\n {6,}\S", "a line that was broken twice")

    def test_usage_names_the_options_of_a_run_where_they_are_taken(self):
        for path, more in {("estimate",): "[--section.key value ...]", ("data", "plan"): "[--section.key value ...]", ("launch",): "-- COMMAND ..."}.items():
            usage = next(line for line in program(*path, "--help").splitlines() if line.startswith("Usage:"))
            self.assertTrue(usage.endswith(f"[OPTIONS] {more}"), usage)
        self.assertIn("Usage: titanium inspect [OPTIONS] PATH\n", program("inspect", "--help"))

    def test_options_of_examples_exist(self):
        for path in self.paths:
            lines = program(*path, "--help").splitlines()
            example = lines[-1].removeprefix("Example: ").split()
            if example[0] != "titanium" or "--" in example:
                continue
            deeper = example[1:3] if example[2:3] and example[2] in self.commands.get(example[1], []) else example[1:2]
            text = program(*deeper, "--help")
            for word in example:
                if word.startswith("--") and "." not in word:
                    self.assertIn(word, text, lines[-1])

    def test_a_wrong_argument_points_to_the_help(self):
        for name in sorted(set(self.commands) - {"config", "train", "launch"}):
            done = subprocess.run([PROGRAM, name, "--no-such-option"], cwd=ROOT, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(f"See titanium {name} --help.", done.stderr)

    def complete(self, shell, words):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "titanium.sh"
            script.write_text(program("completion", shell))
            ask = f'source {script}; COMP_WORDS=({" ".join(map(repr, words))}); COMP_CWORD={len(words) - 1}; _titanium; printf "%s\\n" "${{COMPREPLY[@]}}"'
            done = subprocess.run([shell, *(["-f"] if shell == "zsh" else ["--norc"]), "-c", ask], capture_output=True, text=True, timeout=60, cwd=folder)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return done.stdout.split()

    def check_completion(self, shell):
        self.assertEqual(self.complete(shell, ["titanium", "est"]), ["estimate"])
        self.assertEqual(self.complete(shell, ["titanium", "data", "p"]), ["prepare", "prepare-images", "plan"])
        self.assertIn("--text-field", self.complete(shell, ["titanium", "data", "prepare", "--te"]))
        self.assertEqual(self.complete(shell, ["titanium", "train", "--training.seq"]), ["--training.seq_len"])
        self.assertEqual(self.complete(shell, ["titanium", "train", "--activation_checkpoint.mode", "se"]), ["selective"])
        self.assertEqual(self.complete(shell, ["titanium", "launch", "--nproc"]), ["--nproc-per-node"])
        self.assertEqual(self.complete(shell, ["titanium", "launch", "--nproc-per-node", "8", "--", "tra"]), ["train"])
        self.assertEqual(self.complete(shell, ["titanium", "launch", "--", "train", "--optimizer.l"]), ["--optimizer.lr", "--optimizer.lr_factor"])
        self.assertIn("--help", self.complete(shell, ["titanium", "data", "--h"]))
        self.assertEqual(self.complete(shell, ["titanium", "convert", "some"]), [])

    def test_bash_completes(self):
        self.check_completion("bash")

    def test_zsh_completes_sourced_and_from_its_folder_of_functions(self):
        script = program("completion", "zsh")
        self.assertTrue(script.startswith("#compdef titanium\n"))
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "_titanium").write_text(script)
            for load in (f"source {folder}/_titanium", f"fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D"):
                with self.subTest(load):
                    self.check_zsh(folder, load, {"titanium est": "titanium estimate ", "titanium train --training.seq": "titanium train --training.seq_len "})

    def check_zsh(self, folder, load, completed):
        """What a terminal shows after each of these beginnings and the key Tab."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(folder)
            os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "PS1": "> ", "TERM": "dumb", "HOME": folder})

        def wait_for(text, typed):
            os.write(terminal, typed.encode())
            shown, end = "", time.monotonic() + 30
            while text not in shown and time.monotonic() < end:
                if select.select([terminal], [], [], 0.2)[0]:
                    shown += os.read(terminal, 65536).decode(errors="replace")
            self.assertIn(text, shown)

        try:
            wait_for("loaded 42", f"{load}; print -r loaded $((40 + 2))\n")
            for typed, text in completed.items():
                wait_for(text, f"\x15{typed}\t")
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(terminal)

    def test_the_man_page_has_every_command_and_no_warnings(self):
        page = program("man")
        for path in self.paths:
            self.assertIn(".SS titanium " + path[0].replace("-", "\\-") + "\n", page)
        for tool in (["groff", "-man", "-ww", "-Tutf8", "-"], ["man", "--warnings=w", "-l", "-"]):
            if shutil.which(tool[0]) is None:
                continue
            shown = subprocess.run(tool, input=page, capture_output=True, text=True, timeout=60, env={**os.environ, "MANPAGER": "cat", "MANWIDTH": "110"})
            self.assertEqual((shown.returncode, shown.stderr), (0, ""))
            self.assertIn("--nproc-per-node", re.sub(r"\x1b\[[0-9;]*m|.\x08", "", shown.stdout))


if __name__ == "__main__":
    unittest.main()
