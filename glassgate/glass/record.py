"""Every gate and every state at every step, and the gradients that reached them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from glassgate.engines.contract import Recording, Result
from glassgate.layers.stack import Recurrent
from glassgate.layout import Layout


class Values(Mapping[str, Tensor]):
    """Tensors (L, N, H) by "layer0.forward.f" and the like."""

    def __init__(self) -> None:
        self._values: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._values:
            known = ", ".join(self._values) or "nothing yet"
            raise KeyError(f"tape: {name!r} was not recorded; there is {known}")
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Tape(Values):
    """What the last call of each recorded layer did.

    Gates go by the author's names for their values in `step`, states by their own. All are time-major, (L, N, H), zero
    at padded positions.
    """

    def __init__(self) -> None:
        super().__init__()
        self._recordings: dict[str, tuple[Layout, Recording]] = {}

    def _take(self, name: str, layer: Recurrent, layout: Layout, results: list[Result], shown: list[Recording]) -> None:
        for part, result, recording in zip(layer._parts, results, shown, strict=True):
            label = f"{name}.{part.label}" if name else part.label
            states = dict(zip(layer.cell.state, result.states, strict=True))
            self._recordings[label] = layout, recording
            self._values |= _by_step(label, layout, {**recording.values, **states})

    @property
    def grad(self) -> Values:
        """By the same names, the gradient that reached each gate and state in all; empty before `backward()`."""
        grad = Values()
        for label, (layout, recording) in self._recordings.items():
            grad._values |= _by_step(label, layout, recording.grad)
        return grad


def _by_step(label: str, layout: Layout, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{label}.{name}": layout.by_step(value.detach()) for name, value in values.items()}


@contextmanager
def record(module: nn.Module) -> Iterator[Tape]:
    """Record what the recurrent layers of a module do inside the `with`.

    Gates come out of the kernels as they run; no slower loop takes their place. Under `torch.compile` nothing can be
    recorded.

    Args:
        module: a layer, whose names are "layer0.forward.f" and the like, or a model, where the layer's own name comes
            first: "encoder.layer0.forward.f".

    Raises:
        TypeError: there is no layer of glassgate in it.

    Example:
        >>> import torch, glassgate as gg
        >>> layer = gg.LSTM(3, 4)
        >>> with gg.record(layer) as tape:
        ...     output, _ = layer(torch.randn(5, 2, 3))
        >>> output.sum().backward()
        >>> tape["layer0.forward.f"].shape, tape.grad["layer0.forward.c"].shape
        (torch.Size([5, 2, 4]), torch.Size([5, 2, 4]))
    """
    layers = {name: part for name, part in module.named_modules() if isinstance(part, Recurrent)}
    if not layers:
        got = type(module).__name__
        raise TypeError(f"record: the module must be or hold a recurrent layer of glassgate, got {got}")
    if torch.compiler.is_compiling():
        raise RuntimeError("record: nothing can be recorded under torch.compile; call the plain module")
    tape = Tape()
    for name, layer in layers.items():
        layer._watchers.append(partial(tape._take, name, layer))
    try:
        yield tape
    finally:
        for layer in layers.values():
            layer._watchers.pop()
