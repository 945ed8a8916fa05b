"""The kernels of a cell whose states are arrays, as text.

A program is a job: one head of one sequence. It keeps its states in registers, from the first step to the last.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from glassgate.engines.arrays.program import ArrayProgram, Axes, parameter_name
from glassgate.engines.lowering.nests import Store
from glassgate.engines.triton_gpu.arrays.blocks import Blocks, StepLines
from glassgate.engines.triton_gpu.dialect import TRITON
from glassgate.engines.triton_gpu.kernel import function_text

TABLES = ("starts", "lengths", "resets")
"""The first tensors of both kernels: the first row of each step, the number of steps of each sequence, and the mask of
resets."""
ROWS = ("saved", "work", "scratch", "gates", "inputs", "noise")
"""The next tensors: the saved states, the memory of a replayed chunk, the scratch memory, and the rows of the call."""
NUMBERS = ("jobs", "reverse", "chunk")
"""The numbers of jobs and of steps between saved states, and whether time runs backwards."""
CONSTANTS = ("RESETS", "SAVES")
"""Whether the call has resets, and whether states are saved."""
_LOCAL = "job sequence head length k t row is_reset chunks begin stop c m slot_ptr"
_MOST_IN_REGISTERS = 1024
"""Larger parameters are read at each step."""


class KernelText(NamedTuple):
    """The text of one kernel.

    Attributes:
        text: the function.
        scratch: the numbers in the scratch memory of a job.
        slot: the numbers per step in the workspace of the backward pass.
        largest: the number of elements of the largest block.
    """

    text: str
    scratch: int
    slot: int
    largest: int


def print_forward(program: ArrayProgram) -> KernelText:
    """The kernel that computes the results of each row and the final states."""
    return _Forward(program, "forward", program.forward_arguments).kernel_text()


def print_backward(program: ArrayProgram) -> KernelText:
    """The kernel that computes the gradients, chunk by chunk, after it has replayed the steps of a chunk."""
    return _Backward(program, "backward", program.backward_arguments).kernel_text()


def _plus(address: str, offset: int) -> str:
    return f"{address} + {offset}" if offset else address


class _Kernel:
    """The text of one kernel. `arguments` are the names of the tensors of the program's pass."""

    slot = 0

    def __init__(self, program: ArrayProgram, name: str, arguments: Sequence[str]) -> None:
        self.program, self.name = program, name
        self.tensors = [*TABLES, *ROWS, *arguments]
        names = TRITON.names()
        names.taken |= {*_LOCAL.split(), *NUMBERS, *CONSTANTS, *arguments, *(f"{name}_ptr" for name in self.tensors)}
        names.taken |= {f"{prefix}{k}" for prefix in ("i", "ok") for k in range(len(program.order))}
        names.taken |= {f"{prefix}_{state}" for prefix in "sdn" for state in program.states}
        self.blocks = Blocks(program, names)
        self.rows: dict[str, str] = {}
        """The address of each memory in the rows of the call."""
        self._lines: list[str] = []
        self._depth = 0

    def print_body(self) -> None:
        """Print the code of a job."""
        raise NotImplementedError

    def kernel_text(self) -> KernelText:
        self.print_body()
        head = ["job = tl.program_id(0).to(tl.int64)"]
        head += [f"sequence = job // {self.program.heads}", f"head = job % {self.program.heads}"]
        head += ["length = tl.load(lengths_ptr + sequence)"]
        if self.blocks.scratch_size:
            head.append(f"scratch_ptr += job * {self.blocks.scratch_size}")
        body = [*head, *self.blocks.axis_lines(), *self._lines]
        groups = [[f"{tensor}_ptr" for tensor in self.tensors], [*NUMBERS]]
        text = function_text(self.name, groups, body, CONSTANTS)
        return KernelText(text, self.blocks.scratch_size, self.slot, self.blocks.largest)

    def line(self, text: str) -> None:
        """Append a line."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def inside(self, head: str) -> Iterator[None]:
        """Append a loop or an `if`, whose body is printed inside the `with` block."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def of_job(self, name: str, axes: Axes) -> str:
        """The address of an array with a block per job."""
        size = self.program.size(axes)
        return f"{name}_ptr + job * {size}" if size > 1 else f"{name}_ptr + job"

    def read(self, address: str, axes: Axes, condition: str = "") -> str:
        """The expression of a contiguous block."""
        return self.blocks.load(self.blocks.contiguous(address, axes), axes, condition)

    def write(self, address: str, axes: Axes, text: str, condition: str = "") -> None:
        """Append the store of a contiguous block."""
        self.line(self.blocks.store(self.blocks.contiguous(address, axes), axes, text, condition))

    def read_parameters(self) -> None:
        """Append the loads of parameters that stay in registers, and the addresses of the others."""
        for key, axes in self.program.parameters.items():
            name = f"p_{parameter_name(key)}"
            address = f"{name}_ptr{self._of_head(self.program.parameter_axes[key])}"
            if self.program.size(axes) <= _MOST_IN_REGISTERS:
                self.line(f"{name} = {self.read(address, axes)}")
            else:
                self.rows[name] = address

    def find_row(self) -> None:
        """Append the row of step `k`, and the addresses of all that a step reads from the rows of a call."""
        self.line("t = tl.where(reverse != 0, length - 1 - k, k)")
        self.line("row = tl.load(starts_ptr + t) + sequence")
        with self.inside("if RESETS:"):
            self.line("is_reset = tl.load(resets_ptr + row) != 0")
        self.of_row("gates", "a_", self.program.gates)
        self.of_row("inputs", "x_", self.program.inputs)
        self.of_row("noise", "z_", self.program.noise)

    def of_row(self, tensor: str, prefix: str, blocks: Mapping[str, Axes], per_job: bool = False) -> None:
        """Set the addresses of arrays that share a row per step, one after the other; or a row per step and job."""
        size = self.program.size if per_job else self.program.width
        widths = [size(axes) for axes in blocks.values()]
        row = f"(row * {self.program.heads} + head)" if per_job else "row"
        for k, (name, axes) in enumerate(blocks.items()):
            of_head = "" if per_job else self._of_head(axes)
            self.rows[f"{prefix}{name}"] = _plus(f"{tensor}_ptr + {row} * {sum(widths)}", sum(widths[:k])) + of_head

    def of_results(self, prefix: str, names: Iterable[str]) -> None:
        """Set the addresses of the rows of states and local variables, or of their gradients."""
        for name in names:
            self.of_row(f"{prefix}_{name}", f"{prefix}_", {name: self.program.in_rows[name]})

    def _of_head(self, axes: Axes) -> str:
        if self.program.head not in axes:
            return ""
        size = self.program.size(axes)
        return f" + head * {size}" if size > 1 else " + head"

    def reset(self, names: Sequence[str]) -> None:
        """Append the replacement of states where the step resets them."""
        if not names:
            return
        with self.inside("if RESETS:"):
            for name in names:
                axes = self.program.states[name]
                restart = self.read(self.of_job(f"r_{name}", axes), axes, "is_reset")
                self.line(f"s_{name} = tl.where(is_reset, {restart}, s_{name})")

    def print_step(self, stores: Sequence[Store], names: Mapping[str, str]) -> None:
        """Append one step. `names` are the variables of the memories in registers that it replaces."""
        lines = StepLines(self.blocks, self.rows)
        kept = lines.print(stores)
        for line in lines.lines:
            self.line(line)
        targets = [names[name] for name in kept]
        if targets:
            self.line(f"{', '.join(targets)} = {', '.join(kept.values())}")

    @property
    def saved_sizes(self) -> dict[str, int]:
        """The size of each saved state."""
        return {name: self.program.size(self.program.states[name]) for name in self.program.kept_states}

    def saved_places(self, step: str) -> Iterator[tuple[str, str]]:
        """Each saved state and its address, for a chunk."""
        start, sizes = 0, self.saved_sizes
        for name, size in sizes.items():
            yield name, _plus(f"saved_ptr + ({step} * jobs + job) * {sum(sizes.values())}", start)
            start += size


