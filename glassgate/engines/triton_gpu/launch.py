"""Compiles the text of kernels, and launches them for all steps of a loop.

There are three kinds of kernels for a loop:

- Kernel A ("solo") runs all steps in one launch. A program computes all units (or one head) of some sequences.
- Kernel B ("grid") runs all steps in one launch. A program computes some units. All programs wait at barriers.
- Kernel C ("steps") is launched for each step, once per phase of the step (`phases.py`).
"""

import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from hashlib import sha256
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassgate.engines.triton_gpu.emit import write_step_kernels
from glassgate.engines.triton_gpu.kernel import COUNTER_DISTANCE, HEAD_WIDTHS, Kernel, StepKernels, join_directions
from glassgate.engines.triton_gpu.mathematics import functions_called_in
from glassgate.engines.triton_gpu.persistent import write_persistent_kernel
from glassgate.engines.triton_gpu.phases import Phases

PREAMBLE = "import triton\nimport triton.language as tl\n"
"""The first lines of a module of kernels."""

ALL_REGISTERS = {"maxnreg": 255}
"""Options for a kernel that spills. ptxas may spill registers to let more programs share a multiprocessor."""

REFUSALS = ("too many blocks in cooperative launch", "operation not supported")
"""The CUDA driver's messages if a cooperative launch has too many programs, or if the GPU supports no such launch."""


class Blocks(NamedTuple):
    """The sizes of the blocks of a program: powers of two. The dimensions of matrix products are at least 16.

    Attributes:
        rows: sequences per program.
        units: units per program.
        columns: columns of the left operand per iteration of a product.
        warps: groups of 32 threads per program.
    """

    rows: int
    units: int
    columns: int
    warps: int = 4


