"""Writes all steps of a pass as one kernel whose weights and states stay on the chip.

In kernel B, programs own units and wait at a barrier after each phase. In kernel A, one program owns all units of its
rows (of one head), without a barrier.
"""

from glassgate.engines.lowering.ir import Block, Contract, Line, Stack, Value
from glassgate.engines.triton_gpu.emit import Writer
from glassgate.engines.triton_gpu.kernel import Kernel
from glassgate.engines.triton_gpu.phases import Phase, Phases


def persistent(phases: Phases, title: str, ragged: bool, solo: bool, chunks: int) -> Kernel:
    """The kernel of a whole pass.

    Args:
        phases: the phases of the pass.
        title: the first part of the kernel's name.
        ragged: whether sequences have lengths of their own.
        solo: whether one program owns all units (kernel A).
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
        self.given: dict[object, str] = {}

    def whole(self) -> Kernel:
        """The kernel: loads, phase 0 of the first step, then the loop over time."""
        for carry in self.loop.carries:
            super().load("carry", carry.before, carry.before, self.name(carry.before))
        self.before += [line.replace("seq_now", "seq") for line in self.loads]
        first, *rest = self.phases.all
        begins = bool(first.published or first.writes)
        prologue = self.part(first, "0", ahead=True) if begins else []
        body: list[str] = []
        for phase in rest:
            ahead = begins and phase.commits
            body += self.part(phase, "iteration")
            if ahead:
                body += self.part(first, "iteration + 1", ahead=True, carried="_next")
            if not self.solo and (phase.published or (ahead and first.published)):
                body += self.barrier()
        carried = [(self.name(carry.before), carry) for carry in self.loop.carries]
        meets = not self.solo and begins
        ends, self.ahead = list[str](), False
        for name, carry in carried:
            body.append(
                f"{name} = " + (f'tl.where(patience > 0, {name}_next, float("nan"))' if meets else f"{name}_next")
            )
            address, mask = self.place("carry", carry.before, carry.before, None)
            ends.append(f"tl.store({address.replace('seq_now', '(seq + T % 2 * N)')}, {name}, {mask})")
        self.used -= {"seq_now", "seq_next"}
        lines = [*self.indices(), *self.columns(), *self.before]
        if meets:
            prologue = ["expected = 0", "patience = 50000000", *prologue, *self.barrier()]
        loop = ["for iteration in range(T):"]
        if not self.solo:
            loop += ["    seq_now = seq + iteration % 2 * N", "    seq_next = seq + (iteration + 1) % 2 * N"]
            prologue = ["seq_next = seq", *prologue] if begins else prologue
        lines += [*prologue, *loop, *(f"    {line}" for line in body), *ends]
        self.out.body = lines
        return self.out

    def part(self, phase: Phase, iteration: str, ahead: bool = False, carried: str = "") -> list[str]:
        """The lines of one phase of one step."""
        states: dict[object, str] = {carry.before: self.name(carry.before) + carried for carry in self.loop.carries}
        self.now, self.loads, self.body, self.ahead = {**self.given, **states}, [], [], ahead
        self.used -= {"row", "live"}
        self.products(phase.products, store=False)
        self.lines(phase)
        rows = self.rows_of_step(iteration) if self.used & {"row", "live"} else []
        return [*rows, *self.loads, *self.body]

    def rows_of_step(self, iteration: str) -> list[str]:
        """As in kernels of one step; the number of the first step is 0."""
        lines = super().rows_of_step(iteration)
        return [line.replace("T - 2 - iteration", "T - 1") if iteration == "0" else line for line in lines]

    def barrier(self) -> list[str]:
        """The barrier of all programs."""
        return [
            "expected += tl.num_programs(0) * tl.num_programs(1)",
            "patience = barrier(arrived, expected, patience)",
        ]

    def columns(self) -> list[str]:
        """The columns of the left operands."""
        if not self.phases.products:
            return []
        return [f"column_{c} = {f'{c} * COLUMNS + ' if c else ''}tl.arange(0, COLUMNS)" for c in range(self.chunks)]

    def load(self, kind: str, value: Value, like: Value, variable: str, gate: int | None = None) -> str:
        """Loads a value. Values from outside of the loop over time are loaded once."""
        if kind != "given":
            return super().load(kind, value, like, variable, gate)
        self.loads, inside = [], self.loads
        super().load(kind, value, like, variable, gate)
        self.before += self.loads
        self.loads = inside
        self.given[value if gate is None else (value, gate)] = variable
        return variable

    def found(self, value: Value, gate: int | None) -> str:
        """The text of a value: results of earlier phases are variables."""
        line = self.phases.line.get(value)
        computed = line is not None and not isinstance(line.operation, Stack | Block)
        return self.name(value, gate) if computed else super().found(value, gate)

    def store(self, kind: str, to: Value, value: Value, text: str | None = None) -> None:
        """Stores sequences and left operands; everything else stays in variables."""
        if kind == "sequence":
            super().store(kind, to, value, text)
        elif kind == "stored":
            self.assign(self.name(value), self.use(value))
        elif kind == "shared" and self.solo:
            axis, units = self.phases.gates_of(value), self.units(value)
            assert units is not None
            for gate in range(len(self.axes[axis].labels)) if axis else (None,):
                whole = f"tl.where(here & {units[2]}, {self.use(value, gate)}, 0.0)"
                weight = next(p.operation.b for p in self.phases.products if self.reads(p, value))  # type: ignore[union-attr]
                dtype = f"{self.pointer('weight', weight)}.dtype.element_ty"
                self.body.append(f"{self.left_name(value, gate)} = {whole}.to({dtype})")
        elif kind == "shared":
            super().store(kind, to, value, text)

    def assign(self, name: str, text: str) -> None:
        """Gives a variable its value."""
        if name != text:
            self.body.append(f"{name} = {text}")

    def reads(self, product: Line, value: Value) -> bool:
        """Whether a value is a product's left operand."""
        operation = product.operation
        return isinstance(operation, Contract) and self.phases.origin(operation.a) is value

    def left_name(self, value: Value, gate: int | None) -> str:
        """The variable of a left operand in the type of products."""
        return f"{value.name}_left" + ("" if gate is None else f"_{gate}")

    def product(self, result: Value, contract: Contract) -> None:
        """One product with weights that were loaded before the loop over time."""
        product, mask = self.operands(result, contract)
        left_value = product.left_value
        names = self.results(result, product)
        self.body += [f"{name} = tl.full((ROWS, UNITS), 0, tl.float32)" for name in dict.fromkeys(names)]
        by_gate = self.phases.gates_of(left_value) is not None
        for chunk in range(self.chunks):
            column = f"column_{chunk}"
            for gate, name in enumerate(names):
                weight = f"{contract.b.name}_{chunk}" + (f"_{gate}" if len(names) > 1 else "")
                inside = f"{mask} & ({column} < {product.columns})[:, None]"
                self.before.append(f"{weight} = tl.load({product.right(gate, column)}, {inside}, 0)")
                if self.solo:
                    left = self.left_name(left_value, gate if by_gate else None)
                else:
                    left = "left"
                    if product.over_gates or not gate:
                        inside = f"here & ({column} < {product.columns})[None, :]"
                        address = product.left(gate, column, "seq_now")
                        self.body.append(f'left = tl.load({address}, {inside}, 0, cache_modifier=".cg")')
                self.body.append(f"{name} = tl.dot({left}, {weight}, {name}, input_precision=PRECISION)")
        if self.solo:
            self.out.pointers = [p for p in self.out.pointers if p.kind != "shared"]
