"""The layers with which every export is tested: every cell, and every structure of a layer."""

from typing import Any

import torch

import glassgate as gg
from glassgate.cell_axes import Gate, Parameter, State
from glassgate.cell_shapes import example_sizes
from tests.cases import SHAPES
from tests.compare import noise
from tests.engines.test_arrays import STEPS, make_cell
from tests.test_declared_axes import DeltaRule, Skip

RAGGED = SHAPES["ragged"]


class Leaky(gg.Cell):
    """A custom cell with two parameters, a mean over units, and a recurrent product of f * h."""

    gates = ("f", "n")
    state = ("h", "m")
    parameters = {"gain": gg.Parameter(1.0), "shift": gg.Parameter(0.0, per_gate=True)}

    def step(self, a: Any, s: Any, p: Any) -> Any:
        f = torch.sigmoid(a.f + p.shift.f)
        n = torch.tanh(a.ih.n + a.hh(f * s.h).n + p.shift.n)
        m = f * s.m + (1 - f) * n
        return p.gain * torch.tanh(m - m.mean(-1, keepdim=True)), m


class Everything(gg.Cell):
    """The operations that no built-in cell has."""

    gates = ("a", "b")
    state = ("h",)

    def step(self, a: Any, s: Any) -> Any:
        x, y = a.a, a.b
        wave = torch.sin(x) + torch.cos(y) + torch.tan(0.3 * torch.tanh(x)) + torch.atan(y) + torch.erf(x)
        whole = torch.floor(x) + torch.ceil(y) + torch.round(x) + torch.trunc(y) + torch.sign(x)
        power = torch.pow(x * x + 0.5, y.abs().sqrt()) + torch.expm1(0.1 * x) + torch.log1p(x * x)
        mask = ((x < y) & ~(y <= 0)) | (torch.sign(x) != torch.sign(y)) | (whole == 0)
        least = torch.minimum(torch.maximum(x, y), torch.log(s.h * s.h + 1)) + torch.rsqrt(x * x + 1)
        return torch.tanh(0.1 * torch.where(mask, wave + 0.1 * whole, power + least))


class NamesOfHelpers(gg.Cell):
    """Variables with the names of functions of C, of JavaScript and of the emitted code."""

    gates = ("n",)
    state = ("h",)

    def step(self, a: Any, s: Any) -> Any:
        exp = torch.exp(-a.n * a.n)
        log = torch.log(exp + 1)
        broadcast = torch.sigmoid(log + s.h)
        sigmoid_lanes = torch.sigmoid(a.n * broadcast)
        sqrt = torch.sqrt(sigmoid_lanes.mean(-1, keepdim=True) + 1)
        scratch = torch.tanh(sqrt * sigmoid_lanes)
        LANES = torch.tanh(scratch)
        return LANES * broadcast


class ZeroMean(gg.Cell):
    """A state that is zero, because it contains the mean of centred pre-activations."""

    gates = ("n",)
    state = ("h", "m")

    def step(self, a: Any, s: Any) -> Any:
        centred = a.n - a.n.mean(-1, keepdim=True)
        return torch.tanh(centred + s.m), torch.tanh(a.n) * centred.mean(-1, keepdim=True)


class OtherMeans(gg.Cell):
    """A matrix product minus the mean of another product, and minus its own mean plus that of the other."""

    gates = ("n", "m")
    state = ("h",)

    def step(self, a: Any, s: Any) -> Any:
        mean = a.hh.n.mean(-1, keepdim=True)
        own = a.hh.m - a.hh.m.mean(-1, keepdim=True) + a.ih.n.mean(-1, keepdim=True)
        return torch.tanh(a.ih.n - mean) + torch.tanh(a.ih.m + own)


class Numbers(gg.Cell):
    """A sum of numbers for every unit, which reads no parameter."""

    gates = ("n",)
    state = ("h",)

    def step(self, a: Any, s: Any) -> Any:
        return torch.tanh(a.n) * (torch.zeros_like(a.n) + 0.5)


