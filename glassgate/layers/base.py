"""The base class of `Recurrent`: the options, parameters and internal data of a layer. `stack.py` runs it."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from glassgate.cell import Cell, Weights
from glassgate.layers.edits import Edits
from glassgate.layers.levels import Level
from glassgate.layers.observed import Watcher
from glassgate.layers.parts import HiddenSizes, Part

MAX_SIGNATURES = 256
"""The maximum number of call signatures for which a layer, or a frozen layer, caches prepared calls."""


class Structure(NamedTuple):
    """The data that follow from the options of a layer.

    Attributes:
        training_cell: the cell with the noise of the regularisers.
        eval_cell: the cell without noise.
        hidden_sizes: the hidden sizes of each layer, one per direction.
        parts: a description of each direction of each layer, in torch's order.
        levels: the levels of the stack, to which the parts belong.
        parameter_shapes: the shape of each parameter, by name.
    """

    training_cell: Cell
    eval_cell: Cell
    hidden_sizes: list[tuple[int, ...]]
    parts: tuple[Part, ...]
    levels: tuple[Level, ...]
    parameter_shapes: dict[str, tuple[int, ...]]


class Internals:
    """The internal data of a layer, which are neither options nor parameters.

    They are in one attribute, `glassgate`, so that subclasses can give their own attributes almost any name.

    Args:
        class_name: the name of the layer's class, for messages.
        default_cell: the class of the cell of `RNN`, `GRU` or `LSTM` without `cell=`; None for other layers.
        structure: the data that follow from the options; their names are also attributes of this object.
        replaced_methods: the methods that `run_with_replaced_methods` calls.
        prepared_calls: a `PreparedCalls`. Its type is `Any` because `prepared_calls.py` imports this module.

    Attributes:
        watchers: functions that receive each call of the layer as an `Observed`.
    """

    def __init__(
        self,
        class_name: str,
        default_cell: type[Cell] | None,
        structure: Structure,
        replaced_methods: frozenset[str],
        prepared_calls: Any,
    ) -> None:
        self.class_name, self.default_cell = class_name, default_cell
        self.replaced_methods, self.prepared_calls = replaced_methods, prepared_calls
        self.watchers: list[Watcher] = []
        self._edits: Edits | None = None
        self.restructure(structure)

    def restructure(self, structure: Structure) -> None:
        """Replace the data that follow from the options."""
        self.training_cell, self.eval_cell, self.hidden_sizes, self.parts, self.levels, shapes = structure
        self.parameter_shapes = shapes
        self.prepared_calls.forget()

    @property
    def edits(self) -> Edits | None:
        """The edits of gates and states that apply to all calls of the layer, or None."""
        return self._edits

    @edits.setter
    def edits(self, edits: Edits | None) -> None:
        self._edits = edits
        self.prepared_calls.forget()

    @property
    def is_observed(self) -> bool:
        """Whether calls of the layer are being recorded, or its gates or states are being edited."""
        return bool(self.watchers) or self._edits is not None


class BaseLayer(nn.Module):
    """The base class of `Recurrent`, for modules that cannot import `stack.py`. `Recurrent` sets the attributes.

    Attributes:
        glassgate: the internal data of the layer.

    The other attributes are the arguments of `Recurrent`.
    """

    _default_cell: ClassVar[type[Cell] | None] = None
    """The class of the cell that layers of this class have without `cell=`, or None."""

    cell: Cell
    input_size: int
    hidden_size: HiddenSizes
    num_layers: int
    bias: bool
    batch_first: bool
    dropout: float
    bidirectional: bool
    proj_size: int
    merge: str
    residual: bool
    zoneout: float | tuple[float, ...] | Mapping[str, float]
    recurrent_dropout: float
    recurrent_dropout_on: str
    weight_dropout: float
    variational_dropout: bool
    learn_initial_state: bool
    recompute: bool
    output_size: int
    glassgate: Internals
    weight_ih_l0: Tensor

    @property
    def num_directions(self) -> int:
        """2 if bidirectional, otherwise 1."""
        return 2 if self.bidirectional else 1

    def weights(self) -> Iterator[tuple[Cell, Weights]]:
        """Yield the cell and its parameters by name, for each layer and direction in torch's order."""
        for part in self.glassgate.parts:
            yield self.cell, weights_of(self, part)

    @property
    def profile_row(self) -> str:
        """The name of this layer's calls in a profile of torch.

        Example:
            >>> import glassgate as gg
            >>> gg.LSTM(100, 256, num_layers=2).profile_row
            'glassgate::LSTM(100, 256)x2'
        """
        name = type(self).__name__ if self.glassgate.default_cell else type(self.cell).__name__
        bidirectional, depth = ", bidirectional" * self.bidirectional, f"x{self.num_layers}" * (self.num_layers > 1)
        return f"glassgate::{name}({self.input_size}, {self.hidden_size}{bidirectional}){depth}"


def weights_of(layer: BaseLayer, part: Part) -> Weights:
    """Return the parameters of one direction of one layer, by their names in the cell."""
    # The look-up in `_parameters` is faster than `getattr`, but `_parameters` lacks parametrized tensors.
    parameters = layer._parameters
    return {
        name: getattr(layer, full_name) if (weight := parameters.get(full_name)) is None else weight
        for name, full_name in part.names.items()
    }