class KernelChoice(NamedTuple):
    """A kernel that can run a pass.

    Attributes:
        kind: "solo", "grid" or "steps".
        microseconds: the estimated time per step.
        blocks: the blocks of kernel A or B; None for kernel C.
        chunks: the number of blocks of columns that a product is split into.
        refused: the kernels that this GPU could not start, with the reasons.
    """

    kind: str
    microseconds: float
    blocks: Blocks | None = None
    chunks: int = 1
    refused: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the kernel in texts for users."""
        return {"steps": "kernel C", "grid": "kernel B", "solo": "kernel A"}[self.kind]

    @property
    def key(self) -> tuple[object, ...]:
        """The attributes that determine the compiled kernel."""
        return self.kind, self.blocks, self.chunks

    def __str__(self) -> str:
        description = {
            "steps": "one launch per phase, long sequences in CUDA graphs",
            "grid": "one launch, a barrier after each phase",
            "solo": "one launch",
        }
        text = f"{self.name} ({description[self.kind]}), estimate {self.microseconds:.1f} us per step"
        return "; this GPU cannot run ".join([text, *self.refused])


def module_text(module: Sequence[Kernel]) -> str:
    """Return kernels, and the functions that they call, as the text of a module."""
    return with_functions("\n\n".join(kernel.text for kernel in module))


def with_functions(text: str) -> str:
    """Return the text of kernels with the functions that they call, as the text of a module."""
    return "\n\n".join(part for part in (PREAMBLE, functions_called_in(text), text) if part)


@lru_cache(1024)
def compile_module(text: str, interpreted: bool) -> dict[str, Any]:
    """Compile the text of a module. Return its functions by name. Triton and tracebacks read the text from `linecache`.

    Args:
        text: the text of the module.
        interpreted: whether Triton's interpreter runs the functions. It is only a cache key: Triton itself reads
            TRITON_INTERPRET.
    """
    name = f"<glassgate kernels {sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(compile(text, name, "exec"), namespace)
    return namespace


@lru_cache(1024)
def triton_function(module: tuple[Kernel, ...], interpreted: bool) -> Any:
    """The last kernel of a module as a Triton function. It is cached, because writing the text takes milliseconds.

    Args:
        module: the kernels that the last kernel calls, then this kernel.
        interpreted: see `compile_module`.
    """
    return compile_module(module_text(module), interpreted)[module[-1].name]


class LoopKernels(NamedTuple):
    """The kernels of the loop of one pass. Their text is written when they first run.

    Attributes:
        phases: the phases of the pass.
        title: the first part of the kernels' names.
        ragged: whether the lengths of sequences differ.
        key: equal for passes that differ only in the order of steps, such as the two directions of a layer.
    """

    phases: Phases
    title: str
    ragged: bool
    key: object

    @property
    def step_kernels(self) -> StepKernels:
        """Kernel C: usually one kernel per phase."""
        return write_step_kernels(self.phases, self.title, self.ragged)

    def persistent_kernel(self, solo: bool, chunks: int) -> Kernel:
        """Kernel A (`solo`) or kernel B."""
        return write_persistent_kernel(self.phases, self.title, self.ragged, solo, chunks)


class OtherArguments(NamedTuple):
    """The arguments of launches other than the tensors of a pass.

    Attributes:
        sizes: the extents T, N, H, P and the number of heads.
        precision: the precision of float32 products, "ieee" or "tf32".
        starts: for sequences of different lengths, the first row of each step; see `Rows.starts`.
        arrived: the counters of the barriers of kernel B.
    """

    sizes: Mapping[str, int]
    precision: str
    starts: Tensor | None = None
    arrived: Tensor | None = None

    def of(self, name: str) -> int | Tensor:
        """The argument for the parameter with this name."""
        if name in HEAD_WIDTHS:
            return self.sizes[name[0]] // self.sizes["heads"]
        tensor = {"starts": self.starts, "arrived": self.arrived}.get(name)
        return self.sizes[name] if tensor is None else tensor


@dataclass(eq=False)
class Launch:
    """A launch with all of its arguments except the number of the step.

    Attributes:
        kernels: one per direction of the layer.
        blocks: the blocks of each program.
        tensors: the tensors of the kernels' pointers.
        other_arguments: the other arguments.
    """

    kernels: tuple[Kernel, ...]
    blocks: Blocks
    tensors: Sequence[Sequence[Tensor]]
    other_arguments: OtherArguments

    def __call__(self, iteration: int = 0) -> None:
        """Launch one step of kernel C, or all steps of kernel A or B."""
        arguments: list[int | Tensor] = []
        for k, own in enumerate(self.tensors):
            arguments += [*own, *self.strides(k)]
        parameters = self.kernels[0].other_parameters
        self.start(
            [*arguments, *(iteration if name == "iteration" else self.other_arguments.of(name) for name in parameters)]
        )

    def strides(self, k: int) -> list[int]:
        """The strides between the rows of the sequences of direction k."""
        pairs = zip(self.tensors[k], self.kernels[k].pointers, strict=True)
        return [v.stride(0) for v, pointer in pairs if pointer.kind == "sequence"]

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.tensors[0][0].device

    @cached_property
    def grid(self) -> tuple[int, int, int]:
        """The number of programs per axis: blocks of rows, blocks of units over all heads, directions."""
        kernel, sizes = self.kernels[0], self.other_arguments.sizes
        rows = -(-sizes["N"] // self.blocks.rows)
        widths = [] if kernel.by_rows else [sizes[axis] for axis in ("H", "P") if axis in kernel.axes]
        heads = sizes["heads"]
        units = max([heads * -(-(width // heads) // self.blocks.units) for width in widths], default=1)
        return rows, units, len(self.kernels)

    @cached_property
    def start(self) -> Callable[[Sequence[int | Tensor]], None]:
        """A function that takes arguments and launches the kernel, or the kernel that runs both directions."""
        return self.make_start(*([] if len(self.kernels) == 1 else [join_directions(self.kernels)]))

    def make_start(self, *callers: Kernel) -> Callable[[Sequence[int | Tensor]], None]:
        """A function that starts a kernel on the grid of this launch. It does not keep the tensors alive.

        Args:
            callers: kernels that call the launch's kernels. The last caller, or else the only kernel, is started.
        """
        run = triton_function((*self.kernels, *callers), self.device.type == "cpu")
        grid, sizes, (rows, units, columns, warps) = self.grid, self.other_arguments.sizes, self.blocks
        options: dict[str, Any] = {"num_warps": warps, "num_stages": 1}
        if self.other_arguments.arrived is not None:
            options["launch_cooperative_grid"] = True  # programs that wait for each other must run at the same time
        options |= {"ROWS": rows, "UNITS": units, "COLUMNS": columns, "PRECISION": self.other_arguments.precision}
        types = tuple(v.dtype for own in self.tensors for v in own)
        extents = sizes["H"], sizes["P"], sizes["heads"]
        key = run, self.device, self.blocks, self.other_arguments.precision, types, extents

        def start(arguments: Sequence[int | Tensor]) -> None:
            additional = _spill_options.get(key)
            kernel = run[grid](*arguments, **options, **(additional or {}))
            if additional is None and kernel is not None:  # the interpreter has no kernel
                compile_again = partial(run.warmup, *arguments, grid=grid, **options)
                _spill_options[key] = options_with_fewest_spills(kernel, compile_again)

        return start


def options_with_fewest_spills(kernel: Any, compile_again: Callable[..., Any]) -> dict[str, int]:
    """Return the additional options with which a kernel spills the fewest registers.

    Args:
        kernel: the kernel, compiled by Triton without these options.
        compile_again: compiles the kernel with additional options.
    """
    if not kernel.n_spills:
        return {}
    try:
        other = compile_again(**ALL_REGISTERS)
        # `run` loads the kernel, so that a later capture in a CUDA graph finds it.
        return ALL_REGISTERS if other.run and other.n_spills < kernel.n_spills else {}
    except resource_errors():
        return {}


def resource_errors() -> tuple[type[Exception], ...]:
    """The errors of Triton for kernels that need more shared memory, threads or registers than the GPU has."""
    from triton.runtime.errors import OutOfResources, PTXASError

    return OutOfResources, PTXASError


def start_errors() -> tuple[type[Exception], ...]:
    """The types of the errors that a kernel raises if it does not start."""
    return RuntimeError, *resource_errors()


def is_refusal(error: Exception) -> bool:
    """Whether an error of `start_errors` means that the GPU cannot run this kernel. Another kernel may then run."""
    return not isinstance(error, RuntimeError) or any(text in str(error) for text in REFUSALS)


_spill_options: dict[tuple[object, ...], dict[str, int]] = {}
"""The results of `options_with_fewest_spills`, by kernel, device, blocks, precision, types of tensors and extents."""


def step_launches(
    loops: Sequence[LoopKernels],
    tensors: Sequence[Callable[[Kernel], Sequence[Tensor]]],
    blocks: Callable[[Kernel], Blocks],
    other_arguments: OtherArguments,
) -> tuple[Launch | None, list[Launch]]:
    """Return the launches of kernel C: the launch before the first step, or None, and the launches of each step.

    Args:
        loops: the loops of one or two directions.
        tensors: for each loop, a function from a kernel to the tensors of its pointers.
        blocks: a function from a kernel to its blocks.
        other_arguments: the other arguments.
    """
    all_launches = [
        Launch(
            group, blocks(group[0]), [get(kernel) for get, kernel in zip(tensors, group, strict=True)], other_arguments
        )
        for group in zip(*(loop.step_kernels.all for loop in loops), strict=True)
    ]
    return (all_launches[0], all_launches[1:]) if loops[0].step_kernels.begin else (None, all_launches)


def persistent_launch(
    loops: Sequence[LoopKernels],
    tensors: Sequence[Callable[[Kernel], Sequence[Tensor]]],
    choice: KernelChoice,
    other_arguments: OtherArguments,
) -> Launch:
    """Return the launch of kernel A or B, which runs all steps.

    The GPU sets the counters of barriers to zero before the launch, so a captured CUDA graph does this in each replay.
    """
    solo = choice.kind == "solo"
    group = tuple(loop.persistent_kernel(solo, choice.chunks) for loop in loops)
    own = [get(kernel) for get, kernel in zip(tensors, group, strict=True)]
    if not solo:
        other_arguments = other_arguments._replace(
            arrived=torch.zeros(2 * COUNTER_DISTANCE, dtype=torch.int32, device=own[0][0].device)
        )
    assert choice.blocks is not None
    return Launch(group, choice.blocks, own, other_arguments)
