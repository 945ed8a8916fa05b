"""Tasks whose networks have the layers of `torch.nn` instead of those of Glassgate."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import glassgate as gg
from glassgate.tasks.task import Task

_TORCH_LAYERS: dict[type[gg.Cell], Any] = {gg.cells.LSTM: nn.LSTM, gg.cells.GRU: nn.GRU, gg.cells.RNN: nn.RNN}


def plain_task_class(task: type[Task[Any, Any, Any]]) -> type[Task[Any, Any, Any]]:
    """Return a task class with recurrent layers of `torch.nn`, and with the same data, initial weights and losses."""

    class Plain(task):  # type: ignore[misc, valid-type]
        def build(self) -> nn.Module:
            return with_plain_layers(super().build())

    return Plain


def with_plain_layers(network: nn.Module) -> nn.Module:
    """Replace every `gg.Recurrent` in a network, and keep its weights."""
    for name, part in list(network.named_modules()):
        if isinstance(part, gg.Recurrent):
            parent, _, child = name.rpartition(".")
            setattr(network.get_submodule(parent), child, PlainLayers(part))
    return network


class PlainLayers(nn.Module):
    """Layers of `torch.nn` with the call signature of `gg.Recurrent`, as a user of `torch.nn` would write them.

    With two directions, sequences of unequal lengths are packed. An empty sequence is packed as one step of padding.
    With one direction, nothing is packed, which is faster. Outputs do not depend on padding, because it follows all
    steps of a sequence. Final states of shorter sequences depend on padding and are wrong. No case uses these states.

    Args:
        ours: the layers with the options and weights
    """

    def __init__(self, ours: gg.Recurrent):
        super().__init__()
        if ours.merge == "none" and ours.num_layers > 1:
            raise ValueError("torch.nn has no stack with separate directions; compare one layer")
        self.num_directions, self.bidirectional = ours.num_directions, ours.bidirectional
        self.output_size, self.merge = ours.output_size, ours.merge
        with torch.random.fork_rng():
            self.layers: nn.RNNBase = _TORCH_LAYERS[type(ours.cell)](
                ours.input_size,
                ours.hidden_size,
                ours.num_layers,
                batch_first=True,
                dropout=ours.dropout,
                bidirectional=ours.bidirectional,
            )
        self.layers.load_state_dict(ours.state_dict())

    def forward(self, input: Tensor, hx: Any = None, *, lengths: Tensor | None = None) -> tuple[Any, Any]:
        """Map the input (N, L, H_in) to the output (a pair if `merge="none"`) and the final states."""
        steps = input.shape[1]
        if lengths is None or not self.bidirectional or bool((lengths == steps).all()):
            output, state = self.layers(input, hx)
        else:
            packed = pack_padded_sequence(input, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
            output, state = self.layers(packed, hx)
            # Time-major in memory, as the output of Glassgate, because dropout draws random numbers in memory order.
            output = pad_packed_sequence(output, total_length=steps)[0].transpose(0, 1)
        if self.merge == "none" and self.bidirectional:
            output = output.chunk(2, -1)
        return output, state
