"""Cells: gates, states, extra parameters and the equations of one step. Layers repeat the step over time."""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, ClassVar

from torch import Tensor, nn

from glassgate.display import Drawable
from glassgate.shapes import ShapeError
from glassgate.user_warning import warn_user


class NoSuchName(AttributeError):
    """A step reads a name that does not exist."""


class Named:
    """Values as attributes: `s.c` is the value named `c`. Iteration yields the values in their given order."""

    def __init__(self, names: Iterable[str], values: Iterable[Any]) -> None:
        self.__dict__.update(zip(names, values, strict=True))

    def __getattr__(self, name: str) -> Any:
        raise NoSuchName(f"{name!r} is not defined here, only {', '.join(self.__dict__) or 'nothing'}")

    def __iter__(self) -> Any:
        return iter(self.__dict__.values())


class RecurrentTerm:
    """The recurrent term of the pre-activations, W_hh h + b_hh.

    `hh.n` is the term of gate n. `hh(u).n` is this term with another vector u instead of h, such as `r * s.h`.
    `hh * mask` is a recurrent term that multiplies each vector by the mask before the matrix product.
    """

    # The two underscores prevent a clash with the name of a gate.
    def __init__(self, product: Callable[[Any], Named], h: Any) -> None:
        self.__product, self.__h = product, h

    def __call__(self, u: Any) -> Named:
        return self.__product(u)

    def __mul__(self, mask: Any) -> "RecurrentTerm":
        return RecurrentTerm(lambda u: self(u * mask), self.__h)

    def __getattr__(self, gate: str) -> Any:
        if gate.startswith("__"):
            raise AttributeError(gate)
        by_gate = self(self.__h)
        self.__dict__.update(by_gate.__dict__)
        return getattr(by_gate, gate)


class PreActivations:
    """The pre-activations that a step reads: the sum of an input term `a.ih` and a recurrent term `a.hh`.

    For a gate `i`, W and b are its rows of the weights and biases:

    a.ih.i = W_ih x + b_ih,  a.hh.i = W_hh h + b_hh,  a.i = a.ih.i + a.hh.i,  a.hh(u).i = W_hh u + b_hh.

    A cell without recurrent weights has only `a.ih`, and `a.i = a.ih.i`. `a.update(g)` marks `g` as the update of the
    state. It returns `g`, after dropout if the layer applies recurrent dropout to the update. `a.noise` contains the
    cell's random numbers by name.
    """

    hh: RecurrentTerm

    def __init__(
        self,
        ih: Named,
        hh: RecurrentTerm | None,
        noise: Named | None = None,
        update: Callable[[Any], Any] | None = None,
    ) -> None:
        self.ih, self.noise = ih, noise or Named((), ())
        self.update = update or (lambda g: g)
        if hh is not None:
            self.hh = hh

    def __getattr__(self, gate: str) -> Any:
        if gate.startswith("__"):
            raise AttributeError(gate)
        if gate == "hh":
            raise NoSuchName("'hh' is not defined here: with recurrent = False nothing is multiplied by the state")
        input_term = getattr(self.ih, gate)
        return input_term + getattr(self.hh, gate) if "hh" in self.__dict__ else input_term


@contextmanager
def trace_locals(
    on_local: Callable[[str, Any], None],
    on_return: Callable[[FrameType, Any], None] | None = None,
    on_call: Callable[[FrameType, Any], None] | None = None,
) -> Iterator[None]:
    """Report the local variables of a cell's methods, each time one of these methods returns inside the `with` block.

    Args:
        on_local: called with the name and the value of each local variable.
        on_return: called with the frame and the result of every Python function that is not a cell's method.
        on_call: called before each function runs, with two arguments: the frame of the caller, and the frame of the
            function, or the function itself if it is built-in. If `on_call` raises, the function does not run.
    """

    def on_event(frame: FrameType, event: str, value: Any) -> None:
        if on_call is not None and event == "c_call":
            on_call(frame, value)
        elif on_call is not None and event == "call" and frame.f_back is not None:
            on_call(frame.f_back, frame)
        if event != "return":
            return
        if isinstance(cell := frame.f_locals.get("self"), Cell):
            for name, local in cell.values_by_name(frame.f_locals).items():
                on_local(name, local)
        elif on_return is not None:
            on_return(frame, value)

    previous: Any = sys.getprofile()
    sys.setprofile(on_event)
    try:
        yield
    finally:
        sys.setprofile(previous if callable(previous) else None)
        if hasattr(previous, "enable"):  # a profiler in C, which setprofile cannot reinstall
            previous.enable()


