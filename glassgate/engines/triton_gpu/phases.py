"""The phases of a pass on a GPU, and the names of its values in kernels.

A product begins a new phase. A phase computes the values of all axes, and a sum over units is part of its phase. Phase
0 is the part of a step before the first product. It runs at the end of the previous step.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count

from glassgate.engines.axes import UNITS, Axis
from glassgate.engines.lowering.expressions import is_numbered
from glassgate.engines.lowering.ir import (
    Axes,
    Block,
    Carry,
    Contract,
    Elementwise,
    Loop,
    Operation,
    Pass,
    Read,
    Reshape,
    Stack,
    Sum,
    Value,
    Write,
    operands,
)
from glassgate.engines.lowering.step import Phase as StepPhase
from glassgate.engines.lowering.step_graph import GraphProgram, StepGraph

CHEAP = 3
"""The maximum number of operations of a cheap value. Phases recompute cheap values that do not depend on a product."""


@dataclass(eq=False)
class Phase(StepPhase[Value]):
    """One phase of a step.

    Attributes:
        products: the matrix products at the start of the phase.
        computed: the results of the other operations.
        writes: the writes to sequences.
        carries: the carries whose next values the phase sets.
    """

    products: tuple[Value, ...] = ()
    computed: tuple[Value, ...] = ()
    writes: tuple[Write, ...] = ()
    carries: tuple[Carry, ...] = ()


class RowGraph(StepGraph):
    """The graph of one step whose values contain all gates and units of a row. The loop's body computes them.

    Attributes:
        before: the operation of each value that is computed before the loop.
    """

    def __init__(self, program: Pass) -> None:
        super().__init__(program)
        self.before: dict[Value, Operation] = {line.result: line.operation for line in program.before}
        self.operations = {line.result: line.operation for line in program.loop.body}

    def origin(self, value: Value) -> Value:
        """The value before `Reshape` changed its axes."""
        while isinstance(operation := self.operations.get(value), Reshape):
            value = operation.x
        return value

    def product(self, value: Value) -> Contract | None:
        """The matrix product of this value, with all gates; None for other values."""
        operation = self.operations.get(value)
        return operation if isinstance(operation, Contract) else None

    def is_computed(self, value: Value) -> bool:
        """Whether the loop's body computes a value."""
        return value in self.operations

    def operands(self, value: Value) -> tuple[Value, ...]:
        """The values from which the loop's body computes a value, without weights."""
        match self.operations.get(value):
            case None:
                return ()
            case Contract(a):
                return (self.origin(a),)
            case operation:
                return tuple(map(self.origin, operands(operation)))


