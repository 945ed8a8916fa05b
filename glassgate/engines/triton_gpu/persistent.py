"""Writes all steps of a pass as one kernel whose weights and states stay on the chip.

In kernel B, each program computes some units, and all programs wait at a barrier after each phase. In kernel A, a
program computes all units of its rows, or those of one head, without a barrier.
"""

from collections.abc import Sequence
from functools import lru_cache

from glassgate.engines.lowering.ir import Block, Carry, Contract, Line, Stack, Value
from glassgate.engines.triton_gpu.emit import Writer
from glassgate.engines.triton_gpu.expressions import Text
from glassgate.engines.triton_gpu.kernel import Kernel
from glassgate.engines.triton_gpu.phases import Phase, Phases
from glassgate.engines.triton_gpu.products import Product


@lru_cache(1024)
def persistent(phases: Phases, title: str, ragged: bool, solo: bool, chunks: int) -> Kernel:
    """The kernel of a whole pass.

    Args:
        phases: the phases of the pass, with a product in each step.
        title: the first part of the kernel's name.
        ragged: whether the lengths of sequences differ.
        solo: whether one program computes all units (kernel A).
        chunks: the number of blocks of columns that a product is split into.
    """
    return _Persistent(phases, f"{title}_{'solo' if solo else 'grid'}", ragged, solo, chunks).whole()


