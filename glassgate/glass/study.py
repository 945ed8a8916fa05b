"""What a report shows, as numbers: recorded values, measures and gradients of a model and some sequences."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from glassgate.glass import measures
from glassgate.glass.diagrams.values import wires
from glassgate.glass.highway import Kept, kept
from glassgate.glass.measures import Memory, Saturation, lags, ranges
from glassgate.glass.recorded import Recorded, watched

# Copies of a sequence times its steps: how many targets are differentiated at once, and in all.
_AT_ONCE = 60_000
MOST_TARGETS = 240
MOST_BEFORE = 60
_LONGEST_LAG = 200


class Said(NamedTuple):
    """One answer of a model.

    Attributes:
        step: the step it belongs to, from 0; None where it is about the whole sequence
        best: the likeliest choices and their probabilities (None where there is none), the prediction first
        target: what was right and its probability, where known
    """

    step: int | None
    best: Sequence[tuple[str, float | None]]
    target: tuple[str, float | None] | None

    @property
    def right(self) -> bool | None:
        """Whether the prediction is the target; None where that is not known, or both are numbers."""
        return None if self.target is None or self.best[0][1] is None else self.best[0][0] == self.target[0]


@dataclass
class Passage:
    """One sequence: what its steps read, as text or numbers, and what the model says of it.

    Attributes:
        series: (L * pace, C)
        pace: how many rows of the series one step reads
    """

    steps: Sequence[str]
    said: Sequence[Said] = ()
    series: np.ndarray | None = None
    title: str = ""
    pace: int = 1

    @property
    def ahead(self) -> list[tuple[float, float, float | None]]:
        """Answers that are numbers: each one's place in steps, itself, and the target."""
        found = []
        for place, said in enumerate(self.said):
            (name, chance), target = said.best[0], said.target
            if self.series is not None and chance is None:
                at = len(self.steps) + (place + 0.5) / self.pace if said.step is None else said.step + 1.5
                found.append((at, float(name), None if target is None else float(target[0])))
        return found


Evidence = Callable[[nn.Module, int, int], Tensor]
"""From a model, a passage's number and a count of copies to (copies, A): what is differentiated for each answer."""


@dataclass
class Flow:
    """The norm of dL_t/ds_{t-k}, over targets t, at each lag k.

    Attributes:
        lags: the k
        trained: median, 10 and 90 % of the norms, (3, K)
        initial: median before training, (K,); None where there is no initial model
        highway: median of what the state's own path alone carries from lag 0 on, (K,); None where it has none
    """

    lags: list[int]
    trained: np.ndarray
    initial: np.ndarray | None
    highway: np.ndarray | None


@dataclass
class Direction:
    """One direction of one layer.

    Attributes:
        label: "layer0.forward"
        reverse: whether it reads from the end
        cell: its class's name
        states: the states' names, the output first
        kinds: for each gate what `ranges` says
        values: (S, H) by gate and state, over all passages one after another
        saturation, half_life, memory, flow: by gate or state
        left: what a step leaves of each state, (S, H), and whether along its own path
        wires: (S, H) or (S, 1), what the wires of the cell's diagram carry that are no gate and no state after the
            step, by the diagram's names; of the input its norm
    """

    label: str
    reverse: bool
    cell: Any
    states: tuple[str, ...]
    kinds: dict[str, str]
    sizes: tuple[int, int, int]
    values: dict[str, np.ndarray]
    saturation: dict[str, Saturation]
    half_life: dict[str, np.ndarray]
    memory: dict[str, Memory]
    left: dict[str, tuple[np.ndarray, bool]]
    wires: dict[str, np.ndarray] = field(default_factory=dict)
    flow: dict[str, Flow] = field(default_factory=dict)


class Curves(defaultdict[str, list[np.ndarray]]):
    """By state, a curve over lags for each target."""

    def __init__(self) -> None:
        super().__init__(list)


class Connections(NamedTuple):
    """What mattered to the answers of one passage.

    Attributes:
        targets: the numbers of the A answers that were differentiated
        matrix: gradient times input, (A, L)
        attention: where each of these answers looked, (A, L); None where the network has no attention
    """

    targets: list[int]
    matrix: np.ndarray
    attention: np.ndarray | None = None


