"""Cells: gates, states, extra parameters and the equations of one step. Layers repeat the step over time."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import prod
from numbers import Integral
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor

from glassgate.cell_axes import UNITS, Declaration, Noise, Parameter, State, check_names, declaration_of
from glassgate.cell_shapes import Shapes, shapes_of
from glassgate.display import Drawable
from glassgate.shapes import ShapeError


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
    cell's random numbers by name. In a cell with `inputs`, `a.input` contains the blocks of the input by name.

    Args:
        ih: the input term of each gate that reads x.
        hh: the recurrent term; None without recurrent weights.
        noise: the random numbers by name.
        update: the function that `a.update` calls.
        reads: "x" or "h" for each gate that reads only one of the two.
        input: the blocks of the input by name; None for a cell without `inputs`.
    """

    hh: RecurrentTerm

    def __init__(
        self,
        ih: Named,
        hh: RecurrentTerm | None,
        noise: Named | None = None,
        update: Callable[[Any], Any] | None = None,
        reads: Mapping[str, str] = MappingProxyType({}),
        input: Named | None = None,
    ) -> None:
        self.ih, self.noise = ih, noise or Named((), ())
        self.update = update or (lambda g: g)
        self.__reads = reads  # the two underscores prevent a clash with the name of a gate
        if hh is not None:
            self.hh = hh
        if input is not None:
            self.input = input

    def __getattr__(self, gate: str) -> Any:
        if gate.startswith("__"):
            raise AttributeError(gate)
        if gate == "hh":
            raise NoSuchName("'hh' is not defined here: with recurrent = False nothing is multiplied by the state")
        half = self.__reads.get(gate)
        if half is not None:
            return getattr(self.hh if half == "h" else self.ih, gate)
        input_term = getattr(self.ih, gate)
        return input_term + getattr(self.hh, gate) if "hh" in self.__dict__ else input_term


def with_regularisers(
    a: PreActivations, hh: RecurrentTerm | None, noise: Named, update: Callable[[Any], Any] | None
) -> PreActivations:
    """Return pre-activations with another recurrent term, other noise and another update."""
    reads: Mapping[str, str] = a.__dict__["_PreActivations__reads"]
    return PreActivations(a.ih, hh, noise, update, reads, a.__dict__.get("input"))


