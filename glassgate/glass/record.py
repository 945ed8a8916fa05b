"""Every gate and every state at every step, and the gradients that reached them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from glassgate.engines.contract import Recording, Result, Steps
from glassgate.glass import measures
from glassgate.glass.highway import Call
from glassgate.glass.measures import Memory, Saturation
from glassgate.glass.uncompiled import uncompiled
from glassgate.layers.stack import Recurrent
from glassgate.layout import Layout

if TYPE_CHECKING:
    from glassgate.glass.notebook import Picture


class Values(Mapping[str, Tensor]):
    """Tensors (L, N, H) by "layer0.forward.f" and the like."""

    def __init__(self) -> None:
        self._values: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._values:
            known = ", ".join(self._values) or "nothing yet"
            raise KeyError(f"tape: {name!r} was not recorded; there is {known}")
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Tape(Values):
    """What the last call, or the first one, of each recorded layer did.

    Gates go by the author's names for their values in `step`, states by their own. All are time-major, (L, N, H), zero
    at padded positions.
    """

    def __init__(self, first: bool = False) -> None:
        super().__init__()
        self._first = first
        self._recordings: dict[str, tuple[Layout, Recording]] = {}
        self._calls: dict[str, tuple[Call, int]] = {}

    def _take(
        self,
        name: str,
        layer: Recurrent,
        layout: Layout,
        steps: Steps,
        initial: list[tuple[Tensor, ...]],
        results: list[Result],
        shown: list[Recording],
    ) -> None:
        call = Call(layer, layout, steps, initial, results)
        for number, (part, result, recording) in enumerate(zip(layer._parts, results, shown, strict=True)):
            label = f"{name}.{part.label}" if name else part.label
            if self._first and label in self._calls:
                continue
            states = dict(zip(layer.cell.state, result.states, strict=True))
            self._recordings[label], self._calls[label] = (layout, recording), (call, number)
            self._values |= _by_step(label, layout, {**recording.values, **states})

    @property
    def grad(self) -> Values:
        """By the same names, the gradient that reached each gate and state in all; empty before `backward()`."""
        grad = Values()
        for label, (layout, recording) in self._recordings.items():
            grad._values |= _by_step(label, layout, recording.grad)
        return grad

    def inside(self, label: str) -> Tensor:
        """Which steps of which rows are no padding, (L, N), for "layer0.forward" and the like."""
        layout = self._recordings[label][0]
        steps = self._calls[label][0].steps
        rows = torch.ones(len(steps.data), 1, dtype=torch.bool)
        if steps.batch_sizes is not None:
            rows[int(steps.batch_sizes.sum()) :] = False
        return layout.by_step(rows.to(steps.data.device))[..., 0]

    def saturation(self) -> dict[str, Saturation]:
        """How often each unit's gates stand closed and open: fractions of all steps, (H,) each.

        Closed is below 0.1 and open above 0.9, as in Karpathy, Johnson and Fei-Fei 2015, arXiv:1506.02078; for values
        between -1 and 1, as tanh gives, below -0.9 and above 0.9. Values without bounds are left out.
        """
        return measures.saturation(self)

    def half_life(self) -> dict[str, Tensor]:
        """In how many steps half of a unit's state is gone: ln(1/2) over the mean of ln f, (H,).

        f is the derivative of a unit's new state by its old one along the state's own path, with the recurrent
        products held: the forget gate of an LSTM, z of a GRU. States of cells without such a path, as a plain RNN,
        have the diagonal of the whole ds_t/ds_{t-1} instead.
        """
        return measures.half_life(self)

    def memory(self, longest: int = 100) -> dict[str, Memory]:
        """What is left of a state after 0 to `longest` steps: median, 10 and 90 % of all starts and units."""
        return measures.memory(self, longest)

    def connectivity(self, target: Tensor) -> Tensor:
        """How much each step's input mattered to a target: gradient times input, summed over features.

        Args:
            target: one number or several, `(A,)`, computed from the recorded call's output.

        Returns:
            `(L, N)`, or `(A, L, N)`: a row of source steps for each target.
        """
        return measures.connectivity(self, target)

    def gradient_flow(self, target: Tensor | None = None) -> dict[str, Tensor]:
        """The norm of the gradient that reaches each state at each step, by the state's name.

        Args:
            target: one number or several, `(A,)`; None for what `backward()` has brought.

        Returns:
            `(L, N)`, or `(A, L, N)`, for "layer0.forward.h" and the like.
        """
        return measures.gradient_flow(self, target)

    def plot(self, name: str, row: int = 0) -> "Picture":
        """A heat map of a gate or state of one row of the batch, "layer0.forward.f" and the like, as SVG."""
        picture: Picture = import_module("glassgate.glass.notebook").plot(self, name, row)
        return picture

    def report(self, path: str | Path, steps: Sequence[str] | Sequence[Sequence[str]] = ()) -> None:
        """Write one HTML page of what was recorded: saturation, memory, gates by time, the cell.

        After `backward()` the gradient of each state stands there, too. `glassgate report` writes such a page of a
        trained run, with its text, its answers and its training.

        Args:
            path: of the page
            steps: what each step read, to be shown: a list for each row of the batch, or one for a batch of one
        """
        import_module("glassgate.glass.notebook").report(self, Path(path), steps)

    def _repr_html_(self) -> str:
        """What a notebook shows: each value's picture, mean and range."""
        html: str = import_module("glassgate.glass.notebook").of_tape(self)
        return html

    def _parts(self) -> Iterator[tuple[str, Call, int]]:
        """Each recorded layer and direction: its label, its call, and its place in the layer."""
        if not self._calls:
            raise ValueError("tape: nothing was recorded; call the module inside the `with`")
        return ((label, call, number) for label, (call, number) in self._calls.items())

    def _call(self) -> Call:
        """The call of the first layer that was recorded."""
        return next(self._parts())[1]

    def _forget_gradients(self) -> None:
        for _, recording in self._recordings.values():
            for grad in recording.grad.values():
                grad.zero_()


def _by_step(label: str, layout: Layout, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{label}.{name}": layout.by_step(value.detach()) for name, value in values.items()}


@contextmanager
def record(module: nn.Module, *, first: bool = False) -> Iterator[Tape]:
    """Record what the recurrent layers of a module do inside the `with`.

    Gates come out of the kernels as they run; no slower loop takes their place. What `torch.compile` has made of the
    module runs uncompiled inside.

    Args:
        module: a layer, whose names are "layer0.forward.f" and the like, or a model, where the layer's own name comes
            first: "encoder.layer0.forward.f".
        first: whether of a layer that is called several times the first call is kept, and not the last.

    Raises:
        TypeError: there is no layer of glassgate in it.

    Example:
        >>> import torch, glassgate as gg
        >>> layer = gg.LSTM(3, 4)
        >>> with gg.record(layer) as tape:
        ...     output, _ = layer(torch.randn(5, 2, 3))
        >>> output.sum().backward()
        >>> tape["layer0.forward.f"].shape, tape.grad["layer0.forward.c"].shape
        (torch.Size([5, 2, 4]), torch.Size([5, 2, 4]))
    """
    layers = {name: part for name, part in module.named_modules() if isinstance(part, Recurrent)}
    if not layers:
        got = type(module).__name__
        raise TypeError(f"record: the module must be or hold a recurrent layer of glassgate, got {got}")
    tape = Tape(first)
    with uncompiled("record"):
        for name, layer in layers.items():
            layer._watchers.append(partial(tape._take, name, layer))
        try:
            yield tape
        finally:
            for layer in layers.values():
                layer._watchers.pop()
