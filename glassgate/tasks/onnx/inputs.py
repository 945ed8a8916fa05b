"""For ONNX export: the network of a task that reads texts or series, and random inputs and states."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

import glassgate as gg
from glassgate.tasks.data.vocabulary import PADDING
from glassgate.tasks.labelled_task import LabelledTask
from glassgate.tasks.networks.encoder import States, as_tuple
from glassgate.tasks.onnx.models import Model


def random_indices(N: int, L: int, count: int) -> tuple[Tensor, Tensor]:
    """Return random texts: padded indices into a vocabulary of `count` tokens, (N, L), and their lengths, (N,).

    The first length is L.
    """
    lengths = torch.randint(1, L + 1, (N,))
    lengths[0] = L
    tokens = torch.randint(min(1, count - 1), count, (N, L))
    return tokens.masked_fill(torch.arange(L) >= lengths[:, None], PADDING), lengths


class LabelledNetwork(nn.Module):
    """The network of a task that reads texts or series, as a function of tensors.

    Args:
        task: the task, with its trained network

    Attributes:
        scale: the mean and the standard deviation of each channel of series, (2, C); None for texts
    """

    scale: Tensor | None

    def __init__(self, task: LabelledTask[Any, Any]) -> None:
        super().__init__()
        self.network = task.network
        self.register_buffer("scale", None if task.series_scale is None else torch.tensor(task.series_scale))

    def output(self, steps: Tensor, lengths: Tensor) -> Any:
        """Standardise series, and return the output of the network."""
        if self.scale is None:
            return self.network({"units": steps, "lengths": lengths})
        return self.network({"series": (steps - self.scale[0]) / self.scale[1], "lengths": lengths})

    def model(self, task: LabelledTask[Any, Any], outputs: Sequence[str]) -> Model:
        """Return the description of the model for the exporter.

        Args:
            task: the task
            outputs: the names of the outputs
        """
        scale = self.scale
        if scale is None:
            count = len(task.vocabularies["units"])
            return Model(self, {"units": "N L", "lengths": "N"}, lambda N, L: random_indices(N, L, count), outputs)

        def random_series(N: int, L: int) -> tuple[Tensor, Tensor]:
            _, lengths = random_indices(N, L, 3)
            return scale[0] + scale[1] * torch.randn(N, L, scale.shape[1]), lengths

        return Model(self, {"series": "N L *", "lengths": "N"}, random_series, outputs)


def names(layer: gg.Recurrent, suffix: str) -> list[str]:
    """Return the names of the states of a layer: initial states have the suffix "0", final states "n"."""
    return [f"{state}_{suffix}" for state in layer.cell.state]


def random_states(layer: gg.Recurrent, N: int) -> States:
    """Return random initial states of a layer of one direction, (num_layers, N, H) each.

    They are positive, because some cells require it.
    """
    return tuple(torch.rand(layer.num_layers, N, size) for size in state_sizes(layer))


def state_sizes(layer: gg.Recurrent) -> Sequence[int]:
    """Return the size of each state of a layer. A projected state is smaller than the others."""
    _, state = layer(torch.zeros(1, 1, layer.input_size))
    return [each.shape[-1] for each in as_tuple(state)]
