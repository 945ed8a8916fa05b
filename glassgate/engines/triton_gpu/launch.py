"""Compiles the text of kernels and launches them for all steps of a loop."""

import linecache
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from hashlib import sha256
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassgate.engines.triton_gpu.emit import Kernel, Kernels, kernels
from glassgate.engines.triton_gpu.mathematics import used_in
from glassgate.engines.triton_gpu.persistent import persistent
from glassgate.engines.triton_gpu.phases import Phases

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
    found = [kernel for written in passes for kernel in written.all]
    text = "\n\n".join(f"@triton.jit(do_not_specialize={_fixed(kernel)})\n{kernel.text}" for kernel in found)
    return "\n\n".join(part for part in (PREAMBLE, used_in(text), text) if part)


def _fixed(kernel: Kernel) -> list[str]:
    parameters = kernel.text.partition("):")[0]
    return [name for name in NOT_SPECIALIZED if re.search(rf"\b{name}\b", parameters)]


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


class Selected(NamedTuple):
    """A kernel that can run a pass.

    Attributes:
        kind: "steps" (kernel C: a launch per phase), "grid" (B: all steps, programs that meet) or "solo" (A: all steps,
            one program per group of rows).
        microseconds: per step, by the cost model.
        blocks: of "grid" and "solo".
        chunks: the number of blocks of columns of a product.
    """

    kind: str
    microseconds: float
    blocks: Blocks | None = None
    chunks: int = 1

    def __str__(self) -> str:
        how = {"steps": "one launch per phase", "grid": "one launch, a barrier after each phase", "solo": "one launch"}
        letter = {"steps": "C", "grid": "B", "solo": "A"}
        return f"kernel {letter[self.kind]} ({how[self.kind]}), estimate {self.microseconds:.1f} us per step"


class Loop:
    """Launches the kernels of one pass for all steps.

    Args:
        phases: of the pass.
        title: the first part of the kernels' names.
        ragged: whether sequences have lengths of their own.
        precision: of products of float32, "ieee" or "tf32".
        interpreted: whether Triton's interpreter runs them.
    """

    def __init__(self, phases: Phases, title: str, ragged: bool, precision: str, interpreted: bool) -> None:
        self.phases, self.title, self.ragged = phases, title, ragged
        self.precision, self.interpreted = precision, interpreted

    @cached_property
    def kernels(self) -> Kernels:
        """The kernels that are launched once per step."""
        return kernels(self.phases, self.title, self.ragged)

    def function(self, written: Kernels, kernel: Kernel) -> Any:
        """A kernel, compiled when it first runs."""
        return compiled(source(written), self.interpreted)[kernel.name]

    def run(
        self,
        selected: Selected,
        blocks: Callable[[Kernel], Blocks],
        tensors: Callable[[Kernel], Sequence[Tensor]],
        sizes: Mapping[str, int],
        starts: Tensor | None,
    ) -> None:
        """All steps, in order.

        Args:
            selected: the kernel.
            blocks: gives the blocks of a kernel that is launched once per step.
            tensors: gives the tensors of a kernel's pointers.
            sizes: the extents T, N, H, P and the number of heads.
            starts: for sequences of different lengths, the first row of each step; see `Rows.starts`.
        """
        if selected.kind != "steps":
            return self.run_whole(selected, tensors, sizes, starts)
        first, launches = self.kernels.begin, list[Callable[[int], None]]()
        for kernel in self.kernels.all:
            function, size = self.function(self.kernels, kernel), blocks(kernel)
            launches.append(self.prepared(function, kernel, size, tensors(kernel), sizes, starts))
        for turn in range(-1 if first else 0, sizes["T"]):
            for launch in launches[:1] if turn < 0 else launches[1:] if first else launches:
                launch(turn)

    def run_whole(
        self,
        selected: Selected,
        tensors: Callable[[Kernel], Sequence[Tensor]],
        sizes: Mapping[str, int],
        starts: Tensor | None,
    ) -> None:
        """All steps in one launch. The counter of the barrier is zeroed in the call, as a CUDA graph needs it."""
        alone = selected.kind == "solo"
        kernel = _whole(self.phases, self.title, self.ragged, alone, selected.chunks)
        found, blocks = tensors(kernel), selected.blocks
        assert blocks is not None
        function = self.function(Kernels(None, (kernel,)), kernel)
        counter = [] if alone else [torch.zeros(2, dtype=torch.int32, device=found[0].device)]
        more = {} if alone else {"launch_cooperative_grid": True}
        self.prepared(function, kernel, blocks, found, sizes, starts, counter, more)(None)

    def prepared(
        self,
        function: Any,
        kernel: Kernel,
        blocks: Blocks,
        tensors: Sequence[Tensor],
        sizes: Mapping[str, int],
        starts: Tensor | None,
        counter: Sequence[Tensor] = (),
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> Callable[[int | None], None]:
        """A launch of one kernel, given the number of the step."""
        grid = grid_of(kernel, blocks, sizes)
        strides = [v.stride(0) for v, p in zip(tensors, kernel.pointers, strict=True) if p.kind == "sequence"]
        rest: list[int | Tensor] = [sizes[name] for name in ("T", "N", "H", "P", "heads")]
        rest = [*rest, *counter, *([] if starts is None else [starts])]
        constants = dict(ROWS=blocks.rows, UNITS=blocks.units, COLUMNS=blocks.columns, PRECISION=self.precision)
        options = {"num_warps": blocks.warps, "num_stages": 1, **more}

        def launch(turn: int | None) -> None:
            turns = [] if turn is None else [turn]
            function[grid](*tensors, *strides, *turns, *rest, **constants, **options)

        return launch


_whole = lru_cache(256)(persistent)


def grid_of(kernel: Kernel, blocks: Blocks, sizes: Mapping[str, int]) -> tuple[int, int]:
    """The number of programs: blocks of rows, and blocks of units over all heads."""
    rows = -(-sizes["N"] // blocks.rows)
    if kernel.by_rows:
        return rows, 1
    heads = sizes["heads"]
    widths = [sizes[axis] for axis in ("H", "P") if axis in kernel.axes]
    return rows, max([heads * -(-(width // heads) // blocks.units) for width in widths], default=1)