class Cause(NamedTuple):
    """What is lost when something is held at its mean.

    Attributes:
        name: of what is held
        loss: how much worse each answer is, in the study's unit
        points: how many answers of a hundred are right no more; None where no answer is right or wrong
    """

    name: str
    loss: float
    points: float | None


class Lapse(NamedTuple):
    """What is lost when all states are held at their means for some steps: from one to before another of a passage."""

    passage: int
    start: int
    stop: int
    loss: float
    points: float | None


@dataclass
class Study:
    """All that a report shows."""

    title: str
    subtitle: str
    passages: list[Passage]
    directions: list[Direction]
    connections: list[Connections] = field(default_factory=list)
    evidence: str = ""
    training: list[dict[str, float]] = field(default_factory=list)
    monitor: str = ""
    metrics: dict[str, Any] = field(default_factory=dict)
    cost: list[tuple[str, str]] = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)
    lapses: list[Lapse] = field(default_factory=list)
    unit: str = ""
    points: str = ""
    diagrams: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def starts(self) -> list[int]:
        """Where each passage begins among all steps, and their number."""
        return np.concatenate([[0], np.cumsum([len(each.steps) for each in self.passages])]).astype(int).tolist()


def directions(tape: Recorded, layer: str = "") -> list[Direction]:
    """Each direction of a recorded layer, its values row after row."""
    saturated, half, memories = measures.saturation(tape), measures.half_life(tape), measures.memory(tape, _LONGEST_LAG)
    result = []
    for label, call, number in tape.parts():
        if layer and not label.startswith(f"{layer}."):
            continue
        part, cell = call.layer._parts[number], call.layer.cell
        inside = tape.inside(label)
        short = label.removeprefix(f"{layer}.") if layer else label

        def rows(value: Tensor, inside: Tensor = inside) -> np.ndarray:
            flat = [value[inside[:, n], n] for n in range(inside.shape[1])]
            return np.asarray(torch.cat(flat).detach().float().cpu())

        def of(found: dict[str, Any], label: str = label) -> dict[str, Any]:
            return {name.removeprefix(f"{label}."): v for name, v in found.items() if name.startswith(f"{label}.")}

        left: dict[str, Kept] = kept(call, number)
        result.append(
            Direction(
                short,
                part.direction == 1,
                cell,
                cell.state,
                ranges(cell),
                (part.shapes["weight_ih"][1], part.hidden_size, part.widths[cell.state[0]]),
                {name: rows(value) for name, value in of(dict(tape)).items()},
                of(saturated),
                {name: np.asarray(value) for name, value in of(half).items()},
                of(memories),
                {name: (rows(each.by_step), each.direct) for name, each in left.items()},
                {name: rows(each) for name, each in wires(call, number).items()},
            )
        )
    return result


