"""Cells: gates, states, extra parameters and the equations of one step. Layers repeat the step over time."""

import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, ClassVar

from torch import Tensor, nn

from glassgate.display import Drawable
from glassgate.shapes import ShapeError


class NoSuchName(AttributeError):
    """A step reads a name that does not exist."""


class Named:
    """Values by name: `s.c` is the value called `c`. Iterates in the order of the names."""

    def __init__(self, names: Iterable[str], values: Iterable[Any]) -> None:
        self.__dict__.update(zip(names, values, strict=True))

    def __getattr__(self, name: str) -> Any:
        raise NoSuchName(f"{name!r} is not defined here, only {', '.join(self.__dict__) or 'nothing'}")

    def __iter__(self) -> Any:
        return iter(self.__dict__.values())


class RecurrentTerm:
    """The recurrent term of the pre-activations, W_hh h + b_hh.

    `hh.n` is the term of gate n for the state, and `hh(r * s.h).n` that for another vector. `hh * mask` multiplies each
    vector by a mask before the matrix product.
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
        of_state = self(self.__h)
        self.__dict__.update(of_state.__dict__)
        return getattr(of_state, gate)


class PreActivations:
    """The pre-activations that a step reads: the sum of an input term `a.ih` and a recurrent term `a.hh`.

    If W and b are the rows of a gate `i` in the weights and biases, then

    a.ih.i = W_ih x + b_ih,  a.hh.i = W_hh h + b_hh,  a.i = a.ih.i + a.hh.i,  a.hh(u).i = W_hh u + b_hh.

    A cell without recurrent weights has only `a.ih`, and `a.i = a.ih.i`. `a.update(g)` marks `g` as the update of the
    state: it returns `g`, after recurrent dropout if the layer applies dropout to the update.
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
        input_half = getattr(self.ih, gate)
        return input_half + getattr(self.hh, gate) if "hh" in self.__dict__ else input_half


@contextmanager
def trace_locals(
    on_local: Callable[[str, Any], None],
    on_return: Callable[[FrameType, Any], None] | None = None,
    on_call: Callable[[FrameType, Any], None] | None = None,
) -> Iterator[None]:
    """Reports the name and the value of each local variable of a cell's methods when they return.

    Args:
        on_local: called with the name and the value.
        on_return: called with the frame and the result of every other Python function that returns inside the `with`.
        on_call: called before each function runs. Its first argument is the frame of the caller. The second is the
            function if it is built-in, otherwise the frame of the function. If it raises, the function does not run.
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
    """An extra parameter of a cell: one number per unit, or per unit and gate (`p.gain.i`), and its initial value."""

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
        per_step: whether numbers are drawn again at each step. If false, there is one draw per sequence.
        state: the numbers have the width of this state; None for the hidden size.
        deviation: if given, the numbers have a normal distribution with mean 0 and this standard deviation; `rate` and
            `keeps` are not used.
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
    """One step of a recurrent network. Every engine computes these equations; kernels are generated from them.

    A subclass names its `gates` (row blocks of `weight_ih` and `weight_hh`, in order) and its `state` (the first one is
    the output). It defines `step(a, s)`, or `step(a, s, p)` if it declares `parameters`. Each value in a step is a
    batch of rows, `(N, H_cell)`. A step uses elementwise torch functions, and `mean` and `sum` along the last dimension
    with `keepdim=True`. It returns the new states in the order of `state`.

    Attributes:
        gates: names of the gates.
        state: names of the states; the first is the output.
        parameters: the cell's extra parameters by name.
        recurrent: whether the cell has `weight_hh` (and `bias_hh`).
        noise: the random numbers by name, drawn in training. In eval mode each has its mean. Layers add the numbers
            of their regularisers.
        heads: the number of diagonal blocks of `weight_hh`; 1 is a full matrix.

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
        for kind in ("gates", "state"):
            names = getattr(cls, kind)
            if not isinstance(names, tuple) or not all(isinstance(n, str) and n.isidentifier() for n in names):
                raise TypeError(f"cell {cls.__name__}: {kind} must be a tuple of names, got {names!r}")
            if kind == "gates" and (taken := sorted({"update", "noise"} & set(names))):
                raise ValueError(
                    f"cell {cls.__name__}: a gate cannot be called {taken[0]!r}, because a.{taken[0]} has another "
                    f"meaning in a step, got {names!r}"
                )
            if any(name.startswith("__") for name in names):
                raise ValueError(f"cell {cls.__name__}: {kind} must not begin with two underscores, got {names!r}")
            if len(set(names)) != len(names) or {"ih", "hh"} & set(names):
                raise ValueError(
                    f"cell {cls.__name__}: {kind} must be distinct and neither 'ih' nor 'hh', got {names!r}"
                )
        if not cls.state:
            raise ValueError(f"cell {cls.__name__}: state must name at least the output, got ()")

    def step(self, *args: Any) -> Any:
        """The equations: `step(a, s)` or, with `parameters`, `step(a, s, p)`; returns the new states."""
        raise NotImplementedError(f"cell {type(self).__name__} must define step(self, a, s)")

    def project(self, h: Any) -> Any:
        """Applied to an output after its projection `W_hr h`; the identity by default."""
        return h

    def values_by_name(self, variables: Mapping[str, Any]) -> Mapping[str, Any]:
        """The names and values that `trace_locals` reports for the local variables of a method of the cell."""
        return variables

    @property
    def _class_name(self) -> str:
        """The class that the author of the equations wrote, for messages."""
        return type(self).__name__

    def projected(self) -> "Cell":
        """The cell for a layer with a projection. A cell whose step reads the unprojected h returns another cell."""
        return self

    def new_state(
        self, a: PreActivations, s: Named, p: Named, projection: Callable[[Any], Any] | None = None
    ) -> tuple[Any, ...]:
        """The states after a step, in the order of `state`. The output is projected if there is a projection."""
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
                "needs a u of this width. Keep the units in a second state, as cells.GRUP does for GRU"
            ) from error
        new = _as_states(self, new)
        if projection is not None:
            new = self.project(projection(new[0])), *new[1:]
        _check_widths(self, s, new)
        return new

    def shapes(
        self, input_size: int, hidden_size: int, proj_size: int = 0, bias: bool = True
    ) -> dict[str, tuple[int, ...]]:
        """The parameters of one layer and direction, by name, in torch's order, with their shapes."""
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
        """The arguments of the constructor, read from the attributes of the same names."""
        names = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in names if hasattr(self, name)}

    def repr_in_layer(self, plain: "type[Cell]") -> str:
        """The part of a layer's repr that describes the cell; empty for the layer's plain cell with default options."""
        if type(self) not in (plain, type(plain().projected())):
            return f"cell={self!r}"
        defaults = plain().options()
        return ", ".join(f"{k}={v!r}" for k, v in self.options().items() if v != defaults[k])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.options().items())})"


