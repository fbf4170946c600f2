"""What holds for every decoder-only family against transformers' model (logits, loss, gradients, generation) and against
torchtitan's (training), in fp32 on the CPU. A family derives from these classes."""

import json
import math
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import hugging_face_folders
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

PROGRAM = os.environ["TITANIUM"]
DRIVER = os.path.join(os.environ["TITANIUM_BUILD"], "decoder_driver")
LOGITS = 1e-4  # largest difference
GRADIENTS = 1e-5  # ||a - b|| / ||b||


def call(*arguments):
    finished = subprocess.run([str(argument) for argument in arguments], capture_output=True, text=True)
    if finished.returncode != 0:
        raise AssertionError(f"{arguments} ended with {finished.returncode}: {finished.stderr}")
    return finished.stdout


def relative(found, expected):
    return (torch.linalg.vector_norm((found - expected).double()) / torch.linalg.vector_norm(expected.double())).item()


INSIDE = {"self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
          "self_attn.o_proj": "attention.wo", "self_attn.q_a_proj": "attention.wq_a", "self_attn.q_a_layernorm": "attention.q_norm",
          "self_attn.q_b_proj": "attention.wq_b", "self_attn.kv_a_proj_with_mqa": "attention.wkv_a",
          "self_attn.kv_a_layernorm": "attention.kv_norm", "self_attn.kv_b_proj": "attention.wkv_b", "self_attn.q_norm": "attention.q_norm", "self_attn.k_norm": "attention.k_norm",
          "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2", "mlp.up_proj": "feed_forward.w3",
          "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm"}
OUTSIDE = {"model.embed_tokens.weight": "tok_embeddings.weight", "model.norm.weight": "norm.weight",
           "lm_head.weight": "output.weight"}


def from_hugging_face(name, tensor, config):
    """A tensor of transformers' model as ours, by name, from the reference and not from our adapter; the same order of rows."""
    if name in OUTSIDE:
        return {OUTSIDE[name]: tensor}
    layer, part, kind = re.fullmatch(r"model\.layers\.(\d+)\.(.*)\.(weight|bias)", name).groups()
    return {f"layers.{layer}.{INSIDE[part]}.{kind}": tensor}


class Folder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)


def weights_go_round(test, folders, kinds):
    """Weights of transformers' models become a distributed checkpoint and a Hugging Face folder again, bit by bit."""
    for kind in kinds:
        with test.subTest(kind=kind):
            folder = test.folder / kind
            model = folders.make(folder / "hf", kind)
            call(PROGRAM, "convert", folder / "hf", folder / "dcp", "--to", "dcp")
            call(PROGRAM, "convert", folder / "dcp", folder / "back", "--to", "hf", "--hf-assets", folder / "hf")
            back = type(model).from_pretrained(folder / "back", dtype=torch.float32)
            expected = dict(model.named_parameters()) | dict(model.named_buffers())
            for name, tensor in (dict(back.named_parameters()) | dict(back.named_buffers())).items():
                test.assertTrue(torch.equal(tensor, expected.pop(name)), name)
            test.assertEqual(expected, {})


