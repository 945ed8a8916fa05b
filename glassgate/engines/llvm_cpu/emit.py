"""Prints a step as the readable text of a kernel. `namespace.py` defines the functions that kernels call."""

from typing import NamedTuple

from glassgate.engines.axes import UNITS, Axis
from glassgate.engines.llvm_cpu import arguments as args
from glassgate.engines.llvm_cpu.arguments import Argument
from glassgate.engines.llvm_cpu.dialect import Names
from glassgate.engines.llvm_cpu.loops.buffers import Buffer, Column, Kind, RowPer
from glassgate.engines.llvm_cpu.loops.memory import StateBefore
from glassgate.engines.llvm_cpu.loops.phase import Phase, Product, RowSum
from glassgate.engines.llvm_cpu.loops.phases import Step
from glassgate.engines.llvm_cpu.phase_printer import (
    PhasePrinter,
    partial_sum_address,
    product_sums_name,
    split_long_sum,
)


class PrintedKernel(NamedTuple):
    """The text of a kernel.

    Attributes:
        text: the Python source of a function, whose parameter is the address of `arguments`.
        arguments: the 64-bit integers at that address, in order. The last two are FIRST and END.
    """

    text: str
    arguments: tuple[Argument, ...]


def emit(
    step: Step, title: str, rounds: bool = False, rounds_output: bool = False, input_size: int = 0
) -> PrintedKernel:
    """Print a step as the forward or the backward kernel of a cell.

    Args:
        step: the step.
        title: the docstring of the kernel.
        rounds: whether the left operands of matrix products are rounded, to bfloat16 or to integers.
        rounds_output: whether the kernel can also write the output in bfloat16.
        input_size: the width of the input if the kernel computes the input product; 0 if a GEMM before the loop does.
            A kernel that computes the input product keeps no values for a backward pass.
    """
    return _Emitter(step, rounds, rounds_output, input_size).kernel(title)


