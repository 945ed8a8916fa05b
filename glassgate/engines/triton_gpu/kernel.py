"""Kernels as text: their parameters, and kernels that call other kernels.

`emit.py` and `persistent.py` write the bodies of kernels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from textwrap import wrap
from typing import NamedTuple

from glassgate.engines.lowering.ir import Value

CONSTANTS = ("ROWS", "UNITS", "COLUMNS", "PRECISION")
"""The compile-time constants among the parameters of every kernel."""

COUNTER_DISTANCE = 32
"""The distance in integers between the barrier counters of two directions, so that their cache lines differ."""

HEAD_WIDTHS = ("H_of_head", "P_of_head")
"""The widths of one head, if there are several heads. They are parameters and not expressions, because Triton generates
faster loads for parameters that are multiples of 16."""

TABLE_PARAMETERS = ("iteration", "T", "N", "starts")
"""The parameters that a kernel in a CUDA graph reads from a table."""

TABLE_HEADER = 4
"""The number of table entries before the addresses of tensors: first step, T, N and the address of `starts`."""


class Pointer(NamedTuple):
    """A tensor that a kernel reads or writes.

    Attributes:
        kind: one of
            "sequence": a row per step.
            "given": a value from outside of the loop.
            "carry": a value carried between steps, in two buffers of N rows, for even and odd steps.
            "stored": a value that a later phase of the step reads, in two such buffers.
            "shared": a left operand of a product, in two such buffers, in the dtype of products.
            "weight": a weight.
        value: the value in the pass.
        parameter: the name of the tensor in the kernel.
        stride: for a sequence, the parameter with the stride between its rows.
    """

    kind: str
    value: Value
    parameter: str
    stride: str = ""


@dataclass(eq=False)
class Kernel:
    """The text of one kernel, and its parameters.

    Attributes:
        name: the name of the function.
        other_parameters: the parameters that are not tensors of the pass, in order.
        by_rows: whether a program computes whole rows.
        axes: the axes of the units that the kernel computes.
        pointers: the tensors, in the order of the parameters.
        max_gates: the largest number of gates of a matrix product.
        body: the lines of the function.
    """

    name: str
    other_parameters: tuple[str, ...]
    by_rows: bool = False
    axes: set[str] = field(default_factory=set)
    pointers: list[Pointer] = field(default_factory=list)
    max_gates: int = 0
    body: list[str] = field(default_factory=list)

    @property
    def tensors(self) -> list[str]:
        """The parameters that are tensors of the pass."""
        return [p.parameter for p in self.pointers]

    @property
    def strides(self) -> list[str]:
        """The parameters that are strides between the rows of sequences."""
        return [p.stride for p in self.pointers if p.kind == "sequence"]

    @property
    def static_parameters(self) -> list[str]:
        """The `other_parameters` whose arguments are the same in all steps and calls of a layer."""
        return [name for name in self.other_parameters if name not in TABLE_PARAMETERS]

    @property
    def text(self) -> str:
        """The source code of the kernel."""
        return function_text(self.name, [self.tensors, self.strides, self.other_parameters], self.body)


class StepKernels(NamedTuple):
    """The kernels of one pass.

    Attributes:
        begin: runs phase 0 of the first step, see `Phase`; None if phase 0 has nothing to store.
        steps: the kernels that run one after the other at each step.
    """

    begin: Kernel | None
    steps: tuple[Kernel, ...]

    @property
    def all(self) -> list[Kernel]:
        """All kernels."""
        return [kernel for kernel in (self.begin, *self.steps) if kernel is not None]


NOT_SPECIALIZED = ("iteration", "T", "N", "starts", "first_address", "step", "jobs", "reverse", "chunk")
"""Triton must not compile specialised kernels for the values of these parameters."""


def function_text(
    name: str, parameters: Sequence[Sequence[str]], body: Sequence[str], constants: Sequence[str] = CONSTANTS
) -> str:
    """Return the text of a kernel. Each group of parameters starts on a new line; `constants` are compile-time ones."""
    unspecialized = ", ".join(f'"{p}"' for p in chain(*parameters) if p in NOT_SPECIALIZED)
    groups = [*parameters, [f"{c}: tl.constexpr" for c in constants]]
    wrapped = [line for group in groups for line in wrap(", ".join(group), 115)]
    lines = [f"@triton.jit(do_not_specialize=[{unspecialized}])", f"def {name}("]
    lines += [*(f"    {line.removesuffix(',')}," for line in wrapped), "):"]
    return "\n".join([*lines, *(f"    {line}" if line else "" for line in body)]) + "\n"


@lru_cache(1024)
def join_directions(kernels: tuple[Kernel, ...]) -> Kernel:
    """Return one kernel for both directions of a layer. The third index of a program in the grid is its direction."""
    first = kernels[0]
    other_parameters = [f"{p}_{k}" for k, kernel in enumerate(kernels) for p in (*kernel.tensors, *kernel.strides)]

    def argument(k: int, parameter: str) -> str:
        is_own = parameter in (*kernels[k].tensors, *kernels[k].strides)
        common = f"arrived + {k * COUNTER_DISTANCE}" if k and parameter == "arrived" else parameter
        return f"{parameter}_{k}" if is_own else common

    return Kernel(
        f"{first.name}_both",
        (*other_parameters, *first.other_parameters),
        first.by_rows,
        body=_calls(kernels, argument),
    )


def kernel_in_graph(kernels: Sequence[Kernel], types: Sequence[str], aligned: Sequence[bool]) -> Kernel:
    """Return a kernel for a CUDA graph. It reads the step, sizes and addresses (from `first_address` on) from a table.

    Args:
        kernels: the kernels of one or two directions, for one step.
        types: the element types of all tensors of the pass, kernel by kernel.
        aligned: for each of these tensors, whether its address is a multiple of 16.
    """
    first = kernels[0]
    indices = {(k, p): n for n, (k, p) in enumerate((k, p) for k, kernel in enumerate(kernels) for p in kernel.tensors)}
    strides = [f"{p}_{k}" for k, kernel in enumerate(kernels) for p in kernel.strides]

    def argument(k: int, parameter: str) -> str:
        if parameter in kernels[k].strides:
            return f"{parameter}_{k}"
        if (k, parameter) not in indices:
            return parameter
        n = indices[k, parameter]
        address = f"tl.load(table + first_address + {n}).to(tl.pointer_type(tl.{types[n]}))"
        return f"tl.multiple_of({address}, 16)" if aligned[n] else address

    body = [
        "iteration = tl.load(table).to(tl.int32) + step",
        "T = tl.load(table + 1).to(tl.int32)",
        "N = tl.load(table + 2).to(tl.int32)",
        *(["starts = tl.load(table + 3).to(tl.pointer_type(tl.int64))"] if "starts" in first.other_parameters else []),
        "if iteration < T:",
        *(f"    {line}" for line in _calls(kernels, argument)),
    ]
    parameters = ("table", "first_address", "step", *strides, *first.static_parameters)
    return Kernel(f"{first.name}_in_graph", parameters, body=body)


def _calls(kernels: Sequence[Kernel], argument: Callable[[int, str], str]) -> list[str]:
    """The lines that call one kernel, or one of two kernels, depending on the direction of the program."""
    calls = []
    for k, kernel in enumerate(kernels):
        names = [argument(k, p) for p in (*kernel.tensors, *kernel.strides, *kernel.other_parameters)]
        calls.append([f"{kernel.name}(", *(f"    {name}," for name in (*names, *CONSTANTS)), ")"])
    if len(calls) == 1:
        return calls[0]
    first, second = ([f"    {line}" for line in call] for call in calls)
    return [*chain(["if tl.program_id(2) == 0:"], first, ["else:"], second)]
