"""Float8 linear layers against the emulated Float8Linear of torchao, forward and both gradients."""

import dataclasses
import itertools
import os
import subprocess
import tempfile
import unittest

import torch
from safetensors.torch import load_file, save_file
from torchao.float8 import Float8LinearConfig
from torchao.float8.float8_linear import Float8Linear
from torchao.float8.float8_scaling_utils import hp_tensor_to_float8_dynamic
from torchao.float8.float8_training_tensor import GemmInputRole, LinearMMConfig

DRIVER = os.path.join(os.environ["TITANIUM_BUILD"], "float8_driver")
RECIPES = ("tensorwise", "rowwise", "rowwise_with_gw_hp")
DTYPES = (torch.float32, torch.bfloat16)
# tokens, in, out: the rule about multiples of 16 is about in and out alone.
SIZES = ((16, 16, 16), (37, 48, 80), (1, 64, 32), (130, 256, 112))
NOT_FINITE = (float("inf"), float("nan"))
PRODUCTS = ("output", "grad_input", "grad_weight")


@dataclasses.dataclass(frozen=True)
class Case:
    recipe: str
    dtype: torch.dtype
    size: tuple
    broken: float = 0.0  # an input that is not finite

    @property
    def name(self):
        return "/".join(map(str, (self.recipe, self.dtype, *self.size, self.broken)))

    def tensors(self):
        tokens, inputs, outputs = self.size
        generator = torch.Generator().manual_seed(tokens)
        x = torch.randn(tokens, inputs, generator=generator)
        x[:, 3] *= 50  # a channel that stands out
        if self.broken:
            x[2, 5] = self.broken
        weight = 0.02 * torch.randn(outputs, inputs, generator=generator)
        weight[1] = 0  # a row without anything in it
        grad = 1e-4 * torch.randn(tokens, outputs, generator=generator)
        return {"x": x.to(self.dtype), "weight": weight.to(self.dtype), "grad": grad.to(self.dtype)}


FINITE = [Case(*choice) for choice in itertools.product(RECIPES, DTYPES, SIZES)]
BROKEN = [Case(recipe, torch.float32, (16, 32, 16), value) for recipe in RECIPES for value in NOT_FINITE]


def our_results(cases):
    """Of all cases: the driver is started once."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = f"{folder}/in.safetensors", f"{folder}/out.safetensors"
        save_file({f"{case.name}/{name}": t for case in cases for name, t in case.tensors().items()}, source)
        subprocess.run([DRIVER, source, target], check=True)
        found = load_file(target)
    return {case: {name.removeprefix(f"{case.name}/"): tensor for name, tensor in found.items()
                   if name.startswith(f"{case.name}/")} for case in cases}


def config_of(recipe):
    return dataclasses.replace(Float8LinearConfig.from_recipe_name(recipe), emulate=True)


def torchao_result(case):
    tensors = case.tensors()
    outputs, inputs = tensors["weight"].shape
    linear = torch.nn.Linear(inputs, outputs, bias=False)
    linear.weight = torch.nn.Parameter(tensors["weight"])
    layer = Float8Linear.from_float(linear, config=config_of(case.recipe))
    x = tensors["x"].requires_grad_(True)
    output = layer(x)
    output.backward(tensors["grad"])
    return {"output": output.detach(), "grad_input": x.grad, "grad_weight": layer.weight.grad}


def torchao_weight(case, cast, dim):
    """The weight, [out, in], as torchao's product takes it."""
    config = config_of(case.recipe)
    cast = getattr(config, cast)
    rowwise = cast.scaling_granularity.name == "AXISWISE"
    quantised = hp_tensor_to_float8_dynamic(
        case.tensors()["weight"], cast.target_dtype, LinearMMConfig(), gemm_input_role=GemmInputRole.WEIGHT,
        scaling_granularity=cast.scaling_granularity, axiswise_dim=dim if rowwise else None,
        round_scales_to_power_of_2=config.round_scales_to_power_of_2)
    return quantised._data, quantised._scale


class Float8(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.found = our_results(FINITE + BROKEN)

    def test_products_equal_torchao(self):
        # Operands are equal bit by bit; sums of float32 may be taken in another order, and are rounded to bfloat16
        # then, which differs rarely and by one unit.
        tolerance = {torch.float32: 2e-6, torch.bfloat16: 8e-3}
        share = {torch.float32: 1.0, torch.bfloat16: 0.01}
        for case in FINITE:
            expected = torchao_result(case)
            for name in PRODUCTS:
                with self.subTest(case.name, product=name):
                    found = self.found[case][name]
                    largest = expected[name].abs().max().item()
                    torch.testing.assert_close(found, expected[name], rtol=0, atol=tolerance[case.dtype] * largest)
                    differing = (found != expected[name]).float().mean().item()
                    self.assertLessEqual(differing, share[case.dtype])

    def test_products_are_not_those_without_float8(self):
        for case in FINITE:
            tensors = case.tensors()
            x, weight, grad = (tensors[name].float() for name in ("x", "weight", "grad"))
            plain = {"output": x @ weight.t(), "grad_input": grad @ weight, "grad_weight": grad.t() @ x}
            for name in PRODUCTS:
                with self.subTest(case.name, product=name):
                    found = self.found[case][name].float()
                    error = ((found - plain[name]).norm() / plain[name].norm()).item()
                    if name == "grad_weight" and case.recipe == "rowwise_with_gw_hp":
                        self.assertLess(error, 4e-3)
                    else:
                        self.assertGreater(error, 1e-2)

    def test_quantised_weights_are_bit_equal_to_torchao(self):
        for case in FINITE:
            for product, cast, dim in (("output", "cast_config_weight", -1),
                                       ("grad_input", "cast_config_weight_for_grad_input", 0)):
                with self.subTest(case.name, product=product):
                    data, scale = torchao_weight(case, cast, dim)
                    ours = self.found[case][f"weight.{product}.data"]
                    self.assertEqual(ours.dtype, data.dtype)
                    self.assertTrue(torch.equal(ours.view(torch.uint8), data.view(torch.uint8)))
                    self.assertTrue(torch.equal(self.found[case][f"weight.{product}.scale"], scale))

    def test_what_is_not_finite_spreads_as_in_torchao(self):
        for case in BROKEN:
            expected = torchao_result(case)
            self.assertFalse(expected["output"].isfinite().all())
            for name in PRODUCTS:
                with self.subTest(case.name, product=name):
                    self.assertTrue(torch.equal(self.found[case][name].isfinite(), expected[name].isfinite()))


if __name__ == "__main__":
    unittest.main()
