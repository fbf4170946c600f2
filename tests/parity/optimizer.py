"""Adam, AdamW, Muon and the gradient norm against torch, the learning rate against torchtitan."""

import itertools
import json
import os
import subprocess
import tempfile
import unittest

import torch
from safetensors.torch import load_file, save_file

DRIVER = os.path.join(os.environ["TITANIUM_BUILD"], "optimizer_driver")
STEPS = 20


def drive(*arguments):
    return subprocess.run([DRIVER, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def problem(dtype):
    """Parameters of several sizes, a gradient for each step, and one parameter that gets none in every third step."""
    generator = torch.Generator().manual_seed(5)
    shapes = {"tok_embeddings.weight": (50, 33), "norm.weight": (33,), "scalar": (), "layers.0.w1.weight": (257, 64)}
    values = {name: torch.randn(shape, generator=generator).to(dtype) for name, shape in shapes.items()}
    grads = []
    for step in range(STEPS):
        scale = 10.0 ** (step % 5 - 3)
        grads.append({name: (scale * torch.randn(shape, generator=generator)).to(dtype) for name, shape in shapes.items()})
        if step % 3 == 1:
            del grads[-1]["norm.weight"]
    lrs = [1e-2 * (step + 1) / STEPS for step in range(STEPS)]
    return values, grads, lrs


def torch_run(kind, implementation, values, grads, lrs, options):
    parameters = {name: torch.nn.Parameter(value.clone()) for name, value in values.items()}
    optimizer = kind(parameters.values(), lr=0.0, betas=(options["beta1"], options["beta2"]), eps=options["eps"],
                     weight_decay=options["weight_decay"], **implementation)
    for step, lr in enumerate(lrs):
        optimizer.param_groups[0]["lr"] = lr
        for name, parameter in parameters.items():
            parameter.grad = grads[step].get(name)
        optimizer.step()
    result = {f"value.{name}": parameter.detach() for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        result.update({f"{key}.{name}": value for key, value in optimizer.state[parameter].items()})
    return result


def our_run(values, grads, lrs, options, command="adam"):
    with tempfile.TemporaryDirectory() as folder:
        tensors = {f"value.{name}": value for name, value in values.items()}
        for step, named in enumerate(grads):
            tensors.update({f"grad.{step}.{name}": grad for name, grad in named.items()})
        save_file(tensors, f"{folder}/in.safetensors")
        drive(command, f"{folder}/in.safetensors", f"{folder}/out.safetensors", json.dumps(options | {"lrs": lrs}))
        return load_file(f"{folder}/out.safetensors")


class Adam(unittest.TestCase):
    def compare(self, dtype, implementation, tolerance):
        values, grads, lrs = problem(dtype)
        for kind, decay in itertools.product((torch.optim.Adam, torch.optim.AdamW), (0.0, 0.1)):
            options = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": decay,
                       "decoupled": kind is torch.optim.AdamW}
            expected = torch_run(kind, implementation, values, grads, lrs, options)
            found = our_run(values, grads, lrs, options)
            self.assertEqual(sorted(found), sorted(expected))
            for name in expected:
                with self.subTest(kind=kind.__name__, decay=decay, name=name):
                    self.assertEqual(found[name].dtype, expected[name].dtype)
                    torch.testing.assert_close(found[name], expected[name], rtol=tolerance, atol=tolerance)

    def test_fused_float32_is_bit_equal(self):
        self.compare(torch.float32, {"fused": True}, 0.0)

    def test_fused_bfloat16_is_bit_equal(self):
        self.compare(torch.bfloat16, {"fused": True}, 0.0)

    def test_for_loop_float32_agrees_to_rounding(self):
        self.compare(torch.float32, {"foreach": False, "fused": False}, 2e-6)

    def test_foreach_float32_agrees_to_rounding(self):
        self.compare(torch.float32, {"foreach": True}, 2e-6)


class Muon(unittest.TestCase):
    """Both compute the iteration in bf16, in the same order of operations: the same bits but for the last rounding."""

    def test_agrees_with_torch(self):
        generator = torch.Generator().manual_seed(7)
        shapes = {"square": (48, 48), "wide": (32, 96), "tall": (96, 32)}
        values = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
        grads = [{name: torch.randn(shape, generator=generator) for name, shape in shapes.items()} for _ in range(8)]
        lrs = [1e-2 * (step + 1) / len(grads) for step in range(len(grads))]
        for nesterov, decay, adjust in ((True, 0.1, "match_rms_adamw"), (False, 0.0, "original"), (True, 0.3, "original")):
            options = {"momentum": 0.9, "nesterov": nesterov, "weight_decay": decay, "adjust_lr_fn": adjust, "ns_steps": 5}
            parameters = {name: torch.nn.Parameter(value.clone()) for name, value in values.items()}
            optimizer = torch.optim.Muon(parameters.values(), lr=0.0, **options)
            for step, lr in enumerate(lrs):
                optimizer.param_groups[0]["lr"] = lr
                for name, parameter in parameters.items():
                    parameter.grad = grads[step][name].clone()
                optimizer.step()
            found = our_run(values, grads, lrs, options, "muon")
            self.assertEqual(sorted(found), sorted([f"value.{n}" for n in shapes] + [f"momentum_buffer.{n}" for n in shapes]))
            for name, parameter in parameters.items():
                with self.subTest(nesterov=nesterov, adjust=adjust, name=name):
                    state = optimizer.state[parameter]
                    torch.testing.assert_close(found[f"momentum_buffer.{name}"], state["momentum_buffer"], rtol=0, atol=0)
                    torch.testing.assert_close(found[f"value.{name}"], parameter.detach(), rtol=1e-6, atol=1e-6)

    def test_options_are_those_of_torch(self):
        """The names in param_groups; the unit test Muon.TellsItsStateAndOptionsAsTorchDoes has ours."""
        group = torch.optim.Muon([torch.nn.Parameter(torch.zeros(2, 2))]).param_groups[0]
        self.assertEqual(set(group) - {"params"}, {"lr", "weight_decay", "momentum", "nesterov", "ns_coefficients", "eps",
                                                    "ns_steps", "adjust_lr_fn"})
        self.assertEqual(group["ns_coefficients"], (3.4445, -4.7750, 2.0315))


class GradNorm(unittest.TestCase):
    def test_agrees_with_numpy_in_float64(self):
        generator = torch.Generator().manual_seed(1)
        sizes = (4_000_003, 7, 100_000)
        grads = {f"g{i}": torch.randn(size, generator=generator) * 10.0**-i for i, size in enumerate(sizes)}
        grads["half"] = torch.randn(300_001, generator=generator).bfloat16()
        with tempfile.TemporaryDirectory() as folder:
            save_file(grads, f"{folder}/grads.safetensors")
            found = float(drive("norm", f"{folder}/grads.safetensors"))
        expected = sum(float((grad.double().numpy() ** 2).sum()) for grad in grads.values()) ** 0.5
        self.assertLess(abs(found / expected - 1), 1e-12)


class Schedule(unittest.TestCase):
    def test_equals_torchtitan(self):
        import torchtitan_import  # noqa: F401
        from torchtitan.components.lr_scheduler import build_lr_schedulers
        from torchtitan.config import LRScheduler

        phases = [(100, 10, None), (100, 0, 0.5), (25, 5, 0.1), (10, 200, None), (10, 8, 0.9), (7, 2, 0.5), (50, 50, None),
                  (1, 0, None)]
        schedules = [
            {"total_steps": steps, "warmup_steps": warmup, "decay_ratio": ratio, "decay_type": decay, "min_lr_factor": floor}
            for (steps, warmup, ratio), decay, floor in itertools.product(phases, ("linear", "sqrt", "cosine"), (0.0, 0.1))
        ]
        lines = drive("schedule", json.dumps(schedules)).splitlines()
        self.assertEqual(len(lines), len(schedules))
        for options, line in zip(schedules, lines):
            with self.subTest(**options):
                optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
                schedulers = build_lr_schedulers([optimizer], LRScheduler(**options), training_steps=1000)
                expected = []
                for _ in range(options["total_steps"]):
                    expected.append(optimizer.param_groups[0]["lr"])
                    optimizer.step()
                    schedulers.step()
                found = [float(factor) for factor in line.split()]
                self.assertEqual(len(found), len(expected))
                for ours, theirs in zip(found, expected):
                    self.assertAlmostEqual(ours, theirs, delta=1e-15)


if __name__ == "__main__":
    unittest.main()
