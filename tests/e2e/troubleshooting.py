"""The sentences that docs/troubleshooting.md quotes are the program's own."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def source_texts():
    """The string literals of the program, adjacent ones joined, with what is put in replaced by ...; one per line."""
    texts = []
    for path in sorted((ROOT / "titanium").rglob("*.cpp")) + sorted((ROOT / "titanium").rglob("*.h")):
        code = re.sub(r'"\s*\n\s*"', "", path.read_text())
        texts += [re.sub(r"\{[^{}]*\}", "...", literal.replace('\\"', '"')) for literal in re.findall(r'"((?:[^"\\\n]|\\.)*)"', code)]
    return texts


def quotes():
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    return [line[2:] for line in text.splitlines() if line.startswith("> ")]


def parts(quote):
    return [part.strip(" .:,") for part in quote.split("...") if len(part.strip(" .:,()")) > 5]


class Troubleshooting(unittest.TestCase):
    def test_each_quoted_sentence_stands_in_the_program(self):
        texts = source_texts()
        self.assertGreaterEqual(len(quotes()), 15)
        for quote in quotes():
            with self.subTest(quote):
                for part in parts(quote):
                    self.assertTrue(any(part in text for text in texts), f"no text of the program has: {part}")

    def test_a_changed_sentence_is_found(self):
        texts = source_texts()
        self.assertFalse(any("this sentence is of nobody" in text for text in texts))
        self.assertEqual(parts("the run needs about ... GiB, but"), ["the run needs about", "GiB, but"])


if __name__ == "__main__":
    unittest.main()
