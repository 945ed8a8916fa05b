"""Selects the engine for each call of a layer, and explains why other engines do not run the call."""

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple, NoReturn, Protocol

import torch
from torch import Tensor

from glassgate.engines import reference, torch_kernels
from glassgate.engines.backend import PreparedCalls, Signature, Train
from glassgate.engines.contract import Direction, Reason, Recording, Result, Steps, is_transformed, result_type
from glassgate.engines.kernels import KernelEngine
from glassgate.engines.memory import in_memory
from glassgate.engines.plan import operands_of
from glassgate.engines.registry import BACKENDS
from glassgate.engines.step_errors import shape_error
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.engines.torch_names import float32_precision, tracing_state
from glassgate.engines.traced_cells import current_equations, why_not_traceable
from glassgate.shapes import check_choice
from glassgate.user_warning import warn_user

MOST_ROWS_OF_MATRICES = 30_000
"""The largest number of rows of square matrices for which kernels, which multiply each sequence alone, are faster than
torch's products of all sequences: the number of sequences times the root of the numbers in a cell's own matrices.

On an Intel processor with AVX-512, kernels and torch's loop were equally fast for AntisymmetricRNN with 256, 512 and
1,024 units at about 110, 60 and 32 sequences. Kernels of HyperLSTM with 256 units were 1.4 times as fast at 64."""


class Engine(Protocol):
    """Runs calls of layers."""

    def why_not(self, steps: Steps, directions: list[Direction], all_states: bool = False) -> Reason | None:
        """Why the engine cannot run a call; None if it can."""

    def run(
        self,
        steps: Steps,
        directions: list[Direction],
        all_states: bool = False,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Result]:
        """Run every direction of one layer."""


def engines() -> dict[str, Engine]:
    """Engines by name, in the order in which "auto" tries them."""
    backends: dict[str, Engine] = {name: KernelEngine(name) for name in BACKENDS}
    return backends | {"torch": torch_kernels, "reference": reference}


def preferred_engines(steps: Steps, directions: list[Direction]) -> list[str]:
    """The names of the engines in the order in which "auto" tries them for a call.

    On a CUDA GPU, torch's engine comes first if cuDNN has a persistent kernel for the call. The kernels of cells that
    declare axes multiply each sequence alone, so with many sequences and large matrices, the reference engine comes
    first.
    """
    names, data, direction = list(engines()), steps.data, directions[0]
    if direction.cell.declaration is not None:
        own = [v for name, v in direction.weights.items() if name != "weight_ih" and v.dim() > 1]
        # A compiled or exported graph may be for any number of sequences, and a comparison would fix it.
        N = 1 if torch.compiler.is_compiling() else direction.initial[0].shape[0]
        if N * math.sqrt(sum([v.numel() for v in own])) > MOST_ROWS_OF_MATRICES:
            names.sort(key=lambda name: name != "reference")
        return names
    if data.device.type == "cuda":
        N, H = len(direction.initial[0]), direction.weights["weight_ih"].shape[0] // len(direction.cell.gates)
        train = torch.is_grad_enabled() and any(v.requires_grad for v in (data, *direction.weights.values()))
        dtype, packed = result_type(data.dtype, "cuda"), steps.batch_sizes is not None
        sizes, projected = (N, data.shape[1], H), "weight_hr" in direction.weights
        if torch_kernels.is_persistent(direction.cell, dtype, sizes, len(directions), packed, projected, train):
            names.sort(key=lambda name: name != "torch")
    return names


class _Requested(threading.local):
    """The engine that the user requested in the current thread."""

    def __init__(self) -> None:
        # Set in every thread from the start, because torch.compile guards on whether the attribute exists.
        self.name = "auto"


_requested = _Requested()
_warned: set[str] = set()


@contextmanager
def engine(name: str) -> Iterator[None]:
    """Run every layer inside the `with` block on one engine.

    A call that this engine cannot run raises EngineError with the reason.

    Args:
        name: "reference" (plain torch, differentiable to any order), "cpu" (fused kernels made from the cell's
            equations), "triton" (the same for CUDA GPUs), "torch" (torch's own kernels, only for RNN, GRU and LSTM),
            or "auto", which selects an engine for each call.

    Example:
        >>> import torch, glassgate as gg
        >>> with gg.engine("reference"):
        ...     output, h_n = gg.GRU(3, 4)(torch.randn(5, 2, 3))
    """
    check_choice("engine", "name", name, ("auto", *engines()))
    previous, _requested.name = _requested.name, name
    try:
        yield
    finally:
        _requested.name = previous


def requested_engine() -> str:
    """The engine that the user requested with `engine`, or "auto"."""
    return _requested.name


def global_setting() -> tuple[object, ...]:
    """The requested engine, autocast and precision. Prepared calls are valid while these are unchanged."""
    cast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    return _requested.name, cast, float32_precision("mkldnn", "rnn"), torch.get_float32_matmul_precision()


class EngineError(RuntimeError):
    """The requested engine cannot run a call, or no engine supports the way in which a layer is used."""


class Choice(NamedTuple):
    """The engine that runs a call, and why the other engines do not."""

    engine: str
    reasons: dict[str, str | None]
    """For each engine, why it cannot run the call; None if it can."""
    detail: str | None = None
    """How this engine runs the call, for example with which instructions it multiplies bfloat16 numbers."""

    def __str__(self) -> str:
        lines = [f"{self.engine} runs this call"]
        if self.detail is not None:
            lines.append(f"  {self.detail}")
        for name, reason in self.reasons.items():
            if name != self.engine:
                lines.append(f"  {name}: {reason or 'could run this call, but another engine is preferred'}")
        return "\n".join(lines)


