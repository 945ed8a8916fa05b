"""The recorded gates and states of a module's recurrent layers in a call, and their gradients, by name."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from typing import TypeVar

import torch
from torch import Tensor, nn

from glassgate.cell import Cell
from glassgate.conversion import description
from glassgate.declarations import shared_names
from glassgate.glass.contexts import uncompiled
from glassgate.layers.stack import LayerCall, Recurrent
from glassgate.layout import Layout
from glassgate.user_warning import warn_user

R = TypeVar("R", bound="Recorded")
Rows = Mapping[str, tuple[Layout, Tensor]]
"""Values (S, *) by name, each with the layout that maps its S rows to steps."""


class Values(Mapping[str, Tensor]):
    """Tensors (L, N, H) by names such as "layer0.forward.f"."""

    def __init__(self, rows: Rows) -> None:
        self._recorded_rows = rows
        self._values: dict[str, Tensor] = {}

    def _rows(self) -> Rows:
        return self._recorded_rows

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._values:
            recorded = self._rows()
            if name not in recorded:
                names = ", ".join(recorded) or (
                    "none; call the layer inside gg.record; for gradients, call backward() on a result of this call"
                )
                raise KeyError(f"tape: {name!r} was not recorded; recorded names: {names}")
            layout, rows = recorded[name]
            self._values[name] = layout.by_step(rows.detach())
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows())

    def __len__(self) -> int:
        return len(self._rows())


def unpadded_mask(layout: Layout, batch_sizes: Tensor | None) -> Tensor:
    """A CPU mask (L, N) of the steps that are not padding."""
    if batch_sizes is None:
        return torch.ones(layout.length, layout.rows, dtype=torch.bool)
    alive = torch.arange(layout.rows) < batch_sizes[:, None]
    return alive if layout.order is None else torch.empty_like(alive).index_copy_(1, layout.order.cpu(), alive)


class _StepsWithGradient:
    """The steps at which the output or a final state of a direction receives a gradient.

    The gradient comes from the loss or from the layer above.

    A backward pass only stores its gradients here, so that training steps stay fast. They are examined when the mask is
    read or the next backward pass arrives. The autograd graph refers to this object. The object must not refer to the
    call or its recording, because a reference cycle would keep the memory of all recorded steps until Python collects
    garbage.

    Args:
        layout, batch_sizes: the attributes of the call with these names.
        reverse: whether the direction runs from the last step to the first.
    """

    def __init__(self, layout: Layout, batch_sizes: Tensor | None, reverse: bool) -> None:
        self._layout, self._batch_sizes, self._reverse = layout, batch_sizes, reverse
        self._mask: Tensor | None = None
        self._pending: dict[int, Tensor] = {}

    def receive(self, gradients: Sequence[Tensor | None]) -> None:
        """Store the gradients of the output and of the final states, or some of them, from one backward pass."""
        for k, grad in enumerate(gradients):
            if grad is not None:
                if k in self._pending:
                    self.mask()
                self._pending[k] = grad.detach() if grad.requires_grad else grad

    def mask(self) -> Tensor:
        """A mask (L, N) of the steps that received a gradient in any backward pass so far."""
        layout = self._layout
        if self._mask is None:
            self._mask = torch.zeros(layout.length, layout.rows, dtype=torch.bool)
        while self._pending:
            k, grad = self._pending.popitem()
            rows = (grad != 0).any(-1).reshape(-1, 1).float()
            if k == 0:
                self._mask |= layout.by_step(rows)[..., 0].cpu() > 0
            else:
                last = (unpadded_mask(layout, self._batch_sizes).sum(0) - 1).clamp(min=0) * (not self._reverse)
                self._mask[last, torch.arange(len(last))] |= layout.from_ranks(rows)[:, 0].cpu() > 0
        return self._mask


def _with_axes(name: str, rows: Tensor, call: LayerCall, index: int) -> Tensor:
    """The rows (S, width) of a recorded value with the axes that its cell declares."""
    form, shapes = call.layer.glassgate.parts[index].forms.get(name), call.recordings[index].shapes
    shape = (rows.shape[1],) if form is None else form.shape
    shape = shapes.get(name, shape)
    return rows if len(shape) == 1 else rows.reshape(len(rows), *shape)


class Recorded(Values):
    """The gates and states of one call of each recorded layer.

    A gate has the name of its variable in `step`. All tensors are time-major, (L, N, H), and zero at padded positions.
    A value of a cell that declares axes has these axes instead of H.

    Args:
        first: whether to keep the first call of a layer that is called several times, instead of the last.
    """

    def __init__(self, first: bool = False) -> None:
        super().__init__({})
        self._first = first
        self.calls: dict[str, LayerCall] = {}
        """The call of each recorded layer, by the layer's name."""
        self._steps_with_gradient: dict[str, list[_StepsWithGradient]] = {}
        """The steps that received a gradient, per direction, by the layer's name; only for calls with gradients."""

    def _add_call(self, name: str, call: LayerCall) -> None:
        if self._first and name in self.calls:
            return
        self.calls[name], self._recorded_rows = call, {}
        self._values.clear()
        self._steps_with_gradient.pop(name, None)
        if call.source.requires_grad:
            steps = self._steps_with_gradient[name] = [
                _StepsWithGradient(call.layout, call.batch_sizes, part.direction == 1)
                for part in call.layer.glassgate.parts
            ]
            for with_gradient, recording in zip(steps, call.recordings, strict=True):
                recording.on_gradients = with_gradient.receive

    def _all_directions(self) -> Iterator[tuple[str, LayerCall, int]]:
        """Yield the items of `directions`. Yield nothing if the recording has no calls."""
        for name, call in self.calls.items():
            for index, part in enumerate(call.layer.glassgate.parts):
                yield _join(name, part.label), call, index

    def _rows(self) -> Rows:
        if not self._recorded_rows:
            self._recorded_rows = {
                f"{label}.{name}": (call.layout, _with_axes(name, value, call, index))
                for label, call, index in self._all_directions()
                for name, value in (
                    *call.recordings[index].values.items(),
                    *zip(call.layer.cell.state, call.results[index].states, strict=True),
                )
            }
        return self._recorded_rows

    @property
    def grad(self) -> Values:
        """The gradient of each gate and state, by the same names; empty before `backward()`."""
        return Values(
            {
                f"{label}.{name}": (call.layout, _with_axes(name, value, call, index))
                for label, call, index in self._all_directions()
                for name, value in call.recordings[index].grad.items()
            }
        )

    def unpadded(self, label: str) -> Tensor:
        """A mask (L, N) of the steps that are not padding, for a direction such as "layer0.forward"."""
        call, _ = self.call_of(label)
        return unpadded_mask(call.layout, call.batch_sizes).to(call.source.device)

    def directions(self) -> Iterator[tuple[str, LayerCall, int]]:
        """The label of each recorded direction, such as "layer0.forward", its call, and its index in the layer."""
        if not self.calls:
            raise ValueError("tape: nothing was recorded; call the module inside the `with`")
        return self._all_directions()

    def call_of(self, label: str) -> tuple[LayerCall, int]:
        """The call in which the direction with this label was recorded, and the index of the direction in the layer."""
        return next((call, index) for each, call, index in self._all_directions() if each == label)

    def steps_with_gradient(self, label: str) -> Tensor:
        """A mask (L, N) of the steps at which the output or a final state received a gradient.

        The gradient comes from the loss or from the layer above.
        """
        call, index = self.call_of(label)
        name = next(name for name, each in self.calls.items() if each is call)
        if name in self._steps_with_gradient:
            return self._steps_with_gradient[name][index].mask()
        return torch.zeros(call.layout.length, call.layout.rows, dtype=torch.bool)

    def first_call(self) -> LayerCall:
        """The call of the first layer that was recorded."""
        return next(self.directions())[1]

    def take_over(self, other: "Recorded", prefix: str) -> None:
        """Add the calls of another recording. Their names get this prefix."""
        self.calls |= {_join(prefix, each): call for each, call in other.calls.items()}
        self._steps_with_gradient |= {_join(prefix, each): steps for each, steps in other._steps_with_gradient.items()}
        self._recorded_rows = {}

    def zero_gradients(self) -> None:
        """Set the recorded gradients to zero."""
        for _, call, index in self._all_directions():
            for grad in call.recordings[index].grad.values():
                grad.zero_()


