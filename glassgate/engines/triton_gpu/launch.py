"""Compiles the text of kernels and launches them, one after the other, for all steps of a loop."""

import linecache
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

from torch import Tensor

from glassgate.engines.triton_gpu.emit import Kernel, Kernels
from glassgate.engines.triton_gpu.mathematics import used_in

PREAMBLE = "import triton\nimport triton.language as tl\n"
"""The first lines of a module of kernels."""

NOT_SPECIALIZED = ("turn", "T", "N", "starts")
"""The parameters whose values must not cause another compilation."""


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


def source(*passes: Kernels) -> str:
    """The kernels of some passes as the text of a module."""
    found = [kernel for kernels in passes for kernel in (kernels.begin, *kernels.steps) if kernel is not None]
    text = "\n\n".join(f"@triton.jit(do_not_specialize={_fixed(kernel)})\n{kernel.text}" for kernel in found)
    return "\n\n".join(part for part in (PREAMBLE, used_in(text), text) if part)


def _fixed(kernel: Kernel) -> list[str]:
    return [name for name in NOT_SPECIALIZED if name != "starts" or "starts + t" in kernel.text]


@lru_cache(1024)
def compiled(text: str, interpreted: bool) -> dict[str, Any]:
    """The functions in the text of a module. Triton and tracebacks read the text from `linecache`.

    Args:
        text: of the module.
        interpreted: whether Triton's interpreter runs them; Triton reads this from TRITON_INTERPRET.
    """
    name = f"<glassgate kernels {sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(compile(text, name, "exec"), namespace)
    return namespace


class Loop:
    """Launches the kernels of one pass for all steps.

    Args:
        kernels: of the pass.
        blocks: of a program that owns units, and of one that owns whole rows.
        precision: of products of float32, "ieee" or "tf32".
        interpreted: whether Triton's interpreter runs them.
    """

    def __init__(
        self, kernels: Kernels, blocks: Callable[[Kernel, Mapping[str, int]], Blocks], precision: str, interpreted: bool
    ) -> None:
        self.kernels, self.blocks, self.precision = kernels, blocks, precision
        self.functions = compiled(source(kernels), interpreted)

    def run(
        self, tensors: Callable[[Kernel], Sequence[Tensor]], sizes: Mapping[str, int], starts: Tensor | None
    ) -> None:
        """All steps, in order.

        Args:
            tensors: gives the tensors of a kernel's pointers.
            sizes: the extents T, N, H, P and the number of heads.
            starts: for sequences of different lengths, the first row of each step; see `Rows.starts`.
        """
        begin = self.kernels.begin
        first = [] if begin is None else [self.prepared(begin, tensors(begin), sizes, starts)]
        steps = [self.prepared(kernel, tensors(kernel), sizes, starts) for kernel in self.kernels.steps]
        for launch in first:
            launch(-1)
        for turn in range(sizes["T"]):
            for launch in steps:
                launch(turn)

    def prepared(
        self, kernel: Kernel, tensors: Sequence[Tensor], sizes: Mapping[str, int], starts: Tensor | None
    ) -> Callable[[int], None]:
        """A launch of one kernel, given the number of the step."""
        blocks = self.blocks(kernel, sizes)
        function, grid = self.functions[kernel.name], grid_of(kernel, blocks, sizes)
        strides = [v.stride(0) for v, p in zip(tensors, kernel.pointers, strict=True) if p.kind == "sequence"]
        rest = [sizes["T"], sizes["N"], sizes["H"], sizes["P"], sizes["heads"], *([] if starts is None else [starts])]
        constants = dict(ROWS=blocks.rows, UNITS=blocks.units, COLUMNS=blocks.columns, PRECISION=self.precision)

        def launch(turn: int) -> None:
            function[grid](*tensors, *strides, turn, *rest, **constants, num_warps=blocks.warps, num_stages=1)

        return launch


def grid_of(kernel: Kernel, blocks: Blocks, sizes: Mapping[str, int]) -> tuple[int, int]:
    """The number of programs: blocks of rows, and blocks of units over all heads."""
    rows = -(-sizes["N"] // blocks.rows)
    if kernel.by_rows:
        return rows, 1
    heads = sizes["heads"]
    widths = [sizes[axis] for axis in ("H", "P") if axis in kernel.axes]
    return rows, max([heads * -(-(width // heads) // blocks.units) for width in widths], default=1)
