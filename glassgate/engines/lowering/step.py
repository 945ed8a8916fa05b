"""The program of one step: its phases, and the values that phases keep, recompute, publish or sum over units.

Some operations read all units of a value, for example the product of a row vector and a recurrent weight. They can only
start when all units have been computed, which several programs or iterations of a loop do. A *phase* is the part of a
step between two such points. Dialects print the phases and decide nothing about them.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count
from typing import Generic, TypeVar

from glassgate.engines.lowering.expressions import is_numbered
from glassgate.engines.lowering.ir import (
    Axes,
    Block,
    Carry,
    Contract,
    Elementwise,
    Line,
    Loop,
    Pass,
    Read,
    Reshape,
    Stack,
    Sum,
    Value,
    Write,
    operands,
)

V = TypeVar("V")


class Levels(Generic[V]):
    """The level of each value of a step: the phase that computes it. Levels begin with 0.

    Args:
        values: the values, each after its operands. The graph may be that of a pass, or one with a value per gate.
        operands: returns the operands of a value.
        needs_all_units: whether a value reads all units of an operand, so that it belongs to a later phase.

    Example:
        >>> operands = {"h": [], "r": ["h"], "rh": ["r", "h"], "product": ["rh"]}
        >>> levels = Levels(operands, operands.__getitem__, lambda value, operand: value == "product")
        >>> levels["rh"], levels["product"], levels.published
        (0, 1, {'rh': ['product']})
    """

    def __init__(
        self,
        values: Iterable[V],
        operands: Callable[[V], Iterable[V]],
        needs_all_units: Callable[[V, V], bool],
    ) -> None:
        self._levels: dict[V, int] = {}
        self.published: dict[V, list[V]] = {}
        """The values of which later values read all units, with these later values."""
        later: dict[V, None] = {}
        for value in values:
            levels = [self.get(operand) + needs_all_units(value, operand) for operand in operands(value)]
            self._levels[value] = level = max(levels, default=0)
            for operand in operands(value):
                if needs_all_units(value, operand):
                    self.published.setdefault(operand, []).append(value)
                elif self.get(operand) < level:
                    later[operand] = None
        self.read_later = list(later)
        """The values that a later phase reads unit by unit. It keeps them, or computes them again."""

    def __getitem__(self, value: V) -> int:
        return self._levels[value]

    def get(self, value: V) -> int:
        """The level of a value; 0 for a value from outside of the step."""
        return self._levels.get(value, 0)


CHEAP = 3
"""The maximum number of operations of a cheap value. Phases recompute cheap values that do not depend on a product."""


@dataclass(eq=False)
class Phase:
    """One phase of a step.

    Attributes:
        number: the index of the phase. Phase 0 is the part before the first product, and runs at the end of the
            previous step.
        products: the matrix products at the start of the phase.
        lines: the other operations.
        stored: the values that later phases of the step read at the same rows and units.
        published: the left operands of the products of the next phase. Every unit reads them.
        writes: the writes to sequences.
        carries: the carries whose next values the phase sets.
    """

    number: int
    products: tuple[Line, ...] = ()
    lines: tuple[Line, ...] = ()
    stored: tuple[Value, ...] = ()
    published: tuple[Value, ...] = ()
    writes: tuple[Write, ...] = ()
    carries: tuple[Carry, ...] = ()

    @property
    def results(self) -> list[Value]:
        """The values that the phase computes for later phases, steps or passes."""
        written, states = (write.value for write in self.writes), (carry.next for carry in self.carries)
        return [*self.stored, *self.published, *written, *states]


@dataclass(eq=False)
class Phases:
    """The phases of one pass.

    Args:
        program: the pass.

    Attributes:
        line_of: the line that computes each value of the loop.
        levels: for each value of the loop, the largest number of successive products that it depends on in a step.

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

    program: Pass
    line_of: dict[Value, Line] = field(init=False)
    levels: Levels[Value] = field(init=False)

    def __post_init__(self) -> None:
        loop = self.loop
        self.line_of = {line.result: line for line in loop.body}
        self.carries = {carry.before: carry for carry in loop.carries}
        self.reads: dict[Value, Read] = {read.at: read for read in loop.reads}
        self.levels = Levels(
            self.line_of,
            lambda value: operands(self.line_of[value].operation),
            lambda value, _: isinstance(self.line_of[value].operation, Contract),
        )

    @property
    def loop(self) -> Loop:
        """The loop of the pass."""
        return self.program.loop

    @property
    def axes(self) -> Axes:
        """The axes of the pass."""
        return self.program.axes

    @property
    def heads(self) -> int:
        """The number of heads."""
        return self.axes.constant_extent("K") or 1 if "K" in self.axes else 1

    @cached_property
    def by_rows(self) -> bool:
        """Whether an operation sums over the units of a row. A Triton program must then compute whole rows."""
        return any(isinstance(line.operation, Sum) for line in self.loop.body)

    @cached_property
    def products(self) -> list[Line]:
        """The matrix products of a step."""
        return [line for line in self.loop.body if isinstance(line.operation, Contract)]

    def left_operands(self, level: int) -> list[Value]:
        """The left operands of the products with this level. The first products of a step have level 1."""
        contracts = [p.operation for p in self.products if self.levels[p.result] == level]
        return [operation.a for operation in contracts if isinstance(operation, Contract)]

    @cached_property
    def product_shapes(self) -> list[tuple[Line, str, str, bool]]:
        """For each product: the axes of the rows and columns of its weight, and whether each head has its own block."""
        shapes = []
        for product in self.products:
            assert isinstance(product.operation, Contract)
            *_, rows, columns = product.operation.b.type.axes
            by_head = "K" in product.operation.b.type.axes
            shapes.append((product, self.units_of_axis(rows), self.units_of_axis(columns), by_head))
        return shapes

    @cached_property
    def is_expensive(self) -> dict[Value, bool]:
        """For each value, whether storing it is cheaper than computing it again. Only used for level 0."""
        computed_by: dict[Value, frozenset[Value]] = {}
        for line in self.loop.body:
            operations = frozenset(v for arg in operands(line.operation) for v in computed_by.get(arg, ()))
            own = {line.result} if isinstance(line.operation, Elementwise | Sum) else set()
            computed_by[line.result] = operations | own
        sums = {line.result for line in self.loop.body if isinstance(line.operation, Sum)}
        return {v: len(operations) > CHEAP or not sums.isdisjoint(operations) for v, operations in computed_by.items()}

    @cached_property
    def phase_0_values(self) -> frozenset[Value]:
        """The values that phase 0 computes.

        Phase 0 computes the values of level 0 that the first products depend on, and the values of level 0 that read an
        expensive value of phase 0.
        """
        values: set[Value] = set()
        self._add_ancestors(self.left_operands(1), values)
        for line in self.loop.body:
            if self.levels[line.result] == 0 and any(
                v in values and self.is_expensive[v] for v in operands(line.operation)
            ):
                values.add(line.result)
        return frozenset(values)

    def _add_ancestors(self, values: Iterable[Value], ancestors: set[Value]) -> None:
        for value in values:
            if value in self.line_of and value not in ancestors:
                ancestors.add(value)
                self._add_ancestors(operands(self.line_of[value].operation), ancestors)

    @cached_property
    def all(self) -> list[Phase]:
        """The phases in the order in which a step runs them.

        Most carries get their next values in the last phase. Phase 0 sets a carry if it computes the next value and is
        the only phase that reads the carry. An example is the sum of the gradients of a parameter.
        """
        early = tuple(carry for carry in self.loop.carries if self.origin(carry.next) in self.phase_0_values)
        while True:
            phases, read_later = self._split(early)
            if not any(carry.before in read_later for carry in early):
                return phases
            early = tuple(carry for carry in early if carry.before not in read_later)

    def _split(self, early: tuple[Carry, ...]) -> tuple[list[Phase], set[Value]]:
        """The phases of a step, and the values that phases after phase 0 read.

        Args:
            early: the carries that phase 0 sets.
        """
        last = max([1, *(self.levels[p.result] for p in self.products)])
        phases = [Phase(number) for number in range(last + 1)]
        phases[last].carries = tuple(carry for carry in self.loop.carries if carry not in early)
        phases[0].carries = early
        for phase in phases:
            level = phase.number
            phase.products = tuple(p for p in self.products if self.levels[p.result] == level)
            phase.published = tuple(dict.fromkeys(self.origin(a) for a in self.left_operands(level + 1)))
            phase.writes = tuple(w for w in self.loop.writes if self._phase_of(w.value, last) == level)
        stored: dict[int, dict[Value, None]] = {phase.number: {} for phase in phases}
        read_later: set[Value] = set()
        for phase in reversed(phases):
            phase.stored = tuple(stored[phase.number])
            needed: dict[Value, None] = {}
            from_earlier: dict[Value, None] = {}
            self._collect_needed(phase.results, phase.number, needed, from_earlier)
            for value in from_earlier:
                stored[self.levels[value]].setdefault(value)
            phase.lines = tuple(
                line for line in self.loop.body if line.result in needed and not isinstance(line.operation, Contract)
            )
            if phase.number:
                read_later |= {self.origin(v) for v in phase.results}
                read_later |= {self.origin(v) for line in phase.lines for v in operands(line.operation)}
        return phases, read_later

    def _phase_of(self, value: Value, last: int) -> int:
        level = self.levels.get(value)
        return level if level or self.origin(value) in self.phase_0_values else last

    def _collect_needed(
        self, values: Iterable[Value], phase: int, needed: dict[Value, None], from_earlier: dict[Value, None]
    ) -> None:
        """Collect the values that a phase computes for some results, and those that it reads from earlier phases."""
        for value in map(self.origin, values):
            if value in needed or value not in self.line_of:
                continue
            level, operation = self.levels[value], self.line_of[value].operation
            if isinstance(operation, Stack | Block):
                self._collect_needed(operands(operation), phase, needed, from_earlier)
                needed[value] = None
            elif level < phase and (level or (value in self.phase_0_values and self.is_expensive[value])):
                from_earlier[value] = None
            else:
                needed[value] = None
                if not isinstance(operation, Contract):
                    self._collect_needed(operands(operation), phase, needed, from_earlier)

    def origin(self, value: Value) -> Value:
        """The value before `Reshape` changed its axes."""
        while (line := self.line_of.get(value)) and isinstance(line.operation, Reshape):
            value = line.operation.x
        return value

    def count_uses(self, phase: Phase) -> Counter[Value]:
        """Count how often a phase reads each value. Each result counts as read once."""
        uses = Counter(map(self.origin, phase.results))
        for line in phase.lines:
            # A stack or a block may be read gate by gate. Its operands count twice, so that they become variables.
            count_of_line = 2 if isinstance(line.operation, Stack | Block) else 1
            for v in operands(line.operation):
                uses[self.origin(v)] += count_of_line
        return uses

    def sums_over_steps(self, phase: Phase, uses: Counter[Value]) -> dict[Value, Line]:
        """The lines of a phase that only add to a carry, such as the gradient of a parameter, by their results."""
        lines = {}
        for carry in phase.carries:
            line = self.line_of.get(self.origin(carry.next))
            if line in phase.lines and uses[line.result] == 1 and carry.before in operands(line.operation):
                lines[line.result] = line
        return lines

    @cached_property
    def names(self) -> dict[Value, str]:
        """Names for values that the lowering has only numbered: gates of weights, left operands, product results."""
        loop, candidates = self.loop, list[tuple[Value, str]]()
        for line in self.program.before:
            match line.operation:
                case Block(x, axis, index) if self.axes[axis].labels and not is_numbered(x.name):
                    candidates.append((line.result, f"{x.name}_{self.axes[axis].labels[index]}"))
        for product in self.products:
            assert isinstance(product.operation, Contract)
            operand = self.origin(product.operation.a)
            candidates += [(operand, self._common_name(operand) or "operand"), (product.result, "product")]
        taken = {v.name for v in (*self.program.inputs.values(), *self.line_of, *self.carries, *self.reads)}
        names: dict[Value, str] = {}
        for value, name in candidates:
            if is_numbered(value.name) and value not in names:
                names[value] = next(n for n in chain([name], (f"{name}{k}" for k in count(2))) if n not in taken)
                taken.add(names[value])
        return names | {w.sequence: names[w.value] for w in loop.writes if w.value in names}

    def _common_name(self, value: Value) -> str | None:
        """The name that all gates of a stack share without their labels: "d_pre" for "d_i_pre" and "d_f_pre"."""
        line = self.line_of.get(value)
        if line is None or not isinstance(line.operation, Stack):
            return None
        labels = self.axes[line.operation.axis].labels
        parts = [self.origin(part).name for part in line.operation.values]
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
