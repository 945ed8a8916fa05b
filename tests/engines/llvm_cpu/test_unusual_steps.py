"""Cells with unusual steps: the kernels compute the same as the reference."""

import pytest
import torch

import glassgate as gg
from tests.engines.llvm_cpu.test_names import check_same


class Merged(gg.Cell):
    """A sum of gates, whose gradients are equal; a weight that multiplies two vectors; states that are exchanged."""

    gates = ("n", "z")
    state = ("h", "c", "e")

    def step(self, a, s):
        u = torch.tanh(a.n + a.z)
        e = torch.tanh(a.hh(u * s.e).n + a.hh(u).n)
        return e + s.c, torch.sigmoid(e) * s.h, s.e


class Unchanged(gg.Cell):
    gates = ("n",)
    state = ("h", "c")

    def step(self, a, s):
        return s.h, s.c


class NoInput(gg.Cell):
    gates = ("n",)

    def step(self, a, s):
        return torch.tanh(a.hh.n)


class NoProduct(gg.Cell):
    gates = ("n",)
    state = ("h", "c")

    def step(self, a, s):
        n = torch.tanh(a.ih.n)
        return n + s.c, n


@pytest.mark.parametrize("cell", [Merged(), Unchanged(), NoInput(), NoProduct()], ids=lambda cell: type(cell).__name__)
def test_unusual_step(cell):
    check_same(gg.Recurrent(cell, 5, 6, dtype=torch.float64))


@pytest.mark.parametrize("cell", [gg.cells.LayerNormLSTM(), gg.cells.SLSTM(heads=2)], ids=repr)
def test_projection_and_lengths(cell):
    check_same(gg.Recurrent(cell, 5, 6, proj_size=4, dtype=torch.float64), lengths=[7, 0, 3])
