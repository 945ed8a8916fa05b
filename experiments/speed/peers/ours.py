"""Layers, sessions and streams of Glassgate."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

import glassgate as gg
from experiments.speed import cells
from experiments.speed import workload as workloads
from experiments.speed.peers.layer import Layer, Model, Stream
from experiments.speed.workload import Workload


def layer_of(workload: Workload) -> gg.Recurrent:
    """Return the layer of a workload."""
    options: dict[str, Any] = dict(workload.options)
    return gg.Recurrent(
        cells.cell(workload.cell, workload.H),
        workload.inputs,
        workload.H,
        workload.layers,
        bidirectional=workload.bidirectional,
        proj_size=workload.proj,
        dtype=getattr(torch, workload.dtype),
        **options,
    )


def shapes_of_states(layer: gg.Recurrent) -> list[tuple[int, ...]]:
    """Return the shape of each state of a sequence."""
    with torch.no_grad():
        _, final = layer(next(layer.parameters()).new_zeros(1, 1, layer.input_size))
    return [v.shape[2:] for v in (final if isinstance(final, tuple) else (final,))]


@contextmanager
def _both(first: AbstractContextManager[Any], second: AbstractContextManager[Any]) -> Iterator[None]:
    with first, second:
        yield


class Ours(Layer):
    """A layer of Glassgate."""

    def __init__(self, workload: Workload) -> None:
        self.ours = layer = layer_of(workload)
        lengths = workloads.lengths(workload).tolist() if workload.padded else None

        def call(x: Any, hx: Any, resets: Tensor | None) -> Any:
            return layer(x, hx, lengths=lengths, resets=resets)

        super().__init__(workload, layer, layer.cell.state, call, shapes_of_states(layer))

    def on_engine(self) -> AbstractContextManager[Any]:
        """Select the engine of the workload, and record if the workload requires it."""
        recording = gg.record(self.ours) if self.workload.record else nullcontext()
        return recording if self.workload.engine == "auto" else _both(gg.engine(self.workload.engine), recording)

    def choice(self) -> str:
        """Return the engine that `auto` would choose."""
        return gg.explain(self.ours, self.packed if self.workload.ragged else self.input, resets=self.resets).engine


class Frozen(Ours):
    """An inference session of a layer."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.session = gg.freeze(self.ours.eval(), workload.precision)
        self.call = lambda x, hx, resets: self.session(x, hx, **({} if resets is None else {"resets": resets}))
        hx = tuple(self.initial.values())
        self.hx = hx if len(hx) > 1 else hx[0]

    def run(self) -> Any:
        """Call the session with the input and the initial states."""
        return self.session(self.input, self.hx)

    def results(self) -> dict[str, Tensor]:
        """Return the output and the final states by name."""
        return self.forward()


def prepare(workload: Workload) -> Layer | Model | Stream:
    """Return the layer, session, language model or stream of a workload."""
    if workload.precision:
        frozen = Frozen(workload)
        return (
            frozen
            if workload.do != "step"
            else Stream(workload, frozen.layer, lambda: frozen.session.stream(workload.N).step)
        )
    ours = Ours(workload)
    if workload.do == "model":
        return Model(ours)
    return Stream(workload, ours.layer, lambda: _stream(ours.ours, workload)) if workload.do == "step" else ours


def _stream(layer: gg.Recurrent, workload: Workload) -> Callable[[Tensor], Tensor]:
    with gg.engine(workload.engine):
        if workload.engine != "reference":
            return layer.stream(workload.N).step
    state: list[Any] = [None]

    def step(x: Tensor) -> Tensor:
        with torch.no_grad(), gg.engine("reference"):
            output, state[0] = layer(x[None], state[0])
        return output[0]

    return step
