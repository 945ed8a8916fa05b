"""The kernels of a cell whose states are arrays: their text and their machine code.

A job is one head of one sequence. It keeps its states in the first-level cache, from the first step to the last.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple

from glassgate.engines.arrays.blocks import BlockProgram, block_of, of_step
from glassgate.engines.arrays.nests import Order, divide
from glassgate.engines.arrays.program import ArrayProgram, parameter_name
from glassgate.engines.llvm_cpu.arrays.layout import Names
from glassgate.engines.llvm_cpu.arrays.printer import print_step
from glassgate.engines.llvm_cpu.compile import Function, compile_kernel
from glassgate.engines.llvm_cpu.costs import COSTS
from glassgate.engines.llvm_cpu.processor import Processor
from glassgate.engines.lowering.nests import Store

HEADER = ("starts", "lengths", "reverse", "resets", "jobs", "chunk", "saved", "gates", "inputs", "noise")
"""The first arguments of both kernels:

starts: the address of a table with the first row of each step.
lengths: the address of a table with the number of steps of each sequence.
reverse: whether time runs backwards.
resets: the address of the mask of resets, or 0.
jobs: the number of jobs.
chunk: the number of steps between saved states.
saved: the address of the saved states, or 0.
gates, inputs, noise: the addresses of the pre-activations, of the inputs, and of the random numbers of all rows.

