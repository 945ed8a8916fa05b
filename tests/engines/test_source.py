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


def test_the_source_of_a_cell_that_declares_axes_depends_only_on_its_step():
    """The cache of compiled kernels has the text as its key, so cells that were traced before must not change it."""

    class Outer(gg.Cell):
        gates, state = {"k": ("key",), "v": ("value",)}, {"h": ("value",), "S": ("key", "value")}
        key, recurrent = 4, False

        def step(self, a, s):
            product = a.k[..., None] * a.v[..., None, :]
            return (s.S + product).sum(-2), s.S + product

    text = gg.source(Outer())
    assert [node.name for node in ast.parse(text).body] == ["forward", "backward"]
    assert "v_product_0 = v_k_ih * v_v_ih_0" in text
    gg.source(gg.cells.RWKV7(heads=2, key_size=3))
    assert gg.source(type("Again", (Outer,), {})()) == text


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