@dataclass(frozen=True)
class Parameter:
    """An extra parameter of a cell: a vector with one number per unit, or per unit and gate.

    Attributes:
        start: the initial value of every number.
        per_gate: whether each gate has its own vector. A step then reads `p.gain.i` instead of `p.gain`.
    """

    start: float = 0.0
    per_gate: bool = False

    def __post_init__(self) -> None:
        axes: int = getattr(self.start, "ndim", 0)
        if axes or not hasattr(self.start, "__float__"):
            raise TypeError(
                f"Parameter: the initial value must be a number, got {type(self.start).__name__}; for one value per "
                "unit, fill the parameter in a function that you pass to the layer as init="
            )


@dataclass(frozen=True)
class Noise:
    """Random numbers that a step reads as `a.noise.name`.

    Attributes:
        rate: the probability that a unit is selected.
        keeps: if true, the number is 1 for a selected unit and 0 for others, as in zoneout. If false, it is 0 for a
            selected unit and 1 / (1 - rate) for others, as in dropout.
        per_step: whether numbers are drawn again at each step. If false, they are drawn once per sequence.
        state: the state that has the same width as the numbers; None for the hidden size.
        deviation: the standard deviation of normal numbers with mean 0, if given. Then `rate` and `keeps` are ignored.
    """

    rate: float = 0.0
    keeps: bool = False
    per_step: bool = True
    state: str | None = None
    deviation: float | None = None

    @property
    def mean(self) -> float:
        """The mean of the distribution, which replaces the noise in eval mode."""
        if self.deviation is not None:
            return 0.0
        return self.rate if self.keeps else 1.0


