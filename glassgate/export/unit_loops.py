"""The program of one step as loops over units, one per phase. The emitters of C and JavaScript print it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from glassgate.engines.axes import UNITS
from glassgate.engines.lowering.ir import Value
from glassgate.engines.lowering.step import Key, Phase
from glassgate.engines.lowering.step_graph import GraphProgram
from glassgate.export.weighted_graph import WeightedGraph


@dataclass(eq=False)
class UnitLoop(Phase[Value]):
    """The loop of one phase.

    Attributes:
        scalars: the single numbers that are computed before the loop.
        computed: the vectors that the loop computes.
        names: the names of the new states and gates that the loop stores.
        constants: the constant vectors that the loop reads.
    """

    scalars: list[Value] = field(default_factory=list)
    computed: list[Value] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    constants: list[Value] = field(default_factory=list)


class UnitLoops(GraphProgram[UnitLoop]):
    """The loops of a step.

    Args:
        graph: the graph of the step.

    Attributes:
        outcome: the gates and the new states by name.
        kept: the vectors that are stored as arrays, because a later loop or a matrix product reads them.
        loops: the loops in order.
    """

    graph: WeightedGraph

    def __init__(self, graph: WeightedGraph) -> None:
        self.outcome = graph.results
        super().__init__(graph, self.outcome.values(), UnitLoop)
        computed = [value for value in self.values if not self.is_read(value)]
        scalars, vectors = ([v for v in computed if graph.is_single(v) == single] for single in (True, False))
        self._computing = {*map(self.key_of, vectors), *(key for v in self.values for key in self._keys_of_terms(v))}
        self.divide([(self.storing_key(name), value) for name, value in self.outcome.items()])
        stored = {value for phase in self.phases.values() for value in (*phase.published, *phase.stored)}
        self.kept = [value for value in self.values if value in stored and not self.is_read(value)]
        self._use_counts = Counter(
            operand for value in self.values if not self.is_product(value) for operand in self.operands(value)
        )
        self.loops = [*self.phases.values()]
        for loop in self.loops:
            loop.scalars = [scalar for scalar in scalars if self.level[scalar] <= loop.level]
            scalars = [scalar for scalar in scalars if scalar not in loop.scalars]
            loop.computed = [value for value in vectors if self.key_of(value) == loop.key]
            loop.names = [name for name in self.outcome if self.storing_key(name) == loop.key]
            loop.constants = [v for v in loop.values if v in graph.constants and not graph.is_single(v)]

    def _keys_of_terms(self, value: Value) -> Iterable[Key]:
        return map(self.key_of, self.operands(value)) if self.is_sum(value) else ()

    def needs_all_units(self, value: Value, operand: Value) -> bool:
        """Whether a value reads all units of an operand. Inputs are complete before the step."""
        return self.graph.needs_all_units(value, operand)

    def is_product(self, value: Value) -> bool:
        """Whether a value is a sum of matrix products."""
        return value in self.graph.affine

    def is_sum(self, value: Value) -> bool:
        """Whether a value is a sum over units."""
        return self.graph.is_sum(value)

    def storing_key(self, name: str) -> Key:
        """The phase that stores a new state or a gate: the one that computes it, or else the last of its axis."""
        value, states = self.outcome[name], self.graph.states
        axis = self.axis_of(states[name]) if name in states else UNITS
        if not self.is_read(value) and self.axis_of(value) == axis:
            return self.key_of(value)
        level = self.level[value]
        later = [key for key in self._computing if key[1] == axis and key[0] >= level]
        return max(later, default=(level, axis))

    def is_inlined(self, value: Value) -> bool:
        """Whether a value without a name is part of the expression of its only reader."""
        is_stored = value in self.kept or value in self.outcome.values()
        is_operation = not (self.is_read(value) or self.is_product(value) or self.graph.is_named(value))
        return is_operation and not is_stored and self._use_counts[value] == 1
