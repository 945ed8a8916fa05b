"""Writes each phase of a pass as a Triton kernel. `phases.py` divides a step, `launch.py` launches kernels."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

from glassgate.engines.lowering.expressions import Expression, is_numbered
from glassgate.engines.lowering.ir import (
    Block,
    Broadcast,
    Carry,
    Constant,
    Elementwise,
    Size,
    Stack,
    Sum,
    Value,
)
from glassgate.engines.triton_gpu.addresses import Addresses
from glassgate.engines.triton_gpu.dialect import TRITON
from glassgate.engines.triton_gpu.kernel import Kernel, StepKernels
from glassgate.engines.triton_gpu.phases import Phase, Phases
from glassgate.engines.triton_gpu.products import Product

STAGES = 3
"""The number of stages of the pipeline that loads the operands of a product (Triton's `num_stages`)."""

MAX_INLINE_LENGTH = 60
"""The expression of an unnamed result that is read once is inlined if its text is shorter than this."""


@lru_cache(1024)
def write_step_kernels(phases: Phases, title: str, ragged: bool) -> StepKernels:
    """Write the kernels of one pass, one per phase. The last kernel also runs phase 0 of the next step.

    Phase 0 is the part of a step before its first product. If a program must compute whole rows, the products of a
    phase are a separate kernel.

    Args:
        phases: the phases of the pass.
        title: the first part of the kernels' names.
        ragged: whether the lengths of sequences differ.
    """
    first, *rest = phases.all
    begin = None
    if first.published or first.writes:
        begin = Writer(phases, f"{title}_begin", ragged, phases.by_rows).write_kernel(None, (), first)
    steps = []
    for phase in rest:
        name = title if len(rest) == 1 else f"{title}_{phase.level}"
        ahead = first if phase is rest[-1] and begin else None
        if phases.by_rows and phase.products:
            steps.append(Writer(phases, f"{name}_products", ragged, False).write_kernel(None, phase.products, None))
            steps.append(Writer(phases, name, ragged, True).write_kernel(phase, (), ahead))
        else:
            steps.append(Writer(phases, name, ragged, phases.by_rows).write_kernel(phase, phase.products, ahead))
    return StepKernels(begin, tuple(steps))


class Writer(Addresses):
    """Writes one kernel."""

    def __init__(self, phases: Phases, name: str, ragged: bool, by_rows: bool) -> None:
        super().__init__(phases, name, ragged, by_rows)
        self.loads: list[str] = []
        self.body: list[str] = []
        self.operations, self.defined_by = phases.operations, phases.graph.before
        self.expressions: dict[object, Expression] = {}
        """The expression of each value of this step that has been read or computed."""
        self.overwritten: set[str] = set()
        """The variables of this step that phase 0 of the next step computes again."""
        self.deferred: set[Value] = set()
        """The values that are computed only where they are stored. Until then, they occupy no registers."""

    def write_kernel(self, phase: Phase | None, products: Iterable[Value], ahead: Phase | None) -> Kernel:
        """Write the kernel of a phase: its products and operations, then `ahead`, which is phase 0 of the next step."""
        self.write_products(products)
        if phase is None:
            with self.section("The products, for the kernel that owns whole rows"):
                for product in products:
                    self.store("stored", product, product)
        else:
            self.overwritten = set() if ahead is None else {*map(self.variable_of, ahead.computed)}
            self.write_lines(phase)
        steps = self.step_lines("iteration")
        if ahead is not None:
            self.is_next_step, self.loads, self.body = True, [], []
            self.expressions = {
                c.before: self.expressions[c.before] for c in self.loop.carries if c.before in self.expressions
            }
            self.write_lines(ahead)
            steps += self.step_lines("iteration + 1")
        self.kernel.body = [*self.index_lines(), *steps]
        return self.kernel

    def step_lines(self, iteration: str) -> list[str]:
        """The lines of one step: the computation of its rows, its loads, and `body`."""
        rows = self.row_lines(iteration) if self.used_variables & {"row", "live"} else []
        self.used_variables -= {"row", "live"}
        inputs = [*rows, *self.loads]
        if inputs:
            step = {"iteration": "step", "iteration + 1": "next step", "0": "first step"}[iteration]
            inputs = ["", f"# Inputs of the {step}", *inputs]
        return [*inputs, *self.body]

    @contextmanager
    def section(self, title: str) -> Iterator[None]:
        """Put a comment above the lines that the `with` block writes, if there are any."""
        start = len(self.body)
        yield
        if len(self.body) > start:
            self.body[start:start] = ["", f"# {title}"]

    # Values.

    def load(self, kind: str, value: Value, like: Value, variable: str, gate: int | None = None) -> Expression:
        """Write a line that loads a value into a variable."""
        address, mask = self.address_and_mask(kind, value, like, gate)
        mask_and_default = f", {mask}, 0" if mask else ""
        conversion = " != 0" if like.type.dtype == "bool" else ".to(tl.float32)"
        # A program that computes whole rows has many values. It loads carries only when it needs them.
        lines = self.body if self.kernel.by_rows and kind == "carry" else self.loads
        lines.append(f"{variable} = tl.load({address}{mask_and_default}){conversion}")
        return Expression(variable)

    def expression_of(self, value: Value | float, gate: int | None = None) -> Expression:
        """The expression of a value. If the value is in memory, it is loaded first."""
        if not isinstance(value, Value):
            return TRITON.number(value)
        value = self.phases.graph.origin(value)
        key = value if gate is None else (value, gate)
        if key not in self.expressions:
            self.expressions[key] = self.new_expression_of(value, gate)
        return self.expressions[key]

    def new_expression_of(self, value: Value, gate: int | None) -> Expression:
        """The expression of a value that this step has not read yet."""
        operation = self.operations.get(value)
        if value in self.deferred and (expression := self.operation_expression(value)):
            return expression
        if isinstance(operation, Stack):
            assert gate is not None
            return self.expression_of(operation.values[gate])
        if isinstance(operation, Block):
            return self.expression_of(operation.x, operation.at)
        variable = self.variable_of(value, gate)
        if value in self.phases.carries:
            return self.load("carry", value, value, variable)
        if value in self.phases.reads:
            return self.load("sequence", self.phases.reads[value].sequence, value, variable, gate)
        if operation is not None:
            return self.load("stored", value, value, variable, gate)
        return self.constant_expression(value) or self.load("given", value, value, variable, gate)

    def constant_expression(self, value: Value) -> Expression | None:
        """The expression of a number or an extent from outside of the loop; None for other values."""
        match self.defined_by.get(value):
            case Constant(number):
                return TRITON.number(number)
            case Size(axis):
                return Expression(axis)
            case Broadcast(x, _):
                return self.constant_expression(x)
        return None

    # Operations.

    def write_lines(self, phase: Phase) -> None:
        """Write the equations of a phase, and the stores of its results."""
        uses = self.phases.count_uses(phase)
        self.deferred = self.phases.sums_over_steps(phase, uses) if self.kernel.by_rows else set()
        with self.section("The equations"):
            for value in phase.computed:
                expression = None if value in self.deferred else self.operation_expression(value)
                if expression is None:
                    continue
                is_short = len(expression.text) < MAX_INLINE_LENGTH
                inline = is_short and uses[value] == 1 and is_numbered(value.name)
                self.expressions[value] = expression if inline else self.assign(self.variable_of(value), expression)
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

    def operation_expression(self, value: Value) -> Expression | None:
        """The expression of the operation of a value; None if it only changes axes."""
        match self.operations[value]:
            case Elementwise(op, args):
                return TRITON.apply(op, [self.expression_of(arg) for arg in args])
            case Sum(x, _):
                units = self.unit_variables(x)
                assert units is not None
                return Expression(f"row_sum(tl.where({units[2]}, {self.expression_of(x).text}, 0.0))")
            case Broadcast(x, _):
                return Expression(f"tl.broadcast_to({self.expression_of(x).text}, (ROWS, UNITS))")
        return None

    def assign(self, name: str, expression: Expression) -> Expression:
        """Write an assignment to a variable, and return the variable."""
        if name != expression.text:
            self.body.append(f"{name} = {expression.text}")
        return Expression(name)

    def commit(self, carries: Sequence[Carry]) -> None:
        """Write lines that store the next values of carries. Phase 0 of the next step reads them in this kernel."""
        next_values: dict[object, Expression] = {}
        for carry in carries:
            next_values[carry.before] = expression = self.next_value(carry)
            row = "seq_now" if self.is_next_step else "seq_next"
            address, mask = self.address_and_mask("carry", carry.before, carry.before, None, row)
            self.body.append(f"tl.store({address}, {expression.text}, {mask})")
        if not self.is_next_step:
            self.expressions.update(next_values)

    def next_value(self, carry: Carry) -> Expression:
        """The next value of a carry. Where a sequence has ended, it is the old value.

        Phase 0 of the next step may overwrite variables of this step before it reads the next value of the carry. An
        expression with such a variable is therefore assigned to a separate variable.
        """
        expression, name = self.expression_of(carry.next), self.next_variable_of(carry)
        if self.ragged:
            return self.assign(
                name, Expression(f"tl.where({self.live}, {expression.text}, {self.expression_of(carry.before).text})")
            )
        is_safe = expression.text.isidentifier() and expression.text not in self.overwritten
        return expression if self.is_next_step or is_safe else self.assign(name, expression)

    def store(self, kind: str, to: Value, value: Value) -> None:
        """Write lines that store a value, gate by gate if it has gates."""
        for gate in self.gate_indices(value):
            address, mask = self.address_and_mask(kind, to, value, gate)
            self.body.append(f"tl.store({address}, {self.expression_of(value, gate).text}, {mask})")

    # Products.

    def write_products(self, products: Iterable[Value]) -> None:
        """Write matrix products of this step. Each program computes its own rows and units."""
        for value in products:
            product = self.make_product(value)
            with self.section(f"{self.phases.name_of(value)} = {product.formula}"):
                self.write_product(value, product)

    def write_product(self, result: Value, product: Product) -> None:
        """Write one product: a loop over the columns of the left operand."""
        names = self.name_results(result, product)
        self.kernel.max_gates = max(self.kernel.max_gates, len(names))
        self.used_variables.add("seq_now")
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

    def make_product(self, result: Value) -> Product:
        """Return the product with the addresses of its operands."""
        units, contract = self.unit_variables(result), self.phases.contract(result)
        assert units is not None
        shared = self.pointer("shared", self.phases.graph.origin(contract.a))
        weight = self.pointer("weight", contract.b)
        return Product(self.phases, contract, units[1], shared.parameter, weight.parameter)

    def name_results(self, result: Value, product: Product) -> list[str]:
        """Name the variable of the product of each gate. Gates that are summed have the same variable."""
        by_gate = product.gate_axis is not None and not product.over_gates
        names = [self.variable_of(result, gate if by_gate else None) for gate in product.gates]
        for gate, name in enumerate(names):
            self.expressions[(result, gate) if by_gate else result] = Expression(name)
        return names
