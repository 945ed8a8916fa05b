"""Compares the gates and states of a session with those of the same model in the default precision."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from glassgate.engines.contract import Recording
from glassgate.layers.frozen import FrozenLayer


class Difference(NamedTuple):
    """The difference of one gate or state of one layer and direction."""

    name: str
    """The name of the gate or state, for example "encoder.layer0.forward.f"."""
    largest: float
    """The largest absolute difference."""
    relative: float
    """The root mean square of the differences, relative to the values in the default precision."""


class Comparison(NamedTuple):
    """The differences of all gates and states, in the order of the layers. `str` returns a table."""

    rows: Sequence[Difference]

    def __str__(self) -> str:
        width = max([4, *(len(row.name) for row in self.rows)])
        lines = [f"{'gate or state':{width}}  largest difference  relative difference"]
        lines += [f"{row.name:{width}}  {row.largest:18.2e}  {row.relative:19.2%}" for row in self.rows]
        return "\n".join(lines)


class _RecordingLayer(nn.Module):
    """Runs a frozen layer and keeps its gates and states in `values`, by name."""

    def __init__(self, layer: FrozenLayer) -> None:
        super().__init__()
        self._layer = layer
        self.values: dict[str, Tensor] = {}

    def forward(self, *args: Any, return_states: bool = False, **kwargs: Any) -> Any:
        """Return the results of the layer."""
        recordings = [Recording() for _ in self._layer.spec.parts]
        output, final, states = self._layer(*args, **kwargs, return_states=True, recordings=recordings)
        for part, recording in zip(self._layer.spec.parts, recordings, strict=True):
            self.values |= {f"{part.label}.{gate}": v for gate, v in recording.values.items()}
            part_states = {name: v for name, v in states.items() if name.startswith(f"{part.label}.")}
            self.values |= {name: v.data if isinstance(v, PackedSequence) else v for name, v in part_states.items()}
        return (output, final, states) if return_states else (output, final)


def compare(module: nn.Module, exact: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Comparison:
    """Call two frozen models with the same arguments and compare their gates and states.

    Args:
        module: the model.
        exact: the same model in the default precision.
        args, kwargs: the arguments of the call.
    """
    exact_values = _run_and_record(exact, args, kwargs)
    values = _run_and_record(module, args, kwargs)
    return Comparison([_difference(name, v, exact_values[name]) for name, v in values.items()])


@torch.no_grad()
def _run_and_record(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Call a model and return all gates and states by name."""
    layers = {name: layer for name, layer in module.named_modules() if isinstance(layer, FrozenLayer)}
    recording_layers = {id(layer): _RecordingLayer(layer) for layer in layers.values()}
    # The copy contains a recording layer in the place of each frozen layer.
    model = recording_layers[id(module)] if id(module) in recording_layers else deepcopy(module, dict(recording_layers))
    model(*args, **kwargs)
    values: dict[str, Tensor] = {}
    for name, layer in layers.items():
        prefix = f"{name}." if name else ""
        values |= {prefix + key: v for key, v in recording_layers[id(layer)].values.items()}
    return values


def _difference(name: str, value: Tensor, exact: Tensor) -> Difference:
    difference = value.double() - exact.double()
    largest = difference.abs().max().item() if difference.numel() else 0.0
    return Difference(name, largest, (difference.norm() / exact.double().norm().clamp(min=1e-30)).item())
