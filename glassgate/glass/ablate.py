"""`gg.ablate` measures the importance of gates, units, directions and layers by holding them at their means."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from html import escape
from typing import Any

import torch
from torch import Tensor, nn

from glassgate.glass.contexts import eval_mode
from glassgate.glass.edit import apply_edits, editable_values, hold
from glassgate.layers.edits import Edit, Edits, Selection, positions
from glassgate.layers.stack import LayerCall, Recurrent


class Ablation(Mapping[str, float]):
    """The increases of the loss when parts of the network are held at their means, by part, in decreasing order.

    Attributes:
        loss: the loss of the unchanged network.
    """

    def __init__(self, loss: float, increase: Mapping[str, float]) -> None:
        self.loss, self._increase = loss, dict(sorted(increase.items(), key=lambda pair: -pair[1]))

    def __getitem__(self, name: str) -> float:
        return self._increase[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._increase)

    def __len__(self) -> int:
        return len(self._increase)

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        lines = [f"loss {self.loss:.4g}; increase when a part is held at its mean:"]
        return "\n".join([*lines, *(f"  {name:{width}} {increase:+.4g}" for name, increase in self.items())])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td><code>{escape(name)}</code></td><td style='text-align: right'>{increase:+.4g}</td></tr>"
            for name, increase in self.items()
        )
        return f"<table><tr><th>held at its mean</th><th>increase of the loss {self.loss:.4g}</th></tr>{rows}</table>"


def ablate(
    model: nn.Module,
    data: Iterable[Any],
    metric: Callable[[nn.Module, Any], Tensor | float],
    *,
    groups: int | Sequence[Sequence[int]] = 4,
    steps: Selection = None,
) -> Ablation:
    """Measure the increase of the loss when a part of a model's recurrent layers is held at its mean.

    The model runs in eval mode, once over the data for each part. All runs with a held part use the same kernel.

    Args:
        model: a layer, or a model that contains layers.
        data: batches of any kind.
        metric: takes the model and a batch, and returns the loss of the batch.
        groups: the number of groups of adjacent units in a direction, or the units of each group.
        steps: the steps at which a part is held; all by default.

    Returns:
        The increase of the mean loss for each part: a gate ("layer0.forward.f"), a state other than the output, a
        direction ("layer0.forward"), a group of its units ("layer0.forward[0:4]"), and a layer with two directions
        ("layer0").

    Example:
        >>> import torch, glassgate as gg
        >>> layer, batches = gg.LSTM(3, 8), [torch.randn(5, 2, 3)]
        >>> increase = gg.ablate(layer, batches, lambda layer, x: layer(x)[0].square().mean())
        >>> sorted(increase)[:3]
        ['layer0.forward', 'layer0.forward.c', 'layer0.forward.f']
    """
    batches = list(data)

    def loss() -> float:
        return sum(float(metric(model, batch)) for batch in batches) / max(len(batches), 1)

    editable, increase = editable_values(model), {}
    with torch.no_grad(), eval_mode(model):
        with _means(editable) as means:
            unchanged = loss()
        for name, edits in hold_parts(editable, means(), groups, steps).items():
            with apply_edits(_with_neutral_edits(editable, edits, steps is not None)):
                increase[name] = loss() - unchanged
    return Ablation(unchanged, increase)


Editable = Mapping[str, tuple[Recurrent, str, str, int]]
"""The values that can be edited, by name: the layer, the direction, the short name and the width of each."""
HeldPart = dict[str, Edit]
"""Edits that hold a part at its mean, by the names of gates and states."""


def _add_rows(rows: list[int], call: LayerCall) -> None:
    rows.append(call.layout.rows)


def measure_means(
    model: nn.Module, run: Callable[[], object]
) -> tuple[Editable, dict[str, Tensor], dict[str, list[int]]]:
    """Measure the means of all gates and states over a run.

    Args:
        model: a layer, or a model that contains layers.
        run: runs the model.

    Returns:
        The editable values, their means by name, and the number of rows of each call, by the name of the layer.
    """
    editable = editable_values(model)
    with torch.no_grad(), eval_mode(model), _means(editable) as means:
        rows: dict[str, list[int]] = {}
        for name, (layer, label, value, _) in editable.items():
            prefix = name.removesuffix(f".{label}.{value}")
            if prefix not in rows:
                rows[prefix] = []
                layer.glassgate.watchers.append(partial(_add_rows, rows[prefix]))
        try:
            run()
        finally:
            for layer in {layer for layer, *_ in editable.values()}:
                layer.glassgate.watchers.pop()
        return editable, means(), rows


@contextmanager
def hold_in_rows(model: nn.Module, editable: Editable, held: Sequence[HeldPart], length: int | None) -> Iterator[None]:
    """Hold a different part in each row of a batch, so that one forward pass measures many parts.

    Args:
        model: the model whose layers are edited.
        editable: the editable values of the layers.
        held: the edits of each row, all from `hold`.
        length: the length of the sequences. If None, `held` must have one item, which applies at any length.
    """
    changes = held[0] if length is None else _in_rows(editable, held, length)
    with torch.no_grad(), eval_mode(model), apply_edits(_with_neutral_edits(editable, changes, True)):
        yield


def _in_rows(editable: Editable, held: Sequence[HeldPart], length: int) -> HeldPart:
    """One edit for each gate and state, with different values in each row."""
    changes = {}
    for name, (*_, width) in editable.items():
        # Infinity marks values that are not edited.
        values = torch.full((length, len(held), width), torch.inf)
        for row, edits in enumerate(held):
            if name in edits:
                steps = torch.tensor(positions("steps", edits[name].steps, length))
                units = positions("units", edits[name].units, width)
                values[steps[:, None], row, units] = torch.as_tensor(edits[name].value).to(values)
        changes[name] = Edit("replace", values, None, None)
    return changes


def hold_window(editable: Editable, means: Mapping[str, Tensor], window: tuple[int, int]) -> HeldPart:
    """The edits that hold all states at their means from step `window[0]` to step `window[1] - 1`."""
    states = [name for name, (layer, _, value, _) in editable.items() if value in layer.cell.state and name in means]
    return {name: hold(means[name], steps=slice(*window)) for name in states}


def hold_parts(
    editable: Editable, means: Mapping[str, Tensor], groups: int | Sequence[Sequence[int]], steps: Selection = None
) -> dict[str, HeldPart]:
    """The edits that hold each gate, state, group of units, direction and layer, by the name of the part."""
    parts: dict[str, HeldPart] = {}
    for name, (layer, _, value, width) in editable.items():
        if name not in means:
            continue
        label, output = name.rpartition(".")[0], layer.cell.state[0]
        mean = means[name]
        if value != output:
            parts[name] = {name: hold(mean, steps=steps)}
        if value in layer.cell.state:
            parts.setdefault(label, {})[name] = hold(mean, steps=steps)
        if value in layer.cell.state and layer.num_directions == 2:
            parts.setdefault(label.rpartition(".")[0], {})[name] = hold(mean, steps=steps)
        if value == output:
            for group in _groups(groups, width):
                units = positions(f"ablate: units of {name!r}", group, width)
                parts[f"{label}{_span(units)}"] = {name: hold(mean[units], units=units, steps=steps)}
    return parts


def _groups(groups: int | Sequence[Sequence[int]], width: int) -> Sequence[Sequence[int]]:
    if not isinstance(groups, int):
        return groups
    if isinstance(groups, bool) or groups < 1:
        raise ValueError(f"ablate: groups must be a positive number or lists of units, got {groups!r}")
    count = min(groups, width)
    return [range(k * width // count, (k + 1) * width // count) for k in range(count)] if count > 1 else []


def _span(units: Sequence[int]) -> str:
    """Units as text: a slice if they are adjacent, otherwise a list."""
    adjacent = list(units) == list(range(units[0], units[-1] + 1)) if units else False
    return f"[{units[0]}:{units[-1] + 1}]" if adjacent else f"[{', '.join(map(str, units))}]"


def _with_neutral_edits(editable: Editable, held: HeldPart, per_step: bool) -> dict[Recurrent, Edits]:
    """Add an edit without units for each value that is not held, so that one kernel runs every part."""
    changes: dict[Recurrent, dict[str, dict[str, list[Edit]]]] = {}
    neutral = [hold(0.0, units=[], steps=[] if per_step else None)]
    for name, (layer, label, value, _) in editable.items():
        changes.setdefault(layer, {}).setdefault(label, {})[value] = [held[name]] if name in held else neutral
    return {layer: Edits(by_direction) for layer, by_direction in changes.items()}


@contextmanager
def _means(editable: Editable) -> Iterator[Callable[[], dict[str, Tensor]]]:
    """Yields a function that returns the mean of each value over all steps and sequences, one number per unit."""
    sums: dict[str, Tensor] = {}
    counts: dict[str, int] = {}

    def add(prefix: str, call: LayerCall) -> None:
        unpadded_rows = None if call.batch_sizes is None else int(call.batch_sizes.sum())
        for direction, result, recording in zip(call.layer.glassgate.parts, call.results, call.recordings, strict=True):
            values = {**recording.values, **dict(zip(call.layer.cell.state, result.states, strict=True))}
            for short, value in values.items():
                name, rows = f"{prefix}{direction.label}.{short}", value[:unpadded_rows]
                sums[name] = sums.get(name, 0) + rows.double().sum(0)
                counts[name] = counts.get(name, 0) + len(rows)

    layers: dict[Recurrent, str] = {}
    for name, (layer, label, value, _) in editable.items():
        layers.setdefault(layer, name.removesuffix(f"{label}.{value}"))
    with ExitStack() as stack:
        for layer, prefix in layers.items():
            layer.glassgate.watchers.append(partial(add, prefix))
            stack.callback(layer.glassgate.watchers.pop)
        yield lambda: {name: total / max(counts[name], 1) for name, total in sums.items()}