class Cell(Drawable):
    """The equations of one step of a recurrent network. Every engine computes them; kernels are generated from them.

    A subclass names its `gates` (row blocks of `weight_ih` and `weight_hh`, in order) and its `state` (the first one is
    the output). It defines `step(a, s)`, or `step(a, s, p)` if it declares `parameters`. `a` contains the
    pre-activations (see `PreActivations`), `s` the states before the step, and `p` the extra parameters.

    Each value in a step is a batch of rows, `(N, H_cell)`. A step uses elementwise torch functions, and `mean` and
    `sum` along the last dimension with `keepdim=True`. It returns the new states in the order of `state`.

    Attributes:
        gates: the names of the gates.
        state: the names of the states; the first is the output.
        parameters: the cell's extra parameters by name.
        recurrent: whether the cell has `weight_hh` (and `bias_hh`).
        noise: the random numbers by name. They are drawn in training; in eval mode each is replaced by its mean.
        heads: the number of diagonal blocks of `weight_hh`. With 1, `weight_hh` is a full matrix.

    Example:
        >>> import torch, glassgate as gg
        >>> class Leaky(gg.Cell):
        ...     gates = ("f", "n")
        ...     state = ("h",)
        ...     def step(self, a, s):
        ...         f, n = torch.sigmoid(a.f), torch.tanh(a.n)
        ...         return f * s.h + (1 - f) * n
        >>> output, h_n = gg.Recurrent(Leaky(), 4, 8)(torch.randn(5, 2, 4))
        >>> output.shape
        torch.Size([5, 2, 8])
    """

    gates: ClassVar[tuple[str, ...]] = ()
    state: ClassVar[tuple[str, ...]] = ("h",)
    parameters: Mapping[str, Parameter] = {}
    noise: Mapping[str, Noise] = {}
    recurrent: ClassVar[bool] = True
    heads: int = 1

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        subject = f"cell {cls.__name__}:"
        for kind in ("gates", "state"):
            names = getattr(cls, kind)
            if not isinstance(names, tuple) or not all(isinstance(n, str) and n.isidentifier() for n in names):
                raise TypeError(f"{subject} {kind} must be a tuple of names, got {names!r}")
            if kind == "gates" and (taken := sorted({"update", "noise"} & set(names))):
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

    def step(self, *args: Any) -> Any:
        """Return the new states. A subclass defines `step(a, s)`, or `step(a, s, p)` if it declares `parameters`."""
        raise NotImplementedError(f"cell {type(self).__name__} must define step(self, a, s)")

    def project(self, h: Any) -> Any:
        """Transform the projected h into the output of a layer with `proj_size`. By default, return h unchanged."""
        return h

    def values_by_name(self, variables: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the names and values that `trace_locals` reports for the local variables of a method of the cell."""
        return variables

    @property
    def _class_name(self) -> str:
        """The name of the class that defines the equations, for messages."""
        return type(self).__name__

    def projected(self) -> "Cell":
        """Return the cell that a layer with `proj_size` runs: this cell, unless `step` reads the unprojected h."""
        return self

    def new_state(
        self, a: PreActivations, s: Named, p: Named, projection: Callable[[Any], Any] | None = None
    ) -> tuple[Any, ...]:
        """Return the states after a step, in the order of `state`. `projection`, if given, projects the output."""
        try:
            new = self.step(a, s, p) if self.parameters else self.step(a, s)
        except NoSuchName as error:
            raise AttributeError(f"cell {type(self).__name__}: {error}") from None
        except RuntimeError as error:
            other_width = "must match the size of tensor", "shapes cannot be multiplied"
            if projection is None or not any(text in str(error) for text in other_width):
                raise
            raise ShapeError(
                f"cell {type(self).__name__}: step combines values of different widths; with proj_size "
                f"{self.state[0]} is the projected output, {s.__dict__[self.state[0]].shape[-1]} wide, and a.hh(u) "
                "needs a u of this width; keep the unprojected h in a second state, as cells.GRUP does for GRU"
            ) from error
        new = _as_states(self, new)
        if projection is not None:
            new = self.project(projection(new[0])), *new[1:]
        _check_widths(self, s, new)
        return new

    def shapes(
        self, input_size: int, hidden_size: int, proj_size: int = 0, bias: bool = True
    ) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the parameters of one layer and direction, by name, in torch's order."""
        rows, out = len(self.gates) * hidden_size, proj_size or hidden_size
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, input_size)}
        if self.recurrent:
            shapes["weight_hh"] = (rows, out // self.heads)
        if bias:
            shapes["bias_ih"] = (rows,)
            if self.recurrent:
                shapes["bias_hh"] = (rows,)
        if proj_size:
            shapes["weight_hr"] = (proj_size, hidden_size)
        for name, parameter in self.parameters.items():
            shapes[name] = (rows if parameter.per_gate else hidden_size,)
        return shapes

    def options(self) -> dict[str, Any]:
        """Return the arguments of the constructor, read from the attributes of the same names."""
        names = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in names if hasattr(self, name)}

    def repr_in_layer(self, default: "type[Cell]") -> str:
        """Return the part of a layer's repr that describes the cell.

        `default` is the class of the layer's default cell. For a cell of this class, the result contains only the
        options that differ from their defaults.
        """
        if type(self) not in (default, type(default().projected())):
            return f"cell={self!r}"
        defaults = default().options()
        return ", ".join(f"{k}={v!r}" for k, v in self.options().items() if v != defaults[k])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.options().items())})"


def no_projection(cell: Cell) -> Cell:
    """Raise ValueError. This is the method `projected` of cells that have no variant with a projection."""
    raise ValueError(f"{type(cell).__name__}: a step reads the units of h, so h cannot be projected")