def no_projection(cell: Cell) -> Cell:
    """The method `projected` of a cell whose step reads the units of the output. It raises ValueError."""
    raise ValueError(f"{type(cell).__name__}: a step reads the units of h, so h cannot be projected")


Weights = dict[str, Tensor]


def check_cell(operation: str, cell: object, widths: Iterable[int] = ()) -> None:
    """Raises unless `cell` is a cell whose heads divide the widths of its states."""
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
    for width in widths:
        if width % cell.heads:
            raise ValueError(f"{operation}: sizes must be multiples of the cell's {cell.heads} heads, got {width}")


def _check_parameters(cell: Cell) -> None:
    """Raises unless `parameters` is a dict of `Parameter`. Warns of parameters in attributes: they are not trained."""
    name, given = type(cell).__name__, cell.parameters
    if not isinstance(given, Mapping) or not all(isinstance(each, Parameter) for each in given.values()):
        raise TypeError(
            f"cell {name}: parameters must be a dict of names and glassgate.Parameter, such as "
            f"{{'gain': glassgate.Parameter(1.0)}}, got {given!r}"
        )
    for attribute, value in getattr(cell, "__dict__", {}).items():
        learned = value.parameters() if isinstance(value, nn.Module) else [value] * isinstance(value, nn.Parameter)
        if any(each.requires_grad for each in learned):
            warnings.warn(
                f"cell {name}: the layer does not train or move the parameters in attribute {attribute!r}; declare "
                "vectors in `parameters`, and replace a matrix by an additional gate",
                stacklevel=4,
            )


def _check_step(cell: Cell) -> None:
    """Raises unless `step` takes the arguments that it will be called with."""
    try:
        signature = inspect.signature(cell.step)
        signature.bind(*"asp"[: 3 if cell.parameters else 2])
    except TypeError:
        expected = "(self, a, s, p), since the cell has parameters" if cell.parameters else "(self, a, s)"
        given = str(signature).replace("(", "(self, ", 1).replace("(self, )", "(self)")
        raise TypeError(f"cell {type(cell).__name__}: step must be step{expected}, got step{given}") from None


def _as_states(cell: Cell, new: Any) -> tuple[Any, ...]:
    """The result of a step as a tuple; raises unless it has one tensor per state."""
    if isinstance(new, Mapping):
        raise TypeError(f"cell {type(cell).__name__}: step must return a tuple of the states {cell.state}, got a dict")
    new = tuple(new) if isinstance(new, tuple | list) else (new,)
    if len(new) != len(cell.state):
        raise ValueError(
            f"cell {type(cell).__name__}: step must return {len(cell.state)} states {cell.state}, got {len(new)}"
        )
    for name, value in zip(cell.state, new, strict=True):
        if not hasattr(value, "__torch_function__"):
            raise TypeError(
                f"cell {type(cell).__name__}: step must return a tensor for state {name!r}, got {type(value).__name__}"
            )
    return new


def _check_widths(cell: Cell, states: Named, new: tuple[Any, ...]) -> None:
    for name, before, value in zip(cell.state, states, new, strict=True):
        if isinstance(value, Tensor) and value.shape != before.shape:
            raise ShapeError(
                f"cell {type(cell).__name__}: step must return one number per unit for state {name!r}, "
                f"{tuple(before.shape)}, got {tuple(value.shape)}"
            )
