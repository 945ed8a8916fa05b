"""Lyapunov exponents equal closed forms."""

import math

import pytest
import torch

import glassgate as gg
from tests.compare import noise


class Logistic(gg.Cell):
    """The logistic map x' = 4 x (1 - x), whose exponent is ln 2."""

    gates, state = ("unused",), ("h",)
    recurrent = False

    def step(self, a, s):
        return 4 * s.h * (1 - s.h) + 0 * a.unused


class Linear(gg.Cell):
    gates, state = ("n",), ("h",)

    def step(self, a, s):
        return a.n


def test_the_exponent_of_the_logistic_map_is_ln_2() -> None:
    layer = gg.Recurrent(Logistic(), 1, 1)
    starts = torch.rand(8, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    spectrum = gg.dynamics.lyapunov(layer, torch.zeros(4000, 8, 1), hx=starts, warm_up=100)
    assert abs(spectrum.exponents[0] - math.log(2)) < 2e-3
    low, high = spectrum.interval[0]
    assert low < math.log(2) < high


def test_exponents_of_a_linear_network_are_the_logarithms_of_its_eigenvalues() -> None:
    layer = gg.Recurrent(Linear(), 2, 3, bias=False).double()
    basis, values = noise(1, 3, 3), torch.tensor([1.1, 0.6, 0.3], dtype=torch.float64)
    layer.weight_hh_l0.data.copy_(basis @ torch.diag(values) @ torch.linalg.inv(basis))
    spectrum = gg.dynamics.lyapunov(layer, torch.zeros(1500, 1, 2), k=3, warm_up=500)
    assert torch.allclose(spectrum.exponents, values.log(), rtol=0, atol=1e-9)
    assert spectrum.interval.isnan().all()


def test_exponents_exclude_warm_up_steps_and_ignore_batch_first() -> None:
    layer = gg.GRU(2, 4, batch_first=True).double()
    inputs = noise(1, 60, 3, 2)
    whole = gg.dynamics.lyapunov(layer, inputs, k=2)
    path = gg.dynamics.trajectory(layer, inputs)
    volume = path.jacobians.det().abs().log().mean(0)  # the sum of all exponents
    all_exponents = gg.dynamics.lyapunov(layer, inputs, k=4)
    assert torch.allclose(all_exponents.per_sequence.sum(1), volume, rtol=0, atol=1e-9)
    assert torch.allclose(whole.per_sequence, all_exponents.per_sequence[:, :2], rtol=0, atol=0.05)
    late = gg.dynamics.lyapunov(layer, inputs, k=4, warm_up=20)
    assert torch.allclose(late.per_sequence.sum(1), path.jacobians[20:].det().abs().log().mean(0), rtol=0, atol=1e-9)


def test_invalid_arguments_raise_errors() -> None:
    layer = gg.GRU(2, 4)
    with pytest.raises(ValueError, match="k must be at most S = 4, the number of state variables, got 5"):
        gg.dynamics.lyapunov(layer, torch.zeros(3, 1, 2), k=5)
    with pytest.raises(ValueError, match=r"warm_up must be from 0 to 2, the number of steps - 1, got 3"):
        gg.dynamics.lyapunov(layer, torch.zeros(3, 1, 2), warm_up=3)
