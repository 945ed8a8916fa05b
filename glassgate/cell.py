"""What a cell is: its gates, its states, its own parameters and the equations of one step. Nothing here knows time."""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, ClassVar

from torch import Tensor

from glassgate.display import Shown
from glassgate.shapes import ShapeError


class NoSuchName(AttributeError):
    """A step asks for a value that is not there."""


class Named:
    """Values by name: `s.c` is the value called `c`. Iterates in the order of the names."""

    def __init__(self, names: Iterable[str], values: Iterable[Any]) -> None:
        self.__dict__.update(zip(names, values, strict=True))

    def __getattr__(self, name: str) -> Any:
        raise NoSuchName(f"there is no {name!r} here, only {', '.join(self.__dict__) or 'nothing'}")

    def __iter__(self) -> Any:
        return iter(self.__dict__.values())


class Recurrent:
    """The half of the pre-activations that comes from the state: `hh.n`, or of another row vector: `hh(r * s.h).n`.

    `hh * mask` has the same products of row vectors times a mask.
    """

    # With two underscores, so that no gate's name hides them.
    def __init__(self, product: Callable[[Any], Named], h: Any) -> None:
        self.__product, self.__h = product, h

    def __call__(self, u: Any) -> Named:
        return self.__product(u)

    def __mul__(self, mask: Any) -> "Recurrent":
        return Recurrent(lambda u: self(u * mask), self.__h)

    def __getattr__(self, gate: str) -> Any:
        if gate.startswith("__"):
            raise AttributeError(gate)
        of_state = self(self.__h)
        self.__dict__.update(of_state.__dict__)
        return getattr(of_state, gate)


class PreActivations:
    """What a step computes with. For a gate `i` and the weights' rows of that gate:

    a.ih.i = W_ih x + b_ih,  a.hh.i = W_hh h + b_hh,  a.i = a.ih.i + a.hh.i,  a.hh(u).i = W_hh u + b_hh.

    A cell without recurrent weights has `a.ih` alone, and `a.i = a.ih.i`. A step marks by `a.update(g)` what is newly
    written to its state, the place where dropout on the update acts; else that is g itself.
    """

    hh: Recurrent

    def __init__(
        self, ih: Named, hh: Recurrent | None, noise: Named | None = None, update: Callable[[Any], Any] | None = None
    ) -> None:
        self.ih, self.noise = ih, noise or Named((), ())
        self.update = update or (lambda g: g)
        if hh is not None:
            self.hh = hh

    def __getattr__(self, gate: str) -> Any:
        if gate.startswith("__"):
            raise AttributeError(gate)
        if gate == "hh":
            raise NoSuchName("there is no 'hh' here: with recurrent = False nothing is multiplied by the state")
        half = getattr(self.ih, gate)
        return half + getattr(self.hh, gate) if "hh" in self.__dict__ else half


@contextmanager
def author_names(
    tell: Callable[[str, Any], None],
    called: Callable[[FrameType, Any], None] | None = None,
    calling: Callable[[Any], None] | None = None,
) -> Iterator[None]:
    """Reports each local variable, its name and value, that a cell's methods hold when they return.

    Args:
        tell: called with the name and the value.
        called: called with the frame and the result of every other Python function that returns meanwhile.
        calling: called with every built-in function before it runs; what it raises is raised in place of the call.
    """

    def on_event(frame: FrameType, event: str, result: Any) -> None:
        if event == "c_call" and calling is not None:
            calling(result)
        if event != "return":
            return
        if isinstance(cell := frame.f_locals.get("self"), Cell):
            for name, value in cell.values_by_name(frame.f_locals).items():
                tell(name, value)
        elif called is not None:
            called(frame, result)

    before: Any = sys.getprofile()
    sys.setprofile(on_event)
    try:
        yield
    finally:
        sys.setprofile(before if callable(before) else None)
        if hasattr(before, "enable"):  # a profiler in C, which setprofile does not take back
            before.enable()


@dataclass(frozen=True)
class Parameter:
    """A cell's own parameter: a number per unit, or one per unit and gate (`p.gain.i`), and its first value."""

    start: float = 0.0
    per_gate: bool = False


@dataclass(frozen=True)
class Noise:
    """Random factors that a step reads as `a.noise.name`.

    Attributes:
        rate: how often a unit is hit.
        keeps: whether a hit is 1 and a miss 0, as zoneout wants; else a hit is 0 and a miss 1 / (1 - rate), as dropout.
        per_step: whether they are new at each step; else there is one per sequence.
        state: whose width they have; None for the hidden size.
    """

    rate: float
    keeps: bool
    per_step: bool
    state: str | None


