"""Speeds, rates and times in README.md and docs/ stand in a file of bench/results, the chart is what the script draws from there, and links lead to files."""

import decimal
import functools
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RESULTS = "\n".join(path.read_text() for path in sorted((ROOT / "bench" / "results").glob("*.md")))
NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
LIST = rf"(?<![\w.,]){NUMBER}(?:(?:, | / | to | and |, and ){NUMBER})*"
RATE = re.compile(rf"({LIST}) ?(tok/s|tokens/s|tokens per second|images/s|TFLOP/s|TB/s|[KMG]i?B/s|ms\b)")
# What something took; other times and sizes are settings and limits.
TAKEN = re.compile(rf"(?:took|read in|ended in) (?:about )?({LIST}) ?(s|minutes)\b|({LIST}) ?(s) of (?:one core|processor time)|with ({LIST}) ?([MG]B) of memory")
# Pages that compare and explain what was measured; elsewhere memory and percentages are mostly plans, settings and limits.
MEASURED = {"README.md", "performance.md", "profiling.md", "float8.md", "moe.md", "kernels.md"}
SHARE = re.compile(rf"({LIST}) ?(GiB|%)")
# How results write a unit, where not in the same way.
WRITTEN = {"tok/s": r"tok/s|tokens", "tokens/s": r"tok/s|tokens", "tokens per second": r"tok/s|tokens", "ms": r"\bms\b|\bus\b", "s": r"\bs\b|seconds", "minutes": r"\bmin",
           "MB": r"\bMB\b|MiB", "GB": r"\bGB\b|GiB", "images/s": r"images/s|images|per second", "%": r"%|share|part|reached"}
COLUMN = re.compile(r"tok/s|images/s|best peer|^ms$|^share$")
# What is no measurement: results of arithmetic that stands beside them.
COMPUTED = {"context.md": {"600", "73", "18"}}


def without_code(text):
    """Fenced blocks blanked out, so that line numbers stay."""
    return re.sub(r"^```.*?^```", lambda block: "\n" * block.group().count("\n"), text, flags=re.M | re.S)


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def figures(text, measured=True):
    """[(line, number, unit)]: rates, what something took and, where all is `measured`, memory and shares in sentences; and columns of tables whose heads
    name one, without a unit."""
    columns = set()
    for line, content in enumerate(without_code(text).splitlines(), 1):
        found = {}
        for pattern in (RATE, TAKEN, SHARE) if measured else (RATE, TAKEN):
            found |= {match.start(): [group for group in match.groups() if group] for match in pattern.finditer(content)}
        row = cells(content) if content.startswith("|") else []
        if row and not columns:
            columns = {i for i, cell in enumerate(row) if COLUMN.search(cell)}
            columns |= {i for i, cell in enumerate(row) if columns and cell.startswith("GiB")}
        elif row:
            found |= {i - len(row): [" ".join(re.findall(rf"(?<![\w.,]){NUMBER}", row[i])), ""] for i in columns if i < len(row)}
        else:
            columns = set()
        numbers = [(number, unit) for _, (numbers, unit) in sorted(found.items()) for number in re.findall(NUMBER, numbers)]
        yield from ((line, number, unit) for number, unit in dict(numbers).items() if len(number) > 1)


@functools.lru_cache
def rounded(text, digits):
    """The numbers of `text`, rounded to so many digits after the point."""
    numbers = (number.replace(",", "") for number in re.findall(rf"(?<![\d,.]){NUMBER}(?!,?\d|\.\d)", text))
    unit = decimal.Decimal(1).scaleb(-digits)
    return {decimal.Decimal(number).quantize(unit, decimal.ROUND_HALF_UP) for number in numbers if len(number.partition(".")[2]) >= digits}


def stands(number, text):
    """Whether `text` has the number, or one with more digits that rounds to it."""
    number = number.replace(",", "")
    return decimal.Decimal(number) in rounded(text, len(number.partition(".")[2]))


@functools.lru_cache
def with_unit(unit, text=RESULTS):
    """The paragraphs and tables of the results that have this unit in themselves, in the paragraph before, which introduces them, or in their heading."""
    found, heading, before = [], "", ""
    for part in re.split(r"\n\s*\n|\n(?=#)", text):
        if part.startswith("#"):
            heading = part
        if re.search(WRITTEN.get(unit, re.escape(unit)), "\n".join((heading, before, part))):
            found.append(part)
        before = part
    return "\n\n".join(found)


