"""Glassgate's layers on one of its engines."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

import glassgate as gg
from benchmarks import cells
from benchmarks import work as works
from benchmarks.peers.layer import Layer, Model, Stream
from benchmarks.work import Work


def layer_of(work: Work) -> gg.Recurrent:
    """The layer that a work describes."""
    options: dict[str, Any] = dict(work.options)
    return gg.Recurrent(
        cells.cell(work.cell),
        work.inputs,
        work.H,
        work.layers,
        bidirectional=work.bidirectional,
        proj_size=work.proj,
        dtype=getattr(torch, work.dtype),
        **options,
    )


@contextmanager
def _both(first: AbstractContextManager[Any], second: AbstractContextManager[Any]) -> Iterator[None]:
    with first, second:
        yield


class Ours(Layer):
    """A layer of Glassgate."""

    def __init__(self, work: Work) -> None:
        self.ours = layer = layer_of(work)
        lengths = works.lengths(work).tolist() if work.padded else None

        def call(x: Any, hx: Any, resets: Tensor | None) -> Any:
            return layer(x, hx, lengths=lengths, resets=resets)

        super().__init__(work, layer, layer.cell.state, call)

    def on_engine(self) -> AbstractContextManager[Any]:
        """Select the engine of the work, and record if the work requires it."""
        recording = gg.record(self.ours) if self.work.record else nullcontext()
        return recording if self.work.engine == "auto" else _both(gg.engine(self.work.engine), recording)

    def choice(self) -> str:
        """The engine that `auto` would choose."""
        return gg.explain(self.ours, self.packed if self.work.ragged else self.input, resets=self.resets).engine


class Frozen(Ours):
    """A session of a layer, called with the input and the initial states."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self.session = gg.freeze(self.ours.eval(), work.precision)
        self.call = lambda x, hx, resets: self.session(x, hx, **({} if resets is None else {"resets": resets}))
        hx = tuple(self.initial.values())
        self.hx = hx if len(hx) > 1 else hx[0]

    def run(self) -> Any:
        """One call."""
        return self.session(self.input, self.hx)

    def results(self) -> dict[str, Tensor]:
        """Output and final states by name."""
        return self.forward()


def prepare(work: Work) -> Layer | Model | Stream:
    """Return the subject of Glassgate."""
    if work.precision:
        frozen = Frozen(work)
        return frozen if work.do != "step" else Stream(work, frozen.layer, lambda: frozen.session.stream(work.N).step)
    ours = Ours(work)
    if work.do == "model":
        return Model(ours)
    return Stream(work, ours.layer, lambda: _stream(ours.ours, work)) if work.do == "step" else ours


def _stream(layer: gg.Recurrent, work: Work) -> Callable[[Tensor], Tensor]:
    with gg.engine(work.engine):
        if work.engine != "reference":
            return layer.stream(work.N).step
    state: list[Any] = [None]

    def step(x: Tensor) -> Tensor:
        with torch.no_grad(), gg.engine("reference"):
            output, state[0] = layer(x[None], state[0])
        return output[0]

    return step