class _Forward(_Kernel):
    """The forward pass. In training, it saves the states every `chunk` steps."""

    def print_body(self) -> None:
        program = self.program
        self.read_parameters()
        for name, axes in program.states.items():
            self.line(f"s_{name} = {self.read(self.of_job(f's_{name}', axes), axes)}")
        with self.inside("for k in range(0, length):"):
            if self.saved_sizes:
                with self.inside("if SAVES:"), self.inside("if k % chunk == 0:"):
                    for name, address in self.saved_places("(k // chunk)"):
                        self.write(address, program.states[name], f"s_{name}")
            self.find_row()
            self.reset([*program.states])
            self.of_results("o", program.outputs)
            self.of_results("l", program.locals)
            self.print_step(program.forward, {f"s_{name}": f"s_{name}" for name in program.states})
        for name, axes in program.states.items():
            self.write(self.of_job(f"s_{name}", axes), axes, f"s_{name}")


class _Backward(_Kernel):
    """The backward pass."""

    def print_body(self) -> None:
        program, kept = self.program, self.program.kept_states
        self.offsets: dict[str, int] = {}
        axes_of_slot = {name: program.states[name] for name in kept} | program.kept_sums
        for name, axes in axes_of_slot.items():
            self.offsets[name] = self.slot
            self.slot += program.size(axes)
        self.read_parameters()
        for name, axes in program.states.items():
            self.line(f"d_{name} = {self.read(self.of_job(f'd_{name}', axes), axes)}")
        summed = {parameter_name(key): axes for key, axes in program.parameters.items()}
        summed = {name: summed[name] for name in program.summed}
        for name, axes in summed.items():
            self.line(f"q_{name} = {self.read(self.of_job(f'q_{name}', axes), axes)}")
        if self.slot:
            self.line(f"work_ptr += job * (chunk + 1) * {self.slot}")
        self.line("chunks = (length + chunk - 1) // chunk")
        with self.inside("for c in range(0, chunks):"):
            self.line("begin = (chunks - 1 - c) * chunk")
            self.line("stop = tl.minimum(begin + chunk, length)")
            if kept:
                self._print_replay()
            with self.inside("for m in range(0, stop - begin):"):
                self.line("k = stop - 1 - m")
                self._print_gradients([*summed])
            if self.slot:
                self.line("tl.debug_barrier()")
        for prefix, blocks in (("d", program.states), ("q", summed)):
            for name, axes in blocks.items():
                self.write(self.of_job(f"{prefix}_{name}", axes), axes, f"{prefix}_{name}")

    def _find_step(self) -> None:
        """Append the row of step `k`, and the addresses of the values that the replay keeps."""
        self.find_row()
        if self.slot:
            self.line(f"slot_ptr = work_ptr + (k - begin) * {self.slot}")
        for name in self.program.kept_sums:
            self.rows[name] = _plus("slot_ptr", self.offsets[name])

    def _print_replay(self) -> None:
        """Append the loop that computes the states after each step of a chunk."""
        program, kept = self.program, self.program.kept_states
        for name, address in self.saved_places("(chunks - 1 - c)"):
            self.line(f"s_{name} = {self.read(address, program.states[name])}")
            self.write(_plus("work_ptr", self.offsets[name]), program.states[name], f"s_{name}")
        with self.inside("for k in range(begin, stop):"):
            self._find_step()
            self.reset(kept)
            self.print_step(program.replay, {f"n_{name}": f"s_{name}" for name in kept})
            for name in kept:
                self.write(f"slot_ptr + {self.slot + self.offsets[name]}", program.states[name], f"s_{name}")
        self.line("tl.debug_barrier()")

    def _print_gradients(self, summed: Sequence[str]) -> None:
        """Append the gradients of step `k`."""
        program, kept = self.program, self.program.kept_states
        self._find_step()
        for name in kept:
            before = _plus("slot_ptr", self.offsets[name])
            self.line(f"s_{name} = {self.read(before, program.states[name])}")
            self.rows[f"n_{name}"] = f"slot_ptr + {self.slot + self.offsets[name]}"
        self.reset(kept)
        self.of_row("gate_rows", "g_", program.gates)
        self.of_row("input_rows", "y_", program.inputs)
        self.of_row("shared_rows", "", program.shared, per_job=True)
        for name, axes in program.factors.items():
            self.of_row(name, "", {name: axes}, per_job=True)
        self.of_results("u", program.outputs)
        if program.records:
            self.of_results("t", program.states)
        self.of_results("m", program.locals)
        registers = [*(f"d_{name}" for name in program.states), *(f"q_{name}" for name in summed)]
        self.print_step(program.backward, {name: name for name in registers})
        with self.inside("if RESETS:"):
            for name, axes in program.states.items():
                address = self.of_job(f"e_{name}", axes)
                self.write(address, axes, f"{self.read(address, axes, 'is_reset')} + d_{name}", "is_reset")
                self.line(f"d_{name} = tl.where(is_reset, 0.0, d_{name})")
            self.line("tl.debug_barrier()")
