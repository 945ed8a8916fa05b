"""Writes the phases of a pass as Triton kernels: one launch per phase. `phases.py` splits, `launch.py` runs."""

from collections import Counter
from collections.abc import Iterable
from keyword import iskeyword

from glassgate.engines.lowering.ir import (
    Block,
    Broadcast,
    Constant,
    Contract,
    Elementwise,
    Line,
    Size,
    Stack,
    Sum,
    Value,
)
from glassgate.engines.symbolic.operations import MASKS
from glassgate.engines.triton_gpu.kernel import CONSTANTS, Kernel, Kernels, Pointer
from glassgate.engines.triton_gpu.mathematics import FUNCTIONS
from glassgate.engines.triton_gpu.phases import Phase, Phases
from glassgate.engines.triton_gpu.products import Product

INFIX = {
    "add": ("+", 4), "sub": ("-", 4), "mul": ("*", 5), "div": ("/", 5), "lt": ("<", 0), "le": ("<=", 0),
    "eq": ("==", 0), "ne": ("!=", 0), "logical_and": ("&", 3), "logical_or": ("|", 1),
}  # fmt: skip
"""Operators with their precedence."""

CALLS = {
    "where": "tl.where", "exp": "tl.exp", "log": "tl.log", "sin": "tl.sin", "cos": "tl.cos", "abs": "tl.abs",
    "floor": "tl.floor", "ceil": "tl.ceil", "sqrt": "tl.sqrt", "rsqrt": "tl.rsqrt", "erf": "tl.erf",
    "pow": "power", "round": "round_half_even",
}  # fmt: skip
"""Functions whose name is not that of the operation; `mathematics.py` has those without `tl`."""

RESERVED = frozenset(FUNCTIONS) | frozenset(CONSTANTS) | {
    "tl", "iteration", "T", "N", "H", "P", "heads", "starts",
    "t", "seq", "row", "start", "live", "here", "seq_now", "seq_next", "H_of_head", "P_of_head", "blocks",
    "unit", "unit_ok", "unit_head", "out", "out_ok", "out_head", "block", "column", "column_ok", "left", "right",
    "expected", "arrived", "patience",
}  # fmt: skip
"""Names that kernels use for themselves."""

STAGES = 3
"""Iterations of a product whose operands are loaded ahead."""

UNIT = {"H": ("unit", "unit_ok"), "P": ("out", "out_ok")}
"""For each axis of units its index in a kernel, and the mask of units that exist."""


def kernels(phases: Phases, title: str, ragged: bool) -> Kernels:
    """The kernels of one pass, one per phase.

    Args:
        phases: the phases of the pass.
        title: the first part of the kernels' names.
        ragged: whether sequences have lengths of their own.
    """
    first, *rest = phases.all
    begin = None
    if first.published or first.writes:
        begin = Writer(phases, f"{title}_begin", ragged, phases.by_rows).kernel(None, (), first)
    steps = []
    for phase in rest:
        name = title if len(rest) == 1 else f"{title}_{phase.number}"
        ahead = first if phase.commits and begin else None
        if phases.by_rows and phase.products:
            steps.append(Writer(phases, f"{name}_products", ragged, False).kernel(None, phase.products, None))
            steps.append(Writer(phases, name, ragged, True).kernel(phase, (), ahead))
        else:
            steps.append(Writer(phases, name, ragged, phases.by_rows).kernel(phase, phase.products, ahead))
    return Kernels(begin, tuple(steps))


