"""`titanium schedule show` as a user meets it; the pictures in docs/pipeline.md are what it prints."""

import os
import pathlib
import re
import subprocess
import tempfile
import xml.dom.minidom

PROGRAM = os.environ["TITANIUM"]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def run(*args, code=0):
    result = subprocess.run([PROGRAM, "schedule", *map(str, args)], capture_output=True, text=True)
    assert result.returncode == code, f"{args}: exit code {result.returncode}: {result.stderr}"
    return result


def refusal(*args):
    result = run(*args, code=2)
    assert result.stdout == "", result.stdout
    return result.stderr


def check_pages():
    page = (ROOT / "docs/pipeline.md").read_text()
    pictures = re.findall(r"```\n\$ titanium schedule (.*?)\n(.*?)```", page, re.DOTALL)
    assert len(pictures) == 7
    for command, printed in pictures:
        assert run(*command.split()).stdout == printed, f"docs/pipeline.md: titanium schedule {command} prints something else"


def check_files(folder):
    table, again, picture = folder / "table.csv", folder / "again.csv", folder / "picture.svg"
    sizes = ["--pp", 4, "--microbatches", 8]
    made = run("show", "--schedule", "dualpipev", *sizes, "--write-csv", table, "--svg", picture).stdout
    read = run("show", "--schedule", "PipelineScheduleMulti", "--csv", table, "--write-csv", again).stdout
    assert made.split("\n", 1)[1] == read.split("\n", 1)[1]
    assert table.read_text() == again.read_text()
    xml.dom.minidom.parse(str(picture))
    assert picture.read_text() == (ROOT / "docs/images/dual_pipe_v.svg").read_text()

    assert "wants exactly 1 stage per rank, not 2" in refusal("show", "--schedule", "PipelineScheduleSingle", "--csv", table)
    assert "but the run has 2" in refusal("show", "--schedule", "PipelineScheduleMulti", "--csv", table, "--pp", 2)
    table.write_text("0F0,0B0\n1F0,,1X0\n")
    assert f"{table}: line 2, cell 3: '1X0'" in refusal("show", "--schedule", "PipelineScheduleSingle", "--csv", table)
    assert "does not exist" in refusal("show", "--schedule", "PipelineScheduleSingle", "--csv", folder / "none.csv")


def main():
    check_pages()
    with tempfile.TemporaryDirectory() as folder:
        check_files(pathlib.Path(folder))
    few = run("show", "--schedule", "1F1B", "--pp", 4, "--microbatches", 2, "--costs", "1,2,3")
    assert "2 micro-batches cannot fill a pipeline of 4 stages" in few.stderr
    assert "Use one of 1F1B, Interleaved1F1B" in refusal("show", "--schedule", "ring", "--pp", 2, "--microbatches", 2)
    assert "needs --pp and --microbatches" in refusal("show", "--schedule", "GPipe", "--pp", 2)
    assert "Give --csv" in refusal("show", "--schedule", "PipelineScheduleMulti", "--pp", 2, "--microbatches", 2)
    assert "makes its own table" in refusal("show", "--schedule", "GPipe", "--csv", "table.csv")
    assert "the file places the stages" in refusal(
        "show", "--schedule", "PipelineScheduleMulti", "--csv", "table.csv", "--stages-per-rank", 2)
    assert "--costs" in refusal("show", "--schedule", "GPipe", "--pp", 2, "--microbatches", 2, "--costs", "0,1,1")
    assert "--stages-per-rank" in run("show", "--help").stdout


if __name__ == "__main__":
    main()
