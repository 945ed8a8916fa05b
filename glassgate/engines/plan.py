"""The static part of a call (everything but tensors), built from a `Direction` or parsed from an operator's string."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.contract import Direction
from glassgate.engines.guards import guarded
from glassgate.engines.meaning import cached_equations, constant, current_equations, interned
from glassgate.engines.symbolic.costs import Costs
from glassgate.engines.symbolic.equations import Equations, NotEquations, parse
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.engines.symbolic.trace import Trace, differentiated


def _order(direction: Direction) -> str:
    """The direction of time as a string, see `Plan.order`."""
    return ("<" if direction.reverse else ">") * (2 if direction.restart else 1)


def given_of(directions: list[Direction]) -> list[Tensor]:
    """All tensors of a call except its input data."""
    return [v for d in directions for v in (*d.weights.values(), *d.initial, *d.restart, *d.noise.values())]


@dataclass(frozen=True, eq=False)
class Plan:
    """The static part of one direction. Equal content gives the same object, so that a plan can be a key.

    Attributes:
        equations: the equations of one step.
        trace: the graphs of the step and of its gradient.
        order: ">" from the first step to the last, "<" in reverse; ">>" or "<<" if states after a reset differ from the
            initial ones.
        weights, noise: the names of the tensors, in order.
        record: whether gates and their gradients are results too.
        rows: whether the backward pass records all factors of the gradients of parameters; see `Trace`.
    """

    equations: Equations
    trace: Trace
    order: str
    weights: tuple[str, ...]
    noise: tuple[str, ...]
    record: bool
    rows: bool = False

    @cached_property
    def text(self) -> str:
        """The plan as a string, because torch operators accept strings and tensors, but no objects."""
        return _text(self.equations, self.order, self.weights, self.noise, self.record)

    @cached_property
    def cell(self) -> GraphCell:
        """The equations as a cell."""
        return GraphCell(self.equations)

    @cached_property
    def reverse(self) -> bool:
        """Whether time runs from the last step to the first."""
        return self.order[0] == "<"

    @cached_property
    def restarts(self) -> bool:
        """Whether the states after a reset differ from the initial ones."""
        return len(self.order) == 2

    @cached_property
    def states(self) -> int:
        """The number of state inputs: the initial states, and the states after a reset if they differ."""
        return len(self.order) * len(self.cell.state)

    @cached_property
    def differentiable(self) -> list[bool]:
        """For each tensor of the direction, whether it has a gradient: all except noise do."""
        return [True] * (self.given - len(self.noise)) + [False] * len(self.noise)

    @cached_property
    def given(self) -> int:
        """The number of tensors of the direction: parameters, states and noise."""
        return len(self.weights) + self.states + len(self.noise)

    def direction(self, given: Sequence[Tensor]) -> Direction:
        """Return the direction with these tensors."""
        n, count = len(self.weights), len(self.cell.state)
        weights = dict(zip(self.weights, given[:n], strict=True))
        states = tuple(given[n : n + self.states])
        noise = dict(zip(self.noise, given[n + self.states :], strict=True))
        return Direction(self.cell, weights, states[:count], self.reverse, noise, states[count:])

    def sizes(self, given: Sequence[Tensor], data: Tensor, terms: int = 0) -> "Sizes":
        """The sizes of a call with these tensors, computed in the dtype of its data; see `Sizes.terms`."""
        H = given[self.weights.index("weight_ih")].shape[0] // len(self.cell.gates)
        N, P = given[len(self.weights)].shape
        return Sizes(N, data.shape[1], H, P, data.element_size() * 8, terms)

    def of_states(self, sizes: "Sizes") -> dict[str, int]:
        """The width of each state; the first state, the output, has the width of the projection."""
        return dict.fromkeys(self.cell.state, sizes.H) | {self.cell.state[0]: sizes.P}

    def kept(self, sizes: "Sizes") -> dict[str, int]:
        """The widths of the buffers that the backward pass reads, except the states, by name."""
        trace, H = self.trace, sizes.H
        columns = {"ih": len(trace.ih) * H, "hh": len(trace.hh_only) * H, "row": trace.row_columns}
        columns["hr"] = sizes.P if ("hr", 0) in trace.saved else 0
        columns["kept"] = trace.kept_columns * H
        return {name: n for name, n in columns.items() if n}


LARGEST = 127
"""The largest integer of a quantised matrix. -128 is not used, so that every integer has its negative."""
INTEGERS = -1
"""A value of `Sizes.terms`: matrices are quantised to 8-bit integers."""


class Sizes(NamedTuple):
    """The sizes that, with the plan, determine the memory layout of a direction.

    N is the batch size, D the width of the input, H the hidden size, P the width of the output. A number has `bits`.
    """

    N: int
    D: int
    H: int
    P: int
    bits: int
    terms: int = 0
    """The arithmetic of matrix products: 0 for the dtype of the data, `INTEGERS` for 8-bit integers, and n > 0 for a
    sum of n products in bfloat16; see `Processor.terms`."""
    input_terms: int | None = None
    """The same for the product of the input, if it differs."""
    narrow: bool = False
    """Whether each step computes the product of the input itself, which has few columns; only without gradients."""

    @property
    def terms_of_input(self) -> int:
        """The arithmetic of the matrix product of the input."""
        return self.terms if self.input_terms is None else self.input_terms

    @property
    def bytes(self) -> int:
        """The size of a number in bytes."""
        return self.bits // 8


_plans: dict[tuple[object, ...], Plan] = {}
_traces: dict[tuple[Equations, Costs, bool, bool], Trace] = {}


def plan_of(direction: Direction, costs: Costs, record: bool = False, rows: bool = False) -> Plan:
    """Return the plan of a direction.

    Args:
        direction: its tensors and its cell.
        costs: the costs of the backend.
        record: whether gates and their gradients are results too.
        rows: whether the backward pass records the factors of the gradients of parameters.

    Raises:
        NotTraceable: no kernel can express the step of the cell.
    """
    weights = direction.weights
    equations = cached_equations(direction.cell, "weight_hr" in weights)
    return _plan(equations, costs, _order(direction), tuple(weights), tuple(direction.noise), record, rows)


def _plan(
    equations: Equations,
    costs: Costs,
    order: str,
    weights: tuple[str, ...],
    noise: tuple[str, ...],
    record: bool,
    rows: bool = False,
) -> Plan:
    key = equations, costs, order, weights, noise, record, rows
    plan = _plans.get(key)
    if plan is None:
        trace = _traces.get((equations, costs, record, rows))
        if trace is None:
            trace = _traces[equations, costs, record, rows] = differentiated(equations, costs, record, rows)
        plan = _plans[key] = Plan(equations, trace, order, weights, noise, record, rows)
    return plan


def text_for(directions: Sequence[Direction], record: bool = False) -> str:
    """The plans of all directions as one string."""
    static = [(d.cell, _order(d), tuple(d.weights), tuple(d.noise)) for d in directions]
    return "\n".join(
        [_text_of(cell, order, weights, noise, record, guarded(cell)) for cell, order, weights, noise in static]
    )


@constant
def _text_of(cell: Cell, order: str, weights: tuple[str, ...], noise: tuple[str, ...], record: bool, _: Any) -> str:
    """The string of one direction; the argument `_` makes `torch.compile` check again whether the cell has changed."""
    return _text(current_equations(cell, "weight_hr" in weights), order, weights, noise, record)


def _text(equations: Equations, order: str, weights: tuple[str, ...], noise: tuple[str, ...], record: bool) -> str:
    """The string of a plan. It contains the equations, but neither class names nor the backend."""
    return "\t".join((order, ",".join(weights), ",".join(noise), "recorded" if record else "", equations.text))


@lru_cache(1024)
def plans_in(text: str, costs: Costs) -> tuple[Plan, ...]:
    """Parse the plans in a string, for a backend with these costs.

    Raises:
        NotEquations: the string was not written by `text_for`.
    """
    return tuple(_read(line, costs) for line in text.split("\n"))


def _read(line: str, costs: Costs) -> Plan:
    order, names, noise, shown, content = (line.split("\t") + [""] * 5)[:5]
    equations = interned(parse(content))
    weights, factors = tuple(names.split(",")), tuple(noise.split(",")) if noise else ()
    if order not in _ORDERS or shown not in ("", "recorded") or set(factors) != equations.noise.keys():
        raise NotEquations("this program's directions cannot be read")
    shapes = GraphCell(equations).shapes(1, 1, equations.projected, "bias_ih" in weights)
    if weights != tuple(shapes):
        raise NotEquations(f"this program's parameters {weights} are not those of its equations, {tuple(shapes)}")
    return _plan(equations, costs, order, weights, factors, bool(shown))


_ORDERS = (">", "<", ">>", "<<")


def count_of_results(plans: Sequence[Plan]) -> int:
    """The number of result tensors of a training call: for each state, its values at all steps and its final value.

    A training call returns saved tensors after these.
    """
    return sum(2 * len(plan.equations.state) for plan in plans)


def without_final(plans: Sequence[Plan], flat: Sequence[Tensor]) -> list[Tensor]:
    """The results of a training call that its backward pass reads: all except the final states."""
    read: list[Tensor] = []
    at = 0
    for plan in plans:
        count = len(plan.equations.state)
        read += flat[at : at + count]
        at += 2 * count
    return [*read, *flat[at:]]


def by_direction(plans: Sequence[Plan], given: Sequence[Tensor]) -> Iterator[tuple[Plan, Sequence[Tensor]]]:
    """Yield each plan and its tensors."""
    at = 0
    for plan in plans:
        yield plan, given[at : at + plan.given]
        at += plan.given


def split(plans: Sequence[Plan], given: Sequence[Tensor]) -> list[Direction]:
    """Return the directions, each with its tensors."""
    return [plan.direction(own) for plan, own in by_direction(plans, given)]
