"""Layers whose weights no longer change: packed once for the kernels, or copied for the reference engine."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from glassgate.engines import choose, reference
from glassgate.engines.choose import EngineError, Stepper
from glassgate.engines.contract import Direction, Recording, Result, Steps
from glassgate.engines.kernels import Kernels
from glassgate.shapes import check_choice

if TYPE_CHECKING:
    from glassgate.engines.numba_cpu.packed import PackedPass

PRECISIONS = ("float32", "float64", "bfloat16")
"""Types that weights are stored and multiplied in."""


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

    def stepper(self, initial: tuple[Tensor, ...]) -> Stepper:
        """The first direction, one step at a time, from these states."""


def frozen(directions: Sequence[Direction], precision: str) -> Frozen:
    """A layer with fixed weights on the engine that the user named, or on the first that supports it.

    Args:
        directions: cells and contiguous weights in float32 or float64, which the result keeps; `initial` gives the
            widths of the states.
        precision: one of `PRECISIONS`.

    Raises:
        EngineError: the processor or the cell does not support this precision.
    """
    check_choice("freeze", "precision", precision, PRECISIONS)
    weight = directions[0].weights["weight_ih"]
    x = weight.new_zeros(len(directions[0].initial[0]), weight.shape[1])
    reason = None if choose.wanted() in ("auto", "cpu") else f"engine {choose.wanted()!r} was named"
    if reason is None and (found := Kernels("cpu").why_not(Steps(x, None, None), list(directions))) is not None:
        reason = found.text
    if reason is not None and precision == "bfloat16":
        raise EngineError(f"freeze: precision={precision!r} needs the CPU engine's kernels: {reason}")
    if reason is not None:
        return _ByReference(directions)
    return _Packed(directions, precision)


class _Packed:
    """On kernels, with packed weights."""

    def __init__(self, directions: Sequence[Direction], precision: str) -> None:
        from glassgate.engines.numba_cpu import packed
        from glassgate.engines.numba_cpu.amx import pays

        terms = int(precision == "bfloat16")
        if terms and not pays(terms, rows=1):
            raise EngineError(
                "freeze: precision='bfloat16' needs a processor with AVX512-BF16 or AMX-BF16, and this one has "
                "neither; use precision='float32'"
            )
        self._packed = packed
        self._directions = [packed.PackedDirection(direction, terms) for direction in directions]

    def run(
        self,
        steps: Sequence[Steps],
        initial: Sequence[tuple[Tensor, ...]],
        restart: Sequence[tuple[Tensor, ...]] | None = None,
        all_states: bool = False,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Result]:
        return self._packed.run(steps, self._directions, initial, restart, all_states, recordings)

    def passes(self, steps: int, N: int) -> "list[PackedPass] | None":
        return [self._packed.PackedPass(direction, steps, N) for direction in self._directions]

    def stepper(self, initial: tuple[Tensor, ...]) -> Stepper:
        return self._packed.Step(self._directions[0], initial)


class _ByReference:
    """On the reference engine."""

    def __init__(self, directions: Sequence[Direction]) -> None:
        self._directions = directions

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
        for k, direction in enumerate(self._directions):
            call = direction._replace(initial=initial[k], restart=restarts[k])
            results += reference.run(steps[k], [call], all_states, recordings and recordings[k : k + 1])
        return results

    def passes(self, steps: int, N: int) -> "list[PackedPass] | None":
        return None

    def stepper(self, initial: tuple[Tensor, ...]) -> Stepper:
        return reference.Stepper(self._directions[0]._replace(initial=initial))
