"""What a cell declares: gates, states, parameters and noise, and their axes.

`cell.py` defines the cell itself, and `cell_shapes.py` the sizes of the axes in a layer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

UNITS = "units"
"""The axis with one number per unit: its size is the hidden size of the layer."""
FEATURES = "features"
"""The axis of the input that the gates multiply. Without `inputs`, its size is the input size of the layer."""

PROJECTED = "projected"
"""The axis of the output of a layer with a projection: its size is `proj_size`."""

Axes = tuple[str | int, ...]
"""The axes of a value within a row: names, or sizes. () is one number per row."""
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Gate:
    """A gate: a block of rows of the weights.

    Attributes:
        axes: the axes of the pre-activation. The default is one number per unit.
        reads: "xh" for rows in `weight_ih` and `weight_hh`, "x" or "h" for rows in only one of them. In a cell with
            `recurrent = False`, every gate reads only x.
    """

    axes: Axes = (UNITS,)
    reads: str = "xh"

    def __post_init__(self) -> None:
        if self.reads not in ("x", "h", "xh"):
            raise ValueError(f"Gate: reads must be 'x', 'h' or 'xh', got {self.reads!r}")


@dataclass(frozen=True)
class State:
    """A state.

    Attributes:
        axes: the axes of the state. The default is one number per unit.
        start: every number of the initial state, for calls without `hx`.
    """

    axes: Axes = (UNITS,)
    start: float = 0.0


def draw_matrix(values: Any) -> None:
    """Fill a tensor with uniform numbers from [-1 / sqrt(n), 1 / sqrt(n)], where n is the size of its last axis."""
    bound = values.shape[-1] ** -0.5
    values.uniform_(-bound, bound)


_DEFAULT = object()


@dataclass(frozen=True)
class Parameter:
    """An extra parameter of a cell. The default is a vector with one number per unit.

    Attributes:
        start: the initial value of every number, or a function that fills the tensor in place, such as
            `torch.nn.init.orthogonal_`. The default is 0 for a vector and `draw_matrix` for several axes.
        per_gate: whether each gate has its own values, with the axes of the gate. A step then reads `p.gain.i` instead
            of `p.gain`.
        axes: the axes, for example `()` for one number, `("heads",)`, or `("units", "key")` for a matrix.
    """

    start: Any = _DEFAULT
    per_gate: bool = False
    axes: Axes = (UNITS,)

    def __post_init__(self) -> None:
        check_axes("Parameter", self.axes)
        if self.start is _DEFAULT:
            object.__setattr__(self, "start", 0.0 if len(self.axes) < 2 or self.per_gate else draw_matrix)
        if callable(self.start):
            return
        axes: int = getattr(self.start, "ndim", 0)
        if axes or not hasattr(self.start, "__float__"):
            raise TypeError(
                f"Parameter: the initial value must be a number, got {type(self.start).__name__}; for one value per "
                "unit, pass a function that fills the tensor, such as lambda p: p.copy_(values), or fill the parameter "
                "in a function that you pass to the layer as init="
            )

    def fill(self, values: Any) -> None:
        """Fill a tensor with the initial values."""
        if callable(self.start):
            self.start(values)
        else:
            values.fill_(self.start)


@dataclass(frozen=True)
class Noise:
    """Random numbers that a step reads as `a.noise.name`.

    Attributes:
        rate: the probability that a unit is selected.
        keeps: if true, the number is 1 for a selected unit and 0 for others, as in zoneout. If false, it is 0 for a
            selected unit and 1 / (1 - rate) for others, as in dropout.
        per_step: whether numbers are drawn again at each step. If false, they are drawn once per sequence.
        state: the state whose axes the numbers have; None for one number per unit, with the axes of the output.
        deviation: the standard deviation of normal numbers with mean 0, if given. Then `rate` and `keeps` are ignored.
        shape: the shape of the numbers within a row, if it is not that of a state.
    """

    rate: float = 0.0
    keeps: bool = False
    per_step: bool = True
    state: str | None = None
    deviation: float | None = None
    shape: Shape | None = None

    @property
    def mean(self) -> float:
        """The mean of the distribution, which replaces the noise in eval mode."""
        if self.deviation is not None:
            return 0.0
        return self.rate if self.keeps else 1.0


@dataclass(frozen=True, eq=False)
class Declaration:
    """The gates, states and inputs of a cell.

    Attributes:
        gates, state: the declared gates and states by name.
        inputs: the axes of the blocks of the input by name; empty if the whole input is one block.
    """

    gates: Mapping[str, Gate]
    state: Mapping[str, State]
    inputs: Mapping[str, Axes]

    @property
    def has_axes(self) -> bool:
        """Whether a gate or state differs from the default, or a step reads the input."""
        declared = *self.gates.values(), *self.state.values()
        return bool(self.inputs) or any(each not in (Gate(), Gate(reads="x"), State()) for each in declared)

    def axes_of(self, state: str) -> str:
        """The axes of a state, for messages: "(N, heads, key)"."""
        return f"({', '.join(['N', *map(str, self.state[state].axes)])})"

    def gates_that_read(self, half: str) -> tuple[str, ...]:
        """The names of the gates with rows in the weights of x or h."""
        return tuple(name for name, gate in self.gates.items() if half in gate.reads)


def declaration_of(
    cell: str,
    gates: Any,
    state: Any,
    inputs: Mapping[str, Axes],
    recurrent: bool,
    delays: Mapping[str, tuple[str, int]],
) -> Declaration:
    """Return the declaration of a class."""
    for kind, example, declared in (
        ("inputs", "{'x': ('features',), 'time': ()}", inputs),
        ("delays", "{'old': ('h', 5)}", delays),
    ):
        if not isinstance(declared, Mapping):
            raise TypeError(f"cell {cell}: {kind} must be a dict, such as {example}, got {declared!r}")
    by_gate = _by_name(f"cell {cell}: gate", gates, Gate)
    if not recurrent:
        by_gate = {name: replace(gate, reads="x") for name, gate in by_gate.items()}
    by_state = _by_name(f"cell {cell}: state", state, State)
    for name, delay in delays.items():
        source, steps = delay if isinstance(delay, tuple) and len(delay) == 2 else ("", 0)
        if source not in by_state or name in by_state or type(steps) is not int or steps < 2:
            raise ValueError(
                f"cell {cell}: delays must be a dict from new names to a state and at least 2 steps, such as "
                f"{{'old': ({next(iter(by_state))!r}, 5)}}, got {name!r}: {delay!r}"
            )
        by_state[name] = State((steps, *by_state[source].axes), by_state[source].start)
    return Declaration(by_gate, by_state, {k: check_axes(f"cell {cell}: input {k!r}", v) for k, v in inputs.items()})


def _by_name(kind: str, declared: Any, type_of_value: Any) -> dict[str, Any]:
    if not isinstance(declared, Mapping):
        return {name: type_of_value() for name in declared}
    return {
        name: value if isinstance(value, type_of_value) else type_of_value(check_axes(f"{kind} {name!r}", value))
        for name, value in declared.items()
    }


def check_names(cls: Any) -> None:
    """Raise unless the names of gates and states are valid and differ."""
    subject = f"cell {cls.__name__}:"
    for kind in ("gates", "state"):
        names = getattr(cls, kind)
        if not isinstance(names, tuple) or not all(isinstance(n, str) and n.isidentifier() for n in names):
            raise TypeError(f"{subject} {kind} must be a tuple of names, got {names!r}")
        reserved = {"update", "noise"} | ({"input"} if cls.inputs else set())
        if kind == "gates" and (taken := sorted(reserved & set(names))):
            raise ValueError(
                f"{subject} a gate cannot be called {taken[0]!r}, because a.{taken[0]} has another "
                f"meaning in a step, got {names!r}"
            )
        if any(name.startswith("__") for name in names):
            raise ValueError(f"{subject} {kind} must not begin with two underscores, got {names!r}")
        if len(set(names)) != len(names) or {"ih", "hh"} & set(names):
            raise ValueError(f"{subject} {kind} must be distinct and neither 'ih' nor 'hh', got {names!r}")
    if not cls.state:
        raise ValueError(f"{subject} state must name at least the output, got ()")


def check_axes(what: str, axes: Any) -> Axes:
    """Return axes unchanged. Raise TypeError unless they are a tuple of names and sizes."""
    if not isinstance(axes, tuple) or not all(
        (isinstance(axis, str) and axis.isidentifier()) or (type(axis) is int and axis > 0) for axis in axes
    ):
        raise TypeError(f"{what}: axes must be a tuple of names or sizes, such as ('heads', 'key') or (), got {axes!r}")
    return axes