class Writer:
    """Writes one kernel. `now` has the text of each value of this step."""

    numbers: tuple[str, ...] = ("iteration", "T", "N", "H", "P", "heads")
    """The parameters that are not tensors, without `starts`."""

    def __init__(self, phases: Phases, name: str, ragged: bool, by_rows: bool) -> None:
        self.phases, self.loop, self.axes = phases, phases.loop, phases.axes
        self.ragged, self.reverse = ragged, phases.loop.reverse
        self.out = Kernel(name, (*self.numbers, *(["starts"] if ragged else [])), by_rows)
        self.loads: list[str] = []
        self.body: list[str] = []
        self.used: set[str] = set()
        self.defined_by = {line.result: line.operation for line in phases.program.before}
        self.now: dict[object, str] = {}
        self.ahead = False
        self.uses: Counter[Value] = Counter()

    def kernel(self, phase: Phase | None, products: Iterable[Line], ahead: Phase | None) -> Kernel:
        """Return the kernel of a phase: its products and lines, then phase 0 of the next step."""
        products = tuple(products)
        if products:
            self.products(products, store=phase is None)
        if phase is not None:
            self.lines(phase)
        steps = [*self.loads, *self.body]
        if self.used & {"row", "live"}:
            steps = [*self.rows_of_step("iteration"), *steps]
        if ahead is not None:
            self.ahead, self.used = True, self.used - {"row", "live"}
            carried: dict[object, str] = {
                c.before: self.now[c.before] for c in self.loop.carries if c.before in self.now
            }
            self.now, self.loads, self.body = carried, [], []
            self.lines(ahead)
            rows = self.rows_of_step("iteration + 1") if self.used & {"row", "live"} else []
            steps += [*rows, *self.loads, *self.body]
        self.out.body = [*self.indices(), *steps]
        return self.out

    def indices(self) -> list[str]:
        """The rows and units of this program, and the place of this step."""
        lines = ["seq = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]", "here = seq < N"]
        for axis, (index, mask) in UNIT.items():
            if index not in self.used:
                continue
            if self.phases.heads > 1 and not self.out.by_rows:
                width = f"{axis}_of_head"
                lines += [
                    f"{width} = {axis} // heads",
                    f"blocks = ({width} + UNITS - 1) // UNITS",
                    f"{index}_head = tl.program_id(1) // blocks",
                    f"{index} = tl.program_id(1) % blocks * UNITS + tl.arange(0, UNITS)[None, :]",
                    f"{mask} = ({index} < {width}) & ({index}_head < heads)",
                    f"{index} += {index}_head * {width}",
                ]
            else:
                lines += [
                    f"{index} = tl.program_id(1) * UNITS + tl.arange(0, UNITS)[None, :]",
                    f"{mask} = {index} < {axis}",
                ]
        if "seq_now" in self.used:
            lines.append("seq_now = seq + iteration % 2 * N")
        if "seq_next" in self.used:
            lines.append("seq_next = seq + (iteration + 1) % 2 * N")
        return lines

    def rows_of_step(self, iteration: str) -> list[str]:
        """The rows of a step in the sequences; a step before the first or after the last has none."""
        back = "T - 1 - iteration" if iteration == "iteration" else "T - 2 - iteration"
        lines = [f"t = {back if self.reverse else iteration}"]
        if self.ragged:
            ends = "live = seq < tl.load(starts + t + 2) - start"
            return [*lines, "start = tl.load(starts + t + 1)", "row = start + seq", ends]
        inside = "" if iteration == "iteration" else " & (t >= 0)" if self.reverse else " & (t < T)"
        return [*lines, "row = t * N.to(tl.int64) + seq", f"live = here{inside}"]

    # Values.

    def name(self, value: Value, gate: int | None = None) -> str:
        """The variable of a value, or of one gate's block of it."""
        name = value.name
        if gate is not None:
            axis = self.phases.gates_of(value)
            assert axis is not None
            labels = self.axes[axis].labels
            name += f"_{labels[gate]}" + (str(gate) if labels.count(labels[gate]) > 1 else "")
        return name + "_" if name in RESERVED or iskeyword(name) else name

    def pointer(self, kind: str, value: Value) -> str:
        """The parameter of a tensor."""
        suffix = {"carry": "_carry", "stored": "_stored", "shared": "_shared"}.get(kind, "_ptr")
        pointer = Pointer(kind, value, value.name + suffix)
        if pointer not in self.out.pointers:
            self.out.pointers.append(pointer)
        return pointer.parameter

    def units(self, value: Value) -> tuple[str, str, str] | None:
        """The axis, the index and the mask of the units of a value."""
        axis = self.phases.units_of(value)
        if axis is None:
            return None
        self.used.add(UNIT[axis][0])
        self.out.axes.add(axis)
        return axis, *UNIT[axis]

    def place(self, kind: str, value: Value, like: Value, gate: int | None) -> tuple[str, str]:
        """The address and the mask of a value's elements, or of one gate's."""
        units = self.units(like)
        parameter = self.pointer(kind, value)
        axes = value.type.axes
        gates = self.phases.gates_of(like)
        of_unit = "" if units is None else f" + {units[1]}" if not gate else f" + {gate} * {units[0]} + {units[1]}"
        masks = [] if units is None else [units[2]]
        if kind == "sequence":
            self.used |= {"row", "live"}
            return f"{parameter} + row * {parameter}_stride{of_unit}", " & ".join(["live", *masks])
        if kind == "given":
            width = "" if units is None else f" * {units[0]}"
            of_row = f" + seq{width}" if "N" in axes else ""
            return f"{parameter}{of_row}{of_unit}", " & ".join((["here"] if "N" in axes else []) + masks)
        count = len(self.axes[gates].labels) if gates else 1
        width = "" if units is None else f" * {units[0]}" if count == 1 else f" * {count} * {units[0]}"
        row = "seq_next" if self.ahead or kind == "next carry" else "seq_now"
        self.used.add(row)
        return f"{parameter} + {row}{width}{of_unit}", " & ".join(["here", *masks])

    def load(self, kind: str, value: Value, like: Value, variable: str, gate: int | None = None) -> str:
        """Loads a value into a variable."""
        address, mask = self.place(kind, value, like, gate)
        rest = f", {mask}, 0" if mask else ""
        up = " != 0" if like.type.dtype == "bool" else ".to(tl.float32)"
        self.loads.append(f"{variable} = tl.load({address}{rest}){up}")
        return variable

    def use(self, value: Value | float, gate: int | None = None) -> str:
        """The text of a value that lines read; loads it where it is memory."""
        if not isinstance(value, Value):
            return f'float("{value}")' if value != value or value in (float("inf"), -float("inf")) else repr(value)
        value = self.phases.origin(value)
        key = value if gate is None else (value, gate)
        if key not in self.now:
            self.now[key] = self.found(value, gate)
        return self.now[key]

    def found(self, value: Value, gate: int | None) -> str:
        line = self.phases.line.get(value)
        if line is not None and isinstance(line.operation, Stack):
            assert gate is not None
            return self.use(line.operation.values[gate])
        if line is not None and isinstance(line.operation, Block):
            return self.use(line.operation.x, line.operation.index)
        variable = self.name(value, gate)
        if value in self.phases.carries:
            return self.load("carry", value, value, variable)
        if value in self.phases.reads:
            return self.load("sequence", self.phases.reads[value].sequence, value, variable, gate)
        if line is not None:
            return self.load("stored", value, value, variable, gate)
        return self.constant(value) or self.load("given", value, value, variable, gate)

    def constant(self, value: Value) -> str | None:
        """The text of a value from outside of the loop that is a number or an extent."""
        match self.defined_by.get(value):
            case Constant(number):
                return self.use(number)
            case Size(axis):
                return axis
            case Broadcast(x, _):
                return self.constant(x)
        return None

    # Operations.

    def lines(self, phase: Phase) -> None:
        """The lines of a phase, and the stores of their results."""
        outputs = [*phase.published, *phase.stored, *(write.value for write in phase.writes)]
        outputs += [carry.next for carry in self.loop.carries] if phase.commits else []
        self.uses = Counter(self.phases.origin(v) for v in outputs)
        for line in phase.lines:
            self.uses.update(self.phases.origin(v) for v in _values(line))
            if isinstance(line.operation, Stack | Block):
                self.uses.update(self.phases.origin(v) for v in _values(line))
        texts: dict[Value, tuple[str, int]] = {}
        for line in phase.lines:
            match line.operation:
                case Elementwise(op, args):
                    text = self.elementwise(op, args, texts)
                case Sum(x, _):
                    units = self.units(x)
                    assert units is not None
                    whole = f"tl.where({units[2]}, {self.text(x, texts)[0]}, 0.0)"
                    text = f"row_sum({whole})", 9
                case Broadcast(x, _):
                    text = f"tl.broadcast_to({self.text(x, texts)[0]}, (ROWS, UNITS))", 9
                case _:
                    continue
            value = line.result
            if self.uses[value] == 1 and value.name[0] == "v" and value.name[1:].isdigit() and len(text[0]) < 60:
                texts[value] = text
            else:
                self.now[value] = self.name(value)
                self.body.append(f"{self.now[value]} = {text[0]}")
        for value in texts:
            self.now.setdefault(value, texts[value][0])
        self.store_results(phase)

    def text(self, value: Value | float, texts: dict[Value, tuple[str, int]]) -> tuple[str, int]:
        """The text of an argument and its precedence."""
        if isinstance(value, Value):
            inlined = texts.get(self.phases.origin(value))
            if inlined is not None:
                return inlined
        text = self.use(value)
        return text, 6 if text.startswith("-") else 9

    def elementwise(
        self, op: str, args: tuple[Value | float, ...], texts: dict[Value, tuple[str, int]]
    ) -> tuple[str, int]:
        """An elementwise operation as text, and its precedence."""
        parts = [self.text(arg, texts) for arg in args]
        if op == "detach":
            return parts[0]
        if op in ("neg", "logical_not"):
            return f"{'-' if op == 'neg' else '~'}{_in(parts[0], 6)}", 6
        if op in INFIX:
            sign, precedence = INFIX[op]
            strict = precedence + (op in ("sub", "div") or op in MASKS)
            return f"{_in(parts[0], precedence + (op in MASKS))} {sign} {_in(parts[1], strict)}", precedence
        return f"{CALLS.get(op, op)}({', '.join(text for text, _ in parts)})", 9

    def store_results(self, phase: Phase) -> None:
        """Stores the results of a phase: sequences, values of later phases, carries, and left operands of products."""
        for write in phase.writes:
            self.store("sequence", write.sequence, write.value)
        for value in phase.stored:
            self.store("stored", value, value)
        if phase.commits:
            following = {carry.before: self.use(carry.next) for carry in self.loop.carries}
            for carry in self.loop.carries:
                text = following[carry.before]
                if self.ragged:
                    self.used.add("live")
                    text = f"tl.where(live, {text}, {self.use(carry.before)})"
                self.body.append(f"{self.name(carry.before)}_next = {text}")
            for carry in self.loop.carries:
                variable = f"{self.name(carry.before)}_next"
                self.ahead, before = True, self.ahead
                self.store("carry", carry.before, carry.before, variable)
                self.ahead = before
                self.now[carry.before] = variable
        for value in phase.published:
            self.store("shared", value, value)

    def store(self, kind: str, to: Value, value: Value, text: str | None = None) -> None:
        """Stores a value, gate by gate where it has gates."""
        axis = self.phases.gates_of(value)
        gates: Iterable[int | None] = range(len(self.axes[axis].labels)) if axis else (None,)
        for gate in gates:
            address, mask = self.place(kind, to, value, gate)
            found = text or self.use(value, gate)
            self.body.append(f"tl.store({address}, {found}, {mask})")

    # Products.

    def products(self, products: tuple[Line, ...], store: bool) -> None:
        """Matrix products of this step: each program computes its own rows and units."""
        for line in products:
            contract = line.operation
            assert isinstance(contract, Contract)
            self.product(line.result, contract)
        if store:
            for line in products:
                self.store("stored", line.result, line.result)

    def product(self, result: Value, contract: Contract) -> None:
        """One product: a loop over the columns of the left operand."""
        product, mask = self.operands(result, contract)
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
                f"    right = tl.load({product.right(gate, 'column')}, {mask} & column_ok[:, None], 0)",
                f"    {name} = tl.dot(left, right, {name}, input_precision=PRECISION)",
            ]

    def operands(self, result: Value, contract: Contract) -> tuple[Product, str]:
        """The operands of a product, and the mask of the units that this program owns."""
        units = self.units(result)
        assert units is not None
        shared = self.pointer("shared", self.phases.origin(contract.a))
        return Product(self.phases, contract, units[1], shared, self.pointer("weight", contract.b)), units[2]

    def results(self, result: Value, product: Product) -> list[str]:
        """For each gate the variable of its product; one for all gates that are summed over."""
        by_gate = product.gate_axis is not None and not product.over_gates
        names = [self.name(result, gate if by_gate else None) for gate in product.gates]
        for gate, name in enumerate(names):
            self.now[(result, gate) if by_gate else result] = name
        return names


def _values(line: Line) -> list[Value]:
    match line.operation:
        case Elementwise(_, args):
            return [v for v in args if isinstance(v, Value)]
        case Sum(x, _) | Broadcast(x, _) | Block(x, _, _):
            return [x]
        case Stack(values, _):
            return list(values)
    return []


def _in(part: tuple[str, int], precedence: int) -> str:
    """The text of an operand, in parentheses where its operator binds less."""
    text, own = part
    return f"({text})" if own < precedence else text
