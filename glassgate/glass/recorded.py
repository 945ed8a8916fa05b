"""The values that a module's recurrent layers computed in a call: gates and states by name, and their gradients."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn

from glassgate.engines.contract import Recording, Result, Steps
from glassgate.glass.retention import Call
from glassgate.glass.uncompiled import uncompiled
from glassgate.layers.stack import Recurrent
from glassgate.layout import Layout

R = TypeVar("R", bound="Recorded")


class Values(Mapping[str, Tensor]):
    """Tensors (L, N, H) by names such as "layer0.forward.f"."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[Layout, Tensor]] = {}
        self._values: dict[str, Tensor] = {}

    def _add(self, label: str, layout: Layout, rows: Mapping[str, Tensor]) -> None:
        """Add the values of a direction, each (S, H), with the layout that says which step each row belongs to."""
        for name, value in rows.items():
            self._rows[f"{label}.{name}"] = layout, value
            self._values.pop(f"{label}.{name}", None)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._values:
            if name not in self._rows:
                known = ", ".join(self._rows) or "none"
                raise KeyError(f"tape: {name!r} was not recorded; recorded names: {known}")
            layout, rows = self._rows[name]
            self._values[name] = layout.by_step(rows.detach())
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class _StepsWithGradient:
    """The steps at which a direction's output receives a gradient from the loss or from the layer above.

    An arriving gradient is only stored. It is examined later, when the next one arrives or the mask is read, and not in
    the training step.

    Args:
        layout: the layout of the call.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._mask = torch.zeros(layout.length, layout.rows, dtype=torch.bool)
        self._pending: Tensor | None = None

    def add(self, grad: Tensor | None) -> None:
        """Add the steps at which a gradient (S, H) of the output, from outside the direction, is not zero."""
        if grad is not None:
            self._examine_pending()
            self._pending = grad.detach()

    def mask(self) -> Tensor:
        """The steps (L, N) of all backward passes so far."""
        self._examine_pending()
        return self._mask

    def _examine_pending(self) -> None:
        grad, self._pending = self._pending, None
        if grad is not None:
            self._mask |= self._layout.by_step((grad != 0).any(-1, keepdim=True).float())[..., 0].cpu() > 0


class Recorded(Values):
    """The gates and states of one call of each recorded layer.

    The name of a gate is that of its variable in `step`. All tensors are time-major, (L, N, H), and zero at padded
    positions.

    Args:
        first: whether to keep the first call of a layer that is called several times, instead of the last.
    """

    def __init__(self, first: bool = False) -> None:
        super().__init__()
        self._first = first
        self._recordings: dict[str, tuple[Layout, Recording]] = {}
        self._calls: dict[str, tuple[Call, int]] = {}
        self._reads: dict[str, _StepsWithGradient] = {}

    def _add_call(
        self,
        name: str,
        layer: Recurrent,
        layout: Layout,
        steps: Steps,
        initial: list[tuple[Tensor, ...]],
        results: list[Result],
        recordings: list[Recording],
    ) -> None:
        call = Call(layer, layout, steps, initial, results)
        for number, (part, result, recording) in enumerate(zip(layer._parts, results, recordings, strict=True)):
            label = f"{name}.{part.label}" if name else part.label
            if self._first and label in self._calls:
                continue
            states = dict(zip(layer.cell.state, result.states, strict=True))
            self._recordings[label], self._calls[label] = (layout, recording), (call, number)
            self._add(label, layout, {**recording.values, **states})
            self._reads.pop(label, None)
            if result.states[0].requires_grad:
                self._watch_reads(label, layout, result, part.direction)

    def _watch_reads(self, label: str, layout: Layout, result: Result, direction: int) -> None:
        """Find, in each backward pass, the steps at which the output receives a gradient from outside the direction."""
        reads = self._reads_of(label)

        def add_final(grad: Tensor | None) -> None:
            if grad is None:
                return
            inside = self.inside(label).cpu()
            has_gradient = layout.to_rows((grad != 0).any(-1, keepdim=True).float())[:, 0].cpu() > 0
            last = (inside.sum(0) - 1).clamp(min=0) * (direction == 0)
            reads.mask()[last, torch.arange(len(last))] |= has_gradient

        result.states[0].register_hook(reads.add)
        for final in result.final:
            if final.requires_grad:
                final.register_hook(add_final)

    @property
    def grad(self) -> Values:
        """The gradient of each gate and state, by the same names; empty before `backward()`."""
        grad = Values()
        for label, (layout, recording) in self._recordings.items():
            grad._add(label, layout, recording.grad)
        return grad

    def inside(self, label: str) -> Tensor:
        """A mask (L, N) of the steps that are not padding, for a label such as "layer0.forward"."""
        layout = self._recordings[label][0]
        steps = self._calls[label][0].steps
        rows = torch.ones(len(steps.data), 1, dtype=torch.bool)
        if steps.batch_sizes is not None:
            rows[int(steps.batch_sizes.sum()) :] = False
        return layout.by_step(rows.to(steps.data.device))[..., 0]

    def parts(self) -> Iterator[tuple[str, Call, int]]:
        """The label of each recorded direction, its call, and its index in the layer."""
        if not self._calls:
            raise ValueError("tape: nothing was recorded; call the module inside the `with`")
        return ((label, call, number) for label, (call, number) in self._calls.items())

    def call_of(self, label: str) -> tuple[Call, int]:
        """The call in which the direction with this label was recorded, and the index of the direction in the layer."""
        return self._calls[label]

    def read(self, label: str) -> Tensor:
        """A mask (L, N) of the steps at which the output received a gradient from the loss or from the layer above."""
        return self._reads_of(label).mask()

    def _reads_of(self, label: str) -> _StepsWithGradient:
        if label not in self._reads:
            self._reads[label] = _StepsWithGradient(self._recordings[label][0])
        return self._reads[label]

    def call(self) -> Call:
        """The call of the first layer that was recorded."""
        return next(self.parts())[1]

    def take_over(self, other: "Recorded", name: str) -> None:
        """Add the recording of a layer; its names get the prefix `name`."""
        for label, call in other._calls.items():
            prefixed = f"{name}.{label}" if name else label
            self._calls[prefixed], self._recordings[prefixed] = call, other._recordings[label]
            self._reads[prefixed] = other._reads_of(label)
        self._rows |= {f"{name}.{key}" if name else key: rows for key, rows in other._rows.items()}

    def forget_gradients(self) -> None:
        """Set the recorded gradients to zero."""
        for _, recording in self._recordings.values():
            for grad in recording.grad.values():
                grad.zero_()


@contextmanager
def watched(module: nn.Module, tape: R) -> Iterator[R]:
    """Record the recurrent layers of a module into `tape` inside the `with`.

    Raises:
        TypeError: the module contains no recurrent layer of glassgate.
    """
    layers = {name: part for name, part in module.named_modules() if isinstance(part, Recurrent)}
    if not layers:
        got = type(module).__name__
        raise TypeError(f"record: the module must be or hold a recurrent layer of glassgate, got {got}")
    with uncompiled("record"):
        for name, layer in layers.items():
            layer._watchers.append(partial(tape._add_call, name, layer))
        try:
            yield tape
        finally:
            for layer in layers.values():
                layer._watchers.pop()