class Cell(Shown):
    """One step of a recurrent network, written once; every engine is derived from it.

    A subclass names its `gates` (row blocks of `weight_ih` and `weight_hh`, in order) and its `state` (the first one is
    the output), and writes `step(a, s)`, or `step(a, s, p)` where it has `parameters` of its own. Each value that a
    step sees is a batch of rows, `(N, H_cell)`; a step uses elementwise torch functions and, along the last
    dimension, `mean` and `sum` with `keepdim=True`. It returns the new states in the order of `state`.

    Attributes:
        gates: names of the gates.
        state: names of the states; the first is the output.
        parameters: the cell's own parameters by name.
        recurrent: whether the cell has `weight_hh` (and `bias_hh`).
        noise: the random factors by name; layers fill this in for their regularisers.
        heads: blocks of a block-diagonal `weight_hh`; 1 is a full matrix.

    Example:
        >>> import torch, glassgate as gg
        >>> class Leaky(gg.Cell):
        ...     gates = ("f", "n")
        ...     state = ("h",)
        ...     def step(self, a, s):
        ...         f = torch.sigmoid(a.f)
        ...         return f * s.h + (1 - f) * torch.tanh(a.n)
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
                    f"cell {cls.__name__}: a gate cannot be called {taken[0]!r}, for a.{taken[0]} is something else in "
                    f"a step, got {names!r}"
                )
            if any(name.startswith("__") for name in names):
                raise ValueError(f"cell {cls.__name__}: {kind} must not begin with two underscores, got {names!r}")
            if len(set(names)) != len(names) or {"ih", "hh"} & set(names):
                raise ValueError(f"cell {cls.__name__}: {kind} must differ and be neither 'ih' nor 'hh', got {names!r}")
        if not cls.state:
            raise ValueError(f"cell {cls.__name__}: state must name at least the output, got ()")

    def step(self, *args: Any) -> Any:
        """The equations: `step(a, s)` or, with `parameters`, `step(a, s, p)`; returns the new states."""
        raise NotImplementedError(f"cell {type(self).__name__} must define step(self, a, s)")

    def project(self, h: Any) -> Any:
        """What happens to an output after its projection `W_hr h`; the identity unless a cell says otherwise."""
        return h

    def values_by_name(self, variables: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values that the author of a method named, when it returns with these local variables."""
        return variables

    def projected(self) -> "Cell":
        """The cell that runs where outputs are projected: another one if a step reads its own output unit by unit."""
        return self

    def new_state(
        self, a: PreActivations, s: Named, p: Named, projection: Callable[[Any], Any] | None = None
    ) -> tuple[Any, ...]:
        """The states after a step, in the order of `state`: `step`, and the output's projection if there is one."""
        try:
            new = self.step(a, s, p) if self.parameters else self.step(a, s)
        except NoSuchName as error:
            raise AttributeError(f"cell {type(self).__name__}: {error}") from None
        except RuntimeError as error:
            if projection is None or "must match the size of tensor" not in str(error):
                raise
            raise ShapeError(
                f"cell {type(self).__name__}: step combines values of different widths; with proj_size "
                f"{self.state[0]} is the projected output, {s.__dict__[self.state[0]].shape[-1]} wide. Keep the units "
                "in a second state, as cells.GRUP does for GRU"
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
        """The arguments of the constructor, as attributes of the same name hold them."""
        names = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in names if hasattr(self, name)}

    def in_place_of(self, plain: "type[Cell]") -> str:
        """What the description of a layer adds where this cell stands instead of the plain one; empty for its equal."""
        if type(self) not in (plain, type(plain().projected())):
            return f"cell={self!r}"
        usual = plain().options()
        return ", ".join(f"{k}={v!r}" for k, v in self.options().items() if v != usual[k])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.options().items())})"


def units_stay(cell: Cell) -> Cell:
    """`projected` of a cell whose step reads the units of its own output."""
    raise ValueError(f"{type(cell).__name__}: a step reads the units of h, so h cannot be projected")


Weights = dict[str, Tensor]


def check_cell(operation: str, cell: object, widths: Iterable[int] = ()) -> None:
    """Raises unless `cell` is a cell, and its heads divide the widths of its states."""
    if not isinstance(cell, Cell):
        raise TypeError(f"{operation}: cell must be an instance of glassgate.Cell, got {cell!r}")
    if not cell.gates:
        raise ValueError(f"cell {type(cell).__name__}: gates must name at least one, got ()")
    own = {"weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr", *(f"{state}_0" for state in cell.state)}
    if taken := sorted(own & set(cell.parameters)):
        raise ValueError(f"cell {type(cell).__name__}: parameters must have other names than {taken}, the layer's own")
    for width in widths:
        if width % cell.heads:
            raise ValueError(f"{operation}: sizes must be multiples of the cell's {cell.heads} heads, got {width}")


def _as_states(cell: Cell, new: Any) -> tuple[Any, ...]:
    """What a step returned, if it is one tensor a state."""
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
                f"cell {type(cell).__name__}: step must return for state {name!r} one number a unit, "
                f"{tuple(before.shape)}, got {tuple(value.shape)}"
            )
