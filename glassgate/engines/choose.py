"""Which engine computes a call, and why not the others. The one function through which layers reach engines."""

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from glassgate.engines import processors, reference, stock
from glassgate.engines.backend import Signature
from glassgate.engines.contract import Direction, Reason, Recording, Result, Steps, result_type
from glassgate.engines.kernels import Kernels, Prepared
from glassgate.engines.meaning import meant, untraceable
from glassgate.engines.registry import BACKENDS
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.shapes import check_choice


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
        """Every direction of one layer."""


def engines() -> dict[str, Engine]:
    """Engines by name, in the order in which "auto" tries them."""
    backends: dict[str, Engine] = {name: Kernels(name) for name in BACKENDS}
    return backends | {"torch": stock, "reference": reference}


def order(steps: Steps, directions: list[Direction]) -> list[str]:
    """The names of the engines in the order in which "auto" tries them for a call.

    On a CUDA GPU, torch's engine comes first if cuDNN has a persistent kernel for the call.
    """
    names, data, first = list(engines()), steps.data, directions[0]
    if data.device.type == "cuda":
        N, H = len(first.initial[0]), first.weights["weight_ih"].shape[0] // len(first.cell.gates)
        train = torch.is_grad_enabled() and any(v.requires_grad for v in (data, *first.weights.values()))
        dtype, packed = result_type(data.dtype, "cuda"), steps.batch_sizes is not None
        sizes, projected = (N, data.shape[1], H), "weight_hr" in first.weights
        if stock.is_persistent(first.cell, dtype, sizes, len(directions), packed, projected, train):
            names.sort(key=lambda name: name != "torch")
    return names


class _Wanted(threading.local):
    """The engine that the user named, for each thread."""

    def __init__(self) -> None:
        # In every thread's own attributes from the start: torch.compile guards that they are there or are not.
        self.name = "auto"


_wanted = _Wanted()
_told: set[str] = set()


@contextmanager
def engine(name: str) -> Iterator[None]:
    """Everything inside the `with` runs on one engine, or raises EngineError with the reason why it cannot.

    Args:
        name: "reference" (plain torch, differentiable to any order), "cpu" (fused kernels made from the cell's
            equations), "triton" (the same for CUDA GPUs), "torch" (the stock kernel, for a plain cell), or "auto",
            which chooses.

    Example:
        >>> import torch, glassgate as gg
        >>> with gg.engine("reference"):
        ...     output, h_n = gg.GRU(3, 4)(torch.randn(5, 2, 3))
    """
    check_choice("engine", "name", name, ("auto", *engines()))
    before, _wanted.name = _wanted.name, name
    try:
        yield
    finally:
        _wanted.name = before


def wanted() -> str:
    """The engine that the user named, or "auto"."""
    return _wanted.name


def setting() -> tuple[object, ...]:
    """The global settings that select the computation of a call: named engine, autocast, precision and threads."""
    cast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    precision = torch._C._get_fp32_precision_getter("mkldnn", "rnn"), torch.get_float32_matmul_precision()
    return _wanted.name, cast, *precision, *processors.setting()


class EngineError(RuntimeError):
    """The engine that was asked for cannot run this call."""


class Choice(NamedTuple):
    """Which engine runs a call, and for each engine why it cannot (None where it can). `print` it."""

    engine: str
    reasons: dict[str, str | None]
    more: str | None = None
    """One more line from the backend, e.g. the instructions that multiply numbers of bfloat16."""

    def __str__(self) -> str:
        lines = [f"{self.engine} runs this call"]
        if self.more is not None:
            lines.append(f"  {self.more}")
        for name, reason in self.reasons.items():
            if name != self.engine:
                lines.append(f"  {name}: {reason or 'could run it, and is not first choice'}")
        return "\n".join(lines)


def run(
    steps: Steps,
    directions: list[Direction],
    all_states: bool = False,
    recordings: Sequence[Recording] | None = None,
) -> list[Result]:
    """One layer on the engine that the user named, or on the first that can.

    Args:
        steps, directions: the call.
        all_states: whether every state at every step is wanted.
        recordings: one per direction, where the gates are to be shown.
    """
    if not torch.compiler.is_compiling() and torch._C._get_tracing_state() is not None:
        raise EngineError("torch.jit.trace cannot follow these layers; torch.export.export takes them as they are")
    record = recordings is not None
    more = {"recordings": recordings} if record else {}
    for name in order(steps, directions) if _wanted.name == "auto" else (_wanted.name,):
        reason = _why_not(name, steps, directions, all_states, record)
        if reason is None:
            if record and name == "reference":
                directions = [_with_equations(direction) for direction in directions]
            return engines()[name].run(steps, directions, all_states or record, **more)
        if _wanted.name != "auto":
            raise EngineError(f"engine {name!r} cannot run this call: {reason.text}")
        _tell(reason)
    raise AssertionError("the reference runs everything")


def _with_equations(direction: Direction) -> Direction:
    """The same, its cell in the form that says which values are shown, so that every engine shows these."""
    projected = "weight_hr" in direction.weights
    if untraceable(direction.cell, projected):
        return direction
    return direction._replace(cell=GraphCell(meant(direction.cell, projected), recorded=True))


def _why_not(name: str, steps: Steps, directions: list[Direction], all_states: bool, record: bool) -> Reason | None:
    if name == "torch" and record:
        return Reason("torch's kernels show no gates")
    return engines()[name].why_not(steps, directions, all_states)


def prepared(
    steps: Steps,
    directions: list[Direction],
    signature: Signature,
    draws: Sequence[Callable[[], dict[str, Tensor]]],
) -> Prepared | None:
    """Calls of one layer with the signature of this one, if kernels run them.

    Args:
        steps, directions: the call, of sequences of the same length.
        signature: of the calls.
        draws: for each direction a function that draws its noise.
    """
    kernels = on_kernels(steps, directions)
    return None if kernels is None else kernels.prepared(steps, directions, signature, draws)


def on_kernels(steps: Steps, directions: list[Direction]) -> Kernels | None:
    """The backend that would run a call, if one would: the named one, or with "auto" the first that can."""
    for name in order(steps, directions) if _wanted.name == "auto" else (_wanted.name,):
        if name in BACKENDS and Kernels(name).why_not(steps, directions) is None:
            return Kernels(name)
        if name == "torch" and stock.why_not(steps, directions) is None:
            return None
    return None


def choose(steps: Steps, directions: list[Direction]) -> Choice:
    """What `run` would do, with every engine's reason."""
    found = {name: _why_not(name, steps, directions, False, False) for name in engines()}
    reasons = {name: None if reason is None else reason.text for name, reason in found.items()}
    wanted = _wanted.name
    name = wanted if wanted != "auto" else next(n for n in order(steps, directions) if reasons[n] is None)
    return Choice(name, reasons, BACKENDS[name].explain(steps, directions) if name in BACKENDS else None)


def _tell(reason: Reason) -> None:
    """A cell that no kernel can express is slow for good: its author hears so, once."""
    if reason.of_cell and not torch.compiler.is_compiling() and reason.text not in _told:
        _told.add(reason.text)
        warnings.warn(reason.text, stacklevel=5)