Weights = dict[str, Tensor]
"""The parameters of one direction of one layer, by their names in `Cell.shapes`."""


def check_cell(operation: str, cell: object) -> None:
    """Raise unless `cell` is a valid cell. Warn about parameters that are not trained."""
    if not isinstance(cell, Cell):
        raise TypeError(f"{operation}: cell must be an instance of glassgate.Cell, got {cell!r}")
    if not cell.gates:
        raise ValueError(f"cell {type(cell).__name__}: gates must name at least one gate, got ()")
    _check_parameters(cell)
    _check_step(cell)
    reserved = {"weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr", *(f"{state}_0" for state in cell.state)}
    if taken := sorted(reserved & set(cell.parameters)):
        raise ValueError(
            f"cell {type(cell).__name__}: parameters must have other names than {taken}, which the layer itself uses"
        )


def check_heads(operation: str, cell: Cell, widths: Iterable[int]) -> None:
    """Raise ValueError unless the number of heads divides each width of a state."""
    for width in widths:
        if width % cell.heads:
            raise ValueError(f"{operation}: sizes must be multiples of the cell's {cell.heads} heads, got {width}")


def _check_parameters(cell: Cell) -> None:
    """Raise unless `parameters` is a dict of `Parameter`. Warn about learnable tensors in other attributes."""
    name, parameters = type(cell).__name__, cell.parameters
    if not isinstance(parameters, Mapping) or not all(isinstance(v, Parameter) for v in parameters.values()):
        raise TypeError(
            f"cell {name}: parameters must be a dict of names and glassgate.Parameter, such as "
            f"{{'gain': glassgate.Parameter(1.0)}}, got {parameters!r}"
        )
    for attribute, value in getattr(cell, "__dict__", {}).items():
        tensors = value.parameters() if isinstance(value, nn.Module) else [value] * isinstance(value, nn.Parameter)
        if any(tensor.requires_grad for tensor in tensors):
            warn_user(
                f"cell {name}: the layer does not train or move the parameters in attribute {attribute!r}; declare "
                "vectors in `parameters`, and replace a matrix by an additional gate"
            )


def _check_step(cell: Cell) -> None:
    """Raise TypeError unless `step` accepts the arguments (a, s), or (a, s, p) if the cell has parameters."""
    try:
        signature = inspect.signature(cell.step)
        signature.bind(*"asp"[: 3 if cell.parameters else 2])
    except TypeError:
        expected = "(self, a, s, p), since the cell has parameters" if cell.parameters else "(self, a, s)"
        actual = str(signature).replace("(", "(self, ", 1).replace("(self, )", "(self)")
        raise TypeError(f"cell {type(cell).__name__}: step must be step{expected}, got step{actual}") from None


def _as_states(cell: Cell, new: Any) -> tuple[Any, ...]:
    """Convert the result of a step to a tuple. Raise unless it has one tensor per state."""
    subject = f"cell {type(cell).__name__}: step"
    if isinstance(new, Mapping):
        raise TypeError(f"{subject} must return a tuple of the states {cell.state}, got a dict")
    new = tuple(new) if isinstance(new, tuple | list) else (new,)
    if len(new) != len(cell.state):
        raise ValueError(f"{subject} must return {len(cell.state)} states {cell.state}, got {len(new)}")
    for name, value in zip(cell.state, new, strict=True):
        if not hasattr(value, "__torch_function__"):
            raise TypeError(f"{subject} must return a tensor for state {name!r}, got {type(value).__name__}")
    return new


def _check_widths(cell: Cell, states: Named, new: tuple[Any, ...]) -> None:
    """Raise ShapeError unless each new state has the shape of the old one."""
    for name, before, value in zip(cell.state, states, new, strict=True):
        if isinstance(value, Tensor) and value.shape != before.shape:
            raise ShapeError(
                f"cell {type(cell).__name__}: step must return one number per unit for state {name!r}, "
                f"{tuple(before.shape)}, got {tuple(value.shape)}"
            )
