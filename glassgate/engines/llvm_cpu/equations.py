"""Prints a phase of a kernel: the code that reads, computes and writes one vector of units."""

from collections import Counter
from collections.abc import Callable, Iterable

from glassgate.engines.axes import PER_ROW, Axis
from glassgate.engines.llvm_cpu import arguments as args
from glassgate.engines.llvm_cpu.arguments import Argument
from glassgate.engines.llvm_cpu.loops.buffers import Buffer, Kind, Place, Rows
from glassgate.engines.llvm_cpu.loops.program import (
    Before,
    Carry,
    Compute,
    Constant,
    KeptRowSum,
    Load,
    Phase,
    Program,
    RowSum,
    Size,
    Store,
    SumIntoRow,
    Sums,
    Term,
)
from glassgate.engines.llvm_cpu.names import FUNCTION_NAMES, Names
from glassgate.engines.symbolic.graph import Node

INFIX = {
    "lt": ("<", 1),
    "le": ("<=", 1),
    "gt": (">", 1),
    "ge": (">=", 1),
    "eq": ("==", 1),
    "ne": ("!=", 1),
    "logical_or": ("|", 2),
    "logical_and": ("&", 3),
    "add": ("+", 4),
    "sub": ("-", 4),
    "mul": ("*", 5),
    "div": ("/", 5),
}
"""The sign and the precedence of infix operators."""
PREFIX = {"neg": "-", "logical_not": "~"}
ATOM, UNARY = 9, 6
"""The precedence of names and calls, and of prefix operators."""
LONGEST = 72
"""The length of an expression above which it gets a name of its own, and of a sum above which it is broken."""


def broken(line: str) -> list[str]:
    """Split an assignment of a long sum into lines with one load each."""
    if len(line) <= LONGEST or " + _load(" not in line or " = " not in line:
        return [line]
    name, value = line.split(" = ", 1)
    first, *others = value.split(" + _load(")
    return [f"{name} = (", f"    {first}", *(f"    + _load({other}" for other in others), ")"]


