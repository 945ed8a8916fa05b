"""Compares the gates and states of a session with those of the same model in float32."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from glassgate.engines.contract import Recording
from glassgate.layers.frozen import FrozenLayer


class Difference(NamedTuple):
    """One gate or state of one layer and direction."""

    name: str
    """For example "encoder.layer0.forward.f"."""
    largest: float
    """The largest absolute difference."""
    relative: float
    """The root mean square of the differences, divided by that of the values."""


class Comparison(NamedTuple):
    """The differences of all gates and states, in the order of the layers. `str` returns a table."""

    rows: Sequence[Difference]

    def __str__(self) -> str:
        width = max([4, *(len(row.name) for row in self.rows)])
        lines = [f"{'gate or state':{width}}  largest difference  relative difference"]
        lines += [f"{row.name:{width}}  {row.largest:18.2e}  {row.relative:19.2%}" for row in self.rows]
        return "\n".join(lines)


class _RecordingLayer(nn.Module):
    """A frozen layer that records its gates and states."""

    def __init__(self, layer: FrozenLayer) -> None:
        super().__init__()
        self._layer = layer
        self.values: dict[str, Tensor] = {}

    def forward(self, *args: Any, return_states: bool = False, **kwargs: Any) -> Any:
        """The results of the layer."""
        recordings = [Recording() for _ in self._layer.spec.parts]
        output, final, states = self._layer(*args, **kwargs, return_states=True, recordings=recordings)
        for part, recording in zip(self._layer.spec.parts, recordings, strict=True):
            self.values |= {f"{part.label}.{gate}": v for gate, v in recording.values.items()}
            of_part = {name: v for name, v in states.items() if name.startswith(f"{part.label}.")}
            self.values |= {name: v.data if isinstance(v, PackedSequence) else v for name, v in of_part.items()}
        return (output, final, states) if return_states else (output, final)


def compare(module: nn.Module, exact: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Comparison:
    """The differences between two frozen models in one call of both.

    Args:
        module: the model.
        exact: the same model in float32.
        args, kwargs: the arguments of the call.
    """
    expected = _values(exact, args, kwargs)
    return Comparison([_difference(name, v, expected[name]) for name, v in _values(module, args, kwargs).items()])


@torch.no_grad()
def _values(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
    """All gates and states of a call, by name."""
    layers = {name: part for name, part in module.named_modules() if isinstance(part, FrozenLayer)}
    recorded = {id(layer): _RecordingLayer(layer) for layer in layers.values()}
    model = recorded[id(module)] if id(module) in recorded else deepcopy(module, dict(recorded))
    model(*args, **kwargs)
    by_name: dict[str, Tensor] = {}
    for name, layer in layers.items():
        prefix = f"{name}." if name else ""
        by_name |= {prefix + key: v for key, v in recorded[id(layer)].values.items()}
    return by_name


def _difference(name: str, value: Tensor, expected: Tensor) -> Difference:
    difference = value.double() - expected.double()
    largest = difference.abs().max().item() if difference.numel() else 0.0
    return Difference(name, largest, (difference.norm() / expected.double().norm().clamp(min=1e-30)).item())
