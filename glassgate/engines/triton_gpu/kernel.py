"""Kernels as text: their parameters, and kernels that call others. `emit.py` and `persistent.py` write their bodies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from textwrap import wrap
from typing import NamedTuple

from glassgate.engines.lowering.ir import Value

CONSTANTS = ("ROWS", "UNITS", "COLUMNS", "PRECISION")
"""The parameters of every kernel that are constants when it is compiled."""

COUNTER = 32
"""The distance between the counters of two barriers in integers, so that they are in different cache lines."""

OF_HEADS = ("H_of_head", "P_of_head")
"""The widths of one head, if there are several. They are parameters, because Triton loads faster if a parameter is a
multiple of 16."""

IN_TABLE = ("iteration", "T", "N", "starts")
"""The parameters that a kernel in a CUDA graph reads from a table."""

HEAD = 4
"""The number of entries of a graph's table before the tensors: the first step, T, N and the address of `starts`."""


class Pointer(NamedTuple):
    """A tensor that a kernel reads or writes.

    Attributes:
        kind: "sequence" (a row per step), "given" (a value from outside of the loop), "carry" and "stored" (two
            buffers of N rows, for even and odd steps), "shared" (the same, in the type of products), "weight".
        value: the value in the pass.
        parameter: the name of the tensor in the kernel.
    """

    kind: str
    value: Value
    parameter: str

    @property
    def stride(self) -> str:
        """The parameter with the stride between the rows of a sequence."""
        return f"{self.parameter.removesuffix('_ptr')}_stride"


@dataclass(eq=False)
class Kernel:
    """One kernel.

    Attributes:
        name: the name of the function.
        numbers: the parameters that are not tensors of the pass, in order.
        by_rows: whether a program owns whole rows.
        axes: the axes of units that it computes.
        pointers: the tensors, in the order of the parameters.
        gates: the largest number of gates of a matrix product.
        body: the lines of the function.
    """

    name: str
    numbers: tuple[str, ...]
    by_rows: bool = False
    axes: set[str] = field(default_factory=set)
    pointers: list[Pointer] = field(default_factory=list)
    gates: int = 0
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
    def fixed(self) -> list[str]:
        """The numbers that are the same in all steps of all batches."""
        return [name for name in self.numbers if name not in IN_TABLE]

    @property
    def text(self) -> str:
        """Its source."""
        return function(self.name, [self.tensors, self.strides, self.numbers], self.body)


class Kernels(NamedTuple):
    """The kernels of one pass.

    Attributes:
        begin: runs once, before the first step; None if a step has no product.
        steps: run one after the other at each step.
    """

    begin: Kernel | None
    steps: tuple[Kernel, ...]

    @property
    def all(self) -> list[Kernel]:
        """All kernels."""
        return [kernel for kernel in (self.begin, *self.steps) if kernel is not None]


NOT_SPECIALIZED = ("iteration", "T", "N", "starts", "first", "step")
"""The parameters whose values must not cause another compilation."""


def function(name: str, parameters: Sequence[Sequence[str]], body: Sequence[str]) -> str:
    """The text of a kernel. Parameters come in groups, each on lines of its own."""
    fixed = ", ".join(f'"{p}"' for p in chain(*parameters) if p in NOT_SPECIALIZED)
    groups = [*parameters, [f"{c}: tl.constexpr" for c in CONSTANTS]]
    wrapped = [line for group in groups for line in wrap(", ".join(group), 115)]
    lines = [f"@triton.jit(do_not_specialize=[{fixed}])", f"def {name}("]
    lines += [*(f"    {line.removesuffix(',')}," for line in wrapped), "):"]
    return "\n".join([*lines, *(f"    {line}" if line else "" for line in body)]) + "\n"


@lru_cache(1024)
def both(kernels: tuple[Kernel, ...]) -> Kernel:
    """One kernel for the two directions of a layer. The third index of a program in the grid selects the direction."""
    first = kernels[0]
    numbers = [f"{p}_{k}" for k, kernel in enumerate(kernels) for p in (*kernel.tensors, *kernel.strides)]

    def argument(k: int, parameter: str) -> str:
        own = parameter in (*kernels[k].tensors, *kernels[k].strides)
        counter = f"arrived + {k * COUNTER}" if k and parameter == "arrived" else parameter
        return f"{parameter}_{k}" if own else counter

    return Kernel(f"{first.name}_both", (*numbers, *first.numbers), first.by_rows, body=_calls(kernels, argument))


def in_graph(kernels: Sequence[Kernel], types: Sequence[str], aligned: Sequence[bool]) -> Kernel:
    """A kernel for a CUDA graph: it reads the step, the sizes and all addresses from a table.

    Args:
        kernels: the kernels of one or two directions, for one step.
        types: the types of the elements of all tensors of the pass, kernel by kernel.
        aligned: for each of these tensors, whether its address is a multiple of 16.
    """
    first = kernels[0]
    places = {(k, p): n for n, (k, p) in enumerate((k, p) for k, kernel in enumerate(kernels) for p in kernel.tensors)}
    strides = [f"{p}_{k}" for k, kernel in enumerate(kernels) for p in kernel.strides]

    def argument(k: int, parameter: str) -> str:
        if parameter in kernels[k].strides:
            return f"{parameter}_{k}"
        if (k, parameter) not in places:
            return parameter
        n = places[k, parameter]
        address = f"tl.load(table + first + {n}).to(tl.pointer_type(tl.{types[n]}))"
        return f"tl.multiple_of({address}, 16)" if aligned[n] else address

    body = [
        "iteration = tl.load(table).to(tl.int32) + step",
        "T = tl.load(table + 1).to(tl.int32)",
        "N = tl.load(table + 2).to(tl.int32)",
        *(["starts = tl.load(table + 3).to(tl.pointer_type(tl.int64))"] if "starts" in first.numbers else []),
        "if iteration < T:",
        *(f"    {line}" for line in _calls(kernels, argument)),
    ]
    return Kernel(f"{first.name}_in_graph", ("table", "first", "step", *strides, *first.fixed), body=body)


def _calls(kernels: Sequence[Kernel], argument: Callable[[int, str], str]) -> list[str]:
    """The call of one kernel, or the calls of two kernels, of which each program runs one."""
    calls = []
    for k, kernel in enumerate(kernels):
        names = [argument(k, p) for p in (*kernel.tensors, *kernel.strides, *kernel.numbers)]
        calls.append([f"{kernel.name}(", *(f"    {name}," for name in (*names, *CONSTANTS)), ")"])
    if len(calls) == 1:
        return calls[0]
    then, other = ([f"    {line}" for line in call] for call in calls)
    return [*chain(["if tl.program_id(2) == 0:"], then, ["else:"], other)]
