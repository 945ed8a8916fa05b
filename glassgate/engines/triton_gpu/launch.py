"""Compiles the text of kernels and launches them for all steps of a loop."""

import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from hashlib import sha256
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassgate.engines.triton_gpu.emit import kernels
from glassgate.engines.triton_gpu.kernel import COUNTER, OF_HEADS, Kernel, Kernels, both
from glassgate.engines.triton_gpu.mathematics import used_in
from glassgate.engines.triton_gpu.persistent import persistent
from glassgate.engines.triton_gpu.phases import Phases

PREAMBLE = "import triton\nimport triton.language as tl\n"
"""The first lines of a module of kernels."""

ALL_REGISTERS = {"maxnreg": 255}
"""Options for a kernel that spills. ptxas may spill registers to let more programs share a multiprocessor."""

REFUSALS = ("too many blocks in cooperative launch", "operation not supported")
"""The CUDA driver's messages for cooperative launches of more programs than run at the same time, or of any program."""


class Blocks(NamedTuple):
    """The extents of a program's blocks: powers of two, at least 16 where a product needs them.

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


class Selected(NamedTuple):
    """A kernel that can run a pass.

    Attributes:
        kind: "steps" (kernel C: a launch per phase), "grid" (B: all steps, with barriers) or "solo" (A: all steps,
            one program per group of rows).
        microseconds: per step, by the cost model.
        blocks: the blocks of "grid" and "solo".
        chunks: the number of blocks of columns of a product.
        refused: kernels that this GPU could not start, with the reasons.
    """

    kind: str
    microseconds: float
    blocks: Blocks | None = None
    chunks: int = 1
    refused: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name in texts for users."""
        return {"steps": "kernel C", "grid": "kernel B", "solo": "kernel A"}[self.kind]

    @property
    def program(self) -> tuple[object, ...]:
        """The attributes that determine the compiled kernel."""
        return self.kind, self.blocks, self.chunks

    def __str__(self) -> str:
        how = {
            "steps": "one launch per phase, long sequences in CUDA graphs",
            "grid": "one launch, a barrier after each phase",
            "solo": "one launch",
        }
        text = f"{self.name} ({how[self.kind]}), estimate {self.microseconds:.1f} us per step"
        return "; this GPU cannot run ".join([text, *self.refused])


def source(module: Sequence[Kernel]) -> str:
    """Kernels, and the functions that they call, as the text of a module."""
    text = "\n\n".join(kernel.text for kernel in module)
    return "\n\n".join(part for part in (PREAMBLE, used_in(text), text) if part)


@lru_cache(1024)
def compiled(text: str, interpreted: bool) -> dict[str, Any]:
    """The functions in the text of a module. Triton and tracebacks read the text from `linecache`.

    Args:
        text: the text of the module.
        interpreted: whether Triton's interpreter runs them; Triton reads this from TRITON_INTERPRET.
    """
    name = f"<glassgate kernels {sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(compile(text, name, "exec"), namespace)
    return namespace


@lru_cache(1024)
def triton_function(module: tuple[Kernel, ...], interpreted: bool) -> Any:
    """The last kernel of a module as a function of Triton. It is cached, because writing the text takes milliseconds.

    Args:
        module: a kernel, after the kernels that it calls.
        interpreted: see `compiled`.
    """
    return compiled(source(module), interpreted)[module[-1].name]


class Loop(NamedTuple):
    """The loop of one pass. Its kernels are written when they first run.

    Attributes:
        phases: the phases of the pass.
        title: the first part of the kernels' names.
        ragged: whether the lengths of sequences differ.
        like: a key that is equal for passes that differ only in the order of steps.
    """

    phases: Phases
    title: str
    ragged: bool
    like: object

    @property
    def steps(self) -> Kernels:
        """Kernel C: one kernel per phase."""
        return kernels(self.phases, self.title, self.ragged)

    def whole(self, solo: bool, chunks: int) -> Kernel:
        """Kernel A (`solo`) or kernel B."""
        return persistent(self.phases, self.title, self.ragged, solo, chunks)


