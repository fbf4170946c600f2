"""What structure_axes finds: tools/check_structure.py in a tree of one file."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_structure  # noqa: E402


class StructureAxes(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)
        (self.root / "tools").mkdir()
        shutil.copy(ROOT / "tools/check_structure.py", self.root / "tools")

    def findings(self, line, file="titanium/optim/optimizer.cpp"):
        """What the check says of a tree whose only source is this line."""
        shutil.rmtree(self.root / "titanium", ignore_errors=True)
        (self.root / file).parent.mkdir(parents=True)
        (self.root / file).write_text(line + "\n")
        done = subprocess.run([sys.executable, self.root / "tools/check_structure.py", "axes"], capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        lines = done.stdout.splitlines()
        self.assertEqual((done.returncode, lines == ["axes: no findings"]), (1, False) if done.returncode else (0, True), done.stdout)
        return lines if done.returncode else []

    def test_a_name_is_found_in_every_form(self):
        for line in ('mesh.reduce("tp", x);', 'constexpr const char* kTensor = "tp";', 'mesh.reduce(R"(tp)", x);', 'split("tp,cp")',
                     'for (const auto& axis : words("pp tp")) sum(axis);', 'read("https://host/file", "tp");'):
            with self.subTest(line):
                self.assertRegex("\n".join(self.findings(line)), r'^titanium/optim/optimizer.cpp:1: ".*" names a mesh axis')

    def test_a_degree_is_found_whatever_holds_it(self):
        for line in ("if (dims.tp > 1) sum(x);", "scale(x, mesh.dims().fsdp());", "const auto ranks = dims_.ep;", "state->dims->dp_shard;",
                     "parallel_dims(options, world).cp", 'fmt::format("of {} ranks", plans[0].etp)'):
            with self.subTest(line):
                self.assertEqual(len(self.findings(line)), 1)
                self.assertIn("the degree", self.findings(line)[0])

    def test_other_words_are_not(self):
        for line in ('// the axis "tp", with dims.tp ranks', 'options.add("--pp", ranks);', 'fmt::format("pp {}", rank)', 'log("tp and cp");',
                     'add({.tp = 2});', "args.tp_degree", 'find("a.tp")', 'log("")'):
            with self.subTest(line):
                self.assertEqual(self.findings(line), [])

    def test_files_of_the_tables_may(self):
        self.assertEqual(self.findings('axis("tp"), axis("etp");', "titanium/parallel/placement.cpp"), [])
        self.assertEqual(self.findings("tokens / dims.cp", "titanium/train/memory_plan.cpp"), [])
        # The degree is not the name, nor one axis another.
        self.assertEqual(len(self.findings('mesh.reduce("cp", x);', "titanium/train/memory_plan.cpp")), 1)
        self.assertEqual(len(self.findings("dims.ep", "titanium/train/memory_plan.cpp")), 1)

    def test_every_file_of_the_tables_is_there_and_asks_for_its_degree(self):
        """An entry that nothing needs any more would let the next use in."""
        for files in check_structure.AXIS_FILES.values():
            for file in files:
                self.assertTrue((ROOT / file).exists(), file)
        for name, files in check_structure.DEGREE_FILES.items():
            for file in files:
                with self.subTest(f"{name} in {file}"):
                    self.assertRegex((ROOT / file).read_text(), rf"[\w)\]](\.|->){name}\b")


if __name__ == "__main__":
    unittest.main()
