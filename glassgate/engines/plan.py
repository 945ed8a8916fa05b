"""Plans: the static part of a call (everything but tensors), built from a `Direction` or parsed from a string."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import compress
from typing import NamedTuple, Protocol, TypeVar

from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.contract import Direction
from glassgate.engines.guards import add_guards
from glassgate.engines.symbolic.costs import Costs
from glassgate.engines.symbolic.equations import Equations, NotEquations, parse
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.engines.symbolic.ops import SavedKind
from glassgate.engines.symbolic.trace import Trace, build_trace
from glassgate.engines.traced_cells import (
    assume_constant,
    cached_equations,
    current_equations,
    intern_equations,
    traced_cell,
)

T = TypeVar("T")


class TensorPlan(Protocol):
    """The tensors of the calls of a direction. `Plan` and `Recurrence` implement it."""

    @property
    def weights(self) -> tuple[str, ...]:
        """The names of the parameters, which are the first operands."""

    @property
    def operand_count(self) -> int:
        """The number of operands of the direction."""

    @property
    def differentiable(self) -> Sequence[bool]:
        """For each operand, whether it can have a gradient: False only for noise."""

    @property
    def state_counts(self) -> tuple[int, int]:
        """The numbers of states at every step and of final states in the results of a training call."""

    @property
    def records_factors(self) -> bool:
        """Whether the gradients of parameters can be summed over groups of sequences."""


class Recurrence(NamedTuple):
    """`TensorPlan` of the recurrence of a cell that declares axes. Its input is the pre-activations."""

    weights: tuple[str, ...]
    differentiable: tuple[bool, ...]
    state_counts: tuple[int, int]
    records_factors: bool

    @property
    def operand_count(self) -> int:
        """See `TensorPlan`."""
        return len(self.differentiable)


def operands_of(directions: list[Direction]) -> list[Tensor]:
    """The operands of a call: all tensors except the input, direction by direction, in the order of `Plan`."""
    return [v for d in directions for v in (*d.weights.values(), *d.initial, *d.restart, *d.noise.values())]


@dataclass(frozen=True, eq=False)
class Plan:
    """The static part of a call of one direction. Equal contents give the same object, so a plan can be a cache key.

    The operands of a direction are its parameters, its initial states, its states after a reset (only if they differ
    from the initial states) and its noise, in this order.

    Attributes:
        equations: the equations of one step.
        trace: the graphs of the step and of its gradient.
        reverse: whether time runs from the last step to the first.
        restarts: whether the states after a reset differ from the initial states.
        weights, noise: the names of the parameters and of the noise, in the order of the operands.
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
    def cell(self) -> GraphCell:
        """The equations as a cell."""
        return GraphCell(self.equations)

    @cached_property
    def state_count(self) -> int:
        """The number of state inputs: the initial states, and the states after a reset if they differ."""
        return (1 + self.restarts) * len(self.cell.state)

    @cached_property
    def operand_count(self) -> int:
        """The number of operands of the direction."""
        return len(self.weights) + self.state_count + len(self.noise)

    @cached_property
    def differentiable(self) -> list[bool]:
        """For each operand, whether it can have a gradient: False only for noise."""
        return [True] * (self.operand_count - len(self.noise)) + [False] * len(self.noise)

    @property
    def state_counts(self) -> tuple[int, int]:
        """See `TensorPlan`."""
        return len(self.equations.state), len(self.equations.state)

    @property
    def records_factors(self) -> bool:
        """See `TensorPlan`."""
        return self.trace.records_factors

    def describes(self, cell: Cell) -> bool:
        """Whether a cell still has these equations. False if it has not been traced since its change."""
        return traced_cell(cell).cached.get(self.equations.projected) is self.equations

    def direction(self, operands: Sequence[Tensor]) -> Direction:
        """The direction with these operands."""
        weight_count, count = len(self.weights), len(self.cell.state)
        noise_start = weight_count + self.state_count
        weights = dict(zip(self.weights, operands[:weight_count], strict=True))
        states = operands[weight_count:noise_start]
        noise = dict(zip(self.noise, operands[noise_start:], strict=True))
        return Direction(self.cell, weights, tuple(states[:count]), self.reverse, noise, tuple(states[count:]))

    def sizes(self, operands: Sequence[Tensor], data: Tensor) -> "Sizes":
        """The sizes of a call with these operands and this input."""
        H = operands[self.weights.index("weight_ih")].shape[0] // len(self.cell.gates)
        N, P = operands[len(self.weights)].shape
        return Sizes(N, data.shape[1], H, P, data.element_size() * 8)

    def state_widths(self, sizes: "Sizes") -> dict[str, int]:
        """The width of each state. The first state, the output, has the width of the projection."""
        return dict.fromkeys(self.cell.state, sizes.H) | {self.cell.state[0]: sizes.P}

    def kept_widths(self, sizes: "Sizes") -> dict[SavedKind, int]:
        """The widths of the buffers that the forward pass keeps for the backward pass in addition to the states."""
        trace, H = self.trace, sizes.H
        widths = {
            SavedKind.INPUT: len(trace.ih) * H,
            SavedKind.RECURRENT: len(trace.hh_only) * H,
            SavedKind.ROW_SUM: trace.saved_count(SavedKind.ROW_SUM),
            SavedKind.PROJECTED: trace.saved_count(SavedKind.PROJECTED) * sizes.P,
            SavedKind.KEPT: trace.saved_count(SavedKind.KEPT) * H,
        }
        return {kind: width for kind, width in widths.items() if width}


