"""What is summed after the loop back through time: the gradients of the weights and of the input."""

from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from torch import Tensor

from glassgate.engines.numba_cpu import dense
from glassgate.engines.numba_cpu.call import Call
from glassgate.engines.numba_cpu.dense import Work


class Wanted(NamedTuple):
    """Where the gradients go, zero at first or unwritten."""

    weights: dict[str, Tensor]
    data: Tensor | None
    """(rows, D)."""
    added: bool
    """To what another direction has written to `data`."""


def gradient_products(call: Call, wanted: Wanted) -> tuple[list[Work], list[Work]]:
    """What is to be done before the loop and after it."""
    sums = _Sums(call, wanted)
    sums.of_weights()
    if wanted.data is not None:
        weights = call.input_panels(turned=True)
        sums.before += weights.work
        sums.after.append(dense.multiply(sums.d_ih, weights, 1, wanted.data.shape[1], wanted.data, wanted.added))
    return sums.before, sums.after


class _Sums:
    def __init__(self, call: Call, wanted: Wanted) -> None:
        assert call.gradients is not None
        self.call, self.inputs, self.gradients, self.wanted = call, call.inputs, call.gradients, wanted
        self.H, trace = call.width["H"], call.inputs.trace
        self.d_ih = self.gradients.d_pre[:, len(trace.hh_only) * self.H :]
        self.before: list[Work] = []
        self.after: list[Work] = []

    def of_weights(self) -> None:
        weights, trace, cell = self.wanted.weights, self.inputs.trace, self.inputs.cell
        if "weight_ih" in weights or "bias_ih" in weights:
            rights = self._rows_of(self.inputs.data) if "weight_ih" in weights else None
            self._outer(trace.ih, self.d_ih, rights, 0, "ih", 1)
        products, at = (*trace.hh_only, *trace.shared), 0
        for _, group in groupby(products, key=lambda product: id(product.args[1])):
            same = list(group)
            d = self.gradients.d_pre[:, at * self.H : (at + len(same)) * self.H]
            if "weight_hh" in weights or "bias_hh" in weights:
                gates = tuple(product.args[0] for product in same)
                self._outer(gates, d, *self._left_of(same[0].args[1]), "hh", cell.heads)
            at += len(same)
        if "weight_hr" in weights:
            assert self.gradients.d_hr is not None
            assert self.gradients.raw is not None
            raw = self._rows_of(self.gradients.raw)
            self.after.append(dense.outer(self.gradients.d_hr, raw, 0, weights["weight_hr"], None))

    def _rows_of(self, buffer: Tensor) -> Tensor:
        table, work = dense.rows_of(buffer)
        self.before.append(work)
        return table

    def _left_of(self, u: object) -> tuple[Tensor | None, int]:
        """The addresses of the rows that a recurrent product has multiplied, and from which number on."""
        if "weight_hh" not in self.wanted.weights:
            return None, 0
        for k, node in enumerate(self.inputs.trace.left):
            if node is u:
                assert self.gradients.left is not None
                return self._rows_of(self.gradients.left), k * self.call.width["P"]
        return self._previous_rows, 0

    @cached_property
    def _previous_rows(self) -> Tensor:
        """Where the output before each row lies."""
        inputs, output = self.inputs, self.call.kept.states[0]
        assert output is not None
        restart = (inputs.restart or inputs.initial)[0]
        table, work = dense.rows_before(
            self.call.time, inputs.reverse, inputs.resets, output, inputs.initial[0], restart
        )
        self.before.append(work)
        return table

    def _outer(
        self, gates: tuple[str, ...], d: Tensor, rights: Tensor | None, shift: int, half: str, heads: int
    ) -> None:
        """The gradients of one half's weights and biases: a block for all gates if they lie side by side."""
        cell, weights = self.inputs.cell, self.wanted.weights
        chosen = [cell.gates.index(gate) for gate in gates]
        seen: set[int] = set()
        for column, gate, count in _runs(chosen, alone=heads > 1 or len(set(chosen)) < len(chosen)):
            units = count * self.H // heads
            for head in range(heads):
                first, to = column * self.H + head * units, gate * self.H + head * units
                weight, bias = weights.get(f"weight_{half}"), weights.get(f"bias_{half}")
                width = weight.shape[1] if weight is not None else 0
                self.after.append(
                    dense.outer(
                        d[:, first : first + units],
                        rights,
                        shift + head * width,
                        weight[to : to + units] if weight is not None else None,
                        bias[to : to + units] if bias is not None else None,
                        added=gate in seen,
                    )
                )
            seen.add(gate)


def _runs(chosen: list[int], alone: bool) -> list[tuple[int, int, int]]:
    """Gates that are neighbours in both orders: the first one's column, its number, and how many they are."""
    runs: list[tuple[int, int, int]] = []
    for column, gate in enumerate(chosen):
        if runs and not alone and gate == runs[-1][1] + runs[-1][2]:
            runs[-1] = (*runs[-1][:2], runs[-1][2] + 1)
        else:
            runs.append((column, gate, 1))
    return runs