CELLS: dict[str, Any] = {name: getattr(gg.cells, name)() for name in gg.cells.__all__} | {
    "RNN with relu": gg.cells.RNN("relu"),
    "SLSTM of 2 heads": gg.cells.SLSTM(2),
    "clipped": gg.cells.ClippedLSTM(0.2, 0.1),
    "custom": Leaky(),
    "every operation": Everything(),
    "names of helpers": NamesOfHelpers(),
    "zero mean": ZeroMean(),
    "means of other products": OtherMeans(),
    "numbers": Numbers(),
}
STRUCTURES: dict[str, dict[str, Any]] = {
    "stack": {"num_layers": 2, "residual": True},
    "two directions": {"num_layers": 2, "bidirectional": True},
    "sum": {"bidirectional": True, "merge": "sum", "num_layers": 2, "residual": True, "batch_first": True},
    "mean": {"bidirectional": True, "merge": "mean", "bias": False},
    "none": {
        "hidden_size": [(4, 5), (6, 5)], "num_layers": 2, "bidirectional": True, "merge": "none", "residual": True
    },
    "sizes": {
        "hidden_size": [(4, 6), (2, 4)], "num_layers": 2, "bidirectional": True, "learn_initial_state": True
    },
    "projection": {"proj_size": 3, "num_layers": 2},
    "zoneout": {"zoneout": 0.2},
    "float64": {"dtype": torch.float64},
}  # fmt: skip


def layer_of_cell(name: str, **options: Any) -> gg.Recurrent:
    """A layer of one cell, in eval mode, with random weights."""
    layer = gg.Recurrent(CELLS[name], RAGGED.H_in, 6, **options)
    return drawn(layer)


def layer_of_structure(kind: Any, name: str) -> gg.Recurrent:
    """A layer with one of the structures."""
    layer: gg.Recurrent = kind(**{"input_size": RAGGED.H_in, "hidden_size": 6} | STRUCTURES[name])
    return drawn(layer)


def drawn(layer: gg.Recurrent) -> gg.Recurrent:
    """The layer in eval mode with random parameters, so that all gates differ."""
    with torch.no_grad():
        for k, parameter in enumerate(layer.parameters()):
            parameter.copy_(0.5 * noise(k, *parameter.shape))
    return layer.eval()


class Blocks(gg.Cell):
    """A state per head, recurrent products of h and of another vector by heads, and a gate that reads only x."""

    gates = {"i": ("units",), "f": Gate(("heads",), reads="x"), "g": Gate(("units",), reads="h")}
    state = {"h": ("units",), "n": State(("heads",), start=1.0)}
    parameters = {"gain": Parameter(1.0, per_gate=True), "mix": Parameter(axes=("heads", "heads"))}
    heads = 2

    def step(self, a: Any, s: Any, p: Any) -> Any:
        n = torch.sigmoid(a.f * p.gain.f + s.n @ p.mix)
        h = s.h.unflatten(-1, (2, -1)) * n[..., None]
        return torch.tanh(a.i * p.gain.i + a.hh(h.flatten(1)).g), n


_SMALL = {"CfC": {"backbone": 5}, "SCRN": {"context": 3}}
ARRAYS: dict[str, Any] = {
    **{name: cell(heads=2, key_size=3) for name, cell in gg.cells.MATRIX_MEMORIES.items()},
    **{name: cell(**_SMALL.get(name, {})) for name, cell in gg.cells.CLASSIC.items() if cell().declaration is not None},
    **{name: cell() for name, cell in gg.cells.STATE_SPACES.items() if cell().declaration is not None},
    **{f"step with {name}": make_cell(step) for name, step in STEPS.items()},
    "DeltaRule": DeltaRule(2, 4, 3),
    "Blocks": Blocks(),
    "Skip": Skip(),
}
"""The cells that declare axes, with each operation of their graph."""


def layer_of_arrays(name: str, **options: Any) -> gg.Recurrent:
    """A layer of a cell that declares axes, in eval mode, with random weights."""
    sizes = example_sizes(ARRAYS[name], 3, 4)
    return drawn(gg.Recurrent(ARRAYS[name], *sizes, **options))