class Sizes(NamedTuple):
    """The sizes of a call of one direction.

    Attributes:
        N: the batch size.
        D: the width of the input.
        H: the hidden size.
        P: the width of the output.
        bits: the number of bits of the dtype.
    """

    N: int
    D: int
    H: int
    P: int
    bits: int


_Static = tuple[bool, bool, tuple[str, ...], tuple[str, ...], bool]
"""The last attributes of `Plan`: `reverse`, `restarts`, `weights`, `noise` and `record`."""
_plans: dict[tuple[object, ...], Plan] = {}
_traces: dict[tuple[Equations, Costs, bool, bool], Trace] = {}


def plan_of(direction: Direction, costs: Costs, record: bool = False, record_factors: bool = False) -> Plan:
    """Return the plan of a direction.

    Args:
        direction: the cell and the tensors.
        costs: the costs of the backend.
        record: whether gates and their gradients are results too.
        record_factors: see `Trace.records_factors`.

    Raises:
        NotTraceable: no kernel can express the step of the cell.
    """
    equations = cached_equations(direction.cell, "weight_hr" in direction.weights)
    return _plan(equations, costs, _static(direction, record), record_factors)


def _static(direction: Direction, record: bool) -> _Static:
    return direction.reverse, bool(direction.restart), tuple(direction.weights), tuple(direction.noise), record


def _plan(equations: Equations, costs: Costs, static: _Static, record_factors: bool = False) -> Plan:
    key = equations, costs, static, record_factors
    plan = _plans.get(key)
    if plan is None:
        *_, record = static
        trace_key = equations, costs, record, record_factors
        trace = _traces.get(trace_key)
        if trace is None:
            trace = _traces[trace_key] = build_trace(equations, costs, record, record_factors)
        plan = _plans[key] = Plan(equations, trace, *static)
    return plan


def format_layer(backend: str, kind: str, all_states: bool, content: str) -> str:
    """The static part of a call as text, because the arguments of torch operators cannot be Python objects.

    Args:
        backend: the name of the backend.
        kind: "equations" if `content` is the result of `format_plans`, "arrays" if it is the text of a direction whose
            cell declares axes (`arrays/engine.py`).
        all_states: whether every state at every step is a result, not only the output.
        content: the directions.
    """
    return f"{backend}\t{kind}\t{'all states' if all_states else 'output'}\n{content}"


def format_plans(directions: Sequence[Direction]) -> str:
    """Return the plans of all directions as one string, for calls without recordings."""
    return "\n".join(
        [_format(d.cell, "weight_hr" in d.weights, add_guards(d.cell), _static(d, False)) for d in directions]
    )


