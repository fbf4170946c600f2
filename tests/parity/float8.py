"""Float8 linear layers against the emulated Float8Linear of torchao, forward and both gradients; experts against torchao's own casts."""

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
from torchao.float8.config import ScalingGranularity
from torchao.float8.float8_training_tensor import GemmInputRole, LinearMMConfig
from torchao.float8.float8_utils import tensor_to_scale, to_fp8_saturated
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import to_dtype, to_mx

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


@dataclasses.dataclass(frozen=True)
class Experts:
    """Rows of several experts, one of them without rows."""
    recipe: str
    dtype: torch.dtype
    counts: tuple
    inputs: int = 64
    outputs: int = 96

    @property
    def name(self):
        return "/".join(map(str, (self.recipe, "experts", self.dtype, *self.counts)))

    def tensors(self):
        rows = sum(self.counts)
        linear = Case("rowwise", self.dtype, (rows, self.inputs, self.outputs)).tensors()
        generator = torch.Generator().manual_seed(rows + 1)
        weight = 0.02 * torch.randn(len(self.counts), self.outputs, self.inputs, generator=generator)
        ends = torch.tensor(self.counts).cumsum(0).to(torch.int32)
        return {"x": linear["x"], "grad": linear["grad"], "weight": weight.to(self.dtype), "ends": ends}


# torchao pads the rows of an expert to multiples of 16 and of 32; others are padded with zeros here.
EXPERTS = [Experts(recipe, dtype, counts) for recipe, dtype, counts in itertools.product(
    ("rowwise", "mx"), DTYPES, ((32, 0, 96), (37, 1, 0, 58)))]


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


def torchao_rounded(x, recipe):
    """What x stands for after the cast along its last dim."""
    if recipe == "rowwise":
        scale = tensor_to_scale(x, torch.float8_e4m3fn, scaling_granularity=ScalingGranularity.AXISWISE, axiswise_dim=-1,
                                round_scales_to_power_of_2=True)
        return to_fp8_saturated(x.float() * scale, torch.float8_e4m3fn).float() / scale
    padded = torch.nn.functional.pad(x, (0, -x.shape[-1] % 32)).contiguous()
    scale, data = to_mx(padded, torch.float8_e4m3fn, 32, ScaleCalculationMode.RCEIL)
    return to_dtype(data, scale, torch.float8_e4m3fn, 32, torch.float32)[..., :x.shape[-1]]


def torchao_experts(case):
    """The products of torchao's grouped layers, expert by expert."""
    tensors = case.tensors()
    results = {"output": [], "grad_input": [], "grad_weight": []}

    def product(a, b):
        return (torchao_rounded(a, case.recipe) @ torchao_rounded(b, case.recipe).t()).to(case.dtype)

    begin = 0
    for weight, count in zip(tensors["weight"], case.counts):
        x, grad = (tensors[name][begin:begin + count] for name in ("x", "grad"))
        begin += count
        if count == 0:
            results["grad_weight"].append(torch.zeros_like(weight))
            continue
        results["output"].append(product(x, weight))
        results["grad_input"].append(product(grad, weight.t().contiguous()))
        results["grad_weight"].append(product(grad.t().contiguous(), x.t().contiguous()))
    return {"output": torch.cat(results["output"]), "grad_input": torch.cat(results["grad_input"]),
            "grad_weight": torch.stack(results["grad_weight"])}


class Float8(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.found = our_results(FINITE + BROKEN + EXPERTS)

    def test_products_of_experts_equal_torchao(self):
        tolerance = {torch.float32: 2e-6, torch.bfloat16: 8e-3}
        for case in EXPERTS:
            expected, tensors = torchao_experts(case), case.tensors()
            plain = tensors["x"][:case.counts[0]].float() @ tensors["weight"][0].float().t()
            for name in PRODUCTS:
                with self.subTest(case.name, product=name):
                    largest = expected[name].abs().max().item()
                    torch.testing.assert_close(self.found[case][name], expected[name], rtol=0, atol=tolerance[case.dtype] * largest)
            found = self.found[case]["output"][:case.counts[0]].float()
            self.assertGreater(((found - plain).norm() / plain.norm()).item(), 1e-2)

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