class Numbers(NamedTuple):
    """The arguments of launches that are not tensors of a pass.

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
        """The argument for a parameter."""
        if name in OF_HEADS:
            return self.sizes[name[0]] // self.sizes["heads"]
        tensor = {"starts": self.starts, "arrived": self.arrived}.get(name)
        return self.sizes[name] if tensor is None else tensor


@dataclass(eq=False)
class Launch:
    """One launch with all of its arguments, except the number of the step.

    Attributes:
        kernels: one per direction of the layer.
        blocks: the blocks of each program.
        tensors: the tensors of the kernels' pointers.
        numbers: the other arguments.
    """

    kernels: tuple[Kernel, ...]
    blocks: Blocks
    tensors: Sequence[Sequence[Tensor]]
    numbers: Numbers

    def __call__(self, iteration: int = 0) -> None:
        """Launches a step, or all steps if the kernel runs them."""
        arguments: list[int | Tensor] = []
        for k, own in enumerate(self.tensors):
            arguments += [*own, *self.strides(k)]
        numbers = self.kernels[0].numbers
        self.start([*arguments, *(iteration if name == "iteration" else self.numbers.of(name) for name in numbers)])

    def strides(self, k: int) -> list[int]:
        """The strides between rows of sequences of a direction."""
        pairs = zip(self.tensors[k], self.kernels[k].pointers, strict=True)
        return [v.stride(0) for v, pointer in pairs if pointer.kind == "sequence"]

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.tensors[0][0].device

    @cached_property
    def grid(self) -> tuple[int, int, int]:
        """The number of programs: blocks of rows, blocks of units over all heads, directions."""
        kernel, sizes = self.kernels[0], self.numbers.sizes
        rows = -(-sizes["N"] // self.blocks.rows)
        widths = [] if kernel.by_rows else [sizes[axis] for axis in ("H", "P") if axis in kernel.axes]
        heads = sizes["heads"]
        units = max([heads * -(-(width // heads) // self.blocks.units) for width in widths], default=1)
        return rows, units, len(self.kernels)

    @cached_property
    def start(self) -> Callable[[Sequence[int | Tensor]], None]:
        """A function that launches the kernel, or one that runs both directions, with some arguments."""
        return self.starter(*([] if len(self.kernels) == 1 else [both(self.kernels)]))

    def starter(self, *callers: Kernel) -> Callable[[Sequence[int | Tensor]], None]:
        """A function that launches the last caller, or else the kernel, on the grid of this launch. Keeps no tensor."""
        run = triton_function((*self.kernels, *callers), self.device.type == "cpu")
        grid, sizes, (rows, units, columns, warps) = self.grid, self.numbers.sizes, self.blocks
        options: dict[str, Any] = {"num_warps": warps, "num_stages": 1}
        if self.numbers.arrived is not None:
            options["launch_cooperative_grid"] = True  # programs that wait for each other must run at the same time
        options |= {"ROWS": rows, "UNITS": units, "COLUMNS": columns, "PRECISION": self.numbers.precision}
        types = tuple(v.dtype for own in self.tensors for v in own)
        extents = sizes["H"], sizes["P"], sizes["heads"]
        key = run, self.device, self.blocks, self.numbers.precision, types, extents

        def start(arguments: Sequence[int | Tensor]) -> None:
            registers = _registers.get(key)
            kernel = run[grid](*arguments, **options, **(registers or {}))
            if registers is None and kernel is not None:  # the interpreter has no kernel
                again = partial(run.warmup, *arguments, grid=grid, **options)
                _registers[key] = fewest_spills(kernel, again)

        return start


def fewest_spills(kernel: Any, again: Callable[..., Any]) -> dict[str, int]:
    """The options with which a kernel spills the fewest registers.

    Args:
        kernel: the kernel, compiled by Triton without more options.
        again: compiles it again.
    """
    if not kernel.n_spills:
        return {}
    try:
        other = again(**ALL_REGISTERS)
        # `run` loads the kernel, so that a later capture in a CUDA graph finds it.
        return ALL_REGISTERS if other.run and other.n_spills < kernel.n_spills else {}
    except too_large():
        return {}


def too_large() -> tuple[type[Exception], ...]:
    """The errors of kernels that need more shared memory, threads or registers than the GPU has."""
    from triton.runtime.errors import OutOfResources, PTXASError

    return OutOfResources, PTXASError


def start_errors() -> tuple[type[Exception], ...]:
    """The errors of kernels that did not start."""
    return RuntimeError, *too_large()


def is_refusal(error: Exception) -> bool:
    """Whether an error of `start_errors` means that the GPU cannot run a kernel, so that another kernel may run."""
    return not isinstance(error, RuntimeError) or any(text in str(error) for text in REFUSALS)


_registers: dict[tuple[object, ...], dict[str, int]] = {}
"""The result of `fewest_spills` for each kernel, device, blocks, precision, types of tensors and extents."""


def launches(
    loops: Sequence[Loop],
    tensors: Sequence[Callable[[Kernel], Sequence[Tensor]]],
    blocks: Callable[[Kernel], Blocks],
    numbers: Numbers,
) -> tuple[Launch | None, list[Launch]]:
    """Kernel C: the launch before the first step, if there is one, and those of each step.

    Args:
        loops: the loops of one or two directions.
        tensors: for each loop, a function from a kernel to the tensors of its pointers.
        blocks: returns the blocks of a kernel.
        numbers: the other arguments.
    """
    all_launches = [
        Launch(group, blocks(group[0]), [of(kernel) for of, kernel in zip(tensors, group, strict=True)], numbers)
        for group in zip(*(loop.steps.all for loop in loops), strict=True)
    ]
    return (all_launches[0], all_launches[1:]) if loops[0].steps.begin else (None, all_launches)


def whole_launch(
    loops: Sequence[Loop],
    tensors: Sequence[Callable[[Kernel], Sequence[Tensor]]],
    choice: Selected,
    numbers: Numbers,
) -> Launch:
    """Kernel A or B: one launch for all steps. The counters of barriers are set to zero on the GPU before it.

    A captured CUDA graph repeats that.
    """
    solo = choice.kind == "solo"
    group = tuple(loop.whole(solo, choice.chunks) for loop in loops)
    own = [of(kernel) for of, kernel in zip(tensors, group, strict=True)]
    if not solo:
        numbers = numbers._replace(arrived=torch.zeros(2 * COUNTER, dtype=torch.int32, device=own[0][0].device))
    assert choice.blocks is not None
    return Launch(group, choice.blocks, own, numbers)
