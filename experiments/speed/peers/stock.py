"""LSTM, GRU and RNN of torch.nn. With resets, there is one call per step, and states are masked between calls."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from experiments.speed.peers.layer import Layer, Model, Stream
from experiments.speed.workload import Workload


def prepare(workload: Workload) -> Layer | Model | Stream:
    """Return the layer, language model or stream of a workload."""
    layer_class = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}[workload.cell]
    options = {"proj_size": workload.proj} if workload.proj else {}
    dtype = getattr(torch, workload.dtype)
    layer = layer_class(
        workload.inputs, workload.H, workload.layers, bidirectional=workload.bidirectional, dtype=dtype, **options
    )

    def call(x: Any, hx: Any, resets: Tensor | None) -> Any:
        return layer(x, hx) if resets is None else _step_by_step(layer, x, hx, resets)

    subject = Layer(workload, layer, ("h", "c") if layer_class is nn.LSTM else ("h",), call)
    if workload.do == "model":
        return Model(subject)
    return Stream(workload, layer, lambda: _stream(layer)) if workload.do == "step" else subject


def _step_by_step(layer: nn.LSTM, x: Tensor, initial: tuple[Tensor, ...], resets: Tensor) -> Any:
    state, outputs = initial, []
    for t in range(len(x)):
        mask = resets[t][:, None]
        state = tuple(torch.where(mask, v_0, v) for v_0, v in zip(initial, state, strict=True))
        output, state = layer(x[t : t + 1], state)
        outputs.append(output)
    return torch.cat(outputs), state


def _stream(layer: nn.Module) -> Callable[[Tensor], Tensor]:
    state: list[Any] = [None]

    def step(x: Tensor) -> Tensor:
        with torch.no_grad():
            output, state[0] = layer(x[None], state[0])
        return output[0]

    return step
