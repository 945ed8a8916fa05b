"""Prints the nests of a step as lines of a kernel.

The innermost axis of a nest is divided into vectors, which are unrolled. Values are named after their nodes: `v7` is
one number in all lanes, `v7_2` the third vector of the unrolled ones.
"""

from collections.abc import Iterable, Iterator
from math import prod

from glassgate.engines.llvm_cpu.arrays.nests import Nest, Store, is_sum, memory_of
from glassgate.engines.llvm_cpu.dialect import KERNEL
from glassgate.engines.lowering.expressions import Expression
from glassgate.engines.symbolic.arrays.value import Value

RESERVED_REGISTERS = 8
"""The registers that a loop needs besides sums and the vectors that stay in registers."""
MAX_UNROLLED = 8
"""The maximum number of unrolled vectors."""


class StepPrinter:
    """Prints the nests of one step in order. Each nest reads what earlier nests have kept.

    Args:
        sizes: the extent of each axis.
        lanes: the numbers in a vector.
        registers: the vector registers of the processor.

    Attributes:
        scratch_size: the numbers in the scratch memory, which holds kept values and sums.
    """

    def __init__(self, sizes: dict[str, int], lanes: int, registers: int) -> None:
        self.sizes, self.lanes, self.registers = sizes, lanes, registers
        self.scratch_size = 0
        self.variables: dict[Value, str] = {}
        """The values of one number per head, which are variables of the kernel."""
        self._places: dict[Value, int] = {}

    def lines(self, nests: Iterable[Nest]) -> list[str]:
        """The lines of a step."""
        return [line for nest in nests for line in self._nest(nest)]

    def _nest(self, nest: Nest) -> list[str]:
        lines = _StraightLine(self, nest).lines() if not nest.axes else _Loops(self, nest).lines()
        for node in (*nest.sums, *nest.kept):
            self._places.setdefault(node, -1)  # values without axes are variables
        return lines

    def address(self, node: Value) -> str:
        """The address of a leaf, of a kept value or of a sum."""
        if (memory := memory_of(node)) is not None:
            return memory.name
        if self._places.get(node, -1) < 0:
            self._places[node] = self.scratch_size
            self.scratch_size += -(-prod(self.sizes[axis] for axis in node.axes) // self.lanes) * self.lanes
        place = self._places[node]
        return f"_scratch + {place} * BYTES" if place else "_scratch"

    def is_read(self, node: Value) -> bool:
        """Whether a value is a leaf, a sum, or kept by an earlier nest."""
        return memory_of(node) is not None or is_sum(node) or node in self._places


class _Expressions:
    """Prints values, each once. Subclasses print how a value is read from memory.

    Args:
        step: the printer of the step.
        nest: the nest.
    """

    suffix = ""
    """The end of the names of values that are computed here."""

    def __init__(self, step: StepPrinter, nest: Nest) -> None:
        self.step, self.nest = step, nest
        self.roots = [s.inputs[0] for s in nest.sums] + [*nest.kept] + [store.value for store in nest.stores]
        self.names: dict[Value, str] = dict(step.variables)
        self._own = set(nest.kept)

    def is_read(self, node: Value) -> bool:
        """Whether the nest reads the value instead of computing it."""
        return node not in self._own and self.step.is_read(node)

    def read(self, node: Value) -> str:
        """The expression that reads a value."""
        raise NotImplementedError

    def compute(self, results: Iterable[Value]) -> Iterator[str]:
        """The lines that read and compute values, unless they have been printed."""
        for node in self._missing(results):
            text = self.read(node) if self.is_read(node) else self._operation(node)
            self.names[node] = f"v{node.serial}{self.suffix}"
            yield f"{self.names[node]} = {text}"

    def _missing(self, results: Iterable[Value]) -> list[Value]:
        needed, pending = dict[Value, None](), [*results]
        while pending:
            node = pending.pop()
            if node not in needed and node not in self.names and node.op != "constant":
                needed[node] = None
                if not self.is_read(node):
                    pending += node.inputs
        return sorted(needed, key=lambda node: node.serial)

    def _operation(self, node: Value) -> str:
        operands = [self._operand(arg) for arg in node.args]
        if node.op == "where" and not any(isinstance(arg, Value) and arg in self.names for arg in node.args[1:]):
            operands[1] = Expression(f"fill({operands[1].text})")
        return KERNEL.apply(node.op, operands).text

    def operand(self, arg: Value | float) -> str:
        """The name of a value, or a number."""
        return self._operand(arg).text

    def _operand(self, arg: Value | float) -> Expression:
        if isinstance(arg, Value) and arg.op != "constant":
            return Expression(self.names[arg])
        return KERNEL.number(float(arg.args[0] if isinstance(arg, Value) else arg))

    def vector(self, node: Value) -> str:
        """The name of a value, or a vector of a constant."""
        return f"fill({self.operand(node)})" if node.op == "constant" else self.operand(node)

    def store(self, store: Store, index: str, live: str) -> str:
        """The line that writes a result."""
        name, value = store.memory.name, self.vector(store.value)
        if store.adds:
            value = f"load({name}, {index}, {live}) + {value}"
        return f"store({name}, {index}, {live}, {value})"


class _StraightLine(_Expressions):
    """Prints a nest without axes."""

    def read(self, node: Value) -> str:
        return f"fill(number({self.step.address(node)}))"

    def lines(self) -> list[str]:
        lines = [*self.compute(self.roots)]
        self.step.variables |= {node: self.names[node] for node in self.nest.kept}
        return lines + [self.store(store, "0", "1") for store in self.nest.stores]


class _Loops:
    """Prints a nest with one or two axes.

    The loops, from the outside: blocks of the inner axis, if its vectors do not fit into the registers; the outer axis,
    if there is one; the unrolled vectors.
    """

    def __init__(self, step: StepPrinter, nest: Nest) -> None:
        self.step, self.nest, self.lanes = step, nest, step.lanes
        *outer, self.inner = nest.axes
        self.outer = outer[0] if outer else ""
        self.width = step.sizes[self.inner]
        self.totals = [s for s in nest.sums if not s.axes]
        """The sums over all axes."""
        self.row_sums = [s for s in nest.sums if s.axes == (self.outer,)]
        self.column_sums = [s for s in nest.sums if s.axes == (self.inner,)]
        vectors, registers = -(-self.width // self.lanes), step.registers - RESERVED_REGISTERS
        self.unrolled = min(vectors, MAX_UNROLLED, registers // max(1, len(self.column_sums)))
        self.has_blocks = vectors > self.unrolled
        self.vectors = [_UnrolledVector(self, j) for j in range(self.unrolled)]

    def lines(self) -> list[str]:
        """The lines of the nest."""
        names = {s: f"v{s.serial}" for s in self.nest.sums}
        start = [f"{names[s]} = fill(0.0)" for s in self.totals]
        for node in self._reads():
            if not node.axes:
                start += self._name_in_all_vectors(node, f"fill(number({self.step.address(node)}))")
        if self.has_blocks:
            # A row sum is the sum of the totals of several blocks.
            start += [line for s in self.row_sums for line in self._clear(s)]
        block = [f"{names[s]}_{j} = fill(0.0)" for s in self.column_sums for j in range(self.unrolled)]
        row = [f"{names[s]} = fill(0.0)" for s in self.row_sums]
        if self.outer:
            block += [line for vector in self.vectors for line in vector.compute(self._read_once())]
            row += [*self._broadcasts()]
        row += [line for vector in self.vectors for line in vector.lines()]
        put = "add_total" if self.has_blocks else "put_total"
        row += [f"{put}({self.step.address(s)} + _i * BYTES, {names[s]})" for s in self.row_sums]
        end = [v.write(s, f"{names[s]}_{v.number}") for s in self.column_sums for v in self.vectors]
        if self.outer:
            row = [f"for _i in range({self.step.sizes[self.outer]}):", *_indented(row)]
        lines = [*block, *row, *end]
        if self.has_blocks:
            lines = [f"for _b in range(0, {self.width}, {self.unrolled * self.lanes}):", *_indented(lines)]
        self.step.variables |= {s: names[s] for s in self.totals}
        return [*start, *lines, *(f"{names[s]} = total({names[s]})" for s in self.totals)]

    def _clear(self, s: Value) -> list[str]:
        size = prod(self.step.sizes[axis] for axis in s.axes)
        return [f"store({self.step.address(s)}, {k}, {self.lanes}, fill(0.0))" for k in range(0, size, self.lanes)]

    def _reads(self) -> list[Value]:
        """The values that the nest reads, except variables."""
        reads = dict[Value, None]()
        pending, seen = [*self.vectors[0].roots], set[Value]()
        while pending:
            node = pending.pop()
            if node not in seen and node.op != "constant" and node not in self.step.variables:
                seen.add(node)
                if self.vectors[0].is_read(node):
                    reads[node] = None
                else:
                    pending += node.inputs
        return sorted(reads, key=lambda node: node.serial)

    def _read_once(self) -> list[Value]:
        """The values along the inner axis that stay in registers while the outer axis is traversed."""
        free = (self.step.registers - RESERVED_REGISTERS) // self.unrolled - len(self.column_sums)
        return [node for node in self._reads() if node.axes == (self.inner,)][: max(0, free)]

    def _broadcasts(self) -> Iterator[str]:
        """The lines that read the values with one number per index of the outer axis."""
        for node in self._reads():
            if node.axes == (self.outer,):
                yield from self._name_in_all_vectors(node, f"fill(number({self.step.address(node)} + _i * BYTES))")

    def _name_in_all_vectors(self, node: Value, value: str) -> list[str]:
        """The line that assigns a value which is the same in all unrolled vectors."""
        name = f"v{node.serial}"
        for vector in self.vectors:
            vector.names[node] = name
        return [f"{name} = {value}"]


class _UnrolledVector(_Expressions):
    """Prints one of the unrolled vectors of a nest. `number` is its position."""

    def __init__(self, loops: _Loops, number: int) -> None:
        super().__init__(loops.step, loops.nest)
        self.loops, self.number, self.suffix = loops, number, f"_{number}"
        position = number * loops.lanes
        self.position = f"_b + {position}" if loops.has_blocks else f"{position}"
        """The index along the inner axis."""
        self.index = f"_i * {loops.width} + {self.position}" if loops.outer else self.position
        """The index in a value with all axes of the nest."""
        self.is_whole = loops.width % (loops.unrolled * loops.lanes) == 0
        self.live = f"{loops.lanes}"
        if not self.is_whole:
            rest = f"{loops.width} - ({self.position})" if loops.has_blocks else f"{loops.width - position}"
            self.live = rest

    def read(self, node: Value) -> str:
        index = self.index if {*node.axes} == {*self.nest.axes} else self.position
        return f"load({self.step.address(node)}, {index}, {self.live})"

    def write(self, node: Value, value: str) -> str:
        """The line that keeps a value along the inner axis, or with all axes."""
        index = self.index if {*node.axes} == {*self.nest.axes} else self.position
        return f"store({self.step.address(node)}, {index}, {self.live}, {value})"

    def lines(self) -> list[str]:
        """The lines that compute everything in this vector."""
        loops, lines = self.loops, [*self.compute(self.roots)]
        for s in self.nest.sums:
            name = f"v{s.serial}{self.suffix if loops.inner in s.axes else ''}"
            value = self.vector(s.inputs[0])
            if not self.is_whole and loops.inner not in s.axes:
                value = f"keep({value}, {self.live})"
            lines.append(f"{name} = {name} + {value}")
        lines += [self.write(node, self.vector(node)) for node in self.nest.kept]
        return lines + [self.store(store, self.index, self.live) for store in self.nest.stores]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def print_step(nests: Iterable[Nest], sizes: dict[str, int], lanes: int, registers: int) -> tuple[list[str], int]:
    """Print a step. Return its lines, and the numbers in its scratch memory."""
    printer = StepPrinter(sizes, lanes, registers)
    return printer.lines(nests), printer.scratch_size