class Cell(Drawable):
    """The equations of one step of a recurrent network. Every engine computes them; kernels are generated from them.

    A subclass names its `gates` (row blocks of `weight_ih` and `weight_hh`, in order) and its `state` (the first one is
    the output). It defines `step(a, s)`, or `step(a, s, p)` if it declares `parameters`. `a` contains the
    pre-activations (see `PreActivations`), `s` the states before the step, and `p` the extra parameters.

    By default, each value in a step is a batch of rows, `(N, H_cell)`. Where a cell needs other shapes, it declares
    them: `gates` and `state` may be dicts from names to axes, such as `{"S": ("heads", "key", "value")}`. A value then
    has the shape `(N, heads, key, value)`. The size of an axis is the attribute of the cell with its name. `"units"` is
    the hidden size, and `"features"` the input size. One axis of the output may have no attribute: its size follows
    from the hidden size. The output of the layer is the first state with its axes flattened.

    A step uses torch functions on tensors with a leading batch axis, and returns the new states in the order of
    `state`. Fused kernels need elementwise functions, and `mean` and `sum` along the last dimension with
    `keepdim=True`; with declared axes, functions over any axes. Other steps run on the reference engine.

    Attributes:
        gates: the names of the gates, or a dict from names to axes or `Gate`.
        state: the names of the states, or a dict from names to axes or `State`; the first is the output.
        parameters: the cell's extra parameters by name.
        inputs: the axes of the blocks of the input by name, if a step reads the input itself as `a.input.name`. The
            gates multiply the first block.
        delays: delayed states by name. With `{"old": ("h", 5)}`, `s.old` is the value of h of 5 steps ago. `old` is
            also a state of the layer, with the last 5 values of h, the newest first. `step` does not return it.
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

    # A class may assign a tuple of names or a dict. The attribute is the tuple of names.
    gates: ClassVar[Any] = ()
    state: ClassVar[Any] = ("h",)
    parameters: Mapping[str, Parameter] = {}
    inputs: ClassVar[Mapping[str, tuple[str | int, ...]]] = {}
    delays: ClassVar[Mapping[str, tuple[str, int]]] = {}
    noise: Mapping[str, Noise] = {}
    recurrent: ClassVar[bool] = True
    heads: int = 1
    _declared = Declaration({}, {"h": State()}, {})
    _has_axes = False
    _returned: ClassVar[Any] = ("h",)
    """The states that `step` returns, as the class declares them."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        gates = cls.__dict__.get("gates", cls._declared.gates)
        state = cls.__dict__.get("state", cls._returned)
        cls.gates, cls.state = (tuple(v) if isinstance(v, Mapping) else v for v in (gates, state))
        check_names(cls)
        cls._returned = state
        cls._declared = declaration_of(cls.__name__, gates, state, cls.inputs, cls.recurrent, cls.delays)
        cls.state, cls._has_axes = tuple(cls._declared.state), cls._declared.has_axes

    @property
    def declaration(self) -> Declaration | None:
        """The declared axes; None if every value has one number per unit."""
        has_axes = self._has_axes or any([p.axes != (UNITS,) for p in self.parameters.values()])
        return self._declared if has_axes else None

    def step(self, *args: Any) -> Any:
        """Return the new states. A subclass defines `step(a, s)`, or `step(a, s, p)` if it declares `parameters`."""
        raise NotImplementedError(f"cell {type(self).__name__} must define step(self, a, s)")

    def gates_that_read(self, half: str) -> tuple[str, ...]:
        """Return the gates with rows in the weights of x ("x") or h ("h")."""
        declaration = self.declaration
        return tuple(self.gates) if declaration is None else declaration.gates_that_read(half)

    def axis_size(self, axis: str) -> int | None:
        """Return the size of an axis, the attribute with its name; None if the cell lacks the attribute."""
        size = getattr(self, axis, None)
        if size is None:
            return None
        if not isinstance(size, Integral) or isinstance(size, bool) or size < 1:
            raise ValueError(
                f"cell {self._class_name}: the size of axis {axis!r} must be an integer above zero, got self.{axis} = "
                f"{size!r}"
            )
        return int(size)

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
        all_states = s
        if self.delays:
            s = self._with_delayed(s)
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
        if self.delays:
            new = *new, *self._shifted(all_states, new)
        _check_widths(self, all_states, new)
        return new

    def _with_delayed(self, s: Named) -> Named:
        """The states as a step reads them: each delayed state is the oldest of its values."""
        values = dict(s.__dict__)
        for name, (source, _) in self.delays.items():
            values[name] = values[name][(..., -1, *[slice(None)] * len(self._declared.state[source].axes))]
        return Named(values, values.values())

    def _shifted(self, s: Named, new: tuple[Any, ...]) -> Iterator[Any]:
        """Yield each delayed state after the step: the newest value, and the earlier ones without the oldest."""
        for name, (source, _) in self.delays.items():
            rest = [slice(None)] * len(self._declared.state[source].axes)
            # Recordings contain the local variables of a cell, so the newest value has no name here.
            yield torch.cat(
                [new[self.state.index(source)][(..., None, *rest)], s.__dict__[name][(..., slice(-1), *rest)]],
                -1 - len(rest),
            )

    def shapes(
        self, input_size: int, hidden_size: int, proj_size: int = 0, bias: bool = True
    ) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the parameters of one layer and direction, by name, in torch's order."""
        if self.declaration is not None:
            return self.shapes_in(shapes_of(self, input_size, hidden_size), proj_size, bias)
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

    def shapes_in(self, own: Shapes, proj_size: int = 0, bias: bool = True) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the parameters of a cell that declares axes, from the shapes of its values."""
        rows = {"ih": sum(own.rows("x")), "hh": sum(own.rows("h"))}
        hidden_size = prod(own.state[self.state[0]])
        columns = {"ih": own.features, "hh": (proj_size or hidden_size) // self.heads}
        halves = ("ih", "hh") if self.recurrent else ("ih",)
        shapes: dict[str, tuple[int, ...]] = {f"weight_{half}": (rows[half], columns[half]) for half in halves}
        shapes |= {f"bias_{half}": (rows[half],) for half in halves if bias}
        if proj_size:
            shapes["weight_hr"] = (proj_size, hidden_size)
        for name, parameter in self.parameters.items():
            shapes[name] = (sum(map(prod, own.gates.values())),) if parameter.per_gate else own.of(parameter.axes)
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


def _as_states(cell: Cell, new: Any) -> tuple[Any, ...]:
    """Convert the result of a step to a tuple. Raise unless it has one tensor per state."""
    subject = f"cell {type(cell).__name__}: step"
    if isinstance(new, Mapping):
        raise TypeError(f"{subject} must return a tuple of the states {cell.state}, got a dict")
    new = tuple(new) if isinstance(new, tuple | list) else (new,)
    names = cell.state[: len(cell.state) - len(cell.delays)]
    if len(new) != len(names):
        raise ValueError(f"{subject} must return {len(names)} states {names}, got {len(new)}")
    for name, value in zip(names, new, strict=True):
        if not hasattr(value, "__torch_function__"):
            raise TypeError(f"{subject} must return a tensor for state {name!r}, got {type(value).__name__}")
    return new


def _check_widths(cell: Cell, states: Named, new: tuple[Any, ...]) -> None:
    """Raise ShapeError unless each new state has the shape of the old one."""
    for name, before, value in zip(cell.state, states, new, strict=True):
        if isinstance(value, Tensor) and value.shape != before.shape:
            axes = "one number per unit"
            if cell.declaration is not None:
                axes = cell.declaration.axes_of(name)
            raise ShapeError(
                f"cell {type(cell).__name__}: step must return {axes} for state {name!r}, "
                f"{tuple(before.shape)}, got {tuple(value.shape)}"
            )