def differentiate(
    study: Study,
    network: nn.Module,
    initial: nn.Module | None,
    evidence: Evidence,
    layer: str,
    tick: Callable[[], None] = lambda: None,
) -> None:
    """Fill in connections and gradient flow: one row of a batch for each target, so that kernels do all at once."""
    norms, highways, before = Curves(), Curves(), Curves()
    for number, passage in enumerate(study.passages):
        chosen = spread(len(passage.said), most_targets(len(passage.steps), len(study.passages)))
        matrix = []
        for start in range(0, len(chosen), max(1, _AT_ONCE // len(passage.steps))):
            some = chosen[start : start + max(1, _AT_ONCE // len(passage.steps))]
            tape, mattered = _backward(network, evidence, number, some, layer)
            matrix.append(mattered)
            _collect(tape, study, number, some, norms, highways)
            tick()
        if initial is not None:
            some = [chosen[place] for place in spread(len(chosen), MOST_BEFORE)]
            _collect(_backward(initial, evidence, number, some, layer)[0], study, number, some, before, None)
            tick()
        study.connections.append(Connections(chosen, np.concatenate(matrix)))
    for direction in study.directions:
        for name in direction.states:
            key = f"{layer}.{direction.label}.{name}"
            if key in norms:
                direction.flow[name] = _flow(norms[key], before.get(key), highways.get(key))


def by_backward(study: Study, tape: Recorded) -> None:
    """Fill in gradient flow with what `backward()` has brought: lags are counted from where each direction ends."""
    grads = tape.grad
    for direction in study.directions:
        for name in direction.states:
            grad = grads.get(f"{direction.label}.{name}")
            if grad is None:
                continue
            curves = []
            for row, passage in enumerate(study.passages):
                norms = grad[: len(passage.steps), row].norm(dim=-1).cpu().numpy()
                curves.append(norms if direction.reverse else norms[::-1])
            direction.flow[name] = _flow(curves, None, None)
            study.evidence = "the loss"


def most_targets(length: int, passages: int) -> int:
    """How many answers of a passage are differentiated."""
    return max(1, min(MOST_TARGETS, 2 * _AT_ONCE // length, max(8, 1600 // passages)))


def spread(count: int, most: int) -> list[int]:
    """So many numbers below `count`, evenly spread, the last one among them.

    Example:
        >>> spread(5, 9), spread(9, 3)
        ([0, 1, 2, 3, 4], [2, 5, 8])
    """
    if count <= most:
        return list(range(count))
    return sorted({round((k + 1) * count / most) - 1 for k in range(most)})


def _backward(
    network: nn.Module, evidence: Evidence, number: int, chosen: list[int], layer: str
) -> tuple[Recorded, np.ndarray]:
    """The recording after a backward pass, row b of the batch from answer `chosen[b]`; gradient times input (B, L)."""
    with torch.enable_grad(), watched(network, Recorded(first=True)) as tape:
        rows = evidence(network, number, len(chosen))
    call = next(call for label, call, _ in tape.parts() if label.startswith(f"{layer}."))
    source = call.steps.data
    picked = rows[torch.arange(len(chosen)), torch.tensor(chosen, device=rows.device)]
    (grad,) = torch.autograd.grad(picked.sum(), source)
    mattered = call.layout.by_step((grad * source.detach()).sum(-1, keepdim=True))[..., 0]
    return tape, np.asarray(mattered.T.float().cpu())


def _collect(
    tape: Recorded, study: Study, number: int, chosen: list[int], norms: Curves, highways: Curves | None
) -> None:
    """Add to each state's curves: the gradient's norm at lag 0, 1, ... from each target's step."""
    grads, passage, start = tape.grad, study.passages[number], study.starts[number]
    left = {f"{each.label}.{name}": kept for each in study.directions for name, kept in each.left.items()}
    for label, call, part in tape.parts():
        reverse = call.layer._parts[part].direction == 1
        for name in call.layer.cell.state:
            key = f"{label}.{name}"
            if key not in grads or grads[key].shape[0] != len(passage.steps):
                continue
            grad = grads[key].detach().cpu()
            every = grad.norm(dim=-1).numpy()
            of_step, direct = left.get(f"{call.layer._parts[part].label}.{name}", (None, False))
            for row, answer in enumerate(chosen):
                step = passage.said[answer].step
                at = (0 if reverse else len(grad) - 1) if step is None else step
                norms[key].append(every[at:, row] if reverse else every[: at + 1, row][::-1])
                if highways is not None and of_step is not None and direct:
                    kept = of_step[start : start + len(grad)]
                    kept = kept[at:] if reverse else kept[: at + 1][::-1]
                    kept = kept[: _LONGEST_LAG + 1]
                    carried = np.cumprod(np.vstack([np.ones_like(kept[:1]), kept[:-1]]), 0) * grad[at, row].numpy()
                    highways[key].append(np.linalg.norm(carried, axis=-1))


def _flow(norms: list[np.ndarray], before: list[np.ndarray] | None, highways: list[np.ndarray] | None) -> Flow:
    longest = max(map(len, norms)) - 1
    if before:
        longest = min(longest, max(map(len, before)) - 1)
    chosen = [k for k in lags(max(1, min(_LONGEST_LAG, longest))) if k <= longest]

    def at(rows: list[np.ndarray], levels: Sequence[float]) -> np.ndarray:
        by_lag = ([each[k] for each in rows if len(each) > k] for k in chosen)
        return np.stack([np.quantile(np.asarray(values, np.float64), levels) for values in by_lag], 1)

    return Flow(
        chosen,
        at(norms, (0.5, 0.1, 0.9)),
        None if not before else at(before, (0.5,))[0],
        None if not highways else at(highways, (0.5,))[0],
    )


def reach(lags: Sequence[int], curve: np.ndarray, share: float) -> int | None:
    """The first lag at which a gradient is below a share of that at lag 0; None if there is none."""
    start = curve[0]
    if not start or not math.isfinite(start):
        return None
    return next((k for k, value in zip(lags, curve, strict=True) if value < share * start), None)