class _Emitter:
    """Prints one kernel. The arguments are those of `emit`."""

    def __init__(self, step: Step, rounds: bool, rounds_output: bool, input_size: int) -> None:
        self.step, self.rounds, self.rounds_output = step, rounds, rounds_output
        self.input_size = input_size
        self.names = Names()
        self.lines: list[tuple[int, str]] = []
        """The depth and the text of each line."""
        self.arguments: dict[Argument, str] = {}
        self.read_buffers: set[Buffer] = set()
        """The buffers whose rows an earlier phase of the step has read."""
        self.depth = 1

    def kernel(self, title: str) -> PrintedKernel:
        """Print the loop over time, then the first lines of the function, which unpack the arguments."""
        name = "backward" if self.step.backward else "forward"
        for argument in (args.STEPS, args.ORIGIN, args.DT, args.SIZES, args.STARTS):
            self.argument(argument)
        self.line("for _step in range(_steps):")
        self.depth += 1
        self._start_step()
        has_barriers = False
        for phases in self.step.groups:
            if phases[0].products:
                self._phase_with_products(phases[0])
            else:
                self._phases_by_row(phases)
            if phases[-1] in self.step.barriers:
                has_barriers = True
                self.line(f"_waits = _wait({self.argument(args.BARRIER)}, {self.argument(args.PARTIES)}, _waits)")
        if self.rounds_output and not self.step.backward:
            self._round_output()
        for argument in (args.FIRST, args.END):
            self.argument(argument)
        preamble = [(0, f'"""{title}"""'), (0, ""), (0, f"def {name}(_address):"), (1, "_job = _words(_address)")]
        for k, (argument, name_in_kernel) in enumerate(self.arguments.items()):
            preamble.append((1, f"{name_in_kernel} = {f'_words(_job[{k}])' if argument.is_table else f'_job[{k}]'}"))
        if has_barriers:
            preamble.append((1, "_waits = 1"))
        text = "\n".join("    " * depth + line for depth, line in [*preamble, *self.lines]) + "\n"
        return PrintedKernel(text, tuple(self.arguments))

    def line(self, text: str, deeper: int = 0) -> None:
        """Append a line to the kernel, indented `deeper` levels more than the current depth."""
        self.lines.append((self.depth + deeper if text else 0, text))

    def argument(self, argument: Argument) -> str:
        """Return the name of an argument in the kernel. If the kernel does not have the argument yet, add it."""
        if argument not in self.arguments:
            temporary = self.step.temporaries.get(argument.buffer) if argument.buffer else None
            label = f"{self.names.value(temporary.value)}_rows" if temporary else argument.label
            self.arguments[argument] = self.names.internal(argument, label)
        return self.arguments[argument]

    def _print_phase(self, phase: Phase) -> PhasePrinter:
        return PhasePrinter(self.step, phase, self.names, self.argument, self.rounds, self.input_size)

    def _start_step(self) -> None:
        """Print the first lines of a step, which find its rows and write the addresses of the states before it."""
        self.line("_t = _origin + _step * _dt")
        self.line("_first_row, _end = _starts[_t], min(_last, _sizes[_t])")
        if self.step.states:
            self.line(f"_previous = _t {'+' if self.step.backward else '-'} _dt")
        for state in self.step.states:
            buffer = self.step.buffers.of_state(Kind.STATE, state)
            table = self.argument(args.previous_state(state))
            layout = map(self.argument, (args.address(buffer), args.pitch(buffer)))
            initial, restart = (self.step.buffers.of_state(kind, state) for kind in (Kind.INITIAL, Kind.RESTART))
            self.line("_write_state_addresses(")
            self.line(f"{table}, _first, _end, _first_row, {self.argument(args.RESETS)}, {', '.join(layout)},", 1)
            starts = self.argument(args.starts(buffer))
            addresses = ", ".join(self.argument(args.address(each)) for each in (initial, restart))
            self.line(f"{starts}[_previous], _sizes[_previous], {addresses},", 1)
            self.line(")")

    def _round_output(self) -> None:
        """Print the conversion of the step's output to bfloat16."""
        state = next(iter(self.step.buffers.states))
        buffer, to = self.step.buffers.of_state(Kind.STATE, state), self.argument(args.ROUNDED_OUTPUT)
        base, pitch = self.argument(args.address(buffer)), self.argument(args.pitch(buffer))
        width, (first, last) = self.argument(args.width(buffer.axis)), map(self.argument, args.unit_range(buffer.axis))
        self.line(f"if {to} != 0:")
        self.line(f"_from = {base} + ({self.argument(args.starts(buffer))}[_t] + _first) * {pitch}", 1)
        self.line(f"_to = {to} + (_first_row + _first) * {width} * 2", 1)
        self.line(f"_round_units(_from, {pitch}, {width}, _end - _first, {first}, {last}, _to)", 1)

    def _phases_by_row(self, phases: list[Phase]) -> None:
        """Print a loop over rows. It runs all phases on a row before the next row, so the values stay in the cache."""
        printed_lines: set[str] = set()
        self.line("for _n in range(_first, _end):")
        self.depth += 1
        for phase in phases:
            body = self._print_phase(phase)
            self._lines([line for line in body.row_lines if line not in printed_lines])
            printed_lines |= set(body.row_lines)
            prefetched = {}
            for buffer, columns in body.column_counts.items():
                if buffer not in self.read_buffers:
                    address, pitch = self.argument(args.address(buffer)), self.argument(args.pitch(buffer))
                    name = self.names.internal(("ahead", buffer), f"{buffer.label}_ahead")
                    self.line(f"{name} = {address} + (_starts[_t + _dt] + _n) * {pitch}")
                    prefetched[name] = pitch, columns
            sums = {s: self.names.internal(("sum", s.number), f"sum_{s.number}") for s in phase.row_sums}
            self._lines([f"{name} = _fill(0.0)" for name in sums.values()])
            first, last = map(self.argument, args.unit_range(phase.axis))
            width = self.argument(args.width(phase.axis))
            self.line(f"for _unit in range({first}, {last}, _LANES):")
            self.line(f"_live = {width} - _unit", 1)
            self.depth += 1
            for name, (pitch, columns) in prefetched.items():
                H = self.argument(args.width(UNITS))
                self.line(f"_prefetch({name} + _unit * _BYTES, {pitch}, 1, {columns}, {H} * _BYTES, _LANES * _BYTES)")
            self.read_buffers |= set(body.column_counts)
            self._lines(body.unit_lines)
            self.depth -= 1
            self._store_totals(sums)
        self.depth -= 1

    def _phase_with_products(self, phase: Phase) -> None:
        """Print the loops over tiles of a phase with matrix products. Its row sums are accumulated in memory."""
        vectors = {s: f"{partial_sum_address(s.number, self.argument)}, 0, _LANES" for s in phase.row_sums}
        if vectors:
            self.line("for _n in range(_first, _end):")
        for vector in vectors.values():
            self.line(f"_store({vector}, _fill(0.0))", 1)
        self._product_loops(phase, self._print_phase(phase))
        if vectors:
            self.line("for _n in range(_first, _end):")
            self.depth += 1
            self._store_totals({s: f"_load({vector})" for s, vector in vectors.items()})
            self.depth -= 1

    def _lines(self, lines: list[str]) -> None:
        for line in lines:
            for part in split_long_sum(line):
                self.line(part)

    def _product_loops(self, phase: Phase, body: PhasePrinter) -> None:
        """Print a loop over blocks and tiles of rows: the products of a tile, then the other lines of the phase."""
        heads = phase.products[0].weight.heads
        self.read_buffers |= set(body.column_counts)
        for product in phase.products:
            self._write_operand_table(product)
        max_results = max(len(product.results) for product in phase.products)
        max_area = "1" if heads > 1 else f"_MAX_AREA_{max_results}"
        self.line(f"_tile_rows, _tile_blocks = _shape_of_tiles(_end - _first, _MAX_ROWS_{max_results}, {max_area})")
        if heads > 1:
            size, blocks = map(self.argument, args.head_sizes(phase.axis))
            self.line("_first_block, _done = 0, 0")
            self.line(f"_blocks = {heads} * {blocks}")
        else:
            first, last = map(self.argument, args.unit_range(phase.axis))
            self.line(f"_first_block, _done = {first} // _LANES, 0")
            self.line(f"_blocks = ({last} + _LANES - 1) // _LANES - _first_block")
        self.line("while _done < _blocks:")
        self.depth += 1
        self.line("while _done + _tile_blocks > _blocks:")
        self.line("_tile_blocks //= 2", 1)
        # Alternate the direction. Each step then begins with the weights that the previous step left in the cache.
        self.line("_block = _first_block + (_done if _step % 2 == 0 else _blocks - _done - _tile_blocks)")
        self.line("_tile_start = _first")
        self.line("while _tile_start < _end:")
        self.depth += 1
        self.line("_rows = min(_tile_rows, _end - _tile_start)")
        columns = {buffer: 1 for buffer in body.column_counts if buffer.kind is Kind.NOISE}
        if input_columns := self.step.input_columns(phase):
            columns |= {buffer: input_columns for buffer in body.column_counts if buffer.kind is Kind.INPUT}
        for buffer, count in columns.items():
            self._prefetch(buffer, count)
        for product in phase.products:
            self._multiply_tile(product, phase.axis)
        self.line("for _tile_row in range(_rows):")
        self.depth += 1
        self.line("_n = _tile_start + _tile_row")
        self._lines(body.row_lines)
        self.line("for _tile_block in range(_tile_blocks):")
        self.depth += 1
        if phase.row_sums:
            # Alternate inside a tile too, so that the order of the terms of a sum does not depend on the tile width.
            self.line("_tile_block = _tile_block if _step % 2 == 0 else _tile_blocks - 1 - _tile_block")
        if heads > 1:
            self.line(f"_unit = _block // {blocks} * {size} + _block % {blocks} * _LANES")
            self.line(f"_live = {size} - _block % {blocks} * _LANES")
        else:
            self.line("_unit = (_block + _tile_block) * _LANES")
            self.line(f"_live = {self.argument(args.width(phase.axis))} - _unit")
        for product in phase.products:
            size = f"{len(product.results)} * _LANES * _BYTES"
            sums = self.argument(args.product_argument("sums", product.number))
            name = product_sums_name(product.number, self.names)
            self.line(f"{name} = {sums} + (_tile_row * _tile_blocks + _tile_block) * {size}")
        self._lines(body.unit_lines)
        self.depth -= 2
        self.line("_tile_start += _rows")
        self.depth -= 1
        self.line("_done += _tile_blocks")
        self.depth -= 1

    def _prefetch(self, buffer: Buffer, columns: int) -> None:
        """Print the prefetch of the columns of a buffer that a tile reads."""
        address, pitch = self.argument(args.address(buffer)), self.argument(args.pitch(buffer))
        H = self.argument(args.width(UNITS))
        self.line(f"_ahead = {address} + (_first_row + _tile_start) * {pitch} + _block * _LANES * _BYTES")
        self.line(f"_prefetch(_ahead, {pitch}, _rows, {columns}, {H} * _BYTES, _tile_blocks * _LANES * _BYTES)")

    def _operand_table(self, product: Product) -> str:
        """Return the name of the table with the row addresses of a product's left operand."""
        if isinstance(rows := self.step.left_operand(product).rows, StateBefore) and not self.rounds:
            return self.argument(args.previous_state(rows.state))
        return self.argument(args.product_argument("left", product.number))

    def _write_operand_table(self, product: Product) -> None:
        """Print the lines that write the row addresses of a product's left operand to its table."""
        rows = self.step.left_operand(product).rows
        if isinstance(rows, StateBefore):
            if self.rounds:
                self._round_operand(product, self.argument(args.previous_state(rows.state)))
            return
        table, buffer = self._operand_table(product), rows.buffer
        base = self.argument(args.address(buffer))
        if buffer.kind.row_per is RowPer.STEP:
            starts = self.argument(args.starts(buffer)) if buffer.kind is Kind.STATE else "_starts"
            pitch = self.argument(args.pitch(buffer))
            self.line(f"_write_row_addresses({table}, _first, _end, {base} + {starts}[_t] * {pitch}, {pitch})")
        else:
            self.line(
                f"_write_row_addresses({table}, _first, _end, {base}, {self.argument(args.axis_pitch(buffer.axis))})"
            )
        if self._needs_rounding(product):
            self._round_operand(product, table)

    def _needs_rounding(self, product: Product) -> bool:
        """Return whether a product's left operand must be rounded. Buffers of `ROUNDED_KINDS` are already rounded."""
        rows = self.step.left_operand(product).rows
        return self.rounds and (isinstance(rows, StateBefore) or rows.buffer.kind not in args.ROUNDED_KINDS)

    def _round_operand(self, product: Product, table: str) -> None:
        """Print the rounding of a product's left operand. `table` has the addresses of the unrounded rows."""
        column, width = self._operand_columns(product)
        to = self.argument(args.product_argument("rounded", product.number))
        self.line(f"_round_rows({self._operand_table(product)}, {table}, _first, _end, {column}, {width}, {to})")

    def _operand_columns(self, product: Product) -> tuple[str, str]:
        """Return the offset and the width of a product's left operand in a row."""
        left = self.step.left_operand(product)
        width = self.argument(args.width(left.axis))
        column = left.rows.number if isinstance(left.rows, Column) else 0
        depth = f"{left.columns} * {width}" if left.columns > 1 else width
        return f"{column} * {width}" if column else "0", depth

    def _multiply_tile(self, product: Product, axis: Axis) -> None:
        """Print the call of the microkernel for one tile of a product."""
        k, heads = product.number, product.weight.heads
        first, depth = self._operand_columns(product)
        if self._needs_rounding(product):
            first = "0"
        if heads > 1:
            blocks, size = (
                self.argument(args.head_sizes(axis)[1]),
                self.argument(args.head_sizes(self.step.left_operand(product).axis)[0]),
            )
            first, depth = f"{first} + _block // {blocks} * {size}", size
        transposed = product.weight.is_transposed
        labels = "weights", "block_pitch", "row_pitch" if transposed else "gates", "sums"
        weights, pitch, layout, sums = (self.argument(args.product_argument(label, k)) for label in labels)
        n, table = len(product.results), self._operand_table(product)
        self.line(f"_weights = {weights} + _block * {pitch} * _BYTES")
        self.line(f"_live = {self.argument(args.width(axis))} - _block * _LANES")
        self.line(f"_{'transposed_' * transposed}microkernel_{n}(")
        operands = f"{table}, _tile_start, {first}, _weights, {pitch}, {layout}, _live, {depth}, {sums}"
        self.line(f"{operands}, _rows, _tile_blocks", deeper=1)
        self.line(")")

    def _store_totals(self, partial: dict[RowSum, str]) -> None:
        """Print the lines that store the sums over the units of a row.

        Args:
            partial: for each sum, the expression of a vector whose lanes add up to it.
        """
        for row_sum, vector in partial.items():
            total = self.argument(args.row_sum_argument("total", row_sum.number))
            self.line(f"_put_total({total} + _n * _BYTES, {vector})")
        kept = [(s.kept, vector) for s, vector in partial.items() if s.kept is not None and not self.input_size]
        if kept:
            self.line(f"if {self.argument(args.SAVE)}:")
        for (buffer, column), vector in kept:
            base, pitch = self.argument(args.address(buffer)), self.argument(args.pitch(buffer))
            self.line(f"_put_total({base} + (_first_row + _n) * {pitch} + {column} * _BYTES, {vector})", 1)