class _Persistent(Writer):
    def __init__(self, phases: Phases, name: str, ragged: bool, solo: bool, chunks: int) -> None:
        self.numbers = ("T", "N", "H", "P", "heads", *(() if solo else ("arrived",)))
        super().__init__(phases, name, ragged, by_rows=False)
        self.solo, self.chunks = solo, chunks
        self.before: list[str] = []
        """Loads before the loop over time."""
        self.given: dict[object, Text] = {}

    def whole(self) -> Kernel:
        """The kernel: loads, phase 0 of the first step, then the loop over time."""
        first, *rest = self.phases.all
        states = self.initial_states()
        prologue = self.prologue(first)
        body: list[str] = []
        for phase in rest:
            body += self.part(phase, "iteration")
            if phase is rest[-1]:
                body += self.part(first, "iteration + 1")
            if not self.solo:
                body += self.barrier()
        body += self.next_states()
        if not self.solo:
            body = [*self.buffers()[1:], *body]
        self.used -= {"seq_now", "seq_next"}
        loads = ["", "# States, parameters and weights stay on the chip", *states, *self.columns(), *self.before]
        loop = ["", "for iteration in range(T):", *(f"    {line}" if line else "" for line in body)]
        self.out.body = [*self.indices(), *loads, *prologue, *loop, "", *self.final_states()]
        return self.out

    def initial_states(self) -> list[str]:
        """Loads of the carries before the first step."""
        lines = []
        for carry in self.loop.carries:
            address, mask = self.place("carry", carry.before, carry.before, None, row="seq")
            lines.append(f"{self.name(carry.before)} = tl.load({address}, {mask}, 0).to(tl.float32)")
        return lines

    def prologue(self, first: Phase) -> list[str]:
        """Phase 0 of the first step, and the barrier after it."""
        lines = self.part(first, "0")
        if self.solo:
            return lines
        return ["", "expected = 0", "patience = 50000000", "seq_next = seq", *lines, *self.barrier()]

    def part(self, phase: Phase, iteration: str) -> list[str]:
        """The lines of a phase of a step. Phase 0 runs one step ahead of the other phases."""
        self.ahead = not phase.number
        self.loads, self.body = [], []
        if self.ahead and iteration != "0":
            committed = {c.before for c in phase.carries}
        else:
            committed = {c.before for c in self.loop.carries}
        self.now = dict(self.given)
        for carry in self.loop.carries:
            name = self.name(carry.before)
            self.now[carry.before] = Text(name if carry.before in committed else f"{name}_next")
        self.products(phase.products)
        self.lines(phase)
        if self.ahead:  # at the end, because other lines may read the values before the step
            for carry in phase.carries:
                self.assigned(self.name(carry.before), Text(f"{self.name(carry.before)}_next"))
        return self.step(iteration)

    def next_states(self) -> list[str]:
        """The states of the next step. They become NaN if a program waited too long at a barrier."""
        early = {carry.before for carry in self.phases.all[0].carries}
        lines = ["", "# States of the next step"]
        for carry in self.loop.carries:
            name = self.name(carry.before)
            text = name if carry.before in early else f"{name}_next"
            if not self.solo:
                text = f'tl.where(patience > 0, {text}, float("nan"))'
            if name != text:
                lines.append(f"{name} = {text}")
        return lines

    def final_states(self) -> list[str]:
        """Stores of the carries after the last step."""
        lines = []
        for carry in self.loop.carries:
            address, mask = self.place("carry", carry.before, carry.before, None, row="(seq + (T & 1) * N)")
            lines.append(f"tl.store({address}, {self.name(carry.before)}, {mask})")
        return lines

    def barrier(self) -> list[str]:
        """The barrier of all programs."""
        return [
            "",
            "# Wait until all programs have published their units",
            "expected += tl.num_programs(0) * tl.num_programs(1)",
            "patience = barrier(arrived, expected, patience)",
        ]

    def columns(self) -> list[str]:
        """The lines that compute the indices of the columns of left operands."""
        return [f"column_{c} = {f'{c} * COLUMNS + ' if c else ''}tl.arange(0, COLUMNS)" for c in range(self.chunks)]

    def load(self, kind: str, value: Value, like: Value, variable: str, gate: int | None = None) -> Text:
        """Loads a value. Values from outside of the loop over time are loaded once."""
        if kind != "given":
            return super().load(kind, value, like, variable, gate)
        self.loads, inside = [], self.loads
        text = super().load(kind, value, like, variable, gate)
        self.before += self.loads
        self.loads = inside
        self.given[value if gate is None else (value, gate)] = text
        return text

    def first_use(self, value: Value, gate: int | None) -> Text:
        """The text of a value: results of earlier phases are variables."""
        line = self.phases.line.get(value)
        computed = line is not None and not isinstance(line.operation, Stack | Block)
        return Text(self.name(value, gate)) if computed else super().first_use(value, gate)

    def commit(self, carries: Sequence[Carry]) -> None:
        """Sets the variables of carries: in phase 0 those of the step itself, otherwise those of the next step."""
        following: dict[object, Text] = {}
        for carry in carries:
            name, text = self.name(carry.before), self.use(carry.next)
            if self.ragged or self.ahead:
                text = Text(f"tl.where({self.live}, {text.text}, {self.use(carry.before).text})")
            following[carry.before] = self.assigned(f"{name}_next", text)
        if not self.ahead:
            self.now.update(following)

    def store(self, kind: str, to: Value, value: Value) -> None:
        """Stores sequences and left operands. Other values stay in variables."""
        if kind == "stored":
            self.assigned(self.name(value), self.use(value))
        elif kind == "shared" and self.solo:
            units = self.units(value)
            assert units is not None
            weight = next(p.operation.b for p in self.phases.products if self.reads(p, value))  # type: ignore[union-attr]
            dtype = f"{self.pointer('weight', weight).parameter}.dtype.element_ty"
            for gate in self.gates(value):
                whole = f"tl.where(here & {units[2]}, {self.use(value, gate).text}, 0.0)"
                self.body.append(f"{self.left_name(value, gate)} = {whole}.to({dtype})")
        else:
            super().store(kind, to, value)

    def reads(self, product: Line, value: Value) -> bool:
        """Whether a value is a product's left operand."""
        operation = product.operation
        return isinstance(operation, Contract) and self.phases.origin(operation.a) is value

    def left_name(self, value: Value, gate: int | None) -> str:
        """The variable of a left operand in the type of products."""
        return f"{self.phases.name_of(value)}_left" + ("" if gate is None else f"_{gate}")

    def product(self, result: Value, product: Product) -> None:
        """One product with weights that were loaded before the loop over time."""
        left_value, weight_name = product.left_value, product.contract.b.name
        names = self.results(result, product)
        self.body += [f"{name} = tl.full((ROWS, UNITS), 0, tl.float32)" for name in dict.fromkeys(names)]
        by_gate = self.phases.gates_of(left_value) is not None
        if not self.solo:
            self.used.add("seq_now")
        for chunk in range(self.chunks):
            column = f"column_{chunk}"
            column_ok = f"({column} < {product.columns})"
            for gate, name in enumerate(names):
                weight = f"{weight_name}_{chunk}" + (f"_{gate}" if len(names) > 1 else "")
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
            self.out.pointers = [p for p in self.out.pointers if p.kind != "shared"]
