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
# tokens, in, out: the rule is about in and out alone.
SIZES = ((16, 16, 16), (37, 48, 80), (1, 64, 32), (130, 256, 112))


def config_of(recipe):
    return dataclasses.replace(Float8LinearConfig.from_recipe_name(recipe), emulate=True)


def problem(tokens, inputs, outputs, dtype):
    generator = torch.Generator().manual_seed(tokens)
    x = torch.randn(tokens, inputs, generator=generator)
    x[:, 3] *= 50  # a channel that stands out
    weight = 0.02 * torch.randn(outputs, inputs, generator=generator)
    weight[1] = 0  # a row without anything in it
    grad = 1e-4 * torch.randn(tokens, outputs, generator=generator)
    return {"x": x.to(dtype), "weight": weight.to(dtype), "grad": grad.to(dtype)}


def our_run(tensors, recipe):
    with tempfile.TemporaryDirectory() as folder:
        save_file(tensors, f"{folder}/in.safetensors")
        subprocess.run([DRIVER, f"{folder}/in.safetensors", f"{folder}/out.safetensors", recipe], check=True)
        return load_file(f"{folder}/out.safetensors")


def torchao_run(tensors, recipe):
    outputs, inputs = tensors["weight"].shape
    linear = torch.nn.Linear(inputs, outputs, bias=False)
    linear.weight = torch.nn.Parameter(tensors["weight"].clone())
    layer = Float8Linear.from_float(linear, config=config_of(recipe))
    x = tensors["x"].clone().requires_grad_(True)
    output = layer(x)
    output.backward(tensors["grad"])
    return {"output": output.detach(), "grad_input": x.grad, "grad_weight": layer.weight.grad}


def torchao_weight(weight, recipe, cast, dim):
    """The weight, [out, in], as torchao's product takes it."""
    config = config_of(recipe)
    cast = getattr(config, cast)
    rowwise = cast.scaling_granularity.name == "AXISWISE"
    quantised = hp_tensor_to_float8_dynamic(
        weight, cast.target_dtype, LinearMMConfig(), gemm_input_role=GemmInputRole.WEIGHT,
        scaling_granularity=cast.scaling_granularity, axiswise_dim=dim if rowwise else None,
        round_scales_to_power_of_2=config.round_scales_to_power_of_2)
    return quantised._data, quantised._scale


class Float8(unittest.TestCase):
    def test_products_equal_torchao(self):
        for recipe, dtype, size in itertools.product(RECIPES, (torch.float32, torch.bfloat16), SIZES):
            tensors = problem(*size, dtype)
            found, expected = our_run(tensors, recipe), torchao_run(tensors, recipe)
            for name in expected:
                with self.subTest(recipe=recipe, dtype=dtype, size=size, name=name):
                    self.assertEqual(found[name].dtype, expected[name].dtype)
                    # Equal operands; sums may be taken in another order.
                    tolerance = 2e-6 if dtype == torch.float32 else 8e-3
                    largest = expected[name].abs().max().item()
                    torch.testing.assert_close(found[name], expected[name], rtol=0, atol=tolerance * largest)
                    differing = (found[name] != expected[name]).float().mean().item()
                    if dtype == torch.bfloat16:
                        self.assertLess(differing, 0.01)

    def test_quantised_weights_are_bit_equal_to_torchao(self):
        for recipe, dtype, size in itertools.product(RECIPES, (torch.float32, torch.bfloat16), SIZES):
            tensors = problem(*size, dtype)
            found = our_run(tensors, recipe)
            for product, cast, dim in (("output", "cast_config_weight", -1),
                                       ("grad_input", "cast_config_weight_for_grad_input", 0)):
                with self.subTest(recipe=recipe, dtype=dtype, size=size, product=product):
                    data, scale = torchao_weight(tensors["weight"], recipe, cast, dim)
                    ours = found[f"weight.{product}.data"]
                    self.assertEqual(ours.dtype, data.dtype)
                    self.assertTrue(torch.equal(ours.view(torch.uint8), data.view(torch.uint8)))
                    self.assertTrue(torch.equal(found[f"weight.{product}.scale"], scale))

    def test_what_is_not_finite_spreads_as_in_torchao(self):
        for recipe, value in itertools.product(RECIPES, (float("inf"), float("nan"))):
            tensors = problem(16, 32, 16, torch.float32)
            tensors["x"][2, 5] = value
            found, expected = our_run(tensors, recipe), torchao_run(tensors, recipe)
            for name in expected:
                with self.subTest(recipe=recipe, value=value, name=name):
                    self.assertTrue(torch.equal(found[name].isfinite(), expected[name].isfinite()))


if __name__ == "__main__":
    unittest.main()