def anchors(text):
    """The names under which a page's headings can be linked, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_code(text), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


class DocumentedFigures(unittest.TestCase):
    def test_figures_have_a_source(self):
        count = 0
        for page in PAGES:
            for line, number, unit in figures(page.read_text(), page.name in MEASURED):
                if number in COMPUTED.get(page.name, ()):
                    continue
                count += 1
                with self.subTest(f"{page.name}:{line}: {number}"):
                    self.assertTrue(stands(number, with_unit(unit)), f"no file of bench/results has this figure beside {unit or 'others'}")
        self.assertGreater(count, 150)

    def test_a_figure_without_source_is_found(self):
        text = ("It runs at 98,765 tok/s.\n\n| setting | tok/s | GiB |\n|---|---|---|\n| 8B | 98,766 (and 98,767 before) | 87.61 |\n\n"
                "Products reach 876.5 to 876.6 TFLOP/s in 87.62 ms, 87.63 % of 87.64 GiB, and read 87.65 GB/s. It took 87.67 s, 87.68 s of one core with 87.69 GB of memory.\n```\n87.66 ms\n```\n")
        everywhere = ["98,765", "98,766", "98,767", "87.61", "876.5", "876.6", "87.62", "87.65", "87.67", "87.68", "87.69"]
        self.assertEqual([number for _, number, _ in figures(text, measured=False)], everywhere)
        self.assertEqual(sorted(number for _, number, _ in figures(text)), sorted([*everywhere, "87.63", "87.64"]))
        self.assertFalse(any(stands(number, RESULTS) for number in everywhere))

    def test_a_figure_stands_beside_its_unit(self):
        results = "It took 87.6 s.\n\nOthers.\n\nIt moved\n87.5 GB/s.\n"
        self.assertTrue(stands("87.6", with_unit("s", results)))
        self.assertFalse(stands("87.6", with_unit("GB/s", results)))
        self.assertTrue(stands("87.5", with_unit("GB/s", results)))

    def test_a_figure_may_be_rounded_and_nothing_else(self):
        self.assertTrue(stands("11,539", "| 11,539 | 67.64 % |"))
        self.assertTrue(stands("67.6", "| 11,539 | 67.64 % |"))
        self.assertTrue(stands("1431", "in 1,431.0 ms"))
        self.assertFalse(stands("67.7", "| 11,539 | 67.64 % |"))
        self.assertFalse(stands("67.640", "| 11,539 | 67.64 % |"))
        self.assertFalse(stands("1,539", "11,539"))

    def test_the_chart_is_drawn_from_the_results(self):
        with tempfile.TemporaryDirectory() as folder:
            picture = pathlib.Path(folder) / "speed.svg"
            subprocess.run([sys.executable, ROOT / "tools" / "draw_speed_chart.py", "--out", picture], check=True)
            self.assertEqual(picture.read_text(), (ROOT / "docs" / "images" / "speed_8b.svg").read_text(), "draw it again: tools/draw_speed_chart.py")

    def test_links_lead_to_files_and_headings(self):
        for page in [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]:
            for target, _, heading in (link.partition("#") for link in re.findall(r"\]\(([^) ]+)\)", without_code(page.read_text()))):
                if "://" in target:
                    continue
                file = page.parent / target if target else page
                self.assertTrue(file.exists(), f"{page.name} links to {target}, which is not there")
                if heading:
                    self.assertIn(heading, anchors(file.read_text()), f"{page.name} links to a heading of {file.name} that is not there")

    def test_the_index_has_every_page(self):
        index = (ROOT / "docs" / "index.md").read_text()
        for page in sorted((ROOT / "docs").glob("*.md")):
            if page.name != "index.md":
                self.assertIn(f"({page.name})", index, "a page that nobody finds")

    def test_results_name_their_machine_and_command(self):
        for path in sorted((ROOT / "bench" / "results").glob("*.md")):
            text = path.read_text()
            with self.subTest(path.name):
                self.assertRegex(text, r"EPYC|Xeon|H200", "which machine?")
                self.assertRegex(text, r"[Cc]ommit", "which commit?")
                self.assertRegex(text, r"\b[0-9a-f]{7}\b", "the commit's hash?")
                self.assertRegex(text, r"`[^`]*(bench|titanium|doctor)[^`]*`|bench/", "which command?")

    def test_commits_of_results_are_in_the_history(self):
        git = ["git", "-C", str(ROOT), "-c", f"safe.directory={ROOT}"]
        if subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True).returncode != 0 or (ROOT / ".git/shallow").exists():
            return  # sources without their history
        for path in [*sorted((ROOT / "bench" / "results").glob("*.md")), *PAGES]:
            for line in path.read_text().splitlines():
                for name in re.findall(r"\b[Cc]ommit:? ([0-9a-f]{7,40})\b", line):
                    with self.subTest(f"{path.name}: {name}"):
                        known = subprocess.run([*git, "cat-file", "-e", name + "^{commit}"], capture_output=True).returncode == 0
                        self.assertTrue(known, "no commit of this repository")


if __name__ == "__main__":
    unittest.main()
