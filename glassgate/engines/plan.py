"""The static part of a call (everything but tensors), built from a `Direction` or parsed from an operator's string."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import compress
from typing import NamedTuple, TypeVar

from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.contract import Direction
from glassgate.engines.guards import guarded
from glassgate.engines.meaning import cached_equations, constant, current_equations, interned
from glassgate.engines.symbolic.costs import Costs
from glassgate.engines.symbolic.equations import Equations, NotEquations, parse
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.engines.symbolic.trace import Trace, differentiated

T = TypeVar("T")


def operands_of(directions: list[Direction]) -> list[Tensor]:
    """All tensors of a call except its input data, in the order of `Plan.operand_count`."""
    return [v for d in directions for v in (*d.weights.values(), *d.initial, *d.restart, *d.noise.values())]


@dataclass(frozen=True, eq=False)
class Plan:
    """The static part of one direction. Equal content gives the same object, so plans can be keys of caches.

    Attributes:
        equations: the equations of one step.
        trace: the graphs of the step and of its gradient.
        reverse: whether time runs from the last step to the first.
        restarts: whether the states after a reset differ from the initial states.
        weights, noise: the names of the tensors, in order.
        record: whether gates and their gradients are results too.
    """

    equations: Equations
    trace: Trace
    reverse: bool
    restarts: bool
    weights: tuple[str, ...]
    noise: tuple[str, ...]
    record: bool

    @cached_property
    def text(self) -> str:
        """The plan as a string, because the arguments of torch operators cannot be Python objects."""
        return _text(self.equations, (self.reverse, self.restarts, self.weights, self.noise, self.record))

    @cached_property
    def cell(self) -> GraphCell:
        """The equations as a cell."""
        return GraphCell(self.equations)

    @cached_property
    def state_count(self) -> int:
        """The number of state inputs: the initial states, and the states after a reset if they differ."""
        return (1 + self.restarts) * len(self.cell.state)

    @cached_property
    def operand_count(self) -> int:
        """The number of operands of the direction: its parameters, states and noise, in this order."""
        return len(self.weights) + self.state_count + len(self.noise)

    @cached_property
    def differentiable(self) -> list[bool]:
        """For each operand, whether it has a gradient: all except noise do."""
        return [True] * (self.operand_count - len(self.noise)) + [False] * len(self.noise)

    def direction(self, operands: Sequence[Tensor]) -> Direction:
        """Return the direction with these operands."""
        n, count = len(self.weights), len(self.cell.state)
        weights = dict(zip(self.weights, operands[:n], strict=True))
        states = tuple(operands[n : n + self.state_count])
        noise = dict(zip(self.noise, operands[n + self.state_count :], strict=True))
        return Direction(self.cell, weights, states[:count], self.reverse, noise, states[count:])

    def sizes(self, operands: Sequence[Tensor], data: Tensor) -> "Sizes":
        """The sizes of a call with these operands, computed in the dtype of `data`."""
        H = operands[self.weights.index("weight_ih")].shape[0] // len(self.cell.gates)
        N, P = operands[len(self.weights)].shape
        return Sizes(N, data.shape[1], H, P, data.element_size() * 8)

    def state_widths(self, sizes: "Sizes") -> dict[str, int]:
        """The width of each state. The first state, the output, has the width of the projection."""
        return dict.fromkeys(self.cell.state, sizes.H) | {self.cell.state[0]: sizes.P}

    def kept_widths(self, sizes: "Sizes") -> dict[str, int]:
        """The widths of the buffers that the backward pass reads, except the states, by name.

        "ih" and "hh" are halves of pre-activations, "row" row sums, "hr" the projected output, and "kept" other values.
        """
        trace, H = self.trace, sizes.H
        columns = {"ih": len(trace.ih) * H, "hh": len(trace.hh_only) * H, "row": trace.row_columns}
        columns["hr"] = sizes.P if ("hr", 0) in trace.saved else 0
        columns["kept"] = trace.kept_columns * H
        return {name: n for name, n in columns.items() if n}


class Sizes(NamedTuple):
    """The sizes of a call of one direction.

    N is the batch size, D the width of the input, H the hidden size, P the width of the output, and `bits` the size of
    a number.
    """

    N: int
    D: int
    H: int
    P: int
    bits: int


_Static = tuple[bool, bool, tuple[str, ...], tuple[str, ...], bool]
"""The attributes of `Plan` after the graphs: `reverse`, `restarts`, `weights`, `noise` and `record`."""
_plans: dict[tuple[object, ...], Plan] = {}
_traces: dict[tuple[Equations, Costs, bool, bool], Trace] = {}


def plan_of(direction: Direction, costs: Costs, record: bool = False, rows: bool = False) -> Plan:
    """Return the plan of a direction.

    Args:
        direction: the cell and the tensors.
        costs: the costs of the backend.
        record: whether gates and their gradients are results too.
        rows: whether the backward pass records all factors of the gradients of parameters; see `Trace`.

    Raises:
        NotTraceable: no kernel can express the step of the cell.
    """
    equations = cached_equations(direction.cell, "weight_hr" in direction.weights)
    return _plan(equations, costs, _static(direction, record), rows)


def _static(direction: Direction, record: bool) -> _Static:
    return direction.reverse, bool(direction.restart), tuple(direction.weights), tuple(direction.noise), record


def _plan(equations: Equations, costs: Costs, static: _Static, rows: bool = False) -> Plan:
    key = equations, costs, static, rows
    plan = _plans.get(key)
    if plan is None:
        *_, record = static
        trace = _traces.get((equations, costs, record, rows))
        if trace is None:
            trace = _traces[equations, costs, record, rows] = differentiated(equations, costs, record, rows)
        plan = _plans[key] = Plan(equations, trace, *static)
    return plan


def text_for(directions: Sequence[Direction], record: bool = False) -> str:
    """The plans of all directions as one string."""
    return "\n".join(
        [_text_of(d.cell, "weight_hr" in d.weights, guarded(d.cell), _static(d, record)) for d in directions]
    )


@constant
def _text_of(cell: Cell, projected: bool, _guards: object, static: _Static) -> str:
    """The string of one direction. `_guards` makes `torch.compile` check whether the cell has changed."""
    return _text(current_equations(cell, projected), static)


def _text(equations: Equations, static: _Static) -> str:
    """The string of a plan. It contains the equations, but neither class names nor the backend."""
    reverse, restarts, weights, noise, record = static
    order = _ORDERS[reverse, restarts]
    return "\t".join((order, ",".join(weights), ",".join(noise), "recorded" if record else "", equations.text))


_ORDERS = {(False, False): ">", (True, False): "<", (False, True): ">>", (True, True): "<<"}
"""The notation of `reverse` and `restarts` in the string of a plan."""
_PARSED_ORDERS = {text: flags for flags, text in _ORDERS.items()}


@lru_cache(1024)
def plans_in(text: str, costs: Costs) -> tuple[Plan, ...]:
    """Parse the plans in a string, for a backend with these costs.

    Raises:
        NotEquations: the string was not written by `text_for`.
    """
    return tuple(_read(line, costs) for line in text.split("\n"))


def _read(line: str, costs: Costs) -> Plan:
    order, names, noise, recorded, content = (line.split("\t") + [""] * 5)[:5]
    equations = interned(parse(content))
    weights, factors = tuple(names.split(",")), tuple(noise.split(",")) if noise else ()
    if order not in _PARSED_ORDERS or recorded not in ("", "recorded") or set(factors) != equations.noise.keys():
        raise NotEquations("this program's directions cannot be read")
    shapes = GraphCell(equations).shapes(1, 1, equations.projected, "bias_ih" in weights)
    if weights != tuple(shapes):
        raise NotEquations(f"this program's parameters {weights} are not those of its equations, {tuple(shapes)}")
    return _plan(equations, costs, (*_PARSED_ORDERS[order], weights, factors, bool(recorded)))


def count_of_results(plans: Sequence[Plan]) -> int:
    """The number of results of a training call: the values of each state at all steps, and its final value.

    A training call returns saved tensors after these.
    """
    return sum(2 * len(plan.equations.state) for plan in plans)


def without_final(plans: Sequence[Plan], flat: Sequence[Tensor]) -> list[Tensor]:
    """The results of a training call that its backward pass reads: all except the final states."""
    read = [v for states, _ in results_by_direction(plans, flat) for v in states]
    return [*read, *flat[count_of_results(plans) :]]


def results_by_direction(plans: Sequence[Plan], results: Sequence[T]) -> Iterator[tuple[Sequence[T], Sequence[T]]]:
    """Yield each direction's states at all steps and its final states, from the results of a training call."""
    at = 0
    for plan in plans:
        count = len(plan.equations.state)
        yield results[at : at + count], results[at + count : at + 2 * count]
        at += 2 * count


def needed_weights(plans: Sequence[Plan], needed: Sequence[bool]) -> tuple[tuple[str, ...], ...]:
    """For each direction the names of the parameters whose gradient is needed, given this for each operand."""
    return tuple([tuple(compress(plan.weights, own)) for plan, own in by_direction(plans, needed)])


def by_direction(plans: Sequence[Plan], operands: Sequence[T]) -> Iterator[tuple[Plan, Sequence[T]]]:
    """Yield each plan and its operands, or other values with one item per operand."""
    at = 0
    for plan in plans:
        yield plan, operands[at : at + plan.operand_count]
        at += plan.operand_count


def split(plans: Sequence[Plan], operands: Sequence[Tensor]) -> list[Direction]:
    """Return the directions, each with its operands."""
    return [plan.direction(own) for plan, own in by_direction(plans, operands)]
