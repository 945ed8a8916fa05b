"""`gg.record` records every gate and state at every step. A recording provides measures, pictures and a report."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from glassgate.glass.measures import Memory, Saturation, half_life_of, memory_of, saturation_of
from glassgate.glass.recorded import Recorded, Watch
from glassgate.glass.retention import retentions

if TYPE_CHECKING:
    from glassgate.glass.diagrams.svg import Picture


class Tape(Recorded):
    """A recording: the gates and states of one call of each recorded layer, by name.

    A gate has the name of its variable in `step`. All tensors are time-major, (L, N, H), and zero at padded positions.
    """

    def saturation(self) -> dict[str, Saturation]:
        """For each gate, the fractions of steps at which each unit is closed or open, (H,) each.

        A unit is closed below 0.1 and open above 0.9, as in Karpathy, Johnson and Fei-Fei 2015, arXiv:1506.02078. For
        values between -1 and 1, such as tanh, the limits are -0.9 and 0.9. Unbounded values are omitted.
        """
        return {
            f"{label}.{name}": each
            for label, call, _ in self.directions()
            for name, each in saturation_of(self, label, call).items()
        }

    def half_life(self) -> dict[str, Tensor]:
        """The half-life of each unit's state in steps: ln(1/2) over the mean of ln f, (H,).

        f is the derivative of a unit's new state with respect to its old one along the direct path, which excludes
        the recurrent weights. For an LSTM, f is the forget gate, and for a GRU it is z. For a cell without a direct
        path, such as a plain RNN, f is the diagonal of the Jacobian ds_t/ds_{t-1}.
        """
        return {
            f"{label}.{name}": half_life_of(each.by_step[self.unpadded(label)])
            for label, call, index in self.directions()
            for name, each in retentions(call, index).items()
        }

    def memory(self, longest: int = 100) -> dict[str, Memory]:
        """The fraction of a state that remains after 0 to `longest` steps.

        Every step is a starting point. The result contains the median and the 10th and 90th percentile over all
        starting points and units.
        """
        result = {}
        for label, call, index in self.directions():
            unpadded, is_reverse = self.unpadded(label), call.layer.glassgate.parts[index].direction == 1
            for name, each in retentions(call, index).items():
                result[f"{label}.{name}"] = memory_of(each.by_step, unpadded, is_reverse, longest)
        return result

    def connectivity(self, target: Tensor) -> Tensor:
        """The contribution of each step's input to a target: gradient times input, summed over features.

        Args:
            target: one number or several, `(A,)`, computed from the recorded call's output.

        Returns:
            `(L, N)` for one number, `(A, L, N)` for several.
        """
        call, rows = self.first_call(), []
        for each in self._scalars("connectivity", target):
            grad = call.input_gradient(each)
            if grad is None:
                raise ValueError(
                    "connectivity: target does not depend on the recorded input; compute it from the output"
                )
            rows.append(call.layout.by_step((grad * call.steps.data.detach()).sum(-1, keepdim=True))[..., 0])
        matrix = torch.stack(rows)
        return matrix if target.dim() else matrix[0]

    def gradient_flow(self, target: Tensor | None = None) -> dict[str, Tensor]:
        """The norm of the gradient of each state at each step, by the name of the state.

        Args:
            target: one number or several, `(A,)`; None for the gradients of the last `backward()`.

        Returns:
            `(L, N)` for one number or None, `(A, L, N)` for several, by names such as "layer0.forward.h".
        """
        if target is None:
            if not len(self.grad):
                raise ValueError("gradient_flow: no gradient was recorded; give a target, or call backward() first")
            return self._gradient_norms()
        by_target = []
        for each in self._scalars("gradient_flow", target):
            self.zero_gradients()
            torch.autograd.grad(each, self.first_call().source, retain_graph=True, allow_unused=True)
            by_target.append(self._gradient_norms())
        self.zero_gradients()
        stacked = {name: torch.stack([norms[name] for norms in by_target]) for name in by_target[0]}
        return stacked if target.dim() else {name: value[0] for name, value in stacked.items()}

    def _scalars(self, operation: str, target: Tensor) -> list[Tensor]:
        """The numbers of a target that is computed from the recorded output."""
        if target.dim() > 1 or not target.numel():
            raise ValueError(f"target must have shape () or (A,), got {tuple(target.shape)}")
        if not target.requires_grad or not self.first_call().source.requires_grad:
            raise ValueError(
                f"{operation}: target must be computed from the recorded output with gradients, got one without; "
                "compute it outside torch.no_grad() and torch.inference_mode()"
            )
        return list(target.reshape(-1))

    def _gradient_norms(self) -> dict[str, Tensor]:
        """The norm over units of the gradient of each state at each step, (L, N)."""
        states = {f"{label}.{name}" for label, call, _ in self.directions() for name in call.layer.cell.state}
        grads = {name: grad for name, grad in self.grad.items() if name in states}
        return {name: grad.reshape(*grad.shape[:2], -1).norm(dim=-1) for name, grad in grads.items()}

    def plot(self, name: str, row: int = 0) -> "Picture":
        """A heat map of a gate or state, such as "layer0.forward.f", for one row of the batch, as SVG."""
        from glassgate.glass import recording_views

        return recording_views.plot(self, name, row)

    def report(
        self, path: str | Path, steps: Sequence[str] | Sequence[Sequence[str]] = (), *, language: str = "en"
    ) -> None:
        """Write an HTML page about the recording: saturation, memory, gates by time, the cell.

        After `backward()`, the page also shows the gradient of each state. `glassgate report` writes such a page for a
        trained run, with its text, its answers and its training.

        Args:
            path: the path of the page
            steps: the text or symbol of each step: one list per row of the batch, or one list for one row
            language: the language of the page, "en" or "zh"
        """
        from glassgate.glass import recording_views
        from glassgate.glass.languages import speaking

        with speaking(language):
            recording_views.report(self, Path(path), steps)

    def _repr_html_(self) -> str:
        """A table for notebooks with the mean, range and picture of each value."""
        from glassgate.glass import recording_views

        return recording_views.html_table(self)


def record(module: nn.Module, *, first: bool = False) -> AbstractContextManager[Tape]:
    """Record the gates and states of a module's recurrent layers inside a `with` block.

    The kernels write the values while they run, so the module does not fall back to slower loops. Modules that
    `torch.compile` has compiled run uncompiled inside the block.

    The gates of a direction share one block of memory, and so do their gradients. A tensor that outlives its recording
    keeps the whole block. To keep only one gate, `.clone()` its tensor.

    Args:
        module: a layer, with names such as "layer0.forward.f", or a model, with the name of the layer as a prefix:
            "encoder.layer0.forward.f".
        first: whether to keep the first call of a layer that is called several times, instead of the last.

    Raises:
        TypeError: the module contains no recurrent layer of glassgate.

    Example:
        >>> import torch, glassgate as gg
        >>> layer = gg.LSTM(3, 4)
        >>> with gg.record(layer) as tape:
        ...     output, _ = layer(torch.randn(5, 2, 3))
        >>> output.sum().backward()
        >>> tape["layer0.forward.f"].shape, tape.grad["layer0.forward.c"].shape
        (torch.Size([5, 2, 4]), torch.Size([5, 2, 4]))
    """
    return Watch(module, Tape(first))
