"""What decoders with experts share in the comparisons of decoder_parity."""

import json
import re
import shutil

import decoder_parity
import hugging_face_folders
import torch
from torchtitan_checkpoints import STANDSTILL, Torchtitan, expect_standstill, join_group, read_all, train


def from_hugging_face(name, tensor, config):
    """As decoder_parity's, for transformers' layers of experts: gate_up_proj [E, 2 out, in] is w1 and then w3."""
    found = re.fullmatch(r"model\.layers\.(\d+)\.mlp\.(.*)", name)
    layer, part = found.groups() if found else (None, "")
    prefix = f"layers.{layer}.moe"
    if part == "experts.gate_up_proj":
        w1, w3 = tensor.chunk(2, dim=1)
        return {f"{prefix}.experts.w1": w1, f"{prefix}.experts.w3": w3}
    if part == "experts.down_proj":
        return {f"{prefix}.experts.w2": tensor}
    if part == "gate.weight":
        return {f"{prefix}.router.gate.weight": tensor}
    if part.startswith("shared_experts."):
        weight = {"gate": "w1", "down": "w2", "up": "w3"}[part.split(".")[1].removesuffix("_proj")]
        return {f"{prefix}.shared_experts.{weight}.weight": tensor}
    return decoder_parity.from_hugging_face(name, tensor, config)


def histogram(values, bins, **_):
    """torch.histc of whole numbers, which it does not have on a CPU."""
    return torch.bincount(values, minlength=bins)


class AgainstTorchtitan(decoder_parity.AgainstTorchtitan):
    """A small model of the same sizes on both sides: ours from CONFIG, a config.json. torchtitan's runs its loop over
    experts, and gets a histogram that works on a CPU. The bias that balances experts moves by torchtitan's rule."""

    CONFIG = None
    NORMS = 1e-4
    FALL = 0.15

    def assets(self):
        folder = self.folder / "assets"
        if not folder.exists():
            shutil.copytree(hugging_face_folders.TOKENIZER, folder)
            (folder / "config.json").write_text(json.dumps(self.CONFIG))
        return folder

    def our_run(self, steps, *options):
        return super().our_run(steps, "--model.flavor=auto", *options)

    def load(self, model, initial):
        missing, unexpected = model.load_state_dict(initial, strict=False)
        self.assertEqual(unexpected, [])
        self.assertEqual([name for name in missing if not name.endswith("expert_bias")], [])
        torch.histc, plain = histogram, torch.histc
        self.addCleanup(setattr, torch, "histc", plain)

    @torch.no_grad()
    def before_update(self, model):
        for layer in model.layers.values():
            if not layer.moe_enabled:
                continue
            counts = layer.moe.tokens_per_expert
            move = layer.moe.load_balance_coeff * torch.sign(counts.mean() - counts)
            layer.moe.expert_bias.add_(move - move.mean())
            counts.zero_()

    def test_checkpoints_go_both_ways(self):
        """torchtitan's own manager loads ours, and two ranks that share the experts go on from its."""
        options = [f"--model.name={self.NAME}", "--model.flavor=auto"]
        train(self.folder / "ours", "--training.steps=3", "--optimizer.lr=0.0008", *options, assets=self.assets())
        join_group()
        self.addCleanup(torch.distributed.destroy_process_group)
        theirs = Torchtitan(self.folder / "ours", self.torchtitan_model(128))
        self.assertTrue(theirs.checkpoints.load())
        saved, state = read_all(self.folder / "ours/checkpoint/step-3"), theirs.optimizer.state_dict()
        for name, tensor in theirs.model.state_dict().items():
            self.assertTrue(torch.equal(tensor, saved[name]), name)
        for name in filter(lambda name: name.startswith("optimizer."), saved):
            self.assertTrue(torch.equal(state[name.removeprefix("optimizer.")], saved[name]), name)

        with torch.no_grad():
            for name, tensor in theirs.model.named_buffers():
                if name.endswith("expert_bias"):
                    tensor.normal_()
        theirs = Torchtitan(self.folder / "theirs", theirs.model)
        for _ in range(3):
            theirs.step()
        theirs.checkpoints.save(3)
        source = self.folder / "theirs/checkpoint/step-3"
        train(self.folder / "next", "--training.steps=4", f"--checkpoint.initial_load_path={source}", "--checkpoint.no_initial_load_model_only",
              "--checkpoint.exclude_from_loading=dataloader", "--parallelism.expert_parallel_degree=2", *options, *STANDSTILL, ranks=2,
              assets=self.assets())
        before = read_all(source)
        self.assertTrue(any(name.endswith("experts.w1") or name.endswith("mlp1_weight") for name in before))
        expect_standstill(self, before, read_all(self.folder / "next/checkpoint/step-4"))
