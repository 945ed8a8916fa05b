"""Prints the nests of a step as lines of a kernel.

The innermost axis of a nest is divided into vectors, which are unrolled. `v7` or `v_c` is one number in all lanes, and
`v7_2` the third vector of the unrolled ones.
"""

from collections.abc import Iterable, Iterator, Sequence

from glassgate.engines.arrays.nests import Order, is_constant, is_view
from glassgate.engines.arrays.places import Place
from glassgate.engines.llvm_cpu.arrays.layout import Layout, Names
from glassgate.engines.llvm_cpu.arrays.moves import move_lines
from glassgate.engines.llvm_cpu.dialect import KERNEL
from glassgate.engines.lowering.expressions import Expression
from glassgate.engines.lowering.nests import Move, Nest, Store
from glassgate.engines.symbolic.arrays.value import Value
from glassgate.engines.symbolic.ops import Constant

RESERVED_REGISTERS = 8
"""The registers that a loop needs besides sums and the vectors that stay in registers."""
MAX_UNROLLED = 8
"""The maximum number of unrolled vectors."""


def print_step(
    nests: Iterable[Nest | Move], sizes: dict[str, int], order: Order, lanes: int, registers: int, names: Names
) -> tuple[list[str], int]:
    """Print the nests of one step in order.

    Args:
        nests: the nests. Each reads what earlier nests have kept.
        sizes: the extent of each axis.
        order: the order of loops.
        lanes: the numbers in a vector.
        registers: the vector registers of the processor.
        names: the names of the values of the kernel.

    Returns:
        the lines, and the numbers in the scratch memory.
    """
    layout, lines = Layout(sizes, order, lanes, names), list[str]()
    for nest in nests:
        if isinstance(nest, Move):
            lines += move_lines(layout, nest.item)
        elif not nest.axes:
            lines += _StraightLine(layout, nest).lines()
        else:
            lines += _Loops(layout, nest, registers).lines()
    return lines, layout.scratch_size


class _Expressions:
    """Prints values, each once. Subclasses print how a value is read from memory.

    Args:
        layout: the memory of the step.
        nest: the nest.
    """

    suffix = ""
    """The end of the names of values that are computed here."""

    def __init__(self, layout: Layout, nest: Nest) -> None:
        self.layout, self.nest = layout, nest
        self.roots = [s.inputs[0] for s in nest.reductions] + [*nest.kept] + [store.value for store in nest.stores]
        self.names: dict[Value, str] = dict(layout.variables)
        self._own = set(nest.kept)

    def is_read(self, node: Value) -> bool:
        """Whether the nest reads the value instead of computing it."""
        return is_view(node) or (node not in self._own and self.layout.is_computed(node))

    def read(self, node: Value) -> str:
        """The expression that reads a value."""
        raise NotImplementedError

    def compute(self, results: Iterable[Value]) -> Iterator[str]:
        """The lines that read and compute values, unless they have been printed."""
        for node in self._missing(results):
            text = self.read(node) if self.is_read(node) else self._operation(node)
            self.names[node] = f"{self.layout.names[node]}{self.suffix}"
            yield f"{self.names[node]} = {text}"

    def _missing(self, results: Iterable[Value]) -> list[Value]:
        needed, pending = dict[Value, None](), [*results]
        while pending:
            node = pending.pop()
            if node not in needed and node not in self.names and not is_constant(node):
                needed[node] = None
                if not self.is_read(node):
                    pending += node.inputs
        return sorted(needed, key=lambda node: node.serial)

    def _operation(self, node: Value) -> str:
        assert isinstance(node.op, str)
        operands = [self._operand(arg) for arg in node.args]
        if node.op == "where" and not any(isinstance(arg, Value) and arg in self.names for arg in node.args[1:]):
            operands[1] = Expression(f"fill({operands[1].text})")
        if not any(isinstance(arg, Value) and arg in self.names for arg in node.args):
            operands[0] = Expression(f"fill({operands[0].text})")
        return KERNEL.apply(node.op, operands).text

    def _operand(self, arg: Value | float) -> Expression:
        if not isinstance(arg, Value):
            return KERNEL.number(float(arg))
        if isinstance(arg.op, Constant):
            return KERNEL.number(arg.op.number)
        return Expression(self.names[arg])

    def vector(self, node: Value) -> str:
        """The name of a value, or a vector of a constant."""
        text = self._operand(node).text
        return f"fill({text})" if is_constant(node) else text

    def store(self, store: Store, index: str, live: str) -> str:
        """The line that writes a result."""
        name, value = store.memory.name, self.vector(store.value)
        if store.adds:
            value = f"load({name}, {index}, {live}) + {value}"
        return f"store({name}, {index}, {live}, {value})"


