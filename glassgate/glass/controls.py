"""Untrained networks as controls for a recording: the same layers with random weights on the same input."""

from copy import deepcopy

import torch

from glassgate.glass.recorded import Recorded, Watch
from glassgate.layers.stack import LayerCall, Recurrent

CONTROLS = 4
"""The number of untrained networks with which a report compares the trained one."""
MANY_CONTROLS = 40
"""The number of untrained networks if the best of many units passes the threshold of `CONTROLS` networks."""


def with_random_weights(tape: Recorded, seed: int) -> Recorded:
    """Record each layer of a recording again, with the same input and random weights from a seed."""
    controls = Recorded()
    first_directions: dict[str, tuple[str, LayerCall]] = {}
    for label, call, index in tape.directions():
        name = label.removesuffix(call.layer.glassgate.parts[index].label).rstrip(".")
        first_directions.setdefault(name, (label, call))
    for name, (label, call) in first_directions.items():
        layer = _copy_unrecorded(call.layer)
        steps = call.layout.by_step(call.steps.data.detach())
        resets = call.steps.resets
        masks = None if resets is None else call.layout.by_step(resets[:, None].float())[..., 0] > 0
        lengths = tape.unpadded(label).sum(0).cpu()
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            layer.reset_parameters()
            with Watch(layer, Recorded()) as recording:
                if layer.batch_first:
                    steps, masks = steps.transpose(0, 1), None if masks is None else masks.T
                layer(steps, lengths=lengths, resets=masks)
        controls.take_over(recording, name)
    return controls


def _copy_unrecorded(layer: Recurrent) -> Recurrent:
    """A copy of a layer in eval mode, which active recordings do not record."""
    watchers, layer.glassgate.watchers = layer.glassgate.watchers, []
    try:
        return deepcopy(layer).eval()
    finally:
        layer.glassgate.watchers = watchers