@lru_cache(maxsize=64)
def _shared_names(cell: Cell) -> str:
    return shared_names(cell)


def _join(*names: str) -> str:
    return ".".join(filter(None, names))


class Watch(AbstractContextManager[R]):
    """A context that records the recurrent layers of a module into a recording.

    It is a class, because entering a context made from a generator takes several times as long.

    Args:
        module: a layer, or a model that contains some.
        recording: receives the calls.

    Raises:
        TypeError: the module contains no recurrent layer of glassgate.
    """

    def __init__(self, module: nn.Module, recording: R) -> None:
        self._layers = {name: layer for name, layer in module.named_modules() if isinstance(layer, Recurrent)}
        self._recording = recording
        if not self._layers:
            got = description(module)
            raise TypeError(f"record: the module must be or hold a recurrent layer of glassgate, got {got}")
        for cell in {id(layer.cell): layer.cell for layer in self._layers.values()}.values():
            if set(cell.gates) & set(cell.state) and (names := _shared_names(cell)):
                warn_user(f"record: cell {type(cell).__name__}: {names}")

    def __enter__(self) -> R:
        self._uncompiled = uncompiled("record")
        self._uncompiled.__enter__()
        for name, layer in self._layers.items():
            layer.glassgate.watchers.append(partial(self._recording._add_call, name))
        return self._recording

    def __exit__(self, *error: object) -> None:
        for layer in self._layers.values():
            layer.glassgate.watchers.pop()
        self._uncompiled.__exit__(None, None, None)