class AgainstTransformers(Folder):
    folders = None  # the module that makes folders of the family: KINDS and make
    from_hugging_face = staticmethod(from_hugging_face)
    PUBLISHED = ("plain",)  # kinds whose rope options are read in the published spelling
    GENERATED = ("grouped", "all")  # kinds whose greedy text is compared
    POSITIONED = ("grouped", "all")  # kinds that are compared with positions that start again
    MASKS = (False, True)  # whether attention stays inside documents there

    def sequences(self):
        generator = torch.Generator().manual_seed(3)
        return [torch.randint(0, hugging_face_folders.VOCABULARY, (length,), generator=generator) for length in (150, 2, 37)]

    def compare_logits(self, model):
        sequences = self.sequences()
        (self.folder / "tokens.json").write_text(json.dumps([sequence.tolist() for sequence in sequences]))
        found = json.loads(call(PROGRAM, "eval", "--checkpoint", self.folder, "--tokens", self.folder / "tokens.json",
                                "--logits", self.folder / "logits.safetensors"))
        logits = load_file(self.folder / "logits.safetensors")
        self.assertEqual(len(logits), len(sequences))
        total, count = 0.0, 0
        for i, sequence in enumerate(sequences):
            with torch.no_grad():
                expected = model(sequence[None]).logits[0]
            self.assertEqual(logits[f"logits.{i}"].dtype, torch.float32)
            self.assertLessEqual((logits[f"logits.{i}"] - expected).abs().max().item(), LOGITS)
            total += F.cross_entropy(expected[:-1].double(), sequence[1:], reduction="sum").item()
            count += len(sequence) - 1
        self.assertEqual(found["tokens"], count)
        self.assertLess(abs(found["loss"] / (total / count) - 1), GRADIENTS)
        self.assertLess(abs(found["perplexity"] / math.exp(total / count) - 1), 10 * GRADIENTS)

    def compare_gradients(self, model):
        generator = torch.Generator().manual_seed(4)
        tokens = torch.randint(0, hugging_face_folders.VOCABULARY, (3, 101), generator=generator)
        labels = tokens[:, 1:].clone()
        labels[1, 50:] = -100
        tokens = tokens[:, :-1].contiguous()
        save_file({"tokens": tokens, "labels": labels}, self.folder / "batch.safetensors")
        call(DRIVER, "gradients", self.folder, self.folder / "batch.safetensors", self.folder / "grads.safetensors")
        self.expect_same_gradients(model, model(tokens).logits, labels)

    def expect_same_gradients(self, model, logits, labels):
        found = load_file(self.folder / "grads.safetensors")
        self.assertLessEqual((found.pop("logits") - logits).abs().max().item(), LOGITS)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=-100)
        loss.backward()
        self.assertLess(abs(found.pop("loss").item() / loss.item() - 1), GRADIENTS)
        for name, parameter in model.named_parameters():
            for ours, expected in self.from_hugging_face(name, parameter.grad, model.config).items():
                with self.subTest(name=ours):
                    self.assertLess(relative(found.pop(f"grad.{ours}"), expected), GRADIENTS)
        self.assertEqual(found, {})

    def test_logits_loss_and_gradients_agree(self):
        for kind in self.folders.KINDS:
            with self.subTest(kind=kind):
                for file in self.folder.iterdir():
                    file.unlink()
                model = self.folders.make(self.folder, kind)
                self.compare_logits(model)
                self.compare_gradients(model)

    def compare_with_positions(self, model, inside_documents):
        """transformers attends inside documents that it finds by their positions, unless it is given a mask."""
        generator = torch.Generator().manual_seed(5)
        tokens = torch.randint(0, hugging_face_folders.VOCABULARY, (3, 101), generator=generator)
        labels, tokens = tokens[:, 1:].contiguous(), tokens[:, :-1].contiguous()
        starts = ((0, 7, 8, 61), (0,), (0, 50, 97))
        positions = torch.stack([torch.cat([torch.arange(end - start) for start, end in zip(row, (*row[1:], 100))]) for row in starts])
        save_file({"tokens": tokens, "labels": labels, "positions": positions}, self.folder / "batch.safetensors")
        options = ("--model.attn_type=flex",) if inside_documents else ()
        call(DRIVER, "gradients", self.folder, self.folder / "batch.safetensors", self.folder / "grads.safetensors", *options)
        logits = model(tokens, position_ids=positions, attention_mask=None if inside_documents else torch.ones_like(tokens),
                       use_cache=False).logits
        self.expect_same_gradients(model, logits, labels)
        self.assertGreater((model(tokens).logits - logits).abs().max().item(), 100 * LOGITS)

    def test_positions_that_start_again_agree(self):
        for kind in self.POSITIONED:
            for inside_documents in self.MASKS:
                with self.subTest(kind=kind, inside_documents=inside_documents):
                    for file in self.folder.iterdir():
                        file.unlink()
                    self.compare_with_positions(self.folders.make(self.folder, kind), inside_documents)

    def test_published_spelling_of_the_rope_options_is_read(self):
        for kind in self.PUBLISHED:
            with self.subTest(kind=kind):
                self.compare_logits(self.folders.make(self.folder, kind, published_spelling=True))

    def test_sharded_weights_are_read(self):
        model = self.folders.make(self.folder, "grouped", max_shard_size="300KB")
        self.assertGreater(len(list(self.folder.glob("model-*.safetensors"))), 2)
        self.compare_logits(model)

    def test_long_sequences_are_cut_into_pieces_that_stand_for_themselves(self):
        model = self.folders.make(self.folder, "plain")
        sequence = self.sequences()[0]
        (self.folder / "tokens.json").write_text(json.dumps([sequence.tolist()]))
        found = json.loads(call(PROGRAM, "eval", "--checkpoint", self.folder, "--tokens", self.folder / "tokens.json",
                                "--training.seq_len=64"))
        pieces = sequence.split(64)
        with torch.no_grad():
            total = sum(F.cross_entropy(model(piece[None]).logits[0, :-1], piece[1:], reduction="sum") for piece in pieces)
        self.assertEqual(found["tokens"], len(sequence) - len(pieces))
        self.assertLess(abs(found["loss"] * found["tokens"] / total.item() - 1), GRADIENTS)

    def test_loss_of_a_text_agrees(self):
        import tokenizers

        model = self.folders.make(self.folder, "all")
        texts = ["A short text.", "Another one, with \u00fcmlauts and\nlines.", "Numbers: 1234567890."]
        (self.folder / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        found = json.loads(call(PROGRAM, "eval", "--checkpoint", self.folder, "--text", self.folder / "text.jsonl"))
        tokenizer = tokenizers.Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        total, count = 0.0, 0
        for text in texts:
            ids = [hugging_face_folders.BOS, *tokenizer.encode(text, add_special_tokens=False).ids, hugging_face_folders.EOS]
            with torch.no_grad():
                total += model(torch.tensor([ids]), labels=torch.tensor([ids])).loss.item() * (len(ids) - 1)
            count += len(ids) - 1
        self.assertEqual(found["tokens"], count)
        self.assertLess(abs(found["loss"] / (total / count) - 1), GRADIENTS)

    def test_greedy_text_is_the_same(self):
        import tokenizers

        tokenizer = tokenizers.Tokenizer.from_file(str(hugging_face_folders.TOKENIZER / "tokenizer.json"))
        prompt = "The history of the city began"
        ids = [hugging_face_folders.BOS, *tokenizer.encode(prompt, add_special_tokens=False).ids]
        for kind in self.GENERATED:
            with self.subTest(kind=kind):
                for file in self.folder.iterdir():
                    file.unlink()
                model = self.folders.make(self.folder, kind)
                expected = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                                          max_new_tokens=60, do_sample=False, pad_token_id=hugging_face_folders.EOS)[0]
                text = tokenizer.decode(expected.tolist(), skip_special_tokens=True)
                found = call(PROGRAM, "generate", "--checkpoint", self.folder, "--prompt", prompt, "--temperature", 0,
                             "--max-new-tokens", 60, "--batch", 2)
                self.assertEqual(found, f"{text}\n{text}\n")


