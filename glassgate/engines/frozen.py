"""Layers with fixed weights, which kernels pack once. The reference engine runs layers that kernels cannot run."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from glassgate.cell import Weights
from glassgate.engines import choose, reference
from glassgate.engines.backend import PreparedCalls, Signature
from glassgate.engines.choose import EngineError
from glassgate.engines.contract import Direction, Reason, Recording, Result, Steps
from glassgate.engines.fixed_weights import LARGEST_INT8, Freezer, FrozenDirections, NativeSteps, Stepper
from glassgate.engines.kernels import KernelEngine
from glassgate.engines.registry import BACKENDS
from glassgate.shapes import check_choice

PRECISIONS = ("float32", "float64", "bfloat16", "int8")
"""The dtypes in which weights are stored and multiplied."""
MATRICES = ("weight_ih", "weight_hh", "weight_hr")
"""The parameters that int8 quantises."""
LOOP_MATRICES = {"weight_hh", "weight_hr"}
"""The matrices that the loop over time multiplies. They are quantised only together, because the loop multiplies in one
precision."""
MIN_COLUMNS = 16
"""Input matrices with fewer columns stay in float32, because int8 would cost accuracy and save almost no time."""


def quantise_matrices(weights: Weights, stays_float: Callable[[str], bool]) -> tuple[Weights, Weights]:
    """Quantise the matrices of a direction. Return all parameters, and the scales (rows,) of int8 matrices by name.

    Args:
        weights: the parameters in float32.
        stays_float: returns whether the matrix with this name stays in float32.
    """
    selected = {name for name in MATRICES if name in weights and not stays_float(name)}
    if weights["weight_ih"].shape[1] < MIN_COLUMNS:
        selected.discard("weight_ih")
    if not selected.issuperset(LOOP_MATRICES & weights.keys()):
        selected -= LOOP_MATRICES
    matrices = {name: quantise(weights[name]) for name in MATRICES if name in selected}
    integers = {name: v for name, (v, _) in matrices.items()}
    return weights | integers, {name: scale for name, (_, scale) in matrices.items()}


def quantise(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Approximate a matrix by integers * scale. Return the integers, from -127 to 127, and the scales of rows, (rows,).

    A row of zeros has the scale 0. A row with NaN or infinity has the scale NaN.
    """
    scale = matrix.abs().amax(1) / LARGEST_INT8
    scale = torch.where(scale.isfinite(), scale, torch.nan)
    factor = torch.where(scale > 0, 1 / scale, 0.0)
    return (matrix.nan_to_num() * factor[:, None]).round().clamp(-LARGEST_INT8, LARGEST_INT8).to(torch.int8), scale


def freeze(directions: Sequence[Direction], precision: str, scales: Sequence[Weights] = ()) -> FrozenDirections:
    """Return a layer with fixed weights on the requested engine. "auto" is the first engine that supports the layer.

    Args:
        directions: the directions of the layer. Their weights are contiguous, in float32 or float64, and stay
            unchanged. Of `initial`, only the widths are used.
        precision: one of `PRECISIONS`.
        scales: for int8, the scales of each direction's quantised matrices.

    Raises:
        EngineError: the processor or the cell does not support this precision, or the requested engine cannot run the
            layer.
    """
    check_choice("freeze", "precision", precision, PRECISIONS)
    x = directions[0].initial[0].new_zeros(1, directions[0].weights["weight_ih"].shape[1])
    requested, reasons = choose.requested_engine(), dict[str, str]()
    for name, backend in BACKENDS.items():
        if not isinstance(backend, Freezer):
            continue
        reason = None if requested in ("auto", name) else Reason(f"engine {requested!r} was requested")
        reason = reason or KernelEngine(name).why_not(Steps(x, None, None), list(directions))
        if reason is None:
            layer = backend.freeze(directions, precision, scales)
            if isinstance(layer, Reason):
                raise EngineError(f"freeze: {layer.text}")
            return layer
        reasons[name] = f"the kernels of engine {name!r}: {reason.text}"
    if requested not in ("auto", "reference"):
        reason_of_requested = reasons.get(requested, "it cannot run one step at a time on packed weights")
        raise EngineError(
            f"freeze: engine {requested!r} cannot run sessions and streams: {reason_of_requested}; create them outside "
            f"of `with gg.engine({requested!r})`"
        )
    if precision in ("bfloat16", "int8"):
        raise EngineError(f"freeze: precision={precision!r} needs {'; or '.join(reasons.values())}")
    return _ReferenceLayer(directions)


class _ReferenceStepper:
    """`Stepper` on the reference engine."""

    def __init__(
        self, directions: Sequence[Direction], initial: Sequence[tuple[Tensor, ...]], residual: Sequence[bool]
    ) -> None:
        pairs = zip(directions, initial, strict=True)
        self._steppers = [reference.Stepper(direction._replace(initial=states)) for direction, states in pairs]
        self._residual = residual

    def native(self, steps: int) -> NativeSteps | None:
        return None

    @property
    def states(self) -> Sequence[Sequence[Tensor]]:
        return [stepper.states for stepper in self._steppers]

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        for stepper, adds_input in zip(self._steppers, self._residual, strict=True):
            output = stepper(x)
            x = output + x if adds_input else output
        return x


class _ReferenceLayer:
    """`FrozenDirections` on the reference engine."""

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
            direction = direction._replace(initial=initial[k], restart=restarts[k])
            results += reference.run(steps[k], [direction], all_states, recordings and recordings[k : k + 1])
        return results

    def prepare(self, steps: int, N: int, signature: Signature, has_restart: bool = False) -> PreparedCalls | None:
        return None

    def stepper(
        self, layers: "Sequence[_ReferenceLayer]", initial: Sequence[tuple[Tensor, ...]], residual: Sequence[bool]
    ) -> Stepper:
        return _ReferenceStepper([layer.directions[0] for layer in layers], initial, residual)
