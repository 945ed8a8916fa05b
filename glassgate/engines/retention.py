"""The memory of a cell, derived from its step: the gates that keep its states, and the gates that write to them.

The retention of a state is the derivative of a unit's new state with respect to its old one along the direct path,
which excludes the recurrent weights. To derive it, two steps with the same pre-activations run from zero states, on
rows of random pre-activations. The retention is that of the second step. The names of gates and states have no meaning.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassgate.cell import Cell, Named, PreActivations, RecurrentTerm
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.engines.symbolic.step import run_in_new_thread

_ROWS, _UNITS = 64, 4
_BACKGROUNDS = 6
"""The number of random pre-activations of the other gates on which a number for some gates is tested."""
_NEGLIGIBLE = 1e-9
"""A smaller derivative is a rounding error."""
_AGREEMENT = 0.9
"""An effect has a direction if its sum over the rows is at least this fraction of the sum of its absolute values."""
_OWN = 3.0
"""An effect on a gate's own unit is more than one through a mean over units if it is this much larger than that on
other units."""
_LIMIT = 50.0
"""Pre-activations of this magnitude drive gates to their limits."""
_POINTS = 4001
"""The number of points from `-_LIMIT` to `_LIMIT` at which a number for a gate is tested."""
_SHUT = 1e-6
"""A shut gate writes at most this fraction of the update that the open gate writes."""
_TOLERANCE = 1e-3
"""The largest relative error of the fraction that a step loses."""

_Leaves = dict[tuple[str, str], Tensor]
"""Terms of the pre-activations, (rows, units), by the name of the parameter and the gate."""


class NotDerivable(ValueError):
    """The step cannot be run on random numbers, or cannot be differentiated twice; the message has the reason."""


class Unreachable(ValueError):
    """No bias gives the required retention. The attributes are the lowest and the highest possible retention."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__(f"the retention is between {low:.3g} and {high:.3g}")
        self.low, self.high = low, high


@dataclass(frozen=True)
class Memory:
    """The gates that keep the states of a cell, and the gates that write to these states.

    A gate has the sign 1 if it keeps more, or writes more, when its pre-activation rises, and otherwise -1.

    Attributes:
        states: the states that gates keep.
        keeping: the signs of the gates that change the retention of these states.
        coupled: those of the gates in `keeping` that write less when they keep more, such as z of a GRU.
        writing: the signs of the other gates that scale the update, between nothing and a maximum. Empty if coupled
            gates already scale it.
        opposed: the gates that keep one state more and another one less when their pre-activation rises.
        units: the number of units of the rows on which the step was run.
        offsets: the parameters that add a number to the pre-activation of each gate in `keeping`. Usually these are
            `bias_ih` and `bias_hh`. Behind a layer normalisation, a bias also changes other units.
    """

    states: tuple[str, ...]
    keeping: Mapping[str, int]
    coupled: frozenset[str]
    writing: Mapping[str, int]
    opposed: frozenset[str]
    offsets: tuple[str, ...]
    units: int


def memory_of(cell: Cell, hidden_size: int | None = None) -> Memory:
    """Derive the memory of a cell.

    Args:
        cell: the cell.
        hidden_size: the number of units of a layer, for steps that run only on this number of units.

    Raises:
        NotDerivable: the step cannot be run on random numbers, or cannot be differentiated twice.
    """
    memory: Memory
    try:
        memory = _run(_derive, cell, _UNITS * cell.heads)
    except NotDerivable:
        if hidden_size is None:
            raise
        memory = _run(_derive, cell, hidden_size)
    return memory