class PhasePrinter:
    """The lines of a phase: `row` for the code that runs once per row, `units` for that of each vector of units.

    Args:
        program: the program of the phase.
        phase: the phase.
        names: the names in the kernel.
        argument: adds an argument to the kernel and returns its name.
        bfloat16: whether some buffers contain rounded numbers.
        inputs: see `emit`.
    """

    def __init__(
        self,
        program: Program,
        phase: Phase,
        names: Names,
        argument: Callable[[Argument], str],
        bfloat16: bool,
        inputs: int,
    ) -> None:
        self.program, self.phase, self.names, self.argument, self.inputs = program, phase, names, argument, inputs
        self._rounded = args.ROUNDED if bfloat16 else ()
        self.row: list[str] = []
        self.reads: list[str] = []
        self.equations: list[str] = []
        self.writes: list[str] = []
        self.text: dict[Node, tuple[str, int]] = {}
        self.columns: dict[Buffer, int] = {}
        """For noise and buffers from the forward pass, the number of columns that the phase reads."""
        computed = [v.value for v in phase.values if isinstance(v, Compute)]
        self.uses = Counter(arg for node in computed for arg in node.inputs)
        self.read_by_units = {
            arg for node in computed if node.axis != PER_ROW for arg in node.inputs if arg.axis == PER_ROW
        }
        for value in phase.values:
            if isinstance(value, Load):
                self._read(value)
            else:
                self._compute(value.value)
        for write in phase.writes:
            self._carry(write) if isinstance(write, Carry) else self._store(write)
        for term in phase.sums:
            self._sum_into_row(term)
        if phase.keeps and not inputs:
            self.writes.append(f"if {argument(args.SAVE)}:")
            self.writes += [f"    {self._stored(keep)}" for keep in phase.keeps]

    @property
    def units(self) -> list[str]:
        """The lines for one vector of units, in order."""
        parts = [part for part in (self.reads, self.equations, self.writes) if part]
        return [line for part in parts for line in ("", *part)][1:]

    def _at(self, key: object, label: str, expression: str) -> str:
        """The name of an address that is computed once per row."""
        name = self.names.internal(("at", key), f"{label}_at")
        line = f"{name} = {expression}"
        if line not in self.row:
            self.row.append(line)
        return name

    def _address(self, buffer: Buffer) -> str:
        """The address of the row of a buffer that belongs to the current row of the step."""
        base = self.argument(args.address(buffer))
        if buffer.kind.rows is Rows.WHOLE:
            return base
        if buffer.kind is Kind.TEMPORARY:
            return self._temporary(buffer, base)
        if buffer.kind.rows is Rows.SEQUENCE:
            own = buffer.columns > 1 or buffer.kind is Kind.D_PARAMETER
            pitch = self.argument(args.pitch(buffer) if own else args.axis_pitch(buffer.axis))
            return self._at(buffer, buffer.label, f"{base} + _n * {pitch}")
        row = f"{self.argument(args.starts(buffer))}[_t]" if buffer.kind is Kind.STATE else "_first_row"
        pitch = self.argument(args.pitch(buffer))
        return self._at(buffer, buffer.label, f"{base} + ({row} + _n) * {pitch}")

    def _temporary(self, buffer: Buffer, base: str) -> str:
        temporary = self.program.temporaries[buffer]
        if temporary.of_one_pass:
            return base
        where = f"{base} + _n * {self.argument(args.axis_pitch(buffer.axis))}"
        if temporary.kept is not None and not self.inputs:
            column = temporary.kept.column
            kept = self._address(temporary.kept.buffer)
            if column:
                kept += f" + {column} * {self.argument(args.width(buffer.axis))} * _BYTES"
            where = f"{kept} if {self.argument(args.SAVE)} else {where}"
        return self._at(buffer, self._label(buffer), where)

    def _label(self, buffer: Buffer) -> str:
        return self.names.value(self.program.temporaries[buffer].node)

    def _vector(self, place: Place) -> str:
        """The location of a vector of units: address, first unit, number of valid lanes."""
        buffer, column = place
        address = self._address(buffer)
        # Load and store whole vectors, because processors forward a store to a load only if neither is masked.
        whole = buffer.kind is Kind.TEMPORARY and self.program.temporaries[buffer].of_one_pass
        return f"{address}, {self._unit(column, buffer.axis)}, {'_LANES' if whole else '_live'}"

    def _unit(self, column: int, axis: Axis) -> str:
        if column == 0:
            return "_unit"
        width = self.argument(args.width(axis))
        return f"{width} + _unit" if column == 1 else f"{column} * {width} + _unit"

    def _read(self, load: Load) -> None:
        node, text = load.value, " + ".join(map(self._term, load.terms))
        if isinstance(load.terms[0], Size):
            self.text[node] = text, ATOM
        else:
            (self.row if node.axis == PER_ROW else self.reads).append(self._assign(node, text))

    def _term(self, term: Term) -> str:
        """The expression that reads one term of a value."""
        match term:
            case Before(state):
                table = self.argument(args.before(state))
                return f"_load({self._at(term, f'{state}_before', f'{table}[_n]')}, _unit, _live)"
            case Sums(product, column):
                at = "0" if column == 0 else "_LANES" if column == 1 else f"{column} * _LANES"
                return f"_load({sums_at(product, self.names)}, {at}, _LANES)"
            case RowSum(k):
                return f"_fill(_number({self.argument(args.of_row_sum('total', k))} + _n * _BYTES))"
            case KeptRowSum(place):
                return f"_fill(_number({self._address(place.buffer)} + {place.column} * _BYTES))"
            case Size(axis):
                return self.argument(args.width(axis))
            case Constant(value):
                return f"_fill({number(value)})"
        if term.buffer.kind is Kind.INPUT and self.inputs:
            return self._input_product(term)
        if term.buffer.kind in (Kind.INPUT, Kind.RECURRENT, Kind.KEPT, Kind.NOISE):
            self.columns[term.buffer] = max(self.columns.get(term.buffer, 0), term.column + 1)
        return f"_load{self._suffix(term)}({self._vector(term)})"

    def _input_product(self, half: Place) -> str:
        """The expression of an input half: the input's columns times packed weights."""
        data = self._address(self.program.buffers[Kind.DATA])
        packed = args.of_product("weights_ih", 0)
        weights, pitch = self.argument(packed), self.argument(args.INPUT_BLOCK_PITCH)
        at = self.names.internal(("at", packed), f"{packed.label}_at")
        line = f"{at} = {weights} + _unit // _LANES * {pitch} * _BYTES"
        if line not in self.reads:
            self.reads.insert(0, line)
        products = []
        for k in range(self.inputs):
            x = self.names.internal(("input", k), f"x_{k}")
            read = f"{x} = _fill(_number({data}{f' + {k} * _BYTES' if k else ''}))"
            if read not in self.row:
                self.row.append(read)
            products.append(f"{x} * _load({at}, {k * half.buffer.columns + half.column} * _LANES, _LANES)")
        return " + ".join(products)

    def _suffix(self, place: Place) -> str:
        """The suffix of the functions that read and write a place: "_rounded" if its numbers are rounded."""
        return "_rounded" if place.buffer.kind in self._rounded else ""

    def _compute(self, node: Node) -> None:
        text, precedence = self._expression(node)
        if node.name or self.uses[node] != 1 or len(text) > LONGEST or node in self.read_by_units:
            # A value with one number per row is computed before the loop over units.
            (self.row if node.axis == PER_ROW else self.equations).append(self._assign(node, text))
        else:
            self.text[node] = text, precedence

    def _assign(self, node: Node, text: str) -> str:
        name = self.names.value(node)
        self.text[node] = name, ATOM
        return f"{name} = {text}"

    def _operand(self, arg: Node | float, precedence: int) -> str:
        if not isinstance(arg, Node):
            return number(arg)
        text, own = self.text[arg]
        return text if own >= precedence else f"({text})"

    def _expression(self, node: Node) -> tuple[str, int]:
        if node.op in INFIX:
            sign, precedence = INFIX[node.op]
            a, b = node.args
            divides = isinstance(b, Node) and b.op == "div"
            tight = precedence + (node.op in ("sub", "div") or precedence == 1 or divides)
            return f"{self._operand(a, precedence + (precedence == 1))} {sign} {self._operand(b, tight)}", precedence
        if node.op in PREFIX:
            return f"{PREFIX[node.op]}{self._operand(node.args[0], UNARY)}", UNARY
        operands = [self._operand(arg, 0) for arg in node.args]
        if node.op == "where" and not any(isinstance(arg, Node) and arg.op != "size" for arg in node.args[1:]):
            operands[1] = f"_fill({operands[1]})"
        return f"{FUNCTION_NAMES.get(node.op, node.op)}({', '.join(operands)})", ATOM

    def _value(self, node: Node) -> str:
        return self.text[node][0]

    def _stored(self, store: Store) -> str:
        at, value, suffix = self._vector(store.to), self._value(store.value), self._suffix(store.to)
        return f"_store{suffix}({at}, {f'_load{suffix}({at}) + {value}' if store.added else value})"

    def _store(self, store: Store) -> None:
        self.writes.append(self._stored(store))

    def _carry(self, carry: Carry) -> None:
        following, initial, value = self._vector(carry.to), self._vector(carry.reset), self._value(carry.value)
        reset = f"_reset = _is_reset({self.argument(args.RESETS)}, _first_row + _n)"
        if reset not in self.row:
            self.row.append(reset)
        self.writes += [
            "if _reset:",
            f"    _store({initial}, _load({initial}) + {value})",
            f"    _store({following}, _fill(0.0))",
            "else:",
            f"    _store({following}, {value})",
        ]

    def _sum_into_row(self, term: SumIntoRow) -> None:
        value = f"_keep({self._value(term.value)}, _live)"
        sum_ = self.names.internal(("sum", term.number), f"sum_{term.number}")
        if self.phase.products:
            at = partial_sums(term.number, self.argument)
            at = f"{self._at(('sum', term.number), f'sum_{term.number}', at)}, 0, _LANES"
            self.writes.append(f"_store({at}, _load({at}) + {value})")
        else:
            self.writes.append(f"{sum_} = {sum_} + {value}")


def number(value: float) -> str:
    """A number as text."""
    return repr(float(value)) if value == value and abs(value) != float("inf") else f'float("{value}")'


def sums_at(product: int, names: Names) -> str:
    """The name of the address of a product's sums for one row and vector of units."""
    return names.internal(("sums_at", product), f"sums_at_{product}")


def partial_sums(k: int, argument: Callable[[Argument], str]) -> str:
    """The address of the partial sums of a row sum in a phase with products: one vector per row."""
    return f"{argument(args.of_row_sum('sum', k))} + _n * _LANES * _BYTES"


def input_columns(phase: Phase) -> int:
    """The number of columns of input halves that a phase adds to products."""
    columns: set[int] = set()
    for value in phase.values:
        if isinstance(value, Load) and value.value.op in ("ih", "sum"):
            columns |= {t.column for t in _places(value.terms) if t.buffer.kind is Kind.INPUT}
    return len(columns)


def _places(terms: Iterable[Term]) -> list[Place]:
    return [term for term in terms if isinstance(term, Place)]
