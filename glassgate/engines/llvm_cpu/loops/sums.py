"""The gradients of weights and biases as GEMMs over all steps, outside of the loop over time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from glassgate.cell import Cell
from glassgate.engines.llvm_cpu.loops.buffers import Buffers, Kind, Place
from glassgate.engines.llvm_cpu.loops.program import Before
from glassgate.engines.symbolic.graph import Node
from glassgate.engines.symbolic.trace import Trace


@dataclass(frozen=True)
class WeightGradient:
    """A weight gradient GEMM: the sum over all rows of the gradients of gates times the row vectors of the product.

    Attributes:
        half: "ih", "hh" or "hr", for `weight_ih`, `bias_ih` and so on.
        gate: the index of the first gate.
        gates: the number of gates. They are adjacent in the weight and in the gradients.
        d: the gradients of the first gate.
        right: the row vectors that the weight multiplies.
        heads: the number of diagonal blocks of the weight.
        added: whether the result is added to that of an earlier GEMM.
        biases: the biases whose gradient is the sum of the gates' gradients.
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
    """All weight gradient GEMMs of a cell."""
    gradients: list[WeightGradient] = []
    data = Place(buffers[Kind.DATA])
    for column, gate, count in neighbours(_numbers(cell, trace.ih), len(set(trace.ih)) < len(trace.ih)):
        d = Place(buffers[Kind.D_PRE], len(trace.hh_only) + column)
        gradients.append(WeightGradient("ih", gate, count, d, data, 1, _seen("ih", gate, gradients), ("bias_ih",)))
    products = (*trace.hh_only, *trace.shared)
    alone = cell.heads > 1 or len({product.args[0] for product in products}) < len(products)
    start = 0
    for _, group in groupby(products, key=lambda product: id(product.args[1])):
        same = list(group)
        right = _row_vectors(same[0].args[1], cell, trace, buffers)
        for column, gate, count in neighbours(_numbers(cell, [product.args[0] for product in same]), alone):
            d = Place(buffers[Kind.D_PRE], start + column)
            new = WeightGradient("hh", gate, count, d, right, cell.heads, _seen("hh", gate, gradients), ("bias_hh",))
            gradients = [*_with_shared_bias(new, gradients)]
        start += len(same)
    if any(node.op == "hr" for node in trace.forward.nodes):
        right = Place(buffers[Kind.UNPROJECTED])
        gradients.append(WeightGradient("hr", 0, 1, Place(buffers[Kind.D_PROJECTED]), right, 1, False, ()))
    return gradients


def _with_shared_bias(new: WeightGradient, earlier: list[WeightGradient]) -> Iterator[WeightGradient]:
    """The earlier GEMMs and a new one. If `bias_ih` and `bias_hh` have equal gradients, one GEMM computes both."""
    for other in earlier:
        same = (other.half, other.gate, other.gates, other.d) == ("ih", new.gate, new.gates, new.d)
        if same and new.heads == 1 and not (new.added or other.added):
            other, new = replace(other, biases=(*other.biases, *new.biases)), replace(new, biases=())
        yield other
    yield new


def _seen(half: str, gate: int, before: list[WeightGradient]) -> bool:
    """Whether an earlier GEMM has written the rows of the gate."""
    return any(other.half == half and other.gate == gate for other in before)


def _numbers(cell: Cell, gates: Sequence[str]) -> list[int]:
    return [cell.gates.index(gate) for gate in gates]


def neighbours(chosen: Sequence[int], alone: bool = False) -> Iterator[tuple[int, int, int]]:
    """Split gates into runs that are adjacent in the weight. With `alone`, each run is one gate.

    Yields the position of the first gate in `chosen`, its index in the weight, and the number of gates.
    """
    start = 0
    for k in range(1, len(chosen) + 1):
        if k == len(chosen) or alone or chosen[k] != chosen[k - 1] + 1:
            yield start, chosen[start], k - start
            start = k


def _row_vectors(u: Node, cell: Cell, trace: Trace, buffers: Buffers) -> Place | Before:
    """The place of the row vectors that recurrent weights multiply."""
    for k, left in enumerate(trace.left):
        if left is u:
            return Place(buffers[Kind.LEFT], k)
    return Before(cell.state[0])
