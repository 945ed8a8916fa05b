"""torch.nn's LSTM, GRU and RNN. With resets, one call per step with masked states, as policies are trained."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.peers.layer import Layer, Model, Stream
from benchmarks.work import Work


def prepare(work: Work) -> Layer | Model | Stream:
    """torch.nn's subject."""
    kind = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}[work.cell]
    more = {"proj_size": work.proj} if work.proj else {}
    dtype = getattr(torch, work.dtype)
    layer = kind(work.inputs, work.H, work.layers, bidirectional=work.bidirectional, dtype=dtype, **more)

    def call(x: Any, hx: Any, resets: Tensor | None) -> Any:
        return layer(x, hx) if resets is None else _step_by_step(layer, x, hx, resets)

    subject = Layer(work, layer, ("h", "c") if kind is nn.LSTM else ("h",), call)
    if work.do == "model":
        return Model(subject)
    return Stream(work, layer, lambda: _stream(layer)) if work.do == "step" else subject


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
