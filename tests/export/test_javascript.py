"""Emitted JavaScript against the layers, with and without edits, for every built-in cell and a custom one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import glassgate as gg
from glassgate.export.errors import ExportError
from glassgate.export.javascript import Weights, emit
from tests.export.javascript import run_in_node


class Twisted(gg.Cell):
    """A cell with a mean, a conditional, an error function and rounding."""

    gates, state = ("f", "n"), ("h", "m")

    def step(self, a: Any, s: Any) -> tuple[Tensor, Tensor]:
        f, n = torch.sigmoid(a.f), torch.erf(a.n)
        m = torch.where(f < 0.5, s.m + 1.0, torch.round(n * 4.0) / 4.0)
        return f * s.h + (1 - f) * n - n.mean(-1, keepdim=True), torch.clamp(m, -3.0, 3.0)


CELLS = [
    gg.cells.RNN(), gg.cells.LSTM(), gg.cells.GRU(), gg.cells.GRUv3(), gg.cells.PeepholeLSTM(), gg.cells.CIFG(),
    gg.cells.LayerNormLSTM(), gg.cells.LayerNormGRU(), gg.cells.SLSTM(heads=2), gg.cells.MGU(), gg.cells.MinGRU(),
    gg.cells.MinLSTM(), gg.cells.IndRNN(), gg.cells.JANET(), gg.cells.ClippedLSTM(), Twisted(),
]  # fmt: skip
STACKS: list[Callable[[], gg.Recurrent]] = [
    lambda: gg.LSTM(3, 6, num_layers=2, bidirectional=True),
    lambda: gg.LSTM(3, [(6, 4), (5, 4)], num_layers=2, bidirectional=True, merge="none", residual=True),
    lambda: gg.GRU(4, 4, num_layers=2, bidirectional=True, merge="sum", residual=True),
    lambda: gg.GRU(4, 4, bidirectional=True, merge="mean"),
    lambda: gg.LSTM(3, 6, proj_size=4, num_layers=2),
    lambda: gg.LSTM(3, 6, learn_initial_state=True, zoneout=0.2),
]


@pytest.fixture(scope="module")
def layers() -> list[gg.Recurrent]:
    torch.manual_seed(0)
    made = [gg.Recurrent(cell, 3, 6) for cell in CELLS] + [make() for make in STACKS]
    for layer in made:
        for parameter in layer.parameters():
            torch.nn.init.normal_(parameter, std=0.6)
    return [layer.eval() for layer in made]


@pytest.fixture(autouse=True)
def on_the_reference() -> Iterator[None]:
    """Compiles no kernels for the many cells."""
    with gg.engine("reference"):
        yield


def test_it_agrees_with_the_layer(layers: list[gg.Recurrent], tmp_path: Path) -> None:
    weights, length = Weights(), 7
    scripts = [emit(layer, weights) for layer in layers]
    calls, expected = [], []
    for number, layer in enumerate(layers):
        x = torch.randn(length, 1, layer.input_size)
        for edits, given in changes(layer):
            with torch.no_grad(), gg.record(layer) as tape:
                if edits:
                    with gg.edit(layer, edits):
                        output, _ = layer(x)
                else:
                    output, _ = layer(x)
            calls.append({"layer": number, "x": x.flatten().tolist(), "count": length, "edits": given})
            expected.append((output if isinstance(output, tuple) else (output,), dict(tape)))
    for result, call, (outputs, tape) in zip(
        run_in_node(tmp_path, scripts, weights, calls), calls, expected, strict=True
    ):
        cell = type(layers[call["layer"]].cell).__name__
        for got, output in zip(result["outputs"], outputs, strict=True):
            torch.testing.assert_close(torch.tensor(got), output.flatten(), atol=1e-4, rtol=1e-4, msg=cell)
        for name, recorded in tape.items():
            label, _, short = name.rpartition(".")
            got = torch.tensor(result["values"][label][short])
            torch.testing.assert_close(got, recorded.flatten(), atol=1e-4, rtol=1e-4, msg=f"{cell} {name}")


def changes(layer: gg.Recurrent) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """No edits, and several edits, for Python and for JavaScript."""
    with torch.no_grad(), gg.record(layer) as tape:
        layer(torch.randn(7, 1, layer.input_size))
    first, last = next(iter(tape)), [*tape][-1]
    patch = torch.randn(7, 1, tape[last].shape[-1])
    edits = {
        first: [gg.hold(0.3, units=[1], steps=slice(2, 5)), gg.scale(1.5)],
        last: [gg.scale(-0.5, units=[0, 2]), gg.replace(patch, units=[3], steps=slice(1, 3))],
    }
    given = [
        {"name": first, "kind": "hold", "value": 0.3, "units": [1], "from": 2, "to": 5},
        {"name": first, "kind": "scale", "value": 1.5},
        {"name": last, "kind": "scale", "value": -0.5, "units": [0, 2]},
        {"name": last, "kind": "replace", "values": patch.flatten().tolist(), "units": [3], "from": 1, "to": 3},
    ]
    if first == last:
        edits = {first: [gg.hold(0.3, units=[1], steps=slice(2, 5)), gg.scale(1.5)]}
        given = given[:2]
    return [({}, []), (edits, given)]


def test_the_emitted_step_has_the_names_of_its_author() -> None:
    lines = emit(gg.LSTM(1, 2), Weights()).steps.splitlines()
    assert "    const c = f * c_prev[u] + i * g;" in lines


def test_sixteen_bits_are_half_the_size() -> None:
    layer = gg.GRU(5, 7)
    full, half = Weights(), Weights(half=True)
    emit(layer, full), emit(layer, half)
    assert 1.9 < len(full.packed()["base64"]) / len(half.packed()["base64"]) < 2.1
    assert 0 < half.error < 1e-3
    assert full.error == 0


class Sorted(gg.Cell):
    gates, state = ("n",), ("h",)

    def step(self, a: Any, s: Any) -> Tensor:
        return torch.sort(a.n)[0]


def test_an_operation_that_cannot_be_expressed_is_named() -> None:
    with pytest.raises(ExportError, match=r"live: cell Sorted: step uses .*sort"):
        emit(gg.Recurrent(Sorted(), 2, 3), Weights())


class OneUnit(gg.Cell):
    """The variance of one number is exactly zero."""

    gates = ("g",)

    def step(self, a, s):
        n = torch.tanh(a.g)
        return torch.where(n.var(-1, unbiased=False, keepdim=True) > 0, 1.0, n)


def test_differences_do_not_contain_the_rounding_of_stored_numbers(tmp_path):
    torch.manual_seed(0)
    layer, x, weights = gg.Recurrent(OneUnit(), 3, 1), torch.randn(6, 3), Weights()
    calls = [{"layer": 0, "x": x.flatten().tolist(), "count": 6, "edits": []}]
    (result,) = run_in_node(tmp_path, [emit(layer, weights)], weights, calls)
    torch.testing.assert_close(torch.tensor(result["outputs"][0]).view(6, 1), layer(x)[0])
