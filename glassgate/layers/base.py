"""The base class of `Recurrent`: the options, parameters and internal data of a layer. `stack.py` runs it."""

from collections.abc import Iterator
from typing import Any, ClassVar

from torch import Tensor, nn

from glassgate.cell import Cell, Weights
from glassgate.layers.edits import Edits
from glassgate.layers.observed import Watcher
from glassgate.layers.parts import HiddenSizes, Part


class Internals:
    """The internal data of a layer, which are neither options nor parameters.

    They are in one attribute, `glassgate`, so that subclasses can give their own attributes almost any name.

    Args:
        class_name: the name of the layer's class, for messages.
        default_cell: the class of the cell of `RNN`, `GRU` or `LSTM` without `cell=`; None for other layers.
        training_cell: the cell with the noise of the regularisers.
        eval_cell: the cell without noise.
        hidden_sizes: the hidden sizes of each layer, one per direction.
        parts: a description of each direction of each layer, in torch's order.
        prepared_calls: a `PreparedCalls`. Its type is `Any` because `prepared_calls.py` imports this module.

    Attributes:
        watchers: functions that receive each call of the layer as an `Observed`.
    """

    def __init__(
        self,
        class_name: str,
        default_cell: type[Cell] | None,
        training_cell: Cell,
        eval_cell: Cell,
        hidden_sizes: list[tuple[int, ...]],
        parts: tuple[Part, ...],
        prepared_calls: Any,
    ) -> None:
        self.class_name, self.default_cell = class_name, default_cell
        self.training_cell, self.eval_cell = training_cell, eval_cell
        self.hidden_sizes, self.parts, self.prepared_calls = hidden_sizes, parts, prepared_calls
        self.watchers: list[Watcher] = []
        self._edits: Edits | None = None

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
        num_directions: 2 if bidirectional, otherwise 1.
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
    weight_dropout: float
    variational_dropout: bool
    learn_initial_state: bool
    recompute: bool
    num_directions: int
    glassgate: Internals
    weight_ih_l0: Tensor

    def weights(self) -> Iterator[tuple[Cell, Weights]]:
        """Yield the cell and its parameters by name, for each layer and direction in torch's order."""
        for part in self.glassgate.parts:
            yield self.cell, weights_of(self, part)

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """A list of the parameters of each layer and direction, as in `torch.nn`."""
        return [list(weights_of(self, part).values()) for part in self.glassgate.parts]

    @property
    def _flat_weights(self) -> list[Tensor]:
        """The parameters in torch's order, for code that reads this attribute of `torch.nn` layers."""
        return [weight for weights in self.all_weights for weight in weights]

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
