"""titanium eval and titanium generate: what they print and refuse. Their numbers are compared in parity/llama.py."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import llama_folders

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.environ["TITANIUM"]


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        cls.model = cls.folder / "model"
        llama_folders.make(cls.model, "all")

    def run_program(self, *arguments):
        return subprocess.run([PROGRAM, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)

    def succeeds(self, *arguments):
        finished = self.run_program(*arguments)
        self.assertEqual((finished.returncode, finished.stderr), (0, ""))
        return finished.stdout

    def refused(self, sentence, *arguments, code=2):
        finished = self.run_program(*arguments)
        self.assertEqual((finished.returncode, finished.stdout), (code, ""))
        self.assertIn(sentence, finished.stderr)
        self.assertEqual(len(finished.stderr.splitlines()), 1, finished.stderr)

    def tokens(self, content):
        path = self.folder / "tokens.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return "eval", "--checkpoint", self.model, "--tokens", path


class Eval(Commands):
    def test_prints_one_json_object(self):
        output = self.succeeds(*self.tokens([[0, 5, 7, 9], [3, 2]]))
        self.assertEqual(len(output.splitlines()), 1)
        self.assertEqual(list(json.loads(output)), ["loss", "perplexity", "tokens"])
        self.assertEqual(json.loads(output)["tokens"], 4)

    def test_a_configuration_file_and_overrides_are_taken(self):
        # The file's flavor and tokenizer do not fit the folder; the command line has the last word.
        output = self.succeeds(*self.tokens([[0, 5, 7, 9]]), "--job.config_file=configs/llama3/debug_model.toml",
                               "--model.flavor", "auto", "--training.device=cpu")
        self.assertEqual(output, self.succeeds(*self.tokens([[0, 5, 7, 9]])))

    def test_precision_can_be_chosen(self):
        command = self.tokens([list(range(100))])
        exact = json.loads(self.succeeds(*command))["loss"]
        rounded = json.loads(self.succeeds(*command, "--training.mixed_precision_param=bfloat16"))["loss"]
        self.assertNotEqual(exact, rounded)
        self.assertAlmostEqual(rounded / exact, 1, delta=0.02)

    def test_token_files_are_read_strictly(self):
        shape = "Write an array of arrays of token ids: [[1, 15, 7], [1, 4]]."
        self.refused(f"is not valid JSON (at byte 7). {shape}", *self.tokens("[[1, 2"))
        self.refused(f"is not a JSON array. {shape}", *self.tokens("{}"))
        self.refused(f"holds at [1] something else than an array. {shape}", *self.tokens([[1, 2], 3]))
        for wrong in ("1.5", '"1"', "-1", "4294967296", "null", "18446744073709551615"):
            self.refused(f"holds at [0][1] something else than a token id. {shape}", *self.tokens(f"[[1, {wrong}]]"))
        self.refused("sequence 1 holds token 2000, but the model's vocabulary has 2000 entries.",
                     *self.tokens([[1, 2], [2000, 1]]), code=1)
        self.refused("there is nothing to predict", *self.tokens([[1], []]), code=1)

    def test_wrong_command_lines_are_refused(self):
        self.refused("--checkpoint is required", "eval", "--tokens", "x.json")
        self.refused("Exactly 1 option from [--text,--tokens] is required", "eval", "--checkpoint", self.model)
        self.refused("Exactly 1 option from [--text,--tokens] is required", *self.tokens([[1, 2]]), "--text", "x.jsonl")
        self.refused("--training.seqlen", *self.tokens([[1, 2]]), "--training.seqlen=8")
        self.refused("not available yet: fault_tolerance.enable = true", *self.tokens([[1, 2]]),
                     "--fault_tolerance.enable")
        self.refused("nowhere does not exist. Name a folder with Hugging Face weights", "eval", "--checkpoint", "nowhere",
                     "--tokens", "x.json")

    def test_other_formats_give_the_same_loss(self):
        command = self.tokens([[1, 5, 9, 200, 3], [7, 8]])
        expected = self.succeeds(*command)
        for to in ("dcp", "torch"):
            self.succeeds("convert", self.model, self.folder / to, "--to", to)
            self.assertEqual(self.succeeds(*command[:2], self.folder / to, *command[3:],
                                           f"--model.hf_assets_path={self.model}"), expected)
        self.refused("Check model.name and model.flavor against the source of the weights", *command[:2],
                     self.folder / "dcp", *command[3:], code=1)

    def test_what_holds_no_weights_is_refused(self):
        empty = self.folder / "empty"
        empty.mkdir()
        self.refused("holds no weights", *self.tokens([[1, 2]])[:2], empty, *self.tokens([[1, 2]])[3:])


class Generate(Commands):
    def generate(self, *arguments):
        return self.succeeds("generate", "--checkpoint", self.model, *arguments)

    def test_the_seed_decides_the_text(self):
        arguments = ("--prompt", "The city", "--max-new-tokens", 20, "--top-k", 50)
        first = self.generate(*arguments, "--seed", 1, "--batch", 2)
        self.assertTrue(first.startswith("The city"))
        self.assertEqual(first.count("The city"), 2)
        self.assertEqual(self.generate(*arguments, "--seed", 1, "--batch", 2), first)
        self.assertNotEqual(self.generate(*arguments, "--seed", 2, "--batch", 2), first)
        # The continuations of a batch differ, and the first is the same whatever the batch.
        alone = self.generate(*arguments, "--seed", 1)
        self.assertTrue(first.startswith(alone))
        self.assertNotEqual(first, alone + alone)

    def test_one_likely_token_is_greedy(self):
        arguments = ("--prompt", "The city", "--max-new-tokens", 20)
        self.assertEqual(self.generate(*arguments, "--top-k", 1), self.generate(*arguments, "--temperature", 0))

    def test_an_empty_prompt_starts_with_the_begin_token(self):
        self.assertGreater(len(self.generate("--prompt", "", "--max-new-tokens", 5)), 1)

    def test_wrong_command_lines_are_refused(self):
        command = ("generate", "--checkpoint", self.model, "--prompt", "The city")
        self.refused("--prompt is required", *command[:3])
        self.refused("--temperature -1 should be a number from 0", *command, "--temperature=-1")
        self.refused("--temperature nan should be", *command, "--temperature", "nan")
        self.refused("--top-k -2 should be positive, or 0 for all tokens", *command, "--top-k=-2")
        self.refused("--max-new-tokens 0 should be at least 1", *command, "--max-new-tokens", 0)
        self.refused("--batch 0 should be at least 1", *command, "--batch", 0)
        self.refused("--seed", *command, "--seed", "x")
        self.refused("tokens of prompt and 1000 new ones are more than the model's 256 positions", *command,
                     "--max-new-tokens", 1000)

    def test_an_empty_prompt_without_a_begin_token_is_refused(self):
        plain = self.folder / "no_begin_token"
        plain.mkdir()
        tokenizer = json.loads((llama_folders.TOKENIZER / "tokenizer.json").read_text())
        (plain / "tokenizer.json").write_text(json.dumps(tokenizer))
        self.refused("--prompt is empty and the tokenizer has no begin-of-sequence token", "generate", "--checkpoint",
                     self.model, "--prompt", "", f"--model.hf_assets_path={plain}")


if __name__ == "__main__":
    unittest.main()