def run(
    steps: Steps,
    directions: list[Direction],
    all_states: bool = False,
    recordings: Sequence[Recording] | None = None,
) -> list[Result]:
    """Run one layer on the requested engine, or with "auto" on the first of `preferred_engines` that can run the call.

    Args:
        steps: the input of all steps.
        directions: the cell, the parameters and the initial states of each direction.
        all_states: whether to return every state at every step, not only the output.
        recordings: one per direction, to be filled with the values of the gates; None to record nothing.
    """
    if not torch.compiler.is_compiling() and tracing_state() is not None:
        raise EngineError(
            "torch.jit.trace does not support these layers; use torch.export.export, or convert the layers to those of "
            "torch.nn with glassgate.restore. For ONNX, use glassgate.to_onnx or torch.onnx.export(..., dynamo=True)"
        )
    directions = _in_memory(directions)
    record = recordings is not None
    options = {"recordings": recordings} if record else {}
    for name in preferred_engines(steps, directions) if _requested.name == "auto" else (_requested.name,):
        reason = _why_not(name, steps, directions, all_states, record)
        if reason is None:
            if name == "reference":
                return _run_reference(steps, directions, all_states, recordings)
            return engines()[name].run(steps, directions, all_states or record, **options)
        if _requested.name != "auto":
            raise EngineError(f"engine {name!r} cannot run this call: {reason.text}")
        _warn_once(reason)
    raise AssertionError("the reference engine runs every call")


def _run_reference(
    steps: Steps, directions: list[Direction], all_states: bool, recordings: Sequence[Recording] | None
) -> list[Result]:
    """Run one layer on the reference engine. An error about the shapes of a step names the axes."""
    if recordings is not None:
        directions, all_states = [_with_equations(direction) for direction in directions], True
    try:
        return reference.run(steps, directions, all_states, recordings)
    except (RuntimeError, IndexError) as error:
        cell, weights, initial, *_ = directions[0]
        better = None if torch.compiler.is_compiling() else shape_error(error, cell, weights, initial[0].shape[1])
        if better is None:
            raise
        raise better from error


def _in_memory(directions: list[Direction]) -> list[Direction]:
    """The directions of a call, with their numbers in memory; see `memory.in_memory`."""
    operands = operands_of(directions)
    present = in_memory(operands)
    if present is operands:
        return directions
    remaining = iter(present)
    return [_with_operands(direction, remaining) for direction in directions]


def _with_operands(direction: Direction, operands: Iterator[Tensor]) -> Direction:
    """The direction with its tensors replaced by the next of `operands`, in the order of `operands_of`."""
    return direction._replace(
        weights=dict(zip(direction.weights, operands, strict=False)),
        initial=tuple(islice(operands, len(direction.initial))),
        restart=tuple(islice(operands, len(direction.restart))),
        noise=dict(zip(direction.noise, operands, strict=False)),
    )


def refuse_scripting(layer: torch.nn.Module) -> NoReturn:
    """Raise an error. Modules use this function as `__prepare_scriptable__`, which `torch.jit.script` calls.

    Raises:
        EngineError: always.
    """
    raise EngineError(
        "torch.jit.script cannot compile these layers; use torch.export.export, or convert the layers to those of "
        "torch.nn with glassgate.restore"
    )


def _with_equations(direction: Direction) -> Direction:
    """The direction with its cell replaced by the traced equations, if the cell can be traced.

    Equations determine which values are recorded. With them, the reference engine records the same values as kernels.
    """
    projected = "weight_hr" in direction.weights
    if why_not_traceable(direction.cell, projected):
        return direction
    return direction._replace(cell=GraphCell(current_equations(direction.cell, projected), recorded=True))


def _why_not(name: str, steps: Steps, directions: list[Direction], all_states: bool, record: bool) -> Reason | None:
    if name == "torch" and record:
        return Reason("torch's kernels do not record gates")
    if name in BACKENDS and record and is_transformed():
        return Reason("kernels record no gates inside transforms of torch.func")
    return engines()[name].why_not(steps, directions, all_states or record)


def prepare(steps: Steps, directions: list[Direction], signature: Signature) -> tuple[Train, PreparedCalls] | None:
    """Prepare the calls with this signature. Return a function that runs them in training, and the calls.

    The result is None if the engine that runs them does not prepare calls.

    Args:
        steps, directions: the arguments of one of these calls, as in `run`. All sequences have the same length.
        signature: the signature of the calls.
    """
    for name in preferred_engines(steps, directions) if _requested.name == "auto" else (_requested.name,):
        if engines()[name].why_not(steps, directions, signature.all_states) is None:
            return KernelEngine(name).prepare(steps, directions, signature) if name in BACKENDS else None
    return None


def choose(steps: Steps, directions: list[Direction], all_states: bool = False) -> Choice:
    """Return the engine that `run` selects for a call, and for each engine why it cannot run the call."""
    by_name = {name: _why_not(name, steps, directions, all_states, False) for name in engines()}
    reasons = {name: None if reason is None else reason.text for name, reason in by_name.items()}
    name = _requested.name
    if name == "auto":
        name = next(n for n in preferred_engines(steps, directions) if reasons[n] is None)
    return Choice(name, reasons, BACKENDS[name].explain(steps, directions) if name in BACKENDS else None)


def _warn_once(reason: Reason) -> None:
    """Warn, once per reason, that kernels cannot run any call of a cell or of this process. Such calls are slow."""
    if reason.is_general and not torch.compiler.is_compiling() and reason.text not in _warned:
        _warned.add(reason.text)
        warn_user(reason.text)
