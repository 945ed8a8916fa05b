"""Prints a phase of a program: the code that reads, computes and writes one vector of units of a row."""

from collections import Counter
from collections.abc import Callable

from glassgate.engines.axes import PER_ROW, Axis
from glassgate.engines.llvm_cpu import arguments as args
from glassgate.engines.llvm_cpu.arguments import Argument
from glassgate.engines.llvm_cpu.loops.buffers import Buffer, Column, Kind, RowPer
from glassgate.engines.llvm_cpu.loops.program import (
    Carry,
    Compute,
    Constant,
    KeptRowSum,
    Load,
    Phase,
    ProductResult,
    Program,
    RowSum,
    Size,
    StateBefore,
    Store,
    SumIntoRow,
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
MAX_LENGTH = 72
"""The length in characters above which an expression is assigned to a variable, and a sum is split into lines."""


def split_long_sum(line: str) -> list[str]:
    """Split an assignment of a long sum into lines with one load each. Return other lines unchanged."""
    if len(line) <= MAX_LENGTH or " + _load(" not in line or " = " not in line:
        return [line]
    name, value = line.split(" = ", 1)
    first, *others = value.split(" + _load(")
    return [f"{name} = (", f"    {first}", *(f"    + _load({other}" for other in others), ")"]


class PhasePrinter:
    """The lines of a phase.

    Args:
        program: the program of the phase.
        phase: the phase.
        names: the names in the kernel.
        argument: a function that adds an argument to the kernel and returns its name.
        rounds: whether the buffers of `arguments.ROUNDED_KINDS` contain rounded numbers.
        input_size: see `emit`.

    Attributes:
        row_lines: the lines that run once per row.
        unit_lines: the lines that run for each vector of units.
        column_counts: for each buffer that the kernel prefetches, the number of columns that the phase reads. These
            buffers contain noise, or were filled before the loop or by the forward pass.
    """

    def __init__(
        self,
        program: Program,
        phase: Phase,
        names: Names,
        argument: Callable[[Argument], str],
        rounds: bool,
        input_size: int,
    ) -> None:
        self.program, self.phase, self.names, self.argument = program, phase, names, argument
        self.input_size = input_size
        self._rounded = args.ROUNDED_KINDS if rounds else ()
        self.row_lines: list[str] = []
        self.column_counts: dict[Buffer, int] = {}
        self._reads: list[str] = []
        self._equations: list[str] = []
        self._writes: list[str] = []
        self._texts: dict[Node, tuple[str, int]] = {}
        """The text and the precedence of each value: its name, or its expression if it is used once."""
        computed = [v.value for v in phase.values if isinstance(v, Compute)]
        self._uses = Counter(arg for node in computed for arg in node.inputs)
        self._read_by_units = {
            arg for node in computed if node.axis != PER_ROW for arg in node.inputs if arg.axis == PER_ROW
        }
        for value in phase.values:
            if isinstance(value, Load):
                self._load(value)
            else:
                self._compute(value.value)
        for write in phase.writes:
            self._carry(write) if isinstance(write, Carry) else self._store(write)
        for row_sum in phase.sums:
            self._sum_into_row(row_sum)
        if phase.keeps and not input_size:
            self._writes.append(f"if {argument(args.SAVE)}:")
            self._writes += [f"    {self._store_text(keep)}" for keep in phase.keeps]

    @property
    def unit_lines(self) -> list[str]:
        parts = [part for part in (self._reads, self._equations, self._writes) if part]
        return [line for part in parts for line in ("", *part)][1:]

    def _name_address(self, key: object, label: str, expression: str) -> str:
        """Return the name of an address that is computed once per row."""
        name = self.names.internal(("at", key), f"{label}_at")
        line = f"{name} = {expression}"
        if line not in self.row_lines:
            self.row_lines.append(line)
        return name

    def _row_address(self, buffer: Buffer) -> str:
        """Return the address of a buffer's row for the current row of the step."""
        base = self.argument(args.address(buffer))
        if buffer.kind.row_per is RowPer.CALL:
            return base
        if buffer.kind is Kind.TEMPORARY:
            return self._temporary_address(buffer, base)
        if buffer.kind.row_per is RowPer.SEQUENCE:
            has_own_pitch = buffer.columns > 1 or buffer.kind is Kind.D_PARAMETER
            pitch = self.argument(args.pitch(buffer) if has_own_pitch else args.axis_pitch(buffer.axis))
            return self._name_address(buffer, buffer.label, f"{base} + _n * {pitch}")
        row = f"{self.argument(args.starts(buffer))}[_t]" if buffer.kind is Kind.STATE else "_first_row"
        pitch = self.argument(args.pitch(buffer))
        return self._name_address(buffer, buffer.label, f"{base} + ({row} + _n) * {pitch}")

    def _temporary_address(self, buffer: Buffer, base: str) -> str:
        temporary = self.program.temporaries[buffer]
        if temporary.shares_row:
            return base
        address = f"{base} + _n * {self.argument(args.axis_pitch(buffer.axis))}"
        if temporary.kept is not None and not self.input_size:
            number = temporary.kept.number
            kept = self._row_address(temporary.kept.buffer)
            if number:
                kept += f" + {number} * {self.argument(args.width(buffer.axis))} * _BYTES"
            address = f"{kept} if {self.argument(args.SAVE)} else {address}"
        return self._name_address(buffer, self.names.value(temporary.node), address)

    def _vector(self, column: Column) -> str:
        """Return the location of a vector of units: address, first unit, number of valid lanes."""
        buffer, number = column
        address = self._row_address(buffer)
        # Load and store whole vectors, because processors forward a store to a load only if neither is masked.
        whole = buffer.kind is Kind.TEMPORARY and self.program.temporaries[buffer].shares_row
        return f"{address}, {self._unit(number, buffer.axis)}, {'_LANES' if whole else '_live'}"

    def _unit(self, number: int, axis: Axis) -> str:
        """Return the index of the current unit in a row, for the column with this number."""
        if number == 0:
            return "_unit"
        width = self.argument(args.width(axis))
        return f"{width} + _unit" if number == 1 else f"{number} * {width} + _unit"

    def _load(self, load: Load) -> None:
        node, text = load.value, " + ".join(map(self._term, load.terms))
        if isinstance(load.terms[0], Size):
            self._texts[node] = text, ATOM
        else:
            (self.row_lines if node.axis == PER_ROW else self._reads).append(self._assign(node, text))

    def _term(self, term: Term) -> str:
        """Return the expression that reads one term of a value."""
        match term:
            case StateBefore(state):
                table = self.argument(args.previous_state(state))
                return f"_load({self._name_address(term, f'{state}_before', f'{table}[_n]')}, _unit, _live)"
            case ProductResult(product, result):
                index = "0" if result == 0 else "_LANES" if result == 1 else f"{result} * _LANES"
                return f"_load({product_sums_name(product, self.names)}, {index}, _LANES)"
            case RowSum(k):
                return f"_fill(_number({self.argument(args.row_sum_argument('total', k))} + _n * _BYTES))"
            case KeptRowSum(column):
                return f"_fill(_number({self._row_address(column.buffer)} + {column.number} * _BYTES))"
            case Size(axis):
                return self.argument(args.width(axis))
            case Constant(value):
                return f"_fill({number_text(value)})"
        if term.buffer.kind is Kind.INPUT and self.input_size:
            return self._input_product(term)
        if term.buffer.kind in (Kind.INPUT, Kind.RECURRENT, Kind.KEPT, Kind.NOISE):
            self.column_counts[term.buffer] = max(self.column_counts.get(term.buffer, 0), term.number + 1)
        return f"_load{self._suffix(term)}({self._vector(term)})"

    def _input_product(self, column: Column) -> str:
        """Return the expression of a gate's input product: the sum of the input's numbers times packed weights."""
        data = self._row_address(self.program.buffers[Kind.DATA])
        packed = args.product_argument("weights_ih", 0)
        weights, pitch = self.argument(packed), self.argument(args.INPUT_BLOCK_PITCH)
        address = self.names.internal(("at", packed), f"{packed.label}_at")
        line = f"{address} = {weights} + _unit // _LANES * {pitch} * _BYTES"
        if line not in self._reads:
            self._reads.insert(0, line)
        products = []
        for k in range(self.input_size):
            x = self.names.internal(("input", k), f"x_{k}")
            read = f"{x} = _fill(_number({data}{f' + {k} * _BYTES' if k else ''}))"
            if read not in self.row_lines:
                self.row_lines.append(read)
            products.append(f"{x} * _load({address}, {k * column.buffer.columns + column.number} * _LANES, _LANES)")
        return " + ".join(products)

    def _suffix(self, column: Column) -> str:
        """Return the suffix of the functions that read and write a column: "_rounded" if its numbers are rounded."""
        return "_rounded" if column.buffer.kind in self._rounded else ""

    def _compute(self, node: Node) -> None:
        text, precedence = self._expression(node)
        if node.name or self._uses[node] != 1 or len(text) > MAX_LENGTH or node in self._read_by_units:
            # A value with one number per row is computed before the loop over units.
            (self.row_lines if node.axis == PER_ROW else self._equations).append(self._assign(node, text))
        else:
            self._texts[node] = text, precedence

    def _assign(self, node: Node, text: str) -> str:
        name = self.names.value(node)
        self._texts[node] = name, ATOM
        return f"{name} = {text}"

    def _operand(self, arg: Node | float, precedence: int) -> str:
        if not isinstance(arg, Node):
            return number_text(arg)
        text, own_precedence = self._texts[arg]
        return text if own_precedence >= precedence else f"({text})"

    def _expression(self, node: Node) -> tuple[str, int]:
        if node.op in INFIX:
            sign, precedence = INFIX[node.op]
            a, b = node.args
            left = self._operand(a, precedence + (precedence == 1))
            right = self._operand(b, precedence + 1)  # a + (b + c) is rounded differently from (a + b) + c
            return f"{left} {sign} {right}", precedence
        if node.op in PREFIX:
            return f"{PREFIX[node.op]}{self._operand(node.args[0], UNARY)}", UNARY
        operands = [self._operand(arg, 0) for arg in node.args]
        if node.op == "where" and not any(isinstance(arg, Node) and arg.op != "size" for arg in node.args[1:]):
            operands[1] = f"_fill({operands[1]})"
        return f"{FUNCTION_NAMES.get(node.op, node.op)}({', '.join(operands)})", ATOM

    def _value(self, node: Node) -> str:
        return self._texts[node][0]

    def _store_text(self, store: Store) -> str:
        vector, value, suffix = self._vector(store.to), self._value(store.value), self._suffix(store.to)
        return f"_store{suffix}({vector}, {f'_load{suffix}({vector}) + {value}' if store.added else value})"

    def _store(self, store: Store) -> None:
        self._writes.append(self._store_text(store))

    def _carry(self, carry: Carry) -> None:
        to, reset, value = self._vector(carry.to), self._vector(carry.reset), self._value(carry.value)
        line = f"_reset = _is_reset({self.argument(args.RESETS)}, _first_row + _n)"
        if line not in self.row_lines:
            self.row_lines.append(line)
        self._writes += [
            "if _reset:",
            f"    _store({reset}, _load({reset}) + {value})",
            f"    _store({to}, _fill(0.0))",
            "else:",
            f"    _store({to}, {value})",
        ]

    def _sum_into_row(self, row_sum: SumIntoRow) -> None:
        value = f"_keep({self._value(row_sum.value)}, _live)"
        key, label = ("sum", row_sum.number), f"sum_{row_sum.number}"
        total = self.names.internal(key, label)
        if self.phase.products:
            name = self._name_address(key, label, partial_sum_address(row_sum.number, self.argument))
            self._writes.append(f"_store({name}, 0, _LANES, _load({name}, 0, _LANES) + {value})")
        else:
            self._writes.append(f"{total} = {total} + {value}")


def number_text(value: float) -> str:
    """Return the text of a number."""
    return repr(float(value)) if value == value and abs(value) != float("inf") else f'float("{value}")'


def product_sums_name(product: int, names: Names) -> str:
    """Return the name of the address of a product's sums for one row and vector of units."""
    return names.internal(("sums_at", product), f"sums_at_{product}")


def partial_sum_address(k: int, argument: Callable[[Argument], str]) -> str:
    """Return the address of the vector that accumulates row sum k of row `_n`, in a phase with products."""
    return f"{argument(args.row_sum_argument('sum', k))} + _n * _LANES * _BYTES"


def count_input_columns(phase: Phase) -> int:
    """Return the number of gates whose input product a phase reads."""
    columns: set[int] = set()
    for value in phase.values:
        if isinstance(value, Load) and value.value.op in ("ih", "sum"):
            columns |= {t.number for t in value.terms if isinstance(t, Column) and t.buffer.kind is Kind.INPUT}
    return len(columns)
