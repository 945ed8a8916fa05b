"""The gradients of weights and biases as products of whole sequences, which need no loop over time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from glassgate.cell import Cell
from glassgate.engines.numba_cpu.loops.buffers import Buffers, Kind, Place
from glassgate.engines.numba_cpu.loops.program import Before
from glassgate.engines.symbolic.graph import Node
from glassgate.engines.symbolic.trace import Trace


@dataclass(frozen=True)
class WeightGradient:
    """The sum over all rows of the gradients of some gates times the row vectors that their weights were multiplied by.

    Attributes:
        half: "ih", "hh" or "hr": of `weight_ih`, `bias_ih` and so on.
        gate: whose rows of the weight come first.
        gates: how many follow each other, in the weight as in the gradients.
        d: the first one's gradients.
        right: the row vectors.
        heads: blocks of the weight.
        added: to the result of an earlier one.
        biases: those whose gradient is the sum of these gates' gradients alone.
    """

    half: str
    gate: int
    gates: int
    d: Place
    right: Place | Before
    heads: int
    added: bool
    biases: tuple[str, ...]


def weight_gradients(cell: Cell, trace: Trace, buffers: Buffers) -> list[WeightGradient]:
    """All that a cell has."""
    found: list[WeightGradient] = []
    data = Place(buffers[Kind.DATA])
    for column, gate, count in neighbours(_numbers(cell, trace.ih), len(set(trace.ih)) < len(trace.ih)):
        d = Place(buffers[Kind.D_PRE], len(trace.hh_only) + column)
        found.append(WeightGradient("ih", gate, count, d, data, 1, _seen("ih", gate, found), ("bias_ih",)))
    products = (*trace.hh_only, *trace.shared)
    alone = cell.heads > 1 or len({product.args[0] for product in products}) < len(products)
    start = 0
    for _, group in groupby(products, key=lambda product: id(product.args[1])):
        same = list(group)
        right = _multiplied(same[0].args[1], cell, trace, buffers)
        for column, gate, count in neighbours(_numbers(cell, [product.args[0] for product in same]), alone):
            d = Place(buffers[Kind.D_PRE], start + column)
            own = WeightGradient("hh", gate, count, d, right, cell.heads, _seen("hh", gate, found), ("bias_hh",))
            found = [*_with_its_bias(own, found)]
        start += len(same)
    if any(node.op == "hr" for node in trace.forward.nodes):
        right = Place(buffers[Kind.UNPROJECTED])
        found.append(WeightGradient("hr", 0, 1, Place(buffers[Kind.D_PROJECTED]), right, 1, False, ()))
    return found


def _with_its_bias(own: WeightGradient, before: list[WeightGradient]) -> Iterator[WeightGradient]:
    """These and another one, whose bias belongs to that of the input half where both are the same sum."""
    for other in before:
        same = (other.half, other.gate, other.gates, other.d) == ("ih", own.gate, own.gates, own.d)
        if same and own.heads == 1 and not (own.added or other.added):
            other, own = replace(other, biases=(*other.biases, *own.biases)), replace(own, biases=())
        yield other
    yield own


def _seen(half: str, gate: int, before: list[WeightGradient]) -> bool:
    """Whether an earlier one has written the gate's rows, which then stand alone."""
    return any(other.half == half and other.gate == gate for other in before)


def _numbers(cell: Cell, gates: Sequence[str]) -> list[int]:
    return [cell.gates.index(gate) for gate in gates]


def neighbours(chosen: Sequence[int], alone: bool = False) -> Iterator[tuple[int, int, int]]:
    """Gates that follow each other in both orders: the first one's place, its number, and how many they are."""
    start = 0
    for k in range(1, len(chosen) + 1):
        if k == len(chosen) or alone or chosen[k] != chosen[k - 1] + 1:
            yield start, chosen[start], k - start
            start = k


def _multiplied(u: Node, cell: Cell, trace: Trace, buffers: Buffers) -> Place | Before:
    """The rows that recurrent weights were multiplied by."""
    for k, left in enumerate(trace.left):
        if left is u:
            return Place(buffers[Kind.LEFT], k)
    return Before(cell.state[0])
