"""Layers whose weights no longer change: packed once for the kernels, or copied for the reference engine."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from glassgate.cell import Weights
from glassgate.engines import choose, reference
from glassgate.engines.choose import EngineError
from glassgate.engines.contract import Direction, Recording, Result, Steps
from glassgate.engines.kernels import Kernels
from glassgate.engines.plan import INTEGERS
from glassgate.shapes import check_choice

if TYPE_CHECKING:
    from glassgate.engines.numba_cpu.packed import PackedPass

PRECISIONS = ("float32", "float64", "bfloat16", "int8")
"""Types that weights are stored and multiplied in."""
MATRICES = ("weight_ih", "weight_hh", "weight_hr")
"""Parameters that int8 quantises."""
FEW_COLUMNS = 16
"""Input matrices with fewer columns stay in float32: integers would cost accuracy and save next to no time."""


class Frozen(Protocol):
    """One layer, its one or two directions, with fixed weights."""

    def run(
        self,
        steps: Sequence[Steps],
        initial: Sequence[tuple[Tensor, ...]],
        restart: Sequence[tuple[Tensor, ...]] | None = None,
        all_states: bool = False,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Result]:
        """Sequences of any lengths. Each argument has one entry per direction; their steps differ in the data only."""

    def passes(self, steps: int, N: int) -> "list[PackedPass] | None":
        """Each direction's precompiled pass for sequences of equal length, or None if `run` must be used."""


class Stepper(Protocol):
    """A stack of layers that advances step by step."""

    @property
    def states(self) -> Sequence[Sequence[Tensor]]:
        """Each layer's states after the last step, (N, W) each; writing to them changes the next step."""

    def __call__(self, x: Tensor) -> Tensor:
        """One step from x (N, H_in), contiguous, to the output (N, W), whose memory later steps reuse."""


def quantised(weights: Weights, keep: Callable[[str], bool]) -> tuple[Weights, Weights]:
    """The parameters of a direction with matrices of int8, and the scales of these, (rows,), by name.

    Args:
        weights: in float32.
        keep: whether a matrix stays as it is; if one of `weight_hh` and `weight_hr` does, so does the other.
    """
    from glassgate.engines.numba_cpu.gemm.integers import quantise

    chosen = [name for name in MATRICES if name in weights and not keep(name)]
    if weights["weight_ih"].shape[1] < FEW_COLUMNS or "weight_ih" not in chosen:
        chosen = [name for name in chosen if name != "weight_ih"]
    if any(name in weights and name not in chosen for name in MATRICES[1:]):
        chosen = [name for name in chosen if name == "weight_ih"]
    found = {name: quantise(weights[name]) for name in chosen}
    return weights | {name: v for name, (v, _) in found.items()}, {name: scale for name, (_, scale) in found.items()}


def frozen(directions: Sequence[Direction], precision: str, scales: Sequence[Weights] = ()) -> Frozen:
    """A layer with fixed weights on the engine that the user named, or on the first that supports it.

    Args:
        directions: cells and contiguous weights in float32 or float64, which the result keeps; `initial` gives the
            widths of the states.
        precision: one of `PRECISIONS`.
        scales: for int8, the scales of each direction's quantised matrices.

    Raises:
        EngineError: the processor or the cell does not support this precision.
    """
    check_choice("freeze", "precision", precision, PRECISIONS)
    x = directions[0].initial[0].new_zeros(1, directions[0].weights["weight_ih"].shape[1])
    reason = None if choose.wanted() in ("auto", "cpu") else f"engine {choose.wanted()!r} was named"
    if reason is None and (found := Kernels("cpu").why_not(Steps(x, None, None), list(directions))) is not None:
        reason = found.text
    if reason is not None and precision in ("bfloat16", "int8"):
        raise EngineError(f"freeze: precision={precision!r} needs the CPU engine's kernels: {reason}")
    if reason is not None:
        return _ByReference(directions)
    return _Packed(directions, precision, scales)


def stepper(layers: Sequence[Frozen], initial: Sequence[tuple[Tensor, ...]], residual: bool) -> Stepper:
    """A stack of layers of one direction, one step at a time.

    Args:
        layers: from the first to the last.
        initial: each layer's states before the first step, in memory that the steps write to.
        residual: whether a layer's input is added to its output where they are equally wide, but for the first layer.
    """
    packed = [layer for layer in layers if isinstance(layer, _Packed)]
    if len(packed) == len(layers):
        from glassgate.engines.numba_cpu.packed import Step

        return Step([layer.directions[0] for layer in packed], initial, residual)
    directions = [layer.directions[0] for layer in layers if isinstance(layer, _ByReference)]
    return _StepByReference(directions, initial, residual)


class _StepByReference:
    """On the reference engine."""

    def __init__(self, directions: Sequence[Direction], initial: Sequence[tuple[Tensor, ...]], residual: bool) -> None:
        calls = [d._replace(initial=own) for d, own in zip(directions, initial, strict=True)]
        self._steps, self._residual = [reference.Stepper(call) for call in calls], residual

    @property
    def states(self) -> Sequence[Sequence[Tensor]]:
        return [step.states for step in self._steps]

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        for k, step in enumerate(self._steps):
            out = step(x)
            x = out + x if self._residual and k > 0 and out.shape == x.shape else out
        return x


class _Packed:
    """On kernels, with packed weights."""

    def __init__(self, directions: Sequence[Direction], precision: str, scales: Sequence[Weights]) -> None:
        from glassgate.engines.numba_cpu import packed
        from glassgate.engines.numba_cpu.amx import pays

        terms = int(precision == "bfloat16")
        if terms and not pays(terms, rows=1):
            raise EngineError(
                "freeze: precision='bfloat16' needs a processor with AVX512-BF16 or AMX-BF16, and this one has "
                "neither; use precision='float32' or 'int8'"
            )
        self._packed = packed
        if precision != "int8":
            self.directions = [packed.PackedDirection(direction, terms) for direction in directions]
            return
        self.directions = []
        for direction, own in zip(directions, scales, strict=True):
            of_loop, of_input = (
                INTEGERS * any(name in own for name in names) for names in (MATRICES[1:], MATRICES[:1])
            )
            self.directions.append(packed.PackedDirection(direction, of_loop, of_input, own))
            if not self.directions[-1].multiplies:
                raise EngineError(
                    "freeze: precision='int8' needs a cell with matrix products, and the equations of this one have "
                    "none; use precision='float32'"
                )

    def run(
        self,
        steps: Sequence[Steps],
        initial: Sequence[tuple[Tensor, ...]],
        restart: Sequence[tuple[Tensor, ...]] | None = None,
        all_states: bool = False,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Result]:
        return self._packed.run(steps, self.directions, initial, restart, all_states, recordings)

    def passes(self, steps: int, N: int) -> "list[PackedPass] | None":
        return [self._packed.PackedPass(direction, steps, N) for direction in self.directions]


class _ByReference:
    """On the reference engine."""

    def __init__(self, directions: Sequence[Direction]) -> None:
        self.directions = directions

    @torch.no_grad()
    def run(
        self,
        steps: Sequence[Steps],
        initial: Sequence[tuple[Tensor, ...]],
        restart: Sequence[tuple[Tensor, ...]] | None = None,
        all_states: bool = False,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Result]:
        restarts = restart or [()] * len(initial)
        results = []
        for k, direction in enumerate(self.directions):
            call = direction._replace(initial=initial[k], restart=restarts[k])
            results += reference.run(steps[k], [call], all_states, recordings and recordings[k : k + 1])
        return results

    def passes(self, steps: int, N: int) -> "list[PackedPass] | None":
        return None