def documents(tokens):
    """Document numbers [B, S]: an end-of-sequence token belongs to the document that it ends."""
    ends = (tokens == hugging_face_folders.EOS).cumsum(1)
    return torch.cat([torch.zeros_like(ends[:, :1]), ends[:, :-1]], 1)


def places_in_documents(tokens):
    """[B, S]: how many tokens of its document a token follows."""
    numbers = documents(tokens)
    return torch.tensor([[list(row[:i]).count(row[i]) for i in range(len(row))] for row in numbers.tolist()])


class ExplicitMask(torch.nn.Module):
    """Attention by definition: the same document, not later."""

    def forward(self, q, k, v, **_):
        scores = (q @ k.transpose(2, 3)) / q.shape[-1] ** 0.5
        allowed = (self.documents[:, None, :, None] == self.documents[:, None, None, :]).tril()
        return scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ v


class AgainstTorchtitan(Folder):
    NAME = None  # model.name
    NORMS = 1e-3  # the largest relative difference
    FALL = 0.3  # of the loss, at least

    def torchtitan_model(self, seq_len):
        """torchtitan's debug model."""
        raise NotImplementedError

    LR, WARMUP, MAX_NORM = 1e-3, 4, 0.1
    SEQ_LEN, BATCH = 128, 4

    def assets(self):
        """The folder with the tokenizer."""
        return hugging_face_folders.TOKENIZER

    def load(self, model, initial):
        model.load_state_dict(initial)

    def before_update(self, model):
        """Called in each step of torchtitan's model before the optimizer's."""

    def our_run(self, steps, *options):
        out = self.folder / "run.safetensors"
        call(DRIVER, "train", steps, out, f"--model.name={self.NAME}", "--training.mixed_precision_param=float32", "--training.device=cpu",
             f"--optimizer.lr={self.LR}", f"--lr_scheduler.warmup_steps={self.WARMUP}", "--training.steps=20",
             f"--training.max_norm={self.MAX_NORM}", "--training.dataset=c4_test",
             f"--model.hf_assets_path={self.assets()}", *options)
        return load_file(out)

    def torch_run(self, ours, inside_documents=False, restart_positions=False):
        model = self.torchtitan_model(ours["tokens"].shape[-1])
        from torchtitan.components.lr_scheduler import build_lr_schedulers
        from torchtitan.config import LRScheduler

        initial = {name.removeprefix("initial."): value for name, value in ours.items() if name.startswith("initial.")}
        initial.setdefault("output.weight", initial["tok_embeddings.weight"])  # tied: torchtitan has two names for it
        self.load(model, initial)
        mask = ExplicitMask()
        if inside_documents:
            for layer in model.layers.values():
                layer.attention.inner_attention = mask
        optimizer = torch.optim.AdamW(model.parameters(), lr=self.LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
        schedule = build_lr_schedulers([optimizer], LRScheduler(warmup_steps=self.WARMUP), training_steps=20)
        losses, norms = [], []
        for tokens, labels in zip(ours["tokens"], ours["labels"]):
            mask.documents = documents(tokens)
            optimizer.zero_grad()
            positions = {"positions": places_in_documents(tokens)} if restart_positions else {}
            loss = F.cross_entropy(model(tokens, **positions).flatten(0, 1), labels.flatten(), reduction="sum") / labels.numel()
            loss.backward()
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), self.MAX_NORM).item())
            self.before_update(model)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        return model, losses, norms

    def test_twenty_steps_give_the_same_losses_and_norms(self):
        ours = self.our_run(20, f"--training.seq_len={self.SEQ_LEN}", f"--training.local_batch_size={self.BATCH}")
        _, losses, norms = self.torch_run(ours)
        self.assertGreater(losses[0] - losses[-1], self.FALL)
        # Rounding differs and grows with the steps; the norm of a CPU run in plain fp32 order is itself off by 1e-4.
        for step in range(20):
            with self.subTest(step=step + 1):
                self.assertLess(abs(ours["loss"][step].item() / losses[step] - 1), 1e-6 if step == 0 else 1e-4)
                self.assertLess(abs(ours["grad_norm"][step].item() / norms[step] - 1), self.NORMS)


class WithPositions:
    """Beside AgainstTorchtitan, for models of torchtitan that take positions."""

    def test_positions_that_start_again_give_the_same_gradients(self):
        ours = self.our_run(1, "--training.seq_len=1024", "--training.local_batch_size=2", "--training.positions=document")
        self.assertGreater(documents(ours["tokens"][0]).max().item(), 0)
        model, losses, norms = self.torch_run(ours, restart_positions=True)
        self.assertGreater(norms[0], self.MAX_NORM)  # so that the gradients below are clipped ones
        self.assertLess(abs(ours["loss"][0].item() / losses[0] - 1), 1e-6)
        for name, parameter in model.named_parameters():
            with self.subTest(name=name):
                self.assertLess(relative(ours[f"grad.{name}"], parameter.grad), 1e-4)
        counted_on, _, _ = self.torch_run(ours)
        differences = [relative(ours[f"grad.{name}"], parameter.grad) for name, parameter in counted_on.named_parameters()]
        self.assertGreater(max(differences), 1e-2)
