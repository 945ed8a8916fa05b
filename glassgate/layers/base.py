"""The structure, parameters and states of a layer, and its calls in the form of engines; `stack.py` runs them."""

from collections.abc import Iterator
from typing import Any, ClassVar

from torch import Tensor, nn

from glassgate.cell import Cell, Weights
from glassgate.engines.contract import Direction, Steps
from glassgate.layers import states
from glassgate.layers.edits import Edits
from glassgate.layers.observed import Watcher
from glassgate.layers.parts import HiddenSizes, Part
from glassgate.layers.states import States
from glassgate.layout import Layout, arrange
from glassgate.shapes import check_like, check_parameters


class BaseLayer(nn.Module):
    """The part of `Recurrent` that the other modules of the package read. `Recurrent` sets the attributes.

    Attributes:
        class_name: the name of the layer's class, for messages.
        training_cell, eval_cell: the cell with the noise of the regularisers, and without.
        hidden_sizes: the hidden sizes of each layer, one per direction.
        parts: one for each layer and direction.
        edits: the edits of gates and states in all calls; None if there are none.
        watchers: functions that are called with each call.

    The other attributes are the arguments of `Recurrent`.
    """

    plain: ClassVar[type[Cell] | None] = None
    """The class of the cell for `RNN`, `GRU` and `LSTM`, the subclasses named as in `torch.nn`; None otherwise."""

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
    class_name: str
    training_cell: Cell
    eval_cell: Cell
    hidden_sizes: list[tuple[int, ...]]
    parts: tuple[Part, ...]
    edits: Edits | None
    watchers: list[Watcher]
    weight_ih_l0: Tensor

    @property
    def num_directions(self) -> int:
        """D: 2 if bidirectional, else 1."""
        return 2 if self.bidirectional else 1

    @property
    def is_observed(self) -> bool:
        """Whether calls of this layer are being recorded or edited. Edits do not change its parameters."""
        return bool(self.watchers) or self.edits is not None

    @property
    def current_cell(self) -> Cell:
        """The cell of calls in the current mode, training or eval."""
        return self.training_cell if self.training else self.eval_cell

    def weights(self) -> Iterator[tuple[Cell, Weights]]:
        """The cell and its parameters by name, for each layer and direction in torch's order."""
        for part in self.parts:
            yield self.cell, self.weights_of(part)

    def weights_of(self, part: Part) -> Weights:
        # The look-up in `_parameters` is fast. A parametrized tensor is not there, but it is an attribute.
        parameters = self._parameters
        return {
            name: getattr(self, full) if (w := parameters.get(full)) is None else w for name, full in part.names.items()
        }

    def checked_weights(self) -> list[Weights]:
        """The parameters of each layer and direction, in torch's order, after a check of shapes, dtypes and devices."""
        by_part = [self.weights_of(part) for part in self.parts]
        like = by_part[0]["weight_ih"]
        for part, weights in zip(self.parts, by_part, strict=True):
            check_parameters(self.class_name, weights, part.shapes, like.dtype, like.device, part.suffix)
        return by_part

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The parameters of each layer and direction, as `torch.nn` lists them."""
        return [list(weights.values()) for _, weights in self.weights()]

    @property
    def _flat_weights(self) -> list[Tensor]:
        """The parameters in torch's order. It exists for code that reads this attribute of `torch.nn` layers."""
        return [weight for weights in self.all_weights for weight in weights]

    def default_states(self, like: Tensor, rows: int) -> States:
        """The initial states (N, H) of each layer and direction if a call has none: zero, or the learned ones."""
        initial = []
        for part in self.parts:
            if self.learn_initial_state:
                learned = {f"{state}_0": getattr(self, f"{state}_0{part.suffix}") for state in part.widths}
                shapes = {f"{state}_0": (width,) for state, width in part.widths.items()}
                check_parameters(self.class_name, learned, shapes, like.dtype, like.device, part.suffix)
                initial.append(tuple([v.expand(rows, -1) for v in learned.values()]))
            else:
                zeros = {width: like.new_zeros(rows, width) for width in dict.fromkeys(part.widths.values())}
                initial.append(tuple([zeros[width] for width in part.widths.values()]))
        return initial

    def arrange_call(
        self, input: Any, hx: Any = None, lengths: Any = None, resets: Any = None, restart: Any = None
    ) -> tuple[Steps, Layout, States, States | None]:
        """Check the arguments of a call and convert them for engines. The last two results are the states."""
        steps, layout = arrange(self.class_name, input, self.input_size, self.batch_first, lengths, resets)
        weight = self.weight_ih_l0
        if not isinstance(weight, Tensor):
            raise TypeError(f"{self.class_name}: weight_ih_l0 must be a tensor, got {type(weight).__name__}")
        check_like(self.class_name, "input", steps.data, weight.dtype, weight.device, "the layer")
        if hx is None:
            initial = self.default_states(steps.data, layout.rows)
        else:
            initial = states.from_hx(self.class_name, self.parts, hx, steps.data, layout)
        states.check_restart(self.class_name, restart, resets)
        if restart is None:
            return steps, layout, initial, None
        fallback = states.from_hx(self.class_name, self.parts, restart, steps.data, layout, "restart")
        return steps, layout, initial, fallback

    def engine_calls(self, initial: States, restart_states: States | None = None) -> list[list[Direction]]:
        """The arguments of the engine for each layer and direction, without noise."""
        D, cell = self.num_directions, self.current_cell
        calls = [
            Direction(cell, weights, state, part.direction == 1)
            for part, weights, state in zip(self.parts, self.checked_weights(), initial, strict=True)
        ]
        if restart_states is not None:
            calls = [call._replace(restart=state) for call, state in zip(calls, restart_states, strict=True)]
        return [calls[k : k + D] for k in range(0, len(calls), D)]

    @property
    def profile_row(self) -> str:
        """The name of this layer's calls in a profile of torch.

        Example:
            >>> import glassgate as gg
            >>> gg.LSTM(100, 256, num_layers=2).profile_row
            'glassgate::LSTM(100, 256)x2'
        """
        name = type(self).__name__ if self.plain else type(self.cell).__name__
        second, depth = ", bidirectional" * self.bidirectional, f"x{self.num_layers}" * (self.num_layers > 1)
        return f"glassgate::{name}({self.input_size}, {self.hidden_size}{second}){depth}"
