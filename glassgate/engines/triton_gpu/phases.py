"""Splits the loop of a pass at the points where all units must be available: before every recurrent product.

A *phase* is the part of a step between two such points. `emit.py` writes the phases as kernels.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count

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

CHEAP = 3
"""The largest number of elementwise operations of a value that other phases compute again instead of reading it."""


@dataclass(eq=False)
class Phase:
    """The part of a step between two points where all units must be available.

    Attributes:
        number: 0 for the part before the first product of a step. It runs at the end of the previous step.
        products: the matrix products that it starts with.
        lines: the other operations.
        stored: values that later phases of the step read at the same rows and units.
        published: the left operands of the next phase's products, which every unit reads.
        writes: the writes to sequences that it runs.
        carries: the carries whose next values it sets.
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
        """The values that it computes for later phases, steps or passes."""
        written, states = (write.value for write in self.writes), (carry.next for carry in self.carries)
        return [*self.stored, *self.published, *written, *states]


@dataclass(eq=False)
class Phases:
    """The phases of one pass.

    Args:
        program: the pass.

    Example:
        >>> import glassgate as gg
        >>> from glassgate.engines.lowering.forward import Form, forward_pass
        >>> from glassgate.engines.symbolic.step import equations_of
        >>> from glassgate.engines.symbolic.trace import build_trace
        >>> from glassgate.engines.triton_gpu.costs import COSTS
        >>> equations = equations_of(gg.cells.GRUv1())
        >>> len(Phases(forward_pass(equations, build_trace(equations, COSTS), Form())).all)  # r * h is an operand
        3
    """

    program: Pass
    line: dict[Value, Line] = field(init=False)
    level: dict[Value, int] = field(init=False)

    def __post_init__(self) -> None:
        loop = self.loop
        self.line = {line.result: line for line in loop.body}
        self.carries = {carry.before: carry for carry in loop.carries}
        self.reads: dict[Value, Read] = {read.at: read for read in loop.reads}
        self.level = dict.fromkeys([*self.carries, *self.reads], 0)
        for line in loop.body:
            level = max((self.level.get(v, 0) for v in operands(line.operation)), default=0)
            self.level[line.result] = level + isinstance(line.operation, Contract)

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
        return self.axes.number("K") or 1 if "K" in self.axes else 1

    @cached_property
    def by_rows(self) -> bool:
        """Whether some operation sums over the units of a row, so that a Triton program must own whole rows."""
        return any(isinstance(line.operation, Sum) for line in self.loop.body)

    @cached_property
    def products(self) -> list[Line]:
        """The matrix products of a step."""
        return [line for line in self.loop.body if isinstance(line.operation, Contract)]

    def left(self, level: int) -> list[Value]:
        """The left operands of the products of a level. The first products of a step have level 1."""
        contracts = [p.operation for p in self.products if self.level[p.result] == level]
        return [operation.a for operation in contracts if isinstance(operation, Contract)]

    @cached_property
    def widths(self) -> list[tuple[Line, str, str, bool]]:
        """For each product: the axes of the rows and columns of its matrix, and whether each head has its own block."""
        widths = []
        for product in self.products:
            assert isinstance(product.operation, Contract)
            *_, rows, inner = product.operation.b.type.axes
            by_head = "K" in product.operation.b.type.axes
            widths.append((product, self.units_of_axis(rows), self.units_of_axis(inner), by_head))
        return widths

    @cached_property
    def heavy(self) -> dict[Value, bool]:
        """For values before the first product (level 0): whether computing them again costs more than storing them."""
        computed_by: dict[Value, frozenset[Value]] = {}
        for line in self.loop.body:
            operations = frozenset(v for arg in operands(line.operation) for v in computed_by.get(arg, ()))
            own = {line.result} if isinstance(line.operation, Elementwise | Sum) else set()
            computed_by[line.result] = operations | own
        sums = {line.result for line in self.loop.body if isinstance(line.operation, Sum)}
        return {v: len(operations) > CHEAP or not sums.isdisjoint(operations) for v, operations in computed_by.items()}

    @cached_property
    def ahead(self) -> frozenset[Value]:
        """The values of phase 0: ancestors of the first products, and values of level 0 that read an expensive one."""
        values: set[Value] = set()
        self._add_ancestors(self.left(1), values)
        for line in self.loop.body:
            if self.level[line.result] == 0 and any(v in values and self.heavy[v] for v in operands(line.operation)):
                values.add(line.result)
        return frozenset(values)

    def _add_ancestors(self, values: Iterable[Value], ancestors: set[Value]) -> None:
        for value in values:
            if value in self.line and value not in ancestors:
                ancestors.add(value)
                self._add_ancestors(operands(self.line[value].operation), ancestors)

    @cached_property
    def all(self) -> list[Phase]:
        """The phases in the order in which a step runs them.

        Most carries get their next values in the last phase. Phase 0 sets those that it computes and that it alone
        reads, such as the sums of the gradients of parameters.
        """
        early = tuple(carry for carry in self.loop.carries if self.origin(carry.next) in self.ahead)
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
        last = max([1, *(self.level[p.result] for p in self.products)])
        phases = [Phase(number) for number in range(last + 1)]
        phases[last].carries = tuple(carry for carry in self.loop.carries if carry not in early)
        phases[0].carries = early
        for phase in phases:
            level = phase.number
            phase.products = tuple(p for p in self.products if self.level[p.result] == level)
            phase.published = tuple(dict.fromkeys(self.origin(a) for a in self.left(level + 1)))
            phase.writes = tuple(w for w in self.loop.writes if self._phase_of(w.value, last) == level)
        stored: dict[int, dict[Value, None]] = {phase.number: {} for phase in phases}
        read_later: set[Value] = set()
        for phase in reversed(phases):
            phase.stored = tuple(stored[phase.number])
            needed: dict[Value, None] = {}
            taken: dict[Value, None] = {}
            self._needed(phase.results, phase.number, needed, taken)
            for value in taken:
                stored[self.level[value]].setdefault(value)
            phase.lines = tuple(
                line for line in self.loop.body if line.result in needed and not isinstance(line.operation, Contract)
            )
            if phase.number:
                read_later |= {self.origin(v) for v in phase.results}
                read_later |= {self.origin(v) for line in phase.lines for v in operands(line.operation)}
        return phases, read_later

    def _phase_of(self, value: Value, last: int) -> int:
        level = self.level.get(value, 0)
        return level if level or self.origin(value) in self.ahead else last

    def _needed(self, values: Iterable[Value], phase: int, needed: dict[Value, None], taken: dict[Value, None]) -> None:
        """Collects the values that a phase computes for some results, and those of earlier phases that it reads."""
        for value in map(self.origin, values):
            if value in needed or value not in self.line:
                continue
            level, operation = self.level[value], self.line[value].operation
            if isinstance(operation, Stack | Block):
                self._needed(operands(operation), phase, needed, taken)
                needed[value] = None
            elif level < phase and (level or (value in self.ahead and self.heavy[value])):
                taken[value] = None
            else:
                needed[value] = None
                if not isinstance(operation, Contract):
                    self._needed(operands(operation), phase, needed, taken)

    def origin(self, value: Value) -> Value:
        """The value before all changes of its axes by `Reshape`."""
        while (line := self.line.get(value)) and isinstance(line.operation, Reshape):
            value = line.operation.x
        return value

    def uses(self, phase: Phase) -> Counter[Value]:
        """How often a phase reads each value, its results included."""
        uses = Counter(map(self.origin, phase.results))
        for line in phase.lines:
            # A stack or a block may be read gate by gate: its operands count twice, so that they become variables.
            often = 2 if isinstance(line.operation, Stack | Block) else 1
            for v in operands(line.operation):
                uses[self.origin(v)] += often
        return uses

    def sums_over_steps(self, phase: Phase, uses: Counter[Value]) -> dict[Value, Line]:
        """By result, the lines that only add to a carry, such as the gradient of a parameter."""
        lines = {}
        for carry in phase.carries:
            line = self.line.get(self.origin(carry.next))
            if line and uses[line.result] == 1 and carry.before in operands(line.operation):
                lines[line.result] = line
        return lines

    @cached_property
    def names(self) -> dict[Value, str]:
        """Names for values that the lowering numbers: gates of weights, and operands and results of matrix products."""
        loop, candidates = self.loop, list[tuple[Value, str]]()
        for line in self.program.before:
            match line.operation:
                case Block(x, axis, index) if self.axes[axis].labels and not is_numbered(x):
                    candidates.append((line.result, f"{x.name}_{self.axes[axis].labels[index]}"))
        for product in self.products:
            assert isinstance(product.operation, Contract)
            operand = self.origin(product.operation.a)
            candidates += [(operand, self._common_name(operand) or "operand"), (product.result, "product")]
        taken = {v.name for v in (*self.program.inputs.values(), *self.line, *self.carries, *self.reads)}
        names: dict[Value, str] = {}
        for value, name in candidates:
            if is_numbered(value) and value not in names:
                names[value] = next(n for n in chain([name], (f"{name}{k}" for k in count(2))) if n not in taken)
                taken.add(names[value])
        return names | {w.sequence: names[w.value] for w in loop.writes if w.value in names}

    def _common_name(self, value: Value) -> str | None:
        """The name that the gates of a stack share without their labels, e.g. "d_pre" for "d_i_pre" and "d_f_pre"."""
        line = self.line.get(value)
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
        """The axis of units by which programs divide a value: "H", "P", or None for one number per row."""
        return next((self.units_of_axis(axis) for axis in value.type.axes if axis in "HUPJV"), None)

    def units_of_axis(self, axis: str) -> str:
        """The axis "H" or "P" that has the extent of an axis. The axis may be the part of one head."""
        return "H" if axis in "HU" or "P" not in self.axes else "P"


def is_numbered(value: Value) -> bool:
    """Whether the lowering has given a value a number instead of a name."""
    return value.name[0] == "v" and value.name[1:].isdigit()
