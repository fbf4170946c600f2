"""Speeds in README.md and docs/ stand in a file of bench/results, the chart is what the script draws from there, and links lead to files."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RESULTS = "\n".join(path.read_text() for path in sorted((ROOT / "bench" / "results").glob("*.md")))
NUMBER = r"\d[\d,]*(?:\.\d+)?"
SPEED = re.compile(rf"({NUMBER}) ?(?:tok/s|tokens/s|tokens per second|images/s)")
COLUMN = re.compile(r"tok/s|images/s|best peer")


def without_code(text):
    """Fenced blocks blanked out, so that line numbers stay."""
    return re.sub(r"^```.*?^```", lambda block: "\n" * block.group().count("\n"), text, flags=re.M | re.S)


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def figures(text):
    """[(line, number)] of speeds: in sentences, and in columns of tables whose heads name a speed, with the memory beside them."""
    columns = set()
    for line, content in enumerate(without_code(text).splitlines(), 1):
        if not content.startswith("|"):
            columns = set()
            yield from ((line, number) for number in SPEED.findall(content))
            continue
        row = cells(content)
        if not columns:
            columns = {i for i, cell in enumerate(row) if COLUMN.search(cell)}
            columns |= {i for i, cell in enumerate(row) if columns and cell.startswith("GiB")}
        else:
            yield from ((line, found.group()) for i in columns if i < len(row) for found in re.finditer(rf"(?<![\w.,]){NUMBER}", row[i]) if len(found.group()) > 2)


def stands(number, text):
    return re.search(rf"(?<![\d,.]){re.escape(number)}(?![\d]|,\d|\.\d)", text) is not None


class DocumentedFigures(unittest.TestCase):
    def test_speeds_have_a_source(self):
        count = 0
        for page in PAGES:
            for line, number in figures(page.read_text()):
                count += 1
                with self.subTest(f"{page.name}:{line}: {number}"):
                    self.assertTrue(stands(number, RESULTS), "no file of bench/results has this figure")
        self.assertGreater(count, 30)

    def test_a_figure_without_source_is_found(self):
        text = "It runs at 98,765 tok/s.\n\n| setting | tok/s |\n|---|---|\n| 8B | 98,766 (and 98,767 before) |\n"
        self.assertEqual([number for _, number in figures(text)], ["98,765", "98,766", "98,767"])
        self.assertFalse(stands("98,765", RESULTS))
        self.assertFalse(stands("1,539", "11,539"))
        self.assertTrue(stands("11,539", "| 11,539 | 67.6 % |"))

    def test_the_chart_is_drawn_from_the_results(self):
        with tempfile.TemporaryDirectory() as folder:
            picture = pathlib.Path(folder) / "speed.svg"
            subprocess.run([sys.executable, ROOT / "tools" / "draw_speed_chart.py", "--out", picture], check=True)
            self.assertEqual(picture.read_text(), (ROOT / "docs" / "images" / "speed_8b.svg").read_text(), "draw it again: tools/draw_speed_chart.py")

    def test_links_lead_to_files(self):
        for page in [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]:
            for target in re.findall(r"\]\(([^)#]+)[^)]*\)", without_code(page.read_text())):
                if "://" not in target:
                    self.assertTrue((page.parent / target).exists(), f"{page.name} links to {target}, which is not there")

    def test_results_name_their_machine_and_command(self):
        for path in sorted((ROOT / "bench" / "results").glob("*.md")):
            text = path.read_text()
            with self.subTest(path.name):
                self.assertRegex(text, r"EPYC|H200", "which machine?")
                self.assertRegex(text, r"[Cc]ommit", "which commit?")
                self.assertRegex(text, r"\b[0-9a-f]{7}\b", "the commit's hash?")
                self.assertRegex(text, r"`[^`]*(bench|titanium|doctor)[^`]*`|bench/", "which command?")


if __name__ == "__main__":
    unittest.main()