The last two arguments are the first job and the end of the jobs."""
TABLES = frozenset({"starts", "lengths"})
BLOCK = 2
"""The number of steps that kernels run at once."""


class KernelText(NamedTuple):
    """The text of a cell's passes.

    Attributes:
        forward, backward: the passes.
        slot: the numbers per step in the workspace of the backward pass.
    """

    forward: str
    backward: str
    slot: int


class Kernels:
    """The machine code of a cell's passes. Each pass is compiled at its first use.

    Args:
        program, bits, processor: as in `print_kernels`.

    Attributes:
        slot: see `KernelText`.
    """

    def __init__(self, program: ArrayProgram, bits: int, processor: Processor) -> None:
        self._text, self._options = print_kernels(program, bits, processor), (bits, processor)
        self.slot = self._text.slot

    @cached_property
    def forward(self) -> Function:
        """The forward pass."""
        return compile_kernel(self._text.forward, "forward", *self._options)

    @cached_property
    def backward(self) -> Function:
        """The backward pass."""
        return compile_kernel(self._text.backward, "backward", *self._options)


def print_kernels(program: ArrayProgram, bits: int, processor: Processor) -> KernelText:
    """Print both passes of a cell.

    Args:
        program: the passes of one step.
        bits: the size of a number.
        processor: the processor that runs the kernels.
    """
    block = block_of(program, BLOCK)
    backward = _Backward(program, block, bits, processor)
    return KernelText(_Forward(program, block, bits, processor).text(), backward.text(), backward.slot)


class _Kernel:
    """The text of one kernel.

    Args:
        program, bits, processor: as in `print_kernels`.
        block: the passes of several steps; None for single steps only.
    """

    name = ""

    def __init__(self, program: ArrayProgram, block: BlockProgram | None, bits: int, processor: Processor) -> None:
        self.program, self.block, self.step, self.bits, self.processor = program, block, program.step, bits, processor
        self.lanes = processor.lanes(bits)
        self._lines: list[str] = []
        self._names = Names()
        self._depth = 1
        self._scratch_size = 1
        self.parameters = {parameter_name(key): axes for key, axes in program.parameter_axes.items()}

    def arguments(self) -> Sequence[str]:
        """The names of the arguments after the header."""
        raise NotImplementedError

    def print_job(self) -> None:
        """Print the code of one job."""
        raise NotImplementedError

    def text(self) -> str:
        """The text of the kernel."""
        program = self.program
        with self.loop("for _j in range(_first, _end):"):
            self.line(f"_n = _j // {program.heads}")
            self.line(f"_h = _j % {program.heads}")
            self.line("_length = _lengths[_n]")
            for name, axes in self.parameters.items():
                self.line(f"p_{name} = _p_{name}{self._of_head(axes)}")
            self.print_job()
        first = [f"def {self.name}(_address):", "    _job = words(_address)"]
        for k, argument in enumerate((*HEADER, *self.arguments(), "first", "end")):
            first.append(f"    _{argument} = {f'words(_job[{k}])' if argument in TABLES else f'_job[{k}]'}")
        first.append(f"    _scratch = memory_{self._scratch_size * self.bits // 8}()")
        return "\n".join([*first, *self._lines]) + "\n"

    def line(self, text: str) -> None:
        """Append a line."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def loop(self, head: str) -> Iterator[None]:
        """Append a loop or an `if`, whose body is printed inside the `with` block."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def print_stores(self, stores: Sequence[Store]) -> None:
        """Append the nests of a step."""
        order, sizes = Order(stores, self.program.order), dict(self.program.sizes)
        nests = divide(stores, order, COSTS)
        lines, size = print_step(nests, sizes, order, self.lanes, self.processor.registers, self._names)
        self._scratch_size = max(self._scratch_size, size)
        for line in lines:
            self.line(line)

    def for_each(self, size: int, store: str) -> None:
        """Append a loop over the vectors of an array. In `store`, `_x` is the index, and {} the number of lanes."""
        self.line(f"for _x in range(0, {size}, {self.lanes}):")
        self.line(f"    {store.replace('{}', str(self.lanes) if size % self.lanes == 0 else f'{size} - _x')}")

    def copy(self, to: str, source: str, size: int) -> None:
        """Append the copy of an array."""
        self.for_each(size, f"store({to}, _x, {{}}, load({source}, _x, {{}}))")

    def of_job(self, prefix: str, blocks: Mapping[str, tuple[str, ...]]) -> None:
        """Append the addresses of arrays with a block per job."""
        for name, axes in blocks.items():
            self.line(f"{prefix}_{name} = _{prefix}_{name} + _j * {self.program.size(axes)} * BYTES")

    def find_row(self, later: int = 0, next: int = 1) -> None:
        """Append the row of step `_k`, or of a later step, and its distance to the row that is read next.

        Args:
            later: the number of steps after `_k`.
            next: the number of steps from this row to that which is read next.
        """
        bounded = f"min(_k + {later + next}, _length - 1)" if next > 0 else f"max(_k - {-later - next}, 0)"
        self.line(f"_next = {bounded}")
        self.line(f"_t = _length - {1 + later} - _k if _reverse != 0 else _k + {later}")
        self.line("_ahead = _starts[_length - 1 - _next if _reverse != 0 else _next] - _starts[_t]")
        self.line("_row = _starts[_t] + _n")

    def of_row(self, base: str, prefix: str, blocks: Mapping[str, tuple[str, ...]]) -> None:
        """Append the addresses of arrays that share a row per step, one after the other, and fetch the next row."""
        widths = [self._width(axes) for axes in blocks.values()]
        for k, (name, axes) in enumerate(blocks.items()):
            address = f"{base} + (_row * {sum(widths)} + {sum(widths[:k])}) * BYTES{self._of_head(axes)}"
            self.line(f"{prefix}{name} = {address}")
            after = f"{prefix}{name} + _ahead * {sum(widths)} * BYTES"
            self.line(f"prefetch({after}, 0, 1, 1, 0, {self.program.size(axes)} * BYTES)")

    def _width(self, axes: Sequence[str]) -> int:
        return self.program.size(axes) * (self.program.heads if self.program.head in axes else 1)

    def _of_head(self, axes: Sequence[str]) -> str:
        return f" + _h * {self.program.size(axes)} * BYTES" if self.program.head in axes else ""

    def of_results(self, prefix: str, names: Iterable[str], to: str = "") -> None:
        """Append the addresses of the rows of states and local variables, or of their gradients, as `to` if given."""
        for name in names:
            self.of_row(f"_{prefix}_{name}", to or f"{prefix}_", {name: self.program.in_rows[name]})

    def read_rows(self, step: str = "") -> None:
        """Append the addresses of all that a step reads from the rows of a call."""
        self.of_row("_gates", f"a_{step}", self.program.gates)
        self.of_row("_inputs", "x_", self.program.inputs)
        self.of_row("_noise", "z_", self.program.noise)

    def find_resets(self) -> None:
        """Append whether the row is reset."""
        self.line("_is_reset = is_reset(_resets, _row)")

    @property
    def saved_sizes(self) -> dict[str, int]:
        """The size of each saved state."""
        return {name: self.program.size(self.step.state[name]) for name in self.program.kept_states}


class _Forward(_Kernel):
    """Computes the output of each row and the final states. In training, it saves the states every `chunk` steps."""

    name = "forward"

    def arguments(self) -> Sequence[str]:
        return self.program.forward_arguments

    def print_job(self) -> None:
        self.of_job("s", self.step.state)
        self.of_job("r", self.step.state)
        if self.block is not None:
            count = self.block.count
            self.line(f"_single = 0 if _resets != 0 else _length // {count} * {count}")
            with self.loop(f"for _k in range(0, _single, {count}):"):
                self._save_states()
                for k in range(count):
                    self.find_row(k, count)
                    self.read_rows(of_step(k))
                    self.of_results("o", self.program.outputs, f"s_{of_step(k)}" if k < count - 1 else "")
                self.print_stores(self.block.forward)
        with self.loop(f"for _k in range({'_single, ' if self.block else ''}_length):"):
            self._save_states()
            self.find_row()
            self.find_resets()
            with self.loop("if _is_reset:"):
                for name, axes in self.step.state.items():
                    self.copy(f"s_{name}", f"r_{name}", self.program.size(axes))
            self.read_rows()
            self.of_results("o", self.program.outputs)
            self.of_results("l", self.program.locals)
            self.print_stores(self.program.forward)

    def _save_states(self) -> None:
        """Append the copy of the states that are saved before this step."""
        if not (saved := self.saved_sizes):
            return
        with self.loop("if _saved != 0 and _k % _chunk == 0:"):
            self.line(f"_at = _saved + (_k // _chunk * _jobs + _j) * {sum(saved.values())} * BYTES")
            for name, size in saved.items():
                self.copy("_at", f"s_{name}", size)
                self.line(f"_at += {size} * BYTES")


class _Backward(_Kernel):
    """Computes the gradients, chunk by chunk. A chunk is replayed before its gradients are computed.

    Attributes:
        slot: see `Kernels`.
    """

    name = "backward"

    def __init__(self, program: ArrayProgram, block: BlockProgram | None, bits: int, processor: Processor) -> None:
        super().__init__(program, block, bits, processor)
        self._offsets: dict[str, int] = {}
        kept = self._place(self.saved_sizes, 0)
        self.slot = self._place(self._sums(program), kept)
        if self.block is not None:
            self.slot = max(self.slot, self._place(self._sums(self.block), kept))

    def _sums(self, program: ArrayProgram) -> dict[str, int]:
        """The size of each kept sum."""
        return {name: program.size(axes) for name, axes in program.kept_sums.items()}

    def _place(self, sizes: Mapping[str, int], start: int) -> int:
        """Set the offset of each array in a slot, from `start` on. Return the end."""
        for name, size in sizes.items():
            self._offsets[name] = start
            start += -(-size // self.lanes) * self.lanes
        return start

    def arguments(self) -> Sequence[str]:
        return ["work", *self.program.backward_arguments]

    def print_job(self) -> None:
        step, saved, block = self.step, self.saved_sizes, self.block
        for prefix in ("d", "r", "e"):
            self.of_job(prefix, step.state)
        self.of_job("q", self.program.summed)
        count = 1 if block is None else block.count
        with self.loop("for _c in range((_length + _chunk - 1) // _chunk - 1, -1, -1):"):
            self.line("_begin = _c * _chunk")
            self.line("_stop = min(_begin + _chunk, _length)")
            self.line("_single = _begin")
            if block is not None:
                self.line(f"_single += 0 if _resets != 0 else (_stop - _begin) // {count} * {count}")
            if saved:
                self.line(f"_at = _saved + (_c * _jobs + _j) * {sum(saved.values())} * BYTES")
                for name, size in saved.items():
                    self.copy(f"_work + {self._offsets[name]} * BYTES", "_at", size)
                    self.line(f"_at += {size} * BYTES")
                if block is not None:
                    with self.loop(f"for _k in range(_begin, _single, {count}):"):
                        self._find_block(block)
                        self.print_stores(block.replay)
                with self.loop("for _k in range(_single, _stop):"):
                    self._find_step()
                    self.print_stores(self.program.replay)
            with self.loop("for _k in range(_stop - 1, _single - 1, -1):"):
                self._find_step(-1)
                self._find_gradients()
                self.of_results("u", self.program.outputs)
                if self.program.records:
                    self.of_results("t", self.program.states)
                self.of_results("m", self.program.locals)
                self.print_stores(self.program.backward)
                with self.loop("if _is_reset:"):
                    for name, axes in step.state.items():
                        size = self.program.size(axes)
                        total = f"load(e_{name}, _x, {{}}) + load(d_{name}, _x, {{}})"
                        self.for_each(size, f"store(e_{name}, _x, {{}}, {total})")
                        self.for_each(size, f"store(d_{name}, _x, {{}}, fill(0.0))")
            if block is not None:
                with self.loop(f"for _k in range(_single - {count}, _begin - 1, -{count}):"):
                    self._find_block(block, with_gradients=True)
                    self.print_stores(block.backward)

    def _find_gradients(self, step: str = "") -> None:
        """Append the addresses of the gradients of all that a step reads from the rows."""
        self.of_row("_gate_rows", f"g_{step}", self.program.gates)
        self.of_row("_input_rows", "y_", self.program.inputs)
        self._of_row_and_job("_shared_rows", self.program.shared, step)
        for name, axes in self.program.factors.items():
            self._of_row_and_job(f"_{name}", {name: axes})

    def _of_row_and_job(self, base: str, blocks: Mapping[str, tuple[str, ...]], step: str = "") -> None:
        """Append the addresses of arrays that share a row per step and head."""
        widths = [self.program.size(axes) for axes in blocks.values()]
        for k, name in enumerate(blocks):
            row = f"(_row * {self.program.heads} + _h) * {sum(widths)}"
            self.line(f"{name[:2]}{step}{name[2:]} = {base} + ({row} + {sum(widths[:k])}) * BYTES")

    def _find_step(self, next: int = 1) -> None:
        """Append the addresses of the gates, states and kept sums of step `_k`. `next` is as in `find_row`."""
        self.find_row(0, next)
        self.find_resets()
        self.read_rows()
        first = f"(_single - _begin) // {self.block.count} + _k - _single" if self.block else "_k - _begin"
        self._find_slot(self.program, first)
        for name in self.program.kept_states:
            self.line(f"s_{name} = r_{name} if _is_reset else s_{name}")

    def _find_block(self, block: BlockProgram, with_gradients: bool = False) -> None:
        """Append the addresses of the gates, states and kept sums of the steps of a block that begins at `_k`."""
        for k in range(block.count):
            self.find_row(k, -block.count if with_gradients else block.count)
            self.read_rows(of_step(k))
            if with_gradients:
                self._find_gradients(of_step(k))
                self.of_results("u", self.program.outputs, f"d_{of_step(k)}" if k < block.count - 1 else "")
        self._find_slot(block, f"(_k - _begin) // {block.count}")

    def _find_slot(self, program: ArrayProgram, index: str) -> None:
        """Append the addresses of the states and kept sums in a slot."""
        self.line(f"_slot = _work + ({index}) * {self.slot} * BYTES")
        for name in program.kept_states:
            self.line(f"n_{name} = _slot + {self.slot + self._offsets[name]} * BYTES")
            self.line(f"s_{name} = _slot + {self._offsets[name]} * BYTES")
        for name in program.kept_sums:
            self.line(f"{name} = _slot + {self._offsets[name]} * BYTES")