class _StraightLine(_Expressions):
    """Prints a nest without axes."""

    def read(self, node: Value) -> str:
        place = self.layout.place(node)
        return f"fill(number({place.address} + {place.offset} * BYTES))"

    def lines(self) -> list[str]:
        lines = [*self.compute(self.roots)]
        self.layout.variables |= {node: self.names[node] for node in self.nest.kept}
        return lines + [self.store(store, "0", "1") for store in self.nest.stores]


class _Loops:
    """Prints a nest with axes.

    The loops, from the outside: blocks of the inner axis, if its vectors do not fit into the registers; the outer axes;
    the unrolled vectors. Without sums that stay in registers, the blocks are inside of the outer axes.
    """

    def __init__(self, layout: Layout, nest: Nest, registers: int) -> None:
        self.layout, self.nest, self.lanes, self.registers = layout, nest, layout.lanes, registers
        *self.outer, self.inner = nest.axes
        self.width = layout.sizes[self.inner]
        self.totals = [s for s in nest.reductions if not s.axes]
        """The sums over all axes."""
        self.row_sums = [s for s in nest.reductions if s.axes and self.inner not in s.axes]
        self.column_sums = [s for s in nest.reductions if s.axes == (self.inner,)]
        """The sums over all outer axes, which stay in registers."""
        self.added = {s for s in nest.reductions if self.inner in s.axes and len(s.axes) > 1}
        """The sums over some of the outer axes, which are added in memory."""
        # Each block adds to the row sums in memory, which costs more than keeping some of the column sums in memory.
        reserved = 0 if self.row_sums else RESERVED_REGISTERS
        vectors, free = -(-self.width // self.lanes), registers - reserved
        unrolled = min(vectors, MAX_UNROLLED, max(1, free // max(1, len(self.column_sums))))
        self.unrolled = -(-vectors // -(-vectors // unrolled))
        self.has_blocks = vectors > self.unrolled
        self.variables = {axis: f"_i{k}" for k, axis in enumerate(self.outer)}
        """The variables of the outer loops."""
        self.vectors = [_UnrolledVector(self, j) for j in range(self.unrolled)]

    def lines(self) -> list[str]:
        """The lines of the nest."""
        names = {s: self.layout.names[s] for s in self.nest.reductions}
        start = [f"{names[s]} = fill(0.0)" for s in self.totals]
        has_row_blocks = self.has_blocks and bool(self.outer) and not self.column_sums
        is_complete = has_row_blocks or not self.has_blocks
        complete = {s for s in self.row_sums if len(s.axes) == len(self.outer) and is_complete}
        """The row sums that are complete at the end of a row. Several rows or blocks add to the others."""
        for s in self.nest.reductions:
            if s.axes:
                self.layout.allocate(s, [axis for axis in self.nest.axes if axis in s.axes])
            if s.axes and s.axes != (self.inner,) and s not in complete:
                start += self._clear(s)
        outside, inside = self._broadcasts()
        block = [f"{names[s]}_{j} = fill(0.0)" for s in self.column_sums for j in range(self.unrolled)]
        row = [*inside, *(f"{names[s]} = fill(0.0)" for s in self.row_sums)]
        if self.outer and not has_row_blocks:
            block += [line for vector in self.vectors for line in vector.compute(self._read_once())]
        inner = [line for vector in self.vectors for line in vector.lines()]
        blocks = f"for _b in range(0, {self.width}, {self.unrolled * self.lanes}):"
        row += [blocks, *_indented(inner)] if has_row_blocks else inner
        for s in self.row_sums:
            place = self.layout.allocate(s)
            put = "put_total" if s in complete else "add_total"
            row.append(f"{put}({place.address} + ({place.index(self.variables)}) * BYTES, {names[s]})")
        end = [v.write(s, f"{names[s]}_{v.number}") for s in self.column_sums for v in self.vectors]
        for axis in reversed(self.outer):
            row = [f"for {self.variables[axis]} in range({self.layout.sizes[axis]}):", *_indented(row)]
        lines = [*block, *row, *end]
        if self.has_blocks and not has_row_blocks:
            lines = [blocks, *_indented(lines)]
        self.layout.variables |= {s: names[s] for s in self.totals}
        for node in self.nest.kept:
            self.layout.allocate(node)
        return [*start, *outside, *lines, *(f"{names[s]} = total({names[s]})" for s in self.totals)]

    def _clear(self, s: Value) -> list[str]:
        """The lines that set a sum in memory to zero."""
        address, size = self.layout.allocate(s).address, self.layout.size(s.axes)
        return [f"for _i0 in range(0, {size}, {self.lanes}):", f"    store({address}, _i0, {self.lanes}, fill(0.0))"]

    def _reads(self) -> list[Value]:
        """The values that the nest reads, except variables."""
        reads = dict[Value, None]()
        pending, seen = [*self.vectors[0].roots], set[Value]()
        while pending:
            node = pending.pop()
            if node not in seen and not is_constant(node) and node not in self.layout.variables:
                seen.add(node)
                if self.vectors[0].is_read(node):
                    reads[node] = None
                else:
                    pending += node.inputs
        return sorted(reads, key=lambda node: node.serial)

    def _read_once(self) -> list[Value]:
        """The values along the inner axis that stay in registers while the outer axes are traversed."""
        free = (self.registers - RESERVED_REGISTERS) // self.unrolled - len(self.column_sums)
        return [node for node in self._reads() if node.axes == (self.inner,)][: max(0, free)]

    def _broadcasts(self) -> tuple[list[str], list[str]]:
        """The lines that read values with one number per row: those outside of all loops, and those in each row."""
        outside, inside = list[str](), list[str]()
        for node in self._reads():
            if self.inner in node.axes:
                continue
            place, name = self.layout.place(node), self.layout.names[node]
            line = f"{name} = fill(number({place.address} + ({place.index(self.variables)}) * BYTES))"
            (inside if node.axes else outside).append(line)
            for vector in self.vectors:
                vector.names[node] = name
        return outside, inside


class _UnrolledVector(_Expressions):
    """Prints one of the unrolled vectors of a nest. `number` is its position."""

    def __init__(self, loops: _Loops, number: int) -> None:
        super().__init__(loops.layout, loops.nest)
        self.loops, self.number, self.suffix = loops, number, f"_{number}"
        position = number * loops.lanes
        self.variables = loops.variables | {loops.inner: f"_b + {position}" if loops.has_blocks else f"{position}"}
        self.is_whole = loops.width % (loops.unrolled * loops.lanes) == 0
        self.live = f"{loops.lanes}"
        if not self.is_whole:
            self.live = f"{loops.width} - (_b + {position})" if loops.has_blocks else f"{loops.width - position}"
        self.index = self._contiguous(loops.nest.axes).index(self.variables)
        """The index in a value with all axes of the nest."""

    def _contiguous(self, axes: Sequence[str]) -> Place:
        return Place("", self.layout.strides(axes))

    def read(self, node: Value) -> str:
        place = self.layout.place(node)
        index, stride = place.index(self.variables), place.strides[self.loops.inner]
        if stride == 1:
            return f"load({place.address}, {index}, {self.live})"
        return f"gather({place.address}, {index}, {stride}, {self.live})"

    def write(self, node: Value, value: str, adds: bool = False) -> str:
        """The line that keeps a value, or adds it to memory."""
        place = self.layout.allocate(node)
        index = place.index(self.variables)
        if adds:
            value = f"load({place.address}, {index}, {self.live}) + {value}"
        return f"store({place.address}, {index}, {self.live}, {value})"

    def lines(self) -> list[str]:
        """The lines that compute everything in this vector."""
        loops, lines = self.loops, [*self.compute(self.roots)]
        for s in self.nest.reductions:
            value = self.vector(s.inputs[0])
            if s in loops.added:
                lines.append(self.write(s, value, adds=True))
                continue
            name = f"{self.layout.names[s]}{self.suffix if loops.inner in s.axes else ''}"
            if not self.is_whole and loops.inner not in s.axes:
                value = f"keep({value}, {self.live})"
            lines.append(f"{name} = {name} + {value}")
        lines += [self.write(node, self.vector(node)) for node in self.nest.kept]
        return lines + [self.store(store, self.index, self.live) for store in self.nest.stores]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]
