"""Writes kernels A and B, which run all steps of a pass in one launch, with weights and states on the chip.

In kernel A, a program computes all units of some rows, or all units of one head, without barriers. In kernel B, a
program computes some units, and all programs wait at a barrier after each phase.
"""

from collections.abc import Sequence
from functools import lru_cache

from glassgate.engines.lowering.expressions import Expression
from glassgate.engines.lowering.ir import Block, Carry, Stack, Value
from glassgate.engines.triton_gpu.emit import Writer
from glassgate.engines.triton_gpu.kernel import Kernel
from glassgate.engines.triton_gpu.phases import Phase, Phases
from glassgate.engines.triton_gpu.products import Product


@lru_cache(1024)
def write_persistent_kernel(phases: Phases, title: str, ragged: bool, solo: bool, chunks: int) -> Kernel:
    """Write kernel A or B for a pass.

    Args:
        phases: the phases of the pass, with a product in each step.
        title: the first part of the kernel's name.
        ragged: whether the lengths of sequences differ.
        solo: whether to write kernel A, not kernel B.
        chunks: the number of blocks of columns that a product is split into.
    """
    return _PersistentWriter(phases, f"{title}_{'solo' if solo else 'grid'}", ragged, solo, chunks).write_whole_pass()


class _PersistentWriter(Writer):
    def __init__(self, phases: Phases, name: str, ragged: bool, solo: bool, chunks: int) -> None:
        self.other_parameters = ("T", "N", "H", "P", "heads", *(() if solo else ("arrived",)))
        super().__init__(phases, name, ragged, by_rows=False)
        self.solo, self.chunks = solo, chunks
        self.columns = [self.names.new(f"column_{chunk}") for chunk in range(chunks)]
        """The variables with the indices of the columns of left operands, by chunk."""
        self.before: list[str] = []
        """Lines before the loop over time, which load weights and other values that do not change."""
        self.given: dict[object, Expression] = {}
        """The expressions of the values that `before` loads."""

    def write_whole_pass(self) -> Kernel:
        """Write the loads, phase 0 of the first step, the loop over time, and the stores of the final states."""
        first, *rest = self.phases.all
        states = self.initial_states()
        prologue = self.prologue(first)
        body: list[str] = []
        for phase in rest:
            body += self.phase_lines(phase, "iteration")
            if phase is rest[-1]:
                body += self.phase_lines(first, "iteration + 1")
            if not self.solo:
                body += self.barrier()
        body += self.next_states()
        if not self.solo:
            body = [*self.buffer_lines()[1:], *body]
        self.used_variables -= {"seq_now", "seq_next"}
        loads = ["", "# States, parameters and weights stay on the chip", *states, *self.column_lines(), *self.before]
        loop = ["", "for iteration in range(T):", *(f"    {line}" if line else "" for line in body)]
        self.kernel.body = [*self.index_lines(), *loads, *prologue, *loop, "", *self.final_states()]
        return self.kernel

    def initial_states(self) -> list[str]:
        """The lines that load the carries before the first step."""
        lines = []
        for carry in self.loop.carries:
            address, mask = self.address_and_mask("carry", carry.before, carry.before, None, row="seq")
            lines.append(f"{self.variable_of(carry.before)} = tl.load({address}, {mask}, 0).to(tl.float32)")
        return lines

    def prologue(self, first: Phase) -> list[str]:
        """The lines of phase 0 of the first step, and of the barrier after it."""
        lines = self.phase_lines(first, "0")
        if self.solo:
            return lines
        return ["", "expected = 0", "patience = 50000000", "seq_next = seq", *lines, *self.barrier()]

    def phase_lines(self, phase: Phase, iteration: str) -> list[str]:
        """The lines of a phase of a step. Phase 0 runs one step ahead of the other phases."""
        self.is_next_step = not phase.level
        self.loads, self.body = [], []
        if self.is_next_step and iteration != "0":
            current = {c.before for c in phase.carries}
        else:
            current = {c.before for c in self.loop.carries}
        self.expressions = dict(self.given)
        for carry in self.loop.carries:
            is_current = carry.before in current
            name = self.variable_of(carry.before) if is_current else self.next_variable_of(carry)
            self.expressions[carry.before] = Expression(name)
        self.write_products(phase.products)
        self.write_lines(phase)
        if self.is_next_step:  # at the end, because other lines may read the values before the step
            for carry in phase.carries:
                self.assign(self.variable_of(carry.before), Expression(self.next_variable_of(carry)))
        return self.step_lines(iteration)

    def next_states(self) -> list[str]:
        """The lines that set the states of the next step. States are NaN if a program waited too long at a barrier."""
        early = {carry.before for carry in self.phases.all[0].carries}
        lines = ["", "# States of the next step"]
        for carry in self.loop.carries:
            name = self.variable_of(carry.before)
            text = name if carry.before in early else self.next_variable_of(carry)
            if not self.solo:
                text = f'tl.where(patience > 0, {text}, float("nan"))'
            if name != text:
                lines.append(f"{name} = {text}")
        return lines

    def final_states(self) -> list[str]:
        """The lines that store the carries after the last step."""
        lines = []
        for carry in self.loop.carries:
            address, mask = self.address_and_mask("carry", carry.before, carry.before, None, row="(seq + (T & 1) * N)")
            lines.append(f"tl.store({address}, {self.variable_of(carry.before)}, {mask})")
        return lines

    def barrier(self) -> list[str]:
        """The lines of the barrier of all programs."""
        return [
            "",
            "# Wait until all programs have published their units",
            "expected += tl.num_programs(0) * tl.num_programs(1)",
            "patience = barrier(arrived, expected, patience)",
        ]

    def column_lines(self) -> list[str]:
        """The lines that compute the indices of the columns of left operands."""
        return [
            f"{name} = {f'{c} * COLUMNS + ' if c else ''}tl.arange(0, COLUMNS)" for c, name in enumerate(self.columns)
        ]

    def load(self, kind: str, value: Value, like: Value, variable: str, gate: int | None = None) -> Expression:
        """Write a line that loads a value. Values from outside of the loop over time are loaded before the loop."""
        if kind != "given":
            return super().load(kind, value, like, variable, gate)
        self.loads, loads_in_loop = [], self.loads
        expression = super().load(kind, value, like, variable, gate)
        self.before += self.loads
        self.loads = loads_in_loop
        self.given[value if gate is None else (value, gate)] = expression
        return expression

    def new_expression_of(self, value: Value, gate: int | None) -> Expression:
        """The expression of a value. Results of earlier phases are variables."""
        is_variable = value in self.operations and not isinstance(self.operations[value], Stack | Block)
        return Expression(self.variable_of(value, gate)) if is_variable else super().new_expression_of(value, gate)

    def commit(self, carries: Sequence[Carry]) -> None:
        """Assign the next values of carries to variables."""
        next_values: dict[object, Expression] = {}
        for carry in carries:
            expression = self.expression_of(carry.next)
            if self.ragged or self.is_next_step:
                expression = Expression(
                    f"tl.where({self.live}, {expression.text}, {self.expression_of(carry.before).text})"
                )
            next_values[carry.before] = self.assign(self.next_variable_of(carry), expression)
        if not self.is_next_step:
            self.expressions.update(next_values)

    def store(self, kind: str, to: Value, value: Value) -> None:
        """Write lines that store a sequence or, in kernel B, a left operand. Other values stay in variables."""
        if kind == "stored":
            self.assign(self.variable_of(value), self.expression_of(value))
        elif kind == "shared" and self.solo:
            units = self.unit_variables(value)
            assert units is not None
            product = next(each for each in self.phases.products if value in self.phases.operands(each))
            weight = self.phases.contract(product).b
            dtype = f"{self.pointer('weight', weight).parameter}.dtype.element_ty"
            for gate in self.gate_indices(value):
                whole = f"tl.where(here & {units[2]}, {self.expression_of(value, gate).text}, 0.0)"
                self.body.append(f"{self.left_name(value, gate)} = {whole}.to({dtype})")
        else:
            super().store(kind, to, value)

    def left_name(self, value: Value, gate: int | None) -> str:
        """The variable with a left operand in the dtype of products."""
        name = f"{self.phases.name_of(value)}_left" + ("" if gate is None else f"_{gate}")
        return self.variable(name, "left", value, gate)

    def write_product(self, result: Value, product: Product) -> None:
        """Write one product, with weights that are loaded before the loop over time."""
        left_value = product.left_value
        names = self.name_results(result, product)
        self.body += [f"{name} = tl.full((ROWS, UNITS), 0, tl.float32)" for name in dict.fromkeys(names)]
        by_gate = self.phases.gates_of(left_value) is not None
        if not self.solo:
            self.used_variables.add("seq_now")
        for chunk in range(self.chunks):
            column = self.columns[chunk]
            column_ok = f"({column} < {product.columns})"
            for gate, name in enumerate(names):
                weight = f"{product.contract.b.name}_{chunk}" + (f"_{gate}" if len(names) > 1 else "")
                weight = self.variable(weight, result, "weight", chunk, gate)
                inside = f"{product.unit}_ok & {column_ok}[:, None]"
                self.before.append(f"{weight} = tl.load({product.right(gate, column)}, {inside}, 0)")
                if self.solo:
                    left = self.left_name(left_value, gate if by_gate else None)
                else:
                    left = "left"
                    if product.over_gates or not gate:
                        inside, address = f"here & {column_ok}[None, :]", product.left(gate, column, "seq_now")
                        self.body.append(f'left = tl.load({address}, {inside}, 0, cache_modifier=".cg")')
                self.body.append(f"{name} = tl.dot({left}, {weight}, {name}, input_precision=PRECISION)")
        if self.solo:
            self.kernel.pointers = [p for p in self.kernel.pointers if p.kind != "shared"]
