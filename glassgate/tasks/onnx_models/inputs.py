"""Random example inputs of exported models: texts, series, and states of recurrent layers."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

import glassgate as gg
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.data.vocabulary import PADDING
from glassgate.tasks.networks.states import States, as_tuple


def numbers(N: int, L: int, count: int) -> tuple[Tensor, Tensor]:
    """Random padded indices (N, L) into a vocabulary of `count` tokens, and the lengths (N,), the first of them L."""
    lengths = torch.randint(1, L + 1, (N,))
    lengths[0] = L
    units = torch.randint(min(1, count - 1), count, (N, L))
    return units.masked_fill(torch.arange(L) >= lengths[:, None], PADDING), lengths


Draw = Callable[[int, int], tuple[Tensor, Tensor]]


def sequences(count: int, scale: Tensor | None) -> tuple[dict[str, str], Draw]:
    """The axes of each input of a task that reads texts or series, and a function that returns random inputs.

    Args:
        count: the size of the vocabulary of texts.
        scale: (2, C), the mean and the standard deviation of each channel of series; None for texts.
    """

    def series(N: int, L: int) -> tuple[Tensor, Tensor]:
        assert scale is not None
        _, lengths = numbers(N, L, 3)
        return scale[0] + scale[1] * torch.randn(N, L, scale.shape[1]), lengths

    if scale is None:
        return {"units": "N L", "lengths": "N"}, lambda N, L: numbers(N, L, count)
    return {"series": "N L *", "lengths": "N"}, series


def batch(steps: Tensor, lengths: Tensor, scale: Tensor | None) -> Batch:
    """The batch of a task that reads texts or series; series are standardised."""
    if scale is None:
        return {"units": steps, "lengths": lengths}
    return {"series": (steps - scale[0]) / scale[1], "lengths": lengths}


def names(layer: gg.Recurrent, suffix: str) -> list[str]:
    """The names of the initial states (`suffix` "0") or final states ("n") of a layer in `gg.to_onnx`."""
    return [f"{state}_{suffix}" for state in layer.cell.state]


def states(layer: gg.Recurrent, N: int) -> States:
    """Random initial states of a one-directional layer, (num_layers, N, H) each; positive, as some cells require."""
    return tuple(torch.rand(layer.num_layers, N, size) for size in widths(layer))


def widths(layer: gg.Recurrent) -> Sequence[int]:
    """The size of each state."""
    _, state = layer(torch.zeros(1, 1, layer.input_size))
    return [each.shape[-1] for each in as_tuple(state)]
