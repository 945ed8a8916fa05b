"""`gg.source` returns the kernels of a cell. They contain the equations with the names of the step's variables."""

import ast

import pytest
import torch

import glassgate as gg


@pytest.mark.parametrize("cell", [gg.cells.LSTM(), gg.cells.GRU(), gg.cells.GRUv3(), gg.cells.RNN("relu")], ids=repr)
def test_the_source_has_both_kernels_and_lines_of_at_most_140_characters(cell):
    text = gg.source(cell)
    assert [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)] == ["forward", "backward"]
    assert max(map(len, text.splitlines())) <= 140
    for gate in cell.gates:
        assert f" {gate} = " in text


def test_the_source_contains_the_equations():
    text = gg.source(gg.cells.GRU())
    assert "n = tanh(n_ih + r * n_hh)" in text
    assert "h = (1.0 - z) * n + z * h_prev" in text


def test_errors_of_source():
    class Sorted(gg.Cell):
        gates = ("n",)

        def step(self, a, s):
            return torch.sort(a.n).values

    with pytest.raises(TypeError, match=r"cell Sorted: step uses torch\.sort, which the kernels do not support"):
        gg.source(Sorted())
    with pytest.raises(TypeError, match=r"cell must be an instance of glassgate\.Cell, got 'LSTM'"):
        gg.source("LSTM")
    with pytest.raises(ValueError, match="engine must be one of 'cpu', 'triton', got 'gpu'"):
        gg.source(gg.cells.LSTM(), engine="gpu")
