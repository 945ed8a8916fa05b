"""Untrained networks as controls for a recording: the same layers with random weights on the same input."""

from copy import deepcopy

import torch

from glassgate.glass.recorded import Recorded, Watch, unpadded_mask
from glassgate.layers.stack import Recurrent

CONTROLS = 4
"""The number of untrained networks with which a report compares the trained one."""
MANY_CONTROLS = 40
"""The number of untrained networks if the best of many units passes the threshold of `CONTROLS` networks."""


def with_random_weights(tape: Recorded, seed: int) -> Recorded:
    """Record each layer of a recording again, with the same input and random weights from a seed."""
    controls = Recorded()
    for name, call in tape.calls.items():
        layer = _copy_unrecorded(call.layer)
        steps = call.layout.by_step(call.steps.data.detach())
        resets = call.steps.resets
        masks = None if resets is None else call.layout.by_step(resets[:, None].float())[..., 0] > 0
        lengths = unpadded_mask(call.layout, call.batch_sizes).sum(0)
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
