"""Warnings point at the line of the user, not at a line of the library."""

import linecache
import warnings
from collections.abc import Callable

import pytest
import torch

import glassgate as gg


class Subclass(gg.LSTM):
    def __init__(self) -> None:
        super().__init__(3, 4, residual=True)


class Table(gg.Cell):
    gates = ("n",)

    def __init__(self) -> None:
        self.table = torch.nn.Linear(2, 2)

    def step(self, a, s):
        return torch.tanh(a.n)


class SortedUnits(gg.Cell):
    """A cell that kernels cannot express."""

    gates = ("n",)

    def step(self, a, s):
        return torch.sort(torch.tanh(a.n), -1)[0]


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = gg.Recurrent(SortedUnits(), 3, 4)

    def forward(self, x):
        return self.layer(x)[0]


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: gg.LSTM(3, 4, residual=True), "lambda: gg.LSTM(3, 4, residual=True)"),
        (lambda: gg.RNN(3, 4, residual=True), "lambda: gg.RNN(3, 4, residual=True)"),
        (lambda: gg.Recurrent(gg.cells.GRU(), 3, 4, residual=True), "lambda: gg.Recurrent(gg.cells.GRU()"),
        (Subclass, "super().__init__(3, 4, residual=True)"),
        (lambda: gg.Recurrent(Table(), 3, 4), "lambda: gg.Recurrent(Table()"),
        (lambda: gg.LSTM(3, 4, cell=Table()), "lambda: gg.LSTM(3, 4, cell=Table())"),
        (lambda: gg.RecurrentCell(Table(), 3, 4), "lambda: gg.RecurrentCell(Table()"),
        (lambda: gg.cells.GRUv1(), "lambda: gg.cells.GRUv1()"),
        (lambda: Model()(torch.zeros(2, 1, 3)), "return self.layer(x)[0]"),
    ],
)
def test_a_warning_points_at_the_line_of_the_user(call: Callable[[], object], line: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    (warning,) = caught
    assert warning.filename == __file__
    assert line in linecache.getline(warning.filename, warning.lineno)


def test_a_function_of_the_library_points_at_its_caller() -> None:
    layer, inputs = gg.Recurrent(SortedUnits(), 3, 4, dtype=torch.float64), torch.zeros(3, 1, 3, dtype=torch.float64)
    with pytest.warns(UserWarning, match="no graph") as caught:
        gg.dynamics.lyapunov(layer, inputs)
    assert {warning.filename for warning in caught} == {__file__}
