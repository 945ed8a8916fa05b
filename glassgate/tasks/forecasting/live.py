"""The data of a forecasting run for the script of the interactive report: the network and a look-back window."""

from typing import Any, cast

import torch
from torch import nn

import glassgate as gg
from glassgate.glass.live.network import Network
from glassgate.tasks.data.batches import collate
from glassgate.tasks.data.batching import Piece
from glassgate.tasks.forecasting.heads import median_index, normal_quantiles
from glassgate.tasks.forecasting.network import Forecaster
from glassgate.tasks.forecasting.task import Forecasting
from glassgate.tasks.report.study import Excerpt
from glassgate.tasks.report.task_view import view_of


def page_data(task: Forecasting, network: Network, excerpt: Excerpt) -> dict[str, Any]:
    """Return the data that `live.js` reads, for the last look-back window and horizon of an excerpt."""
    model, options = task.network, task.options
    assert isinstance(model, Forecaster)
    batch = collate([task.encode(excerpt.example)], [Piece(0, excerpt.start, excerpt.stop)], task.padding)
    with torch.no_grad():
        window = model.window(batch)
    shift, scale = float(batch["shift"][0]), float(batch["scale"][0])
    values = (batch["values"][0, -model.back - model.horizon :] * scale + shift).tolist()
    output_layers: dict[str, Any] = {}
    for name, part in model.parts().items():
        if isinstance(part, nn.Linear):
            output_layers[name] = network.add_linear(part)
        elif isinstance(part, nn.Sequential):
            output_layers[name] = [network.add_linear(layer) for layer in part if isinstance(layer, nn.Linear)]
        elif isinstance(part, nn.Parameter):
            output_layers[name] = network.add_array(part)
    layer_input = view_of(task).layer_input(excerpt.example, excerpt.start, excerpt.stop)
    return {
        "model": options.model,
        "head": options.head,
        "normalize": options.normalize,
        "back": model.back,
        "horizon": model.horizon,
        "segment": options.segment,
        "hidden": options.hidden_size,
        "size": task.head.size,
        "levels": list(options.levels),
        "median": median_index(options.levels),
        "deviates": normal_quantiles(options.levels),
        "shift": shift,
        "scale": scale,
        "known": network.add_array(window.known[0]),
        "past": network.add_array(window.past[0]),
        "vector": network.add_array(window.series[0]),
        "target": values[model.back :],
        "times": list(layer_input.times[model.back :]),
        "encoder": network.add_layer(cast(gg.Recurrent, model.encoder), "encoder"),
        **output_layers,
        "initial_input": {
            "rows": [[value] for value in values[: model.back]],
            "target": values[model.back :],
            "names": list(layer_input.names),
            "rowsPerStep": layer_input.rows_per_step,
        },
    }
