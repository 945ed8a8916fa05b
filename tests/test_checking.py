"""`gg.check` reports the error in a cell in one sentence."""

import re

import pytest
import torch

import glassgate as gg
from glassgate import checking
from glassgate.declarations import refused_projection, shared_names, unread_weights


class Cumulative(gg.Cell):
    gates = ("n",)
    state = ("h",)

    def step(self, a, s):
        return torch.tanh(a.n) + s.h.mean()


class TooFew(gg.Cell):
    gates = ("n",)
    state = ("h", "c")

    def step(self, a, s):
        return torch.tanh(a.n)


class Gateless(gg.Cell):
    def step(self, a, s):
        return s.h


class Misspelt(gg.Cell):
    gates = ("n",)

    def step(self, a, s):
        return torch.tanh(a.m)


class Exploding(gg.Cell):
    gates = ("n",)
    state = ("h",)

    def step(self, a, s):
        return torch.exp(a.n)


class InPlace(gg.Cell):
    gates = ("n",)

    def step(self, a, s):
        return s.h.mul_(0.5) + torch.tanh(a.n)


class _Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.tanh()

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


class WrongDerivative(gg.Cell):
    gates = ("n",)
    state = ("h",)

    def step(self, a, s):
        return _Wrong.apply(a.n)


class Unused(gg.Cell):
    gates = ("n", "m")
    parameters = {"gain": gg.Parameter(1.0), "scale": gg.Parameter(1.0, per_gate=True)}

    def step(self, a, s, p):
        return torch.tanh(a.n) * p.scale.n


class OfSquares(gg.Cell):
    """A cell that computes a variance as the difference of two large numbers."""

    gates = ("n",)

    def step(self, a, s):
        mean = a.n.mean(-1, keepdim=True)
        variance = a.n.square().mean(-1, keepdim=True) - mean.square()
        return torch.tanh((a.n - mean) * torch.rsqrt(variance.clamp(min=0) + 1e-5))


class Centred(gg.Cell):
    gates = ("n",)

    def step(self, a, s):
        centred = a.n - a.n.mean(-1, keepdim=True)
        return torch.tanh(centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5))


class Steps(gg.Cell):
    """A cell with a comparison. Rounding can change its result for some inputs, but no digits are lost."""

    gates = ("n",)

    def step(self, a, s):
        return torch.floor(3.3 * a.n) / 10 + torch.tanh(s.h)


class Differences(gg.Cell):
    gates = ("n",)

    def step(self, a, s):
        return torch.tanh(1000 * (torch.exp(a.n / 1000) - 1))


@pytest.mark.parametrize("cell", [gg.cells.LSTM(), gg.cells.GRU(), gg.cells.RNN("tanh"), Unused()], ids=repr)
def test_correct_cells_pass(cell):
    report = gg.check(cell)
    assert report, str(report)


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (Cumulative(), "depends on the other sequences of the batch"),
        (TooFew(), "step must return 2 states"),
        (Gateless(), "gates must name at least one"),
        (Misspelt(), "cell Misspelt: 'm' is not defined here, only n"),
        (Exploding(), "nan or infinity"),
        (InPlace(), "it changes s.h in place; compute a new tensor instead"),
        (WrongDerivative(), "wrong derivative"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_the_error_of_a_cell_is_reported(cell, words):
    report = gg.check(cell)
    assert not report
    assert words in str(report)


class Halves(gg.Cell):
    """A cell that reads only one half of two gates, and declares a parameter and a gate with the name of a state."""

    gates = ("z", "n", "m")
    state = ("h", "z")
    parameters = {"m": gg.Parameter(1.0)}

    def step(self, a, s, p):
        z = torch.sigmoid(a.ih.z)
        return z * s.h + (1 - z) * torch.tanh(a.hh.n), 0.5 * s.z + z


class Matrix(gg.Cell):
    gates = ("k", "v")
    state = ("h", "S")

    def step(self, a, s):
        S = s.S + a.k[..., None] * a.v[..., None, :]
        return S.sum(-1), S


def test_declarations_that_do_not_fit_the_step_are_warnings():
    report = gg.check(Halves())
    assert report
    unread, names, projection = (str(warning) for warning in report.warnings)
    assert (
        "the rows of weight_ih for gates n, m and the rows of weight_hh for gates z, m and the parameter 'm'" in unread
    )
    assert "'z' is a gate and a state, 'm' is a gate and a parameter" in names
    assert "a layer with proj_size can be created, but a call raises ShapeError" in projection


def test_the_declarations_of_built_in_cells_fit_their_steps():
    for name in gg.cells.__all__:
        cell = getattr(gg.cells, name)()
        assert [check(cell) for check in (unread_weights, shared_names, refused_projection)] == [""] * 3, name


def test_a_value_with_several_numbers_per_unit_is_named():
    text = "states have one number per unit; got (3, 6, 6) instead of (3, 6) in `S = s.S + a.k[..., None] * a.v[..."
    assert text in str(gg.check(Matrix()))


def test_only_cells_are_checked():
    with pytest.raises(TypeError, match=r"instance of glassgate\.Cell, got GRU\(3, 4\); check its cell, layer\.cell"):
        gg.check(gg.GRU(3, 4))
    with pytest.raises(TypeError, match=r"check: cell must be an instance of glassgate\.Cell, got <class"):
        gg.check(gg.cells.GRU)


def test_lost_accuracy_is_a_warning():
    report = gg.check(OfSquares())
    assert report
    (warning,) = report.warnings
    pattern = (
        r"with biases of -?1000, state 'h' has an error of .* times the error from rounding its inputs; subtract the"
    )
    assert re.search(pattern, warning.explanation)
    assert "\n  WARN float32 is accurate on" in str(report)


@pytest.mark.parametrize(
    "cell", [*(getattr(gg.cells, name)() for name in gg.cells.__all__), Centred(), Steps()], ids=repr
)
def test_built_in_cells_are_accurate_in_float32(cell):
    (finding,) = checking._check_float32(cell)
    assert finding.holds, finding.explanation


def test_accuracy_on_small_inputs():
    (finding,) = checking._check_float32(Differences())
    assert re.search(r"with inputs of about 0.0*1, state .h. has an error of", finding.explanation)
    assert not finding.holds


def test_a_cell_with_noise_is_checked_without_it():
    assert gg.check(gg.cells.CTRNN(sigma=0.5))
