"""Constraints hold at the start and after optimiser steps, on the kernels, for every kind of matrix."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.utils import parametrize

import glassgate as gg
from glassgate.constraints import Areas, Constraint, Dale, LowRank, NonNegative, Orthogonal, Sparse, SpectralRadius

H, GATES = 6, 3
MASK = torch.arange(H * H).view(H, H) % 3 > 0


def blocks(weight: Tensor) -> Tensor:
    return weight.detach().unflatten(0, (GATES, H))


def radii(weight: Tensor) -> Tensor:
    return torch.linalg.eigvals(blocks(weight)).abs().amax(1)


CASES: dict[str, tuple[tuple[Constraint, ...], Callable[[Tensor], bool]]] = {
    "non-negative": ((NonNegative(),), lambda w: bool((w >= 0).all())),
    "Dale": ((Dale(0.5),), lambda w: bool((w[:, :3] >= 0).all() and (w[:, 3:] <= 0).all())),
    "Dale by mask": ((Dale([True, False] * 3),), lambda w: bool((w[:, ::2] >= 0).all() and (w[:, 1::2] <= 0).all())),
    "mask": ((Sparse(MASK),), lambda w: bool((blocks(w)[:, ~MASK] == 0).all() and (blocks(w)[:, MASK] != 0).all())),
    "fraction": ((Sparse(0.5),), lambda w: 0.2 < float((blocks(w)[0] != 0).double().mean()) < 0.8),
    "areas": (
        (Areas([2, 4], [[True, False], [True, True]]),),
        lambda w: bool((blocks(w)[:, :2, 2:] == 0).all() and (blocks(w)[:, 2:] != 0).all()),
    ),
    "Dale and mask": (
        (Dale(0.5), Sparse(MASK)),
        lambda w: bool((w[:, :3] >= 0).all() and (w[:, 3:] <= 0).all() and (blocks(w)[:, ~MASK] == 0).all()),
    ),
    "low rank": ((LowRank(2),), lambda w: torch.linalg.matrix_rank(blocks(w), rtol=1e-5).tolist() == [2] * GATES),
    "orthogonal": ((Orthogonal(),), lambda w: torch.allclose(blocks(w) @ blocks(w).mT, torch.eye(H), atol=1e-5)),
    "spectral radius": ((SpectralRadius(0.3),), lambda w: bool((radii(w) <= 0.3 + 1e-5).all())),
    "low rank, spectral radius": (
        (LowRank(1), SpectralRadius(0.1)),
        lambda w: bool((radii(w) <= 0.1 + 1e-5).all()) and torch.linalg.matrix_rank(blocks(w)[0], rtol=1e-5) == 1,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_constraints_hold_after_optimiser_steps(name: str) -> None:
    constraints, holds = CASES[name]
    torch.manual_seed(0)
    layer = gg.GRU(2, H)
    input, target = torch.randn(7, 4, 2), torch.randn(7, 4, H)
    gg.constrain(layer, *constraints)
    assert holds(layer.weight_hh_l0)
    optimizer = torch.optim.Adam(layer.parameters(), 0.05)
    before, losses = layer.weight_hh_l0.detach().clone(), []
    for _ in range(5):
        loss = (layer(input)[0] - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        assert holds(layer.weight_hh_l0)
    assert losses[-1] < losses[0]
    assert not torch.equal(layer.weight_hh_l0, before)
    output, _ = layer(input)
    with gg.engine("reference"):
        assert torch.allclose(layer(input)[0], output, atol=1e-5)


def test_all_matrices_or_one_matrix_can_be_constrained() -> None:
    layer = gg.constrain(gg.LSTM(2, 4, num_layers=2, bidirectional=True), NonNegative())
    for suffix in ("l0", "l0_reverse", "l1", "l1_reverse"):
        assert (getattr(layer, f"weight_hh_{suffix}") >= 0).all()
    assert (layer.weight_ih_l0 < 0).any()
    one = gg.constrain(gg.LSTM(2, 4, num_layers=2), NonNegative(), weight="weight_ih_l1")
    assert (one.weight_ih_l1 >= 0).all()
    assert (one.weight_ih_l0 < 0).any()


def test_dale_starts_with_the_magnitudes_and_can_be_made_permanent() -> None:
    layer = gg.RNN(2, H)
    before = layer.weight_hh_l0.detach().abs().clone()
    gg.constrain(layer, Dale())
    assert torch.equal(layer.weight_hh_l0.abs(), before)
    constrained = layer.weight_hh_l0.detach().clone()
    parametrize.remove_parametrizations(layer, "weight_hh_l0")
    assert torch.equal(layer.weight_hh_l0, constrained)
    assert isinstance(layer.weight_hh_l0, torch.nn.Parameter)
    assert layer(torch.randn(3, 1, 2))[0].shape == (3, 1, H)


FAULTS: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "no such weight": (
        lambda: gg.constrain(gg.RNN(2, 3), Dale(), weight="weight_hr"),
        KeyError,
        r"constrain: the layer has no 'weight_hr'; it has weight_ih_l0, weight_hh_l0",
    ),
    "nothing": (lambda: gg.constrain(gg.RNN(2, 3)), ValueError, "at least one constraint of gg.constraints"),
    "no layer": (lambda: gg.constrain(torch.nn.RNN(2, 3), Dale()), TypeError, "must be a glassgate layer .* got RNN"),
    "no constraint": (
        lambda: gg.constrain(gg.RNN(2, 3), "dale"),
        TypeError,
        "constrain: constraints must be objects of gg.constraints, got 'dale'",
    ),
    "mask": (
        lambda: gg.constrain(gg.RNN(2, 3), Sparse(torch.ones(2, 2))),
        ValueError,
        r"Sparse: the mask must be .*\(3, 3\) .* got \(2, 2\)",
    ),
    "signs": (
        lambda: gg.constrain(gg.RNN(2, 3), Dale([True])),
        ValueError,
        r"Dale: the mask must be \(3,\), one per sending unit, got \(1,\)",
    ),
    "rank": (
        lambda: gg.constrain(gg.RNN(2, 3), LowRank(4)),
        ValueError,
        r"LowRank: rank must be at most 3 for matrices \(3, 3\), got 4",
    ),
    "square": (
        lambda: gg.constrain(gg.RNN(2, 3), Orthogonal(), weight="weight_ih"),
        ValueError,
        r"must be square, got \(3, 2\)",
    ),
    "order": (
        lambda: gg.constrain(gg.RNN(2, 3), Dale(), LowRank(1)),
        ValueError,
        "LowRank must be the first constraint, because others break it; got Dale, LowRank",
    ),
    "alone": (lambda: gg.constrain(gg.RNN(2, 3), Orthogonal(), Dale()), ValueError, "Orthogonal .* the only one"),
    "last": (
        lambda: gg.constrain(gg.RNN(2, 3), SpectralRadius(), Dale()),
        ValueError,
        "SpectralRadius must be the last",
    ),
    "twice": (
        lambda: gg.constrain(gg.constrain(gg.RNN(2, 3), Dale()), Dale()),
        ValueError,
        "constrain: weight_hh_l0 is already constrained; pass all its constraints in one call, or remove them by "
        "torch.nn.utils.parametrize.remove_parametrizations",
    ),
    "areas": (lambda: Areas([1, 2], [[True]]), ValueError, r"Areas: connections must be \(2, 2\), .* got \(1, 1\)"),
    "fraction": (
        lambda: Dale(1.5),
        ValueError,
        r"Dale: excitatory must be a fraction from 0 to 1 or a mask of units, got 1.5",
    ),
    "connections": (
        lambda: Sparse(0.0),
        ValueError,
        "Sparse: connections must be a fraction above 0, up to 1, or a mask",
    ),
    "no rank": (lambda: LowRank(0), ValueError, "LowRank: rank must be a whole number of at least 1, got 0"),
    "limit": (lambda: SpectralRadius(0.0), ValueError, "SpectralRadius: limit must be above 0, got 0.0"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_wrong_arguments_are_rejected(name: str) -> None:
    call, error, message = FAULTS[name]
    with pytest.raises(error, match=message):
        call()
