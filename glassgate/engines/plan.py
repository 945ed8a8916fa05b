"""A call's directions as text and a flat list of tensors, the form that operators take, and back."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.call import Direction
from glassgate.engines.handle import cell_of, handle
from glassgate.engines.trace import Trace, trace


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
        return Direction(self.cell, weights, states[:count], self.way[0] == "<", noise, states[count:])

    def hidden_size(self, direction: Direction) -> int:
        """H_cell."""
        return direction.weights["weight_ih"].shape[0] // len(self.cell.gates)

    def kept(self, widths: list[int], H: int) -> dict[str, int]:
        """The buffers that the backward pass reads beside the states, and their widths."""
        columns = {
            "ih": len(self.trace.ih) * H,
            "hh": len(self.trace.hh_only) * H,
            "row": self.trace.row_columns,
        }
        return {name: n for name, n in columns.items() if n} | (
            {"hr": widths[0]} if ("hr", 0) in self.trace.saved else {}
        )


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


def split(form: str, given: Sequence[Tensor]) -> list[Direction]:
    """The directions, each with its part of all tensors."""
    directions, at = [], 0
    for plan in plans(form):
        directions.append(plan.direction(given[at : at + plan.given]))
        at += plan.given
    return directions
