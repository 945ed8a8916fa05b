"""Writes each phase of a pass as a Triton kernel. `phases.py` splits a pass, `launch.py` launches the kernels."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

from glassgate.engines.lowering.ir import (
    Block,
    Broadcast,
    Carry,
    Constant,
    Contract,
    Elementwise,
    Line,
    Size,
    Stack,
    Sum,
    Value,
)
from glassgate.engines.triton_gpu.addresses import Addresses
from glassgate.engines.triton_gpu.expressions import Text, elementwise, number
from glassgate.engines.triton_gpu.kernel import Kernel, Kernels
from glassgate.engines.triton_gpu.phases import Phase, Phases, is_numbered
from glassgate.engines.triton_gpu.products import Product

STAGES = 3
"""The number of stages of the pipeline that loads the operands of a product (Triton's `num_stages`)."""

LONGEST = 60
"""An unnamed result that only one line reads is written into that line if its text is shorter than this."""


@lru_cache(1024)
def kernels(phases: Phases, title: str, ragged: bool) -> Kernels:
    """The kernels of one pass, one per phase. The last kernel also runs phase 0 of the next step.

    Args:
        phases: the phases of the pass.
        title: the first part of the kernels' names.
        ragged: whether the lengths of sequences differ.
    """
    first, *rest = phases.all
    begin = None
    if first.published or first.writes:
        begin = Writer(phases, f"{title}_begin", ragged, phases.by_rows).kernel(None, (), first)
    steps = []
    for phase in rest:
        name = title if len(rest) == 1 else f"{title}_{phase.number}"
        ahead = first if phase is rest[-1] and begin else None
        if phases.by_rows and phase.products:
            steps.append(Writer(phases, f"{name}_products", ragged, False).kernel(None, phase.products, None))
            steps.append(Writer(phases, name, ragged, True).kernel(phase, (), ahead))
        else:
            steps.append(Writer(phases, name, ragged, phases.by_rows).kernel(phase, phase.products, ahead))
    return Kernels(begin, tuple(steps))


class Writer(Addresses):
    """Writes one kernel. `now` has the text of each value of this step."""

    def __init__(self, phases: Phases, name: str, ragged: bool, by_rows: bool) -> None:
        super().__init__(phases, name, ragged, by_rows)
        self.loads: list[str] = []
        self.body: list[str] = []
        self.defined_by = {line.result: line.operation for line in phases.program.before}
        self.now: dict[object, Text] = {}
        self.overwritten: set[str] = set()
        """The variables of this step that phase 0 of the next step computes again."""
        self.late: dict[Value, Line] = {}
        """Lines that are written next to the store of their result, so that it occupies no registers before."""

    def kernel(self, phase: Phase | None, products: Iterable[Line], ahead: Phase | None) -> Kernel:
        """Return the kernel of a phase: its products and lines, then phase 0 of the next step."""
        self.products(products)
        if phase is None:
            with self.section("The products, for the kernel that owns whole rows"):
                for line in products:
                    self.store("stored", line.result, line.result)
        else:
            self.overwritten = set() if ahead is None else {self.name(line.result) for line in ahead.lines}
            self.lines(phase)
        steps = self.step("iteration")
        if ahead is not None:
            self.ahead, self.loads, self.body = True, [], []
            self.now = {c.before: self.now[c.before] for c in self.loop.carries if c.before in self.now}
            self.lines(ahead)
            steps += self.step("iteration + 1")
        self.out.body = [*self.indices(), *steps]
        return self.out

    def step(self, iteration: str) -> list[str]:
        """The text of one step: its rows in sequences, its loads, and the other lines written since the last call."""
        rows = self.rows_of_step(iteration) if self.used & {"row", "live"} else []
        self.used -= {"row", "live"}
        inputs = [*rows, *self.loads]
        if inputs:
            which = {"iteration": "step", "iteration + 1": "next step", "0": "first step"}[iteration]
            inputs = ["", f"# Inputs of the {which}", *inputs]
        return [*inputs, *self.body]

    @contextmanager
    def section(self, title: str) -> Iterator[None]:
        """Puts a comment above the lines that the block writes, if there are any."""
        start = len(self.body)
        yield
        if len(self.body) > start:
            self.body[start:start] = ["", f"# {title}"]

    # Values.

    def load(self, kind: str, value: Value, like: Value, variable: str, gate: int | None = None) -> Text:
        """Loads a value into a variable."""
        address, mask = self.place(kind, value, like, gate)
        rest = f", {mask}, 0" if mask else ""
        up = " != 0" if like.type.dtype == "bool" else ".to(tl.float32)"
        # A kernel that owns whole rows has many values. It loads carries when it needs them.
        lines = self.body if self.out.by_rows and kind == "carry" else self.loads
        lines.append(f"{variable} = tl.load({address}{rest}){up}")
        return Text(variable)

    def use(self, value: Value | float, gate: int | None = None) -> Text:
        """The text of a value that lines read. If it is in memory, it is loaded first."""
        if not isinstance(value, Value):
            return number(value)
        value = self.phases.origin(value)
        key = value if gate is None else (value, gate)
        if key not in self.now:
            self.now[key] = self.first_use(value, gate)
        return self.now[key]

    def first_use(self, value: Value, gate: int | None) -> Text:
        """The text of a value that this step has not read yet."""
        line = self.phases.line.get(value)
        if value in self.late and (text := self.operation(self.late[value])):
            return text
        if line is not None and isinstance(line.operation, Stack):
            assert gate is not None
            return self.use(line.operation.values[gate])
        if line is not None and isinstance(line.operation, Block):
            return self.use(line.operation.x, line.operation.at)
        variable = self.name(value, gate)
        if value in self.phases.carries:
            return self.load("carry", value, value, variable)
        if value in self.phases.reads:
            return self.load("sequence", self.phases.reads[value].sequence, value, variable, gate)
        if line is not None:
            return self.load("stored", value, value, variable, gate)
        return self.constant(value) or self.load("given", value, value, variable, gate)

    def constant(self, value: Value) -> Text | None:
        """The text of a value from outside of the loop that is a number or an extent."""
        match self.defined_by.get(value):
            case Constant(value_of_constant):
                return number(value_of_constant)
            case Size(axis):
                return Text(axis)
            case Broadcast(x, _):
                return self.constant(x)
        return None

    # Operations.

    def lines(self, phase: Phase) -> None:
        """The lines of a phase, and the stores of their results."""
        uses = self.phases.uses(phase)
        self.late = self.phases.sums_over_steps(phase, uses) if self.out.by_rows else {}
        with self.section("The equations"):
            for line in phase.lines:
                text = None if line.result in self.late else self.operation(line)
                if text is None:
                    continue
                inline = uses[line.result] == 1 and is_numbered(line.result) and len(text.text) < LONGEST
                self.now[line.result] = text if inline else self.assigned(self.name(line.result), text)
        with self.section("Results of the step, and values for later phases"):
            for write in phase.writes:
                self.store("sequence", write.sequence, write.value)
            for value in phase.stored:
                self.store("stored", value, value)
        with self.section("States of the next step"):
            self.commit(phase.carries)
        with self.section("Left operands of the next products"):
            for value in phase.published:
                self.store("shared", value, value)

    def operation(self, line: Line) -> Text | None:
        """The text of one operation; None if it only changes axes."""
        match line.operation:
            case Elementwise(op, args):
                return elementwise(op, [self.use(arg) for arg in args])
            case Sum(x, _):
                units = self.units(x)
                assert units is not None
                return Text(f"row_sum(tl.where({units[2]}, {self.use(x).text}, 0.0))")
            case Broadcast(x, _):
                return Text(f"tl.broadcast_to({self.use(x).text}, (ROWS, UNITS))")
        return None

    def assigned(self, name: str, text: Text) -> Text:
        """Gives a variable its value."""
        if name != text.text:
            self.body.append(f"{name} = {text.text}")
        return Text(name)

    def commit(self, carries: Sequence[Carry]) -> None:
        """Stores the next values of carries. Phase 0 of the next step reads them in the same kernel."""
        following: dict[object, Text] = {}
        for carry in carries:
            following[carry.before] = text = self.following(carry)
            row = "seq_now" if self.ahead else "seq_next"
            address, mask = self.place("carry", carry.before, carry.before, None, row)
            self.body.append(f"tl.store({address}, {text.text}, {mask})")
        if not self.ahead:
            self.now.update(following)

    def following(self, carry: Carry) -> Text:
        """The next value of a carry: the old one where a sequence has ended.

        Phase 0 of the next step may read it after it has given other variables of this step new values, so that the
        text must be a variable of its own.
        """
        text, name = self.use(carry.next), f"{self.name(carry.before)}_next"
        if self.ragged:
            return self.assigned(name, Text(f"tl.where({self.live}, {text.text}, {self.use(carry.before).text})"))
        is_safe = text.text.isidentifier() and text.text not in self.overwritten
        return text if self.ahead or is_safe else self.assigned(name, text)

    def store(self, kind: str, to: Value, value: Value) -> None:
        """Stores a value, gate by gate if it has gates."""
        for gate in self.gates(value):
            address, mask = self.place(kind, to, value, gate)
            self.body.append(f"tl.store({address}, {self.use(value, gate).text}, {mask})")

    # Products.

    def products(self, products: Iterable[Line]) -> None:
        """Matrix products of this step: each program computes its own rows and units."""
        for line in products:
            contract = line.operation
            assert isinstance(contract, Contract)
            product = self.operands(line.result, contract)
            with self.section(f"{self.phases.name_of(line.result)} = {product.formula}"):
                self.product(line.result, product)

    def product(self, result: Value, product: Product) -> None:
        """One product: a loop over the columns of the left operand."""
        names = self.results(result, product)
        self.out.gates = max(self.out.gates, len(names))
        self.used.add("seq_now")
        self.body += [f"{name} = tl.full((ROWS, UNITS), 0, tl.float32)" for name in dict.fromkeys(names)]
        self.body += [
            f"for block in tl.range(0, {product.columns}, COLUMNS, num_stages={STAGES}):",
            "    column = block + tl.arange(0, COLUMNS)",
            f"    column_ok = column < {product.columns}",
        ]
        for gate, name in enumerate(names):
            if product.over_gates or not gate:
                left = product.left(gate, "column", "seq_now")
                self.body.append(f"    left = tl.load({left}, here & column_ok[None, :], 0)")
            self.body += [
                f"    right = tl.load({product.right(gate, 'column')}, {product.unit}_ok & column_ok[:, None], 0)",
                f"    {name} = tl.dot(left, right, {name}, input_precision=PRECISION)",
            ]

    def operands(self, result: Value, contract: Contract) -> Product:
        """The operands of a product."""
        units = self.units(result)
        assert units is not None
        shared = self.pointer("shared", self.phases.origin(contract.a))
        weight = self.pointer("weight", contract.b)
        return Product(self.phases, contract, units[1], shared.parameter, weight.parameter)

    def results(self, result: Value, product: Product) -> list[str]:
        """The variable of each gate's product. Gates that are summed have the same variable."""
        by_gate = product.gate_axis is not None and not product.over_gates
        names = [self.name(result, gate if by_gate else None) for gate in product.gates]
        for gate, name in enumerate(names):
            self.now[(result, gate) if by_gate else result] = Text(name)
        return names