def magnitudes(cell: Cell, memory: Memory, offset: str, u: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers to add to pre-activations so that a step keeps u / (u + 1) of the states and writes 1 / (u + 1).

    The number for a gate in `keeping` has the sign of the gate, and the number for a gate in `writing` the opposite
    sign. For gates that are sigmoids, the magnitudes are log u.

    Args:
        cell, memory: the cell and its memory.
        offset: the parameter that contains the numbers, one of `Memory.offsets`.
        u: at least 1, (H,).

    Returns:
        the magnitudes for the gates in `keeping` and for those in `writing`, (H,) each.

    Raises:
        Unreachable: no number gives the required retention.
    """
    kept = partial(_retention, cell, memory, offset)
    unwritten = partial(_unwritten, cell, memory, offset)
    results = []
    for function in (kept, unwritten if memory.writing else kept):
        is_logarithm = u.is_meta or _run(_is_sigmoid, function)
        results.append(u.log() if is_logarithm else _run(_solve, function, u.double().cpu()).to(u))
    keep, write = results
    return keep, write


def _run(function: Callable[..., Any], *args: Any) -> Any:
    """Run a function that runs steps, and raise `NotDerivable` for an error of the step."""
    try:
        return run_in_new_thread(function, *args)
    except Unreachable:
        raise
    except (TypeError, ValueError, RuntimeError, ArithmeticError, LookupError, AttributeError) as error:
        first_line = str(error).strip().partition("\n")[0]
        raise NotDerivable(f"{type(error).__name__}: {first_line}") from error


class _State(NamedTuple):
    """A state of the first unit after two steps, (rows,).

    Attributes:
        retention: the derivative of the new value with respect to the old one.
        written: the new value minus the part of it that is kept of the old one.
    """

    retention: Tensor
    written: Tensor


def _two_steps(cell: Cell, leaves: _Leaves) -> list[_State]:
    like = leaves["bias_ih", cell.gates[0]].detach()

    def by_gate(name: str) -> Named:
        return Named(cell.gates, [leaves[name, gate] for gate in cell.gates])

    def parameter(name: str) -> Named | Tensor:
        spec = cell.parameters[name]
        return by_gate(name) if spec.per_gate else torch.full_like(like, float(spec.start))

    p = Named(cell.parameters, map(parameter, cell.parameters))
    noise = Named(cell.noise, [torch.full_like(like, each.mean) for each in cell.noise.values()])
    is_projected = isinstance(cell, GraphCell) and cell.equations.projected
    with torch.enable_grad():
        new = tuple([torch.zeros_like(like, requires_grad=True) for _ in cell.state])
        for _ in range(2):
            old = tuple([value + 0 for value in new])  # separate tensors, if a step returns one for two states
            states = [value + 0 for value in old]  # copies, because a step may write to its states in place
            hh = RecurrentTerm(lambda u: by_gate("bias_hh"), states[0]) if cell.recurrent else None
            a = PreActivations(by_gate("bias_ih"), hh, noise)
            new = cell.new_state(a, Named(cell.state, states), p, torch.zeros_like if is_projected else None)
        result = []
        for value, before in zip(new, old, strict=True):
            d = torch.zeros_like(value)
            if value.requires_grad:
                (d,) = torch.autograd.grad(value[:, 0].sum(), before, create_graph=True, materialize_grads=True)
            result.append(_State(d[:, 0], value[:, 0] - d[:, 0] * before[:, 0]))
        return result


def _zero_leaves(cell: Cell, rows: int, units: int) -> _Leaves:
    """Biases of zero, and the initial values of the cell's parameters per gate."""
    start = {"bias_ih": 0.0, "bias_hh": 0.0} | {n: float(p.start) for n, p in cell.parameters.items() if p.per_gate}
    return {
        (name, gate): torch.full((rows, units), value, dtype=torch.float64, device="cpu")
        for name, value in start.items()
        for gate in cell.gates
    }


def _derive(cell: Cell, units: int) -> Memory:
    generator, leaves = torch.Generator("cpu").manual_seed(0), _zero_leaves(cell, _ROWS, units)
    for (name, _), leaf in leaves.items():
        if name not in cell.parameters:
            leaf.normal_(generator=generator)
        leaf.requires_grad_()
    states, offsets = list[str](), list(dict.fromkeys(name for name, _ in leaves))
    keeping, writing = dict[str, int](), dict[str, int]()
    coupled, opposed = set[str](), set[str]()
    for state, (retention, written) in zip(cell.state, _two_steps(cell, leaves), strict=True):
        on_retention = _effects(leaves, retention)
        keeps, writes = _signs(on_retention), _signs(_effects(leaves, written.abs()))
        if keeps:
            states.append(state)
            offsets = [name for name in offsets if _is_offset(name, on_retention, keeps)]
            opposed |= {gate for gate, sign in keeps.items() if keeping.get(gate, sign) != sign}
            closing = {gate for gate, sign in keeps.items() if writes.get(gate) == -sign}
            coupled |= closing
            keeping |= keeps
            if not closing:
                writing |= {gate: sign if writing.get(gate, sign) == sign else 0 for gate, sign in writes.items()}
    memory = Memory(tuple(states), keeping, frozenset(coupled), {}, frozenset(opposed), tuple(offsets), units)
    others = {gate: sign for gate, sign in writing.items() if sign and gate not in keeping}
    return replace(memory, writing={gate: sign for gate, sign in others.items() if _shuts(cell, memory, gate, sign)})


def _effects(leaves: _Leaves, values: Tensor) -> _Leaves:
    """The derivatives of the first unit's values with respect to the leaves of all units."""
    for leaf in leaves.values():
        leaf.grad = torch.zeros_like(leaf)
    if values.requires_grad:
        # `torch.autograd.grad` would return zeros for a function of the cell's author without a second derivative.
        values.sum().backward(retain_graph=True)
    return {key: torch.as_tensor(leaf.grad).nan_to_num(0.0, 0.0, 0.0) for key, leaf in leaves.items()}


def _signs(effects: _Leaves) -> dict[str, int]:
    """The signs of the gates whose pre-activations have an effect of one direction."""
    signs = dict[str, int]()
    for (name, gate), effect in effects.items():
        if name in ("bias_ih", "bias_hh") and gate not in signs and (sign := _sign(effect)):
            signs[gate] = sign
    return signs


def _sign(effect: Tensor) -> int:
    """The direction of an effect; 0 if it has none, or is only an effect through a mean over units."""
    own, size, size_of_others = effect[:, 0].mean(), effect[:, 0].abs().mean(), effect[:, 1:].abs().mean()
    if size < _NEGLIGIBLE or size < _OWN * size_of_others or own.abs() < _AGREEMENT * size:
        return 0
    return 1 if own > 0 else -1


def _is_offset(name: str, effects: _Leaves, signs: Mapping[str, int]) -> bool:
    """Whether a parameter changes each of some gates in the gate's direction, without an effect on other units."""
    return all(
        _sign(effects[name, gate]) == sign and not effects[name, gate][:, 1:].any() for gate, sign in signs.items()
    )


def _evaluate(cell: Cell, memory: Memory, offset: str, numbers: Mapping[str, Tensor]) -> list[_State]:
    """The states that gates keep, (n, backgrounds), if the parameter `offset` has n numbers for some gates.

    The other gates have random pre-activations, one per background.
    """
    n = len(next(iter(numbers.values())))
    generator, leaves = torch.Generator("cpu").manual_seed(0), _zero_leaves(cell, n * _BACKGROUNDS, memory.units)
    for gate in cell.gates:
        background = torch.randn(_BACKGROUNDS, generator=generator, dtype=torch.float64, device="cpu")
        number = numbers[gate][:, None] if gate in numbers else background
        leaves[offset, gate] = number.expand(n, _BACKGROUNDS).reshape(-1, 1).expand_as(leaves[offset, gate])
    states = zip(cell.state, _two_steps(cell, leaves), strict=True)
    return [
        _State(*[value.detach().reshape(n, _BACKGROUNDS) for value in values])
        for name, values in states
        if name in memory.states
    ]


def _retention(cell: Cell, memory: Memory, offset: str, magnitude: Tensor) -> Tensor:
    """The retention of the states for each magnitude, (n,): a mean of the logarithm.

    Backgrounds in which a step loses the whole state, for example behind a relu, do not count.
    """
    states = _evaluate(cell, memory, offset, {gate: sign * magnitude for gate, sign in memory.keeping.items()})
    logarithms = torch.cat([each.retention for each in states], 1).abs().log()
    return logarithms.where(logarithms > -torch.inf, torch.nan).nanmean(1).exp().nan_to_num(0.0)


def _unwritten(cell: Cell, memory: Memory, offset: str, magnitude: Tensor) -> Tensor:
    """1 minus the fraction of the largest update that is written, for each magnitude, (n,)."""
    ends = torch.cat([-magnitude, torch.full_like(magnitude[:1], _LIMIT)])
    states = _evaluate(cell, memory, offset, {gate: sign * ends for gate, sign in memory.writing.items()})
    written = torch.cat([each.written for each in states], 1).abs()
    return 1 - (written[:-1] / written[-1]).nanmean(1)


def _shuts(cell: Cell, memory: Memory, gate: str, sign: int) -> bool:
    """Whether a gate writes nothing at one limit, and at most a maximum at the other."""
    if not memory.offsets:
        return False
    ends = sign * _LIMIT * torch.tensor([-1.0, 1.0, 2.0], dtype=torch.float64, device="cpu")
    for state in _evaluate(cell, memory, memory.offsets[0], {gate: ends}):
        shut, opened, beyond = state.written.abs().nan_to_num(0.0).sum(1)
        if opened > 0 and shut <= _SHUT * opened and torch.isclose(opened, beyond):
            return True
    return False


def _is_sigmoid(function: Callable[[Tensor], Tensor]) -> bool:
    """Whether a function of magnitudes is the sigmoid, so that log u gives u / (u + 1)."""
    u = torch.logspace(0, 6, 13, dtype=torch.float64, device="cpu")
    return torch.allclose((1 - function(u.log())) * (1 + u), torch.ones_like(u), rtol=1e-6)


def _solve(function: Callable[[Tensor], Tensor], u: Tensor) -> Tensor:
    """The magnitudes at which an increasing function has the values u / (u + 1), by interpolation."""
    points, target = torch.linspace(-_LIMIT, _LIMIT, _POINTS, dtype=torch.float64, device="cpu"), u / (u + 1)
    values = function(points).cummax(0).values
    above = torch.searchsorted(values, target).clamp(1, _POINTS - 1)
    low, high = values[above - 1], values[above]
    fraction = ((target - low) / (high - low)).nan_to_num(0.0)
    result = torch.lerp(points[above - 1], points[above], fraction)
    if not torch.allclose((1 - function(result)) * (u + 1), torch.ones_like(u), rtol=_TOLERANCE):
        raise Unreachable(float(values[0]), float(values[-1]))
    return result
