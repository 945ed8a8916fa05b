"""Finds the recurrent layers of a network, names them in logs, and watches their inputs."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

import glassgate as gg


def recurrent_layers(network: nn.Module) -> dict[str, gg.Recurrent]:
    """Return the recurrent layers of a network by name."""
    return {name: each for name, each in network.named_modules() if isinstance(each, gg.Recurrent)}


def direction_label(name: str, direction: str) -> str:
    """Return the name of a direction of a layer in logs, such as "decoder.layer0.forward". `encoder` adds no prefix."""
    return direction if name == "encoder" else f"{name}.{direction}"


@contextmanager
def watch_inputs(layers: Mapping[str, gg.Recurrent], callback: Callable[[str, Tensor, Tensor], None]) -> Iterator[None]:
    """Call `callback(name, data, lengths)` before each call of a layer inside the `with`.

    Whatever the layout of the layer's input, `data` is `(N, L, H_in)`. `lengths` is `(N,)`, on the CPU.
    """

    def hook(name: str, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        assert isinstance(layer, gg.Recurrent)
        callback(name, *_batch_first(layer, *args[:1], **kwargs))

    handles = [layer.register_forward_pre_hook(partial(hook, name), with_kwargs=True) for name, layer in layers.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _batch_first(
    layer: gg.Recurrent, input: Tensor | PackedSequence, *, lengths: Any = None, **_: Any
) -> tuple[Tensor, Tensor]:
    if isinstance(input, PackedSequence):
        return pad_packed_sequence(input, batch_first=True)
    data = input[None] if input.dim() == 2 else input if layer.batch_first else input.transpose(0, 1)
    full_lengths = torch.full(data.shape[:1], data.shape[1])
    return data, full_lengths if lengths is None else torch.as_tensor(lengths).cpu().view(-1)