@assume_constant
def _format(cell: Cell, projected: bool, _guards: object, static: _Static) -> str:
    """The plan of one direction as a string. `_guards` makes torch.compile trace `add_guards`.

    It contains the equations, but not the name of the cell's class or of the backend.
    """
    reverse, restarts, weights, noise, _ = static
    names = ",".join(weights), ",".join(noise)
    return "\t".join((MARKS[reverse, restarts], *names, current_equations(cell, projected).text))


MARKS = {(False, False): ">", (True, False): "<", (False, True): ">>", (True, True): "<<"}
"""The mark in the text of a direction for each `(reverse, restarts)`."""
PARSED_MARKS = {mark: flags for flags, mark in MARKS.items()}


@lru_cache(1024)
def parse_plans(text: str, costs: Costs) -> tuple[Plan, ...]:
    """Parse the plans in a string, for a backend with these costs.

    Raises:
        NotEquations: the string does not contain plans, as `format_plans` writes them.
    """
    return tuple(_parse_plan(line, costs) for line in text.split("\n"))


def _parse_plan(line: str, costs: Costs) -> Plan:
    mark, weight_names, noise_names, content = (line.split("\t") + [""] * 4)[:4]
    equations = intern_equations(parse(content))
    weights, noise = tuple(weight_names.split(",")), tuple(noise_names.split(",")) if noise_names else ()
    if mark not in PARSED_MARKS or set(noise) != equations.noise.keys():
        raise NotEquations("this plan cannot be read")
    shapes = GraphCell(equations).shapes(1, 1, equations.projected, "bias_ih" in weights)
    if weights != tuple(shapes):
        raise NotEquations(f"this plan's parameters {weights} are not those of its equations, {tuple(shapes)}")
    return _plan(equations, costs, (*PARSED_MARKS[mark], weights, noise, False))


def state_result_count(plans: Sequence[TensorPlan]) -> int:
    """The number of states in the results of a training call: every state at all steps, and every final state.

    The results of a training call are these states, then the tensors that it saves for the backward pass.
    """
    return sum(sum(plan.state_counts) for plan in plans)


def without_final_states(plans: Sequence[TensorPlan], flat: Sequence[Tensor]) -> list[Tensor]:
    """The results of a training call that the backward pass reads: all except the final states."""
    states_of_steps = [v for states, _ in results_by_direction(plans, flat) for v in states]
    return [*states_of_steps, *flat[state_result_count(plans) :]]


def results_by_direction(
    plans: Sequence[TensorPlan], results: Sequence[T]
) -> Iterator[tuple[Sequence[T], Sequence[T]]]:
    """Yield the states at all steps and the final states of each direction, from the results of a training call."""
    start = 0
    for plan in plans:
        at_steps, final = plan.state_counts
        end = start + at_steps
        yield results[start:end], results[end : end + final]
        start = end + final


@lru_cache(1024)
def weight_tensors(plans: tuple[TensorPlan, ...]) -> list[bool]:
    """For the input and each operand of a call, whether it is a parameter."""
    return [False, *(k < len(plan.weights) for plan in plans for k in range(plan.operand_count))]


@lru_cache(1024)
def differentiable_tensors(plans: tuple[TensorPlan, ...]) -> list[bool]:
    """For the input and each operand of a call, whether it has a gradient."""
    return [True, *(has_gradient for plan in plans for has_gradient in plan.differentiable)]


def needed_weights(plans: Sequence[Plan], needed: Sequence[bool]) -> tuple[tuple[str, ...], ...]:
    """The names of the parameters whose gradient is needed, by direction. `needed` has one item per operand."""
    return tuple([tuple(compress(plan.weights, own)) for plan, own in by_direction(plans, needed)])


def by_direction(plans: Sequence[Plan], operands: Sequence[T]) -> Iterator[tuple[Plan, Sequence[T]]]:
    """Yield each plan with its operands. Instead of operands, any sequence with one item per operand can be passed."""
    start = 0
    for plan in plans:
        yield plan, operands[start : start + plan.operand_count]
        start += plan.operand_count


def directions_of(plans: Sequence[Plan], operands: Sequence[Tensor]) -> list[Direction]:
    """The directions of a call, from the operands of all directions."""
    return [plan.direction(own) for plan, own in by_direction(plans, operands)]
