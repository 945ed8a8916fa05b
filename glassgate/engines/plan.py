"""A call's directions as text and a flat list of tensors, the form that operators take, and back."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.contract import Direction
from glassgate.engines.handle import cell_of, handle
from glassgate.engines.symbolic.trace import Trace, trace


def form_of(directions: list[Direction], record: bool = False) -> str:
    """All of a call that is no tensor, as text."""
    shown = "recorded" if record else ""
    return "\n".join(
        "\t".join((_way(d), handle(d.cell), ",".join(d.weights), ",".join(d.noise), shown)) for d in directions
    )


def _way(direction: Direction) -> str:
    """Which way time runs; doubled where resets have states of their own."""
    return ("<" if direction.reverse else ">") * (2 if direction.restart else 1)


def given_of(directions: list[Direction]) -> list[Tensor]:
    """All tensors of a call beside its data."""
    return [v for d in directions for v in (*d.weights.values(), *d.initial, *d.restart, *d.noise.values())]


class Plan(NamedTuple):
    """What a form says of one direction."""

    cell: Cell
    trace: Trace
    way: str
    weights: tuple[str, ...]
    noise: tuple[str, ...]

    @property
    def reverse(self) -> bool:
        """Whether time runs from the last step to the first."""
        return self.way[0] == "<"

    @property
    def restarts(self) -> bool:
        """Whether resets have states of their own."""
        return len(self.way) == 2

    @property
    def states(self) -> int:
        """How many states come in: the initial ones, and those of resets where they are others."""
        return len(self.way) * len(self.cell.state)

    @property
    def differentiable(self) -> list[bool]:
        """Which of the tensors it takes have a gradient: all but noise."""
        return [True] * (self.given - len(self.noise)) + [False] * len(self.noise)

    @property
    def given(self) -> int:
        """How many tensors the direction takes: parameters, states, noise."""
        return len(self.weights) + self.states + len(self.noise)

    def direction(self, given: Sequence[Tensor]) -> Direction:
        """The call of an engine that the tensors were taken from."""
        n, count = len(self.weights), len(self.cell.state)
        weights = dict(zip(self.weights, given[:n], strict=True))
        states = tuple(given[n : n + self.states])
        noise = dict(zip(self.noise, given[n + self.states :], strict=True))
        return Direction(self.cell, weights, states[:count], self.reverse, noise, states[count:])

    def sizes(self, given: Sequence[Tensor], data: Tensor) -> "Sizes":
        """Those of a call with these tensors, computed in the type of its data."""
        H = given[self.weights.index("weight_ih")].shape[0] // len(self.cell.gates)
        N, P = given[len(self.weights)].shape
        return Sizes(N, data.shape[1], H, P, data.element_size() * 8)

    def of_states(self, sizes: "Sizes") -> dict[str, int]:
        """The width of each state: the output is as wide as its projection."""
        return dict.fromkeys(self.cell.state, sizes.H) | {self.cell.state[0]: sizes.P}

    def kept(self, sizes: "Sizes") -> dict[str, int]:
        """The buffers that the backward pass reads beside the states, and their widths."""
        trace, H = self.trace, sizes.H
        columns = {"ih": len(trace.ih) * H, "hh": len(trace.hh_only) * H, "row": trace.row_columns}
        columns["hr"] = sizes.P if ("hr", 0) in trace.saved else 0
        return {name: n for name, n in columns.items() if n}


class Sizes(NamedTuple):
    """All that decides how a direction's memory lies, beside its plan. A number has `bits`."""

    N: int
    D: int
    H: int
    P: int
    bits: int

    @property
    def bytes(self) -> int:
        """Of a number."""
        return self.bits // 8


@lru_cache(1024)
def plans(form: str) -> tuple[Plan, ...]:
    plans = []
    for line in form.split("\n"):
        way, text, weights, noise, shown = line.split("\t")
        cell, names = cell_of(text), tuple(weights.split(","))
        traced = trace(cell, "weight_hr" in names, bool(shown))
        plans.append(Plan(cell, traced, way, names, tuple(noise.split(",")) if noise else ()))
    return tuple(plans)


def count_of_results(form: str) -> int:
    """How many tensors a training call gives beside what it keeps: all states, at every step and final."""
    return sum(2 * len(plan.cell.state) for plan in plans(form))


def without_final(form: str, flat: Sequence[Tensor]) -> list[Tensor]:
    """What a backward pass reads of all that a training call gives: nobody but the caller has the final states."""
    read: list[Tensor] = []
    at = 0
    for plan in plans(form):
        count = len(plan.cell.state)
        read += flat[at : at + count]
        at += 2 * count
    return [*read, *flat[at:]]


def by_direction(form: str, given: Sequence[Tensor]) -> Iterator[tuple[Plan, Sequence[Tensor]]]:
    """What the form says of each direction, and its part of all tensors."""
    at = 0
    for plan in plans(form):
        yield plan, given[at : at + plan.given]
        at += plan.given


def split(form: str, given: Sequence[Tensor]) -> list[Direction]:
    """The directions, each with its part of all tensors."""
    return [plan.direction(own) for plan, own in by_direction(form, given)]
