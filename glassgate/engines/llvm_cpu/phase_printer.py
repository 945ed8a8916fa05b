"""Prints a phase of a step: the code that reads, computes and writes one vector of units of a row."""

from collections import Counter
from collections.abc import Callable

from glassgate.engines.axes import PER_ROW, Axis
from glassgate.engines.llvm_cpu import arguments as args
from glassgate.engines.llvm_cpu.arguments import Argument
from glassgate.engines.llvm_cpu.dialect import KERNEL, Names
from glassgate.engines.llvm_cpu.loops.buffers import Buffer, Column, Kind, RowPer
from glassgate.engines.llvm_cpu.loops.memory import Carry, Store
from glassgate.engines.llvm_cpu.loops.phase import Phase, RowSum
from glassgate.engines.llvm_cpu.loops.phases import Step
from glassgate.engines.lowering.expressions import ATOM, SUM, Expression, is_numbered
from glassgate.engines.lowering.ir import Elementwise, Value

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
        step: the step of the phase.
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
        step: Step,
        phase: Phase,
        names: Names,
        argument: Callable[[Argument], str],
        rounds: bool,
        input_size: int,
    ) -> None:
        self.step, self.graph, self.phase, self.names, self.argument = step, step.graph, phase, names, argument
        self.input_size = input_size
        self._rounded = args.ROUNDED_KINDS if rounds else ()
        self.row_lines: list[str] = []
        self.column_counts: dict[Buffer, int] = {}
        self._reads: list[str] = []
        self._equations: list[str] = []
        self._writes: list[str] = []
        self._texts: dict[Value, Expression] = {}
        """The expression of each value: its name, or the operation if it is used once."""
        values = phase.values
        computed = [value for value in values if self._is_operation(value)]
        self._uses = Counter(arg for value in computed for arg in self.graph.operands(value))
        self._read_by_units = {
            arg
            for value in computed
            if not self._is_per_row(value)
            for arg in self.graph.operands(value)
            if self._is_per_row(arg)
        }
        self._sums_of_reads, self._inlined_reads = self._find_sums_of_reads(values)
        for value in values:
            if self._is_operation(value) and value not in self._sums_of_reads:
                self._compute(value)
            else:
                self._read(value)
        for write in phase.writes:
            self._carry(write) if isinstance(write, Carry) else self._store(write)
        for row_sum in phase.row_sums:
            self._sum_into_row(row_sum)
        if phase.keeps and not input_size:
            self._writes.append(f"if {argument(args.SAVE)}:")
            self._writes += [f"    {self._store_text(keep)}" for keep in phase.keeps]

    def _is_operation(self, value: Value) -> bool:
        """Whether the phase computes a value by an elementwise operation, and does not read it from memory."""
        is_elementwise = isinstance(self.graph.operations.get(value), Elementwise)
        return is_elementwise and self.step.computes(self.phase, value)

    def _is_per_row(self, value: Value) -> bool:
        return self.graph.axis_of(value) == PER_ROW

    def _find_sums_of_reads(self, values: list[Value]) -> tuple[set[Value], set[Value]]:
        """Find the sums of values in memory, such as a pre-activation, and the terms that only one of these sums reads.

        They are printed as one expression.
        """
        phase = self.phase
        stored = {store.value for store in (*phase.writes, *phase.keeps, *phase.row_sums)} | {*phase.temporaries}
        sums, reads, inlined = set[Value](), set[Value](), set[Value]()
        for value in values:
            operation = self.graph.operations.get(value)
            if not self._is_operation(value):
                if self.step.size(value) is None and not self._is_per_row(value):
                    reads.add(value)
            elif isinstance(operation, Elementwise) and operation.op == "add":
                terms = self.graph.operands(value)
                if len(terms) == 2 and reads.issuperset(terms):
                    sums.add(value)
                    reads.add(value)
                    inlined |= {term for term in terms if self._uses[term] == 1 and term not in stored}
        return sums, inlined

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
        temporary = self.step.temporaries[buffer]
        if temporary.shares_row:
            return base
        address = f"{base} + _n * {self.argument(args.axis_pitch(buffer.axis))}"
        if temporary.kept is not None and not self.input_size:
            number = temporary.kept.number
            kept = self._row_address(temporary.kept.buffer)
            if number:
                kept += f" + {number} * {self.argument(args.width(buffer.axis))} * _BYTES"
            address = f"{kept} if {self.argument(args.SAVE)} else {address}"
        return self._name_address(buffer, self.names.value(temporary.value), address)

    def _vector(self, column: Column) -> str:
        """Return the location of a vector of units: address, first unit, number of valid lanes."""
        buffer, number = column
        address = self._row_address(buffer)
        # Load and store whole vectors, because processors forward a store to a load only if neither is masked.
        whole = buffer.kind is Kind.TEMPORARY and self.step.temporaries[buffer].shares_row
        return f"{address}, {self._unit(number, buffer.axis)}, {'_LANES' if whole else '_live'}"

    def _unit(self, number: int, axis: Axis) -> str:
        """Return the index of the current unit in a row, for the column with this number."""
        if number == 0:
            return "_unit"
        width = self.argument(args.width(axis))
        return f"{width} + _unit" if number == 1 else f"{number} * {width} + _unit"

    def _read(self, value: Value) -> None:
        """Print the assignment of a value in memory, or of a sum of such values."""
        size = self.step.size(value)
        if size is not None:
            self._texts[value] = Expression(self.argument(args.width(size)))
            return
        if value in self._sums_of_reads:
            expression = self._expression(value)
        else:
            terms = self._terms(value)
            expression = Expression(" + ".join(terms), SUM if len(terms) > 1 else ATOM)
        if value in self._inlined_reads:
            self._texts[value] = expression
        else:
            (self.row_lines if self._is_per_row(value) else self._reads).append(self._assign(value, expression.text))

    def _terms(self, value: Value) -> list[str]:
        """Return the expressions whose sum is a value in memory."""
        graph, memory = self.graph, self.step.memory
        if (number := graph.number(value)) is not None:
            return [f"_fill({KERNEL.number(number).text})"]
        if (state := memory.state_before(value)) is not None:
            table = self.argument(args.previous_state(state))
            address = self._name_address(("before", state), f"{state}_before", f"{table}[_n]")
            return [f"_load({address}, _unit, _live)"]
        if value in self.step.row_sums:
            total = args.row_sum_argument("total", self.step.row_sums.index(value))
            return [f"_fill(_number({self.argument(total)} + _n * _BYTES))"]
        if graph.product(value) is not None and self.step.computes(self.phase, value):
            return [*map(self._product_result, self._results_of(value))]
        location = self.step.location(value)
        return [self._column(column) for column in ((location,) if location else memory.columns(value))]

    def _results_of(self, value: Value) -> list[tuple[int, int]]:
        """The products of the phase with a term of a value: the number of each product, and the index of its result."""
        return [
            (product.number, product.results.index(value))
            for product in self.phase.products
            if value in product.results
        ]

    def _product_result(self, product_and_result: tuple[int, int]) -> str:
        product, result = product_and_result
        index = "0" if result == 0 else "_LANES" if result == 1 else f"{result} * _LANES"
        return f"_load({product_sums_name(product, self.names)}, {index}, _LANES)"

    def _column(self, column: Column) -> str:
        """Return the expression that reads a column."""
        if column.buffer.kind is Kind.ROW_SUM:
            return f"_fill(_number({self._row_address(column.buffer)} + {column.number} * _BYTES))"
        if column.buffer.kind is Kind.INPUT and self.input_size:
            return self._input_product(column)
        if column.buffer.kind in (Kind.INPUT, Kind.RECURRENT, Kind.KEPT, Kind.NOISE):
            self.column_counts[column.buffer] = max(self.column_counts.get(column.buffer, 0), column.number + 1)
        return f"_load{self._suffix(column)}({self._vector(column)})"

    def _input_product(self, column: Column) -> str:
        """Return the expression of a gate's input product: the sum of the input's numbers times packed weights."""
        data = self._row_address(self.step.buffers[Kind.DATA])
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

    def _compute(self, value: Value) -> None:
        expression = self._expression(value)
        is_long = len(expression.text) > MAX_LENGTH
        if not is_numbered(value.name) or self._uses[value] != 1 or is_long or value in self._read_by_units:
            # A value with one number per row is computed before the loop over units.
            lines = self.row_lines if self._is_per_row(value) else self._equations
            lines.append(self._assign(value, expression.text))
        else:
            self._texts[value] = expression

    def _assign(self, value: Value, text: str) -> str:
        sequence = self.graph.sequences.get(value)
        known = sequence.name.removesuffix("_all") if sequence else self.graph.names.get(value)
        name = self.names.value(value, known)
        self._texts[value] = Expression(name)
        return f"{name} = {text}"

    def _expression(self, value: Value) -> Expression:
        operation = self.graph.operations[value]
        assert isinstance(operation, Elementwise)
        operands = [self._operand(arg) for arg in operation.args]
        if operation.op == "where" and all(map(self._is_number, operation.args[1:])):
            operands[1] = Expression(f"_fill({operands[1].text})")
        return KERNEL.apply(operation.op, operands)

    def _operand(self, arg: Value | float) -> Expression:
        return self._texts[self.graph.origin(arg)] if isinstance(arg, Value) else KERNEL.number(arg)

    def _is_number(self, arg: Value | float) -> bool:
        return not isinstance(arg, Value) or self.step.size(self.graph.origin(arg)) is not None

    def _value(self, value: Value) -> str:
        return self._texts[value].text

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

    def _sum_into_row(self, row_sum: RowSum) -> None:
        value = f"_keep({self._value(row_sum.value)}, _live)"
        key, label = ("sum", row_sum.number), f"sum_{row_sum.number}"
        total = self.names.internal(key, label)
        if self.phase.products:
            name = self._name_address(key, label, partial_sum_address(row_sum.number, self.argument))
            self._writes.append(f"_store({name}, 0, _LANES, _load({name}, 0, _LANES) + {value})")
        else:
            self._writes.append(f"{total} = {total} + {value}")


def product_sums_name(product: int, names: Names) -> str:
    """Return the name of the address of a product's sums for one row and vector of units."""
    return names.internal(("sums_at", product), f"sums_at_{product}")


def partial_sum_address(k: int, argument: Callable[[Argument], str]) -> str:
    """Return the address of the vector that accumulates row sum k of row `_n`, in a phase with products."""
    return f"{argument(args.row_sum_argument('sum', k))} + _n * _LANES * _BYTES"