class Phases(GraphProgram[Phase]):
    """The phases of one pass.

    Args:
        program: the pass.

    Attributes:
        operations: the operation of each value of the loop.
        carries: the carries by their values before the step.
        reads: the reads by their values at a step.

    Example:
        >>> import glassgate as gg
        >>> from glassgate.engines.lowering.forward import Form, forward_pass
        >>> from glassgate.engines.symbolic.step import equations_of
        >>> from glassgate.engines.symbolic.trace import build_trace
        >>> from glassgate.engines.triton_gpu.costs import COSTS
        >>> equations = equations_of(gg.cells.GRUv3())
        >>> len(Phases(forward_pass(equations, build_trace(equations, COSTS), Form())).all)  # r * h is an operand
        3
    """

    graph: RowGraph

    def __init__(self, program: Pass) -> None:
        self.program = program
        graph = RowGraph(program)
        self.operations = graph.operations
        self.carries = {carry.before: carry for carry in self.loop.carries}
        self.reads: dict[Value, Read] = {read.at: read for read in self.loop.reads}
        results = [write.value for write in self.loop.writes] + [carry.next for carry in self.loop.carries]
        super().__init__(graph, map(graph.origin, results), Phase)
        # Phase 0 sets a carry if it computes the next value and is the only phase that reads the carry. An example is
        # the sum of the gradients of a parameter. The last phase sets the other carries.
        early = [carry for carry in self.loop.carries if graph.origin(carry.next) in self.phase_0_values]
        while True:
            self._divide(early)
            read_later = {value for phase in self.all[1:] for value in phase.values}
            if not any(carry.before in read_later for carry in early):
                return
            early = [carry for carry in early if carry.before not in read_later]

    def _divide(self, early: Iterable[Carry]) -> None:
        last = max([1, *map(self.level.__getitem__, self.products)])
        writes = [(self._writing_level(write.value, last), write) for write in self.loop.writes]
        carries = [(0 if carry in early else last, carry) for carry in self.loop.carries]
        results = [*((level, write.value) for level, write in writes), *((level, c.next) for level, c in carries)]
        self.divide([((level, UNITS), self.graph.origin(value)) for level, value in results])
        self.phases = {
            (level, UNITS): self.phases.get((level, UNITS)) or Phase(level, UNITS) for level in range(last + 1)
        }
        for phase in self.all:
            phase.computed = tuple(v for v in phase.values if self.computes(phase, v) and not self.is_product(v))
            phase.products = tuple(value for value in self.products if self.level[value] == phase.level)
            phase.writes = tuple(write for level, write in writes if level == phase.level)
            phase.carries = tuple(carry for level, carry in carries if level == phase.level)

    def _writing_level(self, value: Value, last: int) -> int:
        level = self.level.get(value, 0)
        return level if level or self.graph.origin(value) in self.phase_0_values else last

    @property
    def all(self) -> list[Phase]:
        """The phases in the order in which a step runs them."""
        return [*self.phases.values()]

    @property
    def loop(self) -> Loop:
        """The loop of the pass."""
        return self.program.loop

    @property
    def axes(self) -> Axes:
        """The axes of the pass."""
        return self.program.axes

    def axis_of(self, value: Value) -> Axis:
        """The same axis for all values, because a phase computes the values of all axes."""
        return UNITS

    def is_sum(self, value: Value) -> bool:
        """False, because programs that compute whole rows compute sums inside of a phase."""
        return False

    def is_recomputed(self, value: Value) -> bool:
        """Whether each phase computes a value again: axes of gates, and cheap values without products."""
        is_stored = self.level[value] or (value in self.phase_0_values and self.is_expensive[value])
        return isinstance(self.operations[value], Stack | Block) or not is_stored

    @cached_property
    def by_rows(self) -> bool:
        """Whether an operation sums over the units of a row. A Triton program must then compute whole rows."""
        return any(isinstance(operation, Sum) for operation in self.operations.values())

    @cached_property
    def products(self) -> list[Value]:
        """The matrix products of a step."""
        return [value for value in self.values if self.is_product(value)]

    def contract(self, product: Value) -> Contract:
        """The operation of a matrix product."""
        contract = self.graph.product(product)
        assert contract is not None
        return contract

    @property
    def heads(self) -> int:
        """The number of heads."""
        return self.axes.constant_extent("K") or 1 if "K" in self.axes else 1

    @cached_property
    def product_shapes(self) -> list[tuple[Value, str, str, bool]]:
        """For each product: the axes of the rows and columns of its weight, and whether each head has its own block."""
        shapes = []
        for product in self.products:
            *_, rows, columns = axes = self.contract(product).b.type.axes
            by_head = "K" in axes
            shapes.append((product, self.units_of_axis(rows), self.units_of_axis(columns), by_head))
        return shapes

    @cached_property
    def is_expensive(self) -> dict[Value, bool]:
        """For each value, whether storing it is cheaper than computing it again. Only used for level 0."""
        computed_by: dict[Value, frozenset[Value]] = {}
        for value, operation in self.operations.items():
            operations = frozenset(v for arg in operands(operation) for v in computed_by.get(arg, ()))
            computed_by[value] = operations | ({value} if isinstance(operation, Elementwise | Sum) else set())
        sums = {value for value, operation in self.operations.items() if isinstance(operation, Sum)}
        return {v: len(operations) > CHEAP or not sums.isdisjoint(operations) for v, operations in computed_by.items()}

    @cached_property
    def phase_0_values(self) -> frozenset[Value]:
        """The values that phase 0 computes.

        Phase 0 computes the values of level 0 that the first products depend on, and the values of level 0 that read an
        expensive value of phase 0.
        """
        first = [product for product in self.products if self.level[product] == 1]
        values: set[Value] = set()
        pending = [value for product in first for value in self.operands(product)]
        while pending:
            value = pending.pop()
            if value in self.operations and value not in values:
                values.add(value)
                pending += self.operands(value)
        for value in self.values:
            if self.level[value] == 0 and any(v in values and self.is_expensive[v] for v in self.operands(value)):
                values.add(value)
        return frozenset(values)

    # The text of kernels.

    def count_uses(self, phase: Phase) -> Counter[Value]:
        """Count how often a phase reads each value. Each result counts as read once."""
        uses = Counter([*phase.stored, *phase.published, *phase.results])
        for value in phase.computed:
            # A stack or a block may be read gate by gate. Its operands count twice, so that they become variables.
            count = 2 if isinstance(self.operations[value], Stack | Block) else 1
            for operand in self.operands(value):
                uses[operand] += count
        return uses

    def sums_over_steps(self, phase: Phase, uses: Counter[Value]) -> set[Value]:
        """The values of a phase that only add to a carry, such as the gradient of a parameter."""
        sums = set()
        for carry in phase.carries:
            value = self.graph.origin(carry.next)
            if value in phase.computed and uses[value] == 1 and carry.before in operands(self.operations[value]):
                sums.add(value)
        return sums

    @cached_property
    def names(self) -> dict[Value, str]:
        """Names for values that the lowering has only numbered: gates of weights, left operands, product results."""
        of_gates = StepGraph(self.program).names_of_gates
        candidates = [(value, of_gates[value]) for value in self.graph.before if value in of_gates]
        for product in self.products:
            (operand,) = self.operands(product)
            candidates += [(operand, self._common_name(operand) or "operand"), (product, "product")]
        taken = {v.name for v in (*self.program.inputs.values(), *self.operations, *self.carries, *self.reads)}
        names: dict[Value, str] = {}
        for value, name in candidates:
            if is_numbered(value.name) and value not in names:
                names[value] = next(n for n in chain([name], (f"{name}{k}" for k in count(2))) if n not in taken)
                taken.add(names[value])
        return names | {w.sequence: names[w.value] for w in self.loop.writes if w.value in names}

    def _common_name(self, value: Value) -> str | None:
        """The name that all gates of a stack share without their labels: "d_pre" for "d_i_pre" and "d_f_pre"."""
        stack = self.operations.get(value)
        if not isinstance(stack, Stack):
            return None
        labels = self.axes[stack.axis].labels
        parts = [self.graph.origin(part).name for part in stack.values]
        names = {name.replace(f"_{label}_", "_") for name, label in zip(parts, labels, strict=True)}
        return names.pop() if len(names) == 1 else None

    def name_of(self, value: Value) -> str:
        """The name of a value in kernels."""
        return self.names.get(value, value.name)

    def gates_of(self, value: Value) -> str | None:
        """The axis of gates of a value, if it has one."""
        return next((axis for axis in value.type.axes if self.axes[axis].labels), None)

    def units_of(self, value: Value) -> str | None:
        """The axis "H" or "P" whose units programs divide among themselves; None if a row has a single number."""
        return next((self.units_of_axis(axis) for axis in value.type.axes if axis in "HUPJV"), None)

    def units_of_axis(self, axis: str) -> str:
        """The axis of all units, "H" or "P", for an axis of these units or of the units of one head."""
        return "H" if axis in "HU" or "P" not in self.axes else "P"
