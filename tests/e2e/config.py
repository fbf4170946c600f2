"""`titanium config` as a user meets it: output, exit codes and which stream gets what."""

import os
import pathlib
import subprocess
import tempfile

PROGRAM = os.environ["TITANIUM"]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def run(*args, code=0):
    result = subprocess.run([PROGRAM, "config", *args], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == code, f"{args}: exit code {result.returncode}: {result.stderr}"
    return result


def main():
    debug = "configs/llama3/debug_model.toml"
    assert run("check", debug).stdout.endswith(f"{debug} is valid.\n")
    shown = run("show", "--job.config_file", debug, "--training.steps", "3").stdout
    assert "\nsteps = 3  # command line\n" in shown and f"  # {debug}:" in shown and "  # default\n" in shown

    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "copy.toml"
        copy.write_text(shown)
        again = run("show", "--job.config_file", str(copy)).stdout
        values = lambda text: [line.split("  # ")[0] for line in text.splitlines() if not line.startswith("config_file")]
        assert values(again) == values(shown)
        broken = pathlib.Path(folder) / "broken.toml"
        broken.write_text("[training]\nsteps = 0\nseqlen = 3\n")
        result = run("check", str(broken), code=2)
        assert result.stdout == "" and result.stderr.count(f"{broken}:") == 2, result.stderr

    assert "--training.seq_len" in run("options").stdout
    assert run("options", "--markdown").stdout == (ROOT / "docs/options.md").read_text()
    assert "config check FILE" in run("--help").stdout
    assert "config check FILE" in run(code=2).stderr
    assert "Did you mean 'show'?" in run("shw", code=2).stderr
    assert "needs a file" in run("check", code=2).stderr
    assert "does not exist" in run("check", "no_such.toml", code=2).stderr


if __name__ == "__main__":
    main()
