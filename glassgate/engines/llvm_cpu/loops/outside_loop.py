"""The sums of biases before the loop and the GEMMs after it.

Adjacent gates are joined in one sum or one GEMM. Their operands are columns of this engine's buffers.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeVar

from glassgate.engines.llvm_cpu.loops.buffers import Kind
from glassgate.engines.llvm_cpu.loops.memory import StateBefore
from glassgate.engines.lowering.weights import input_products, recurrent_products, weight_axes
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import gate_of
from glassgate.engines.symbolic.trace import Trace

WEIGHTS, BIASES = ("weight_ih", "weight_hh", "weight_hr"), ("bias_ih", "bias_hh")


class BiasSum(NamedTuple):
    """The sums of the biases of adjacent gates. The loop adds them to matrix products.

    Attributes:
        half: "ih" for products with the input, "hh" for recurrent products; see `bias_buffer`.
        column: the column of the first gate.
        biases: the one or two terms of a sum. Each is the name of a bias and the index of the first gate in it.
        gate_count: the number of gates.
    """

    half: str
    column: int
    biases: tuple[tuple[str, int], ...]
    gate_count: int = 1

    @property
    def next(self) -> "BiasSum":
        """The sum for the gate after these gates, which can be joined to this sum."""
        biases = tuple((name, gate + self.gate_count) for name, gate in self.biases)
        return BiasSum(self.half, self.column + self.gate_count, biases)


class KindColumn(NamedTuple):
    """A column of the only buffer of a kind, by its number."""

    kind: Kind
    number: int


class WeightGradient(NamedTuple):
    """A weight gradient GEMM: gradients of gates times the vectors that a weight multiplies, summed over all rows.

    Attributes:
        weight: the name of the weight.
        axes: the axes of the weight.
        gate: the index of the first gate.
        d: the gradients of the first gate.
        right: the vectors that the weight multiplies. None for the gradient of a bias.
        added: whether the result is added to the result of an earlier GEMM.
        gate_count: the number of gates. They are adjacent in the weight and in the gradients.
        biases: the biases whose gradient is the sum of the gates' gradients.
    """

    weight: str
    axes: tuple[str, ...]
    gate: int
    d: KindColumn
    right: KindColumn | StateBefore | None
    added: bool
    gate_count: int = 1
    biases: tuple[str, ...] = ()

    @property
    def next(self) -> "WeightGradient":
        """The GEMM for the gate after these gates, which can be joined to this GEMM."""
        d = KindColumn(self.d.kind, self.d.number + self.gate_count)
        return self._replace(gate=self.gate + self.gate_count, d=d, gate_count=1)


class AfterLoop(NamedTuple):
    """The GEMMs after the loop of a backward pass.

    Attributes:
        weight_gradients: the GEMMs for the gradients of weights and biases.
        fully_written: the weights and biases whose gradient is written for every gate.
        input_gates: for each gate that reads the input, the column of its gradients and its index in `weight_ih`.
    """

    weight_gradients: list[WeightGradient]
    fully_written: frozenset[str]
    input_gates: list[tuple[int, int]]


@lru_cache(1024)
def bias_sums(equations: Equations, trace: Trace) -> list[BiasSum]:
    """Return the sums of biases that the loop of a forward pass reads."""
    gates, shared = equations.gates, {*map(gate_of, trace.shared)}
    sums = []
    for column, gate in enumerate(trace.ih):
        names = BIASES if gate in shared else BIASES[:1]
        sums.append(BiasSum("ih", column, tuple((name, gates.index(gate)) for name in names)))
    for column, product in enumerate(trace.hh_only):
        sums.append(BiasSum("hh", column, (("bias_hh", gates.index(gate_of(product))),)))
    return _join_adjacent(sums)


@lru_cache(1024)
def after_loop(equations: Equations, trace: Trace, bias: bool) -> AfterLoop:
    """Return the GEMMs after the loop of a backward pass.

    Args:
        equations, trace: the equations of the cell and their graphs.
        bias: whether the layer has biases.
    """
    axes = weight_axes(equations, bias)
    gradients = _weight_gradients(equations, trace, axes)
    factors = {name: [(gemm.d, gemm.gate) for gemm in of_weight] for name, of_weight in gradients.items()}
    weight_of = {}
    for name, weight in zip(BIASES, WEIGHTS, strict=False):
        if name in axes:
            # A GEMM also computes the gradients of biases with the same gate gradients, which it reads anyway.
            weight_of[name] = next(other for other in gradients if factors[other] == factors[weight])
    gemms: list[WeightGradient] = []
    for weight, of_weight in gradients.items():
        biases = tuple(name for name in weight_of if weight_of[name] == weight)
        by_gate = [gemm._replace(biases=biases) for gemm in of_weight]
        # A GEMM writes one head only. GEMMs that add to the same rows must be divided among threads in the same
        # way, so they must have the same gates.
        separate = "K" in axes[weight] or any(gemm.added for gemm in by_gate)
        gemms += by_gate if separate else _join_adjacent(by_gate)
    blocks = {name: len(equations.gates) if "G" in axes[name] else 1 for name in gradients}
    complete = {name for name, count in blocks.items() if len({gate for _, gate in factors[name]}) == count}
    complete |= {name for name, weight in weight_of.items() if weight in complete}
    inputs = sorted((gemm.d.number, gemm.gate) for gemm in gradients["weight_ih"])
    return AfterLoop(gemms, frozenset(complete), inputs)


def _weight_gradients(
    equations: Equations, trace: Trace, axes: Mapping[str, tuple[str, ...]]
) -> dict[str, list[WeightGradient]]:
    """Return the GEMMs of each weight, one per gate and row vector, in the order of the columns of gate gradients."""
    gradients: dict[str, list[WeightGradient]] = {name: [] for name in WEIGHTS if name in axes}
    for products in (input_products(equations, trace), *recurrent_products(equations, trace)):
        weight = "weight_ih" if products.operand is None else "weight_hh"
        right: KindColumn | StateBefore
        if products.operand is None:
            right = KindColumn(Kind.DATA, 0)
        elif products.left is None:
            right = StateBefore(equations.state[0])
        else:
            right = KindColumn(Kind.LEFT, products.left)
        for gate, column in zip(products.gates, products.columns, strict=True):
            number, d = equations.gates.index(gate), KindColumn(Kind.D_PRE, column)
            added = any(gemm.gate == number for gemm in gradients[weight])
            gradients[weight].append(WeightGradient(weight, axes[weight], number, d, right, added))
    if "weight_hr" in axes:
        d, raw = KindColumn(Kind.D_PROJECTED, 0), KindColumn(Kind.UNPROJECTED, 0)
        gradients["weight_hr"].append(WeightGradient("weight_hr", axes["weight_hr"], 0, d, raw, False))
    return {name: sorted(gemms, key=lambda gemm: gemm.d.number) for name, gemms in gradients.items()}


Joinable = TypeVar("Joinable", BiasSum, WeightGradient)


def _join_adjacent(operations: Iterable[Joinable]) -> list[Joinable]:
    """Join consecutive operations of adjacent gates."""
    joined: list[Joinable] = []
    for operation in operations:
        if joined and operation == joined[-1].next:
            joined[-1] = joined[-1]._replace(gate_count=joined[-1].gate_count + 1)
        else:
            joined.append(operation)
    return joined
