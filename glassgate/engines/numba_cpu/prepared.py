"""A layer's passes for one call signature: tensors come and go in the shapes and types that the user sees."""

from collections.abc import Sequence
from itertools import accumulate, islice

import torch
from torch import Tensor

from glassgate.engines.memory import computable, empty
from glassgate.engines.numba_cpu.loops.batch import batch_layout
from glassgate.engines.numba_cpu.passes import Form, backward_pass, forward_pass
from glassgate.engines.numba_cpu.plan import are_few
from glassgate.engines.numba_cpu.processor import host
from glassgate.engines.numba_cpu.ragged import Ragged, gather, ragged, scatter
from glassgate.engines.plan import Plan, Sizes


class PreparedPasses:
    """The pass forward and, where it is for training, the one back, for sequences of equal lengths.

    Args:
        plans, sizes: of each direction.
        steps: how many.
        result: the type of the outputs and the final states.
        form: the shape of the input and the outputs without the last axis.
        final: the shape of each initial and final state of a direction.
        save: whether there will be a pass back.
    """

    def __init__(
        self,
        plans: tuple[Plan, ...],
        sizes: tuple[Sizes, ...],
        steps: int,
        result: torch.dtype,
        form: Form,
        final: Sequence[Form],
        save: bool,
    ) -> None:
        self.plans, self._sizes, rows = plans, sizes, steps * sizes[0].N
        self._layout = batch_layout(None, rows, sizes[0].N)
        few = tuple([are_few(rows, own) for own in sizes])
        self._forward = forward_pass(plans, sizes, result, save, save, few, host())
        self._inside = torch.float64 if sizes[0].bits == 64 else torch.float32
        self._result, self._memory, self._flat = result, self._forward.memory(rows), self._forward.memory(rows)
        self._states = [0]
        """Indices of the tensors that have a row per sequence: the input and the initial states."""
        for plan, at in zip(plans, accumulate((plan.given for plan in plans), initial=1), strict=False):
            self._states += range(at + len(plan.weights), at + len(plan.weights) + len(plan.cell.state))
        self._outputs, self._finals, self._saved, at = list[int](), list[int](), list[int](), 0
        for states, finals, kept, _ in self._forward.counts:
            (_, width), dtype = self._memory[at]
            self._memory[at] = (*form, width), dtype
            own = range(at, at + states + finals + kept)
            self._outputs.append(at)
            for k, shape in zip(own[states:], final, strict=False):
                self._memory[k] = shape, self._memory[k][1]
            self._finals += own[states : states + finals]
            self._saved += own[:states]
            at = own.stop
        at = 0
        for states, finals, kept, _ in self._forward.counts:
            self._saved += range(at + states + finals, at + states + finals + kept)
            at += states + finals + kept
        self.count = len(self._outputs)
        self.shapes = {0: (*form, sizes[0].D)}
        """Of those tensors, as the user has them."""
        by_state = [shape for _ in plans for shape in final]
        self.shapes |= dict(zip(self._states[1:], by_state, strict=True))

    def ragged(self, lengths: Sequence[int]) -> Ragged:
        """The layout of a call whose sequences have these lengths."""
        return ragged(lengths, self._layout.steps)

    def forward(
        self, tensors: Sequence[Tensor], resets: Tensor | None, lengths: Ragged | None = None
    ) -> tuple[list[Tensor], list[Tensor], Sequence[Tensor]]:
        """The outputs of all directions and their final states; and for a pass back its `saved` and `tensors`.

        Args:
            tensors: the input, and all tensors of the directions; all of them contiguous.
            resets: their mask, if there is one.
            lengths: where they differ, for tensors of the type that kernels compute in.
        """
        inside, layout, memory = computable(tensors, self._inside), self._layout, self._memory
        if lengths is not None:
            inside, layout, memory = self._sorted(inside, self._states, lengths), lengths.layout, self._flat
        written = self._forward.results(layout, inside, resets, memory, 0)
        seen = *self._outputs, *self._finals
        saved = [written[k] for k in self._saved]
        if lengths is not None:
            padded = [empty(*self._memory[k]) for k in seen]
            scatter(lengths, [written[k] for k in seen], padded, [k < self.count for k in range(len(seen))])
            return padded, saved, inside
        if self._result is not self._inside:
            for k in seen:
                written[k] = written[k].to(self._result)
            saved = [written[k] for k in self._saved]
        return [written[k] for k in seen], saved, tensors

    @staticmethod
    def _sorted(tensors: Sequence[Tensor], which: Sequence[int], lengths: Ragged) -> list[Tensor]:
        """The tensors, some of them with their rows as kernels read them; the first has a row per step, too."""
        found = [*tensors]
        for k, rows in zip(which, gather(lengths, [tensors[k] for k in which], [k == 0 for k in which]), strict=True):
            found[k] = rows
        return found

    def backward(
        self,
        tensors: Sequence[Tensor],
        saved: Sequence[Tensor],
        resets: Tensor | None,
        d_visible: Sequence[Tensor | None],
        needed: Sequence[bool],
        lengths: Ragged | None = None,
    ) -> list[Tensor | None]:
        """The gradients of all `tensors`; None where there is none, or where it is not needed.

        Args:
            tensors, saved: as `forward` has returned them.
            resets, lengths: as in `forward`.
            d_visible: the gradients of the outputs and of the final states; None for zero.
            needed: whether that of each tensor is wanted.
        """
        wanted, at = [], 1
        for plan in self.plans:
            needs = needed[at : at + len(plan.weights)]
            wanted.append(tuple([name for name, need in zip(plan.weights, needs, strict=True) if need]))
            at += plan.given
        run = backward_pass(self.plans, self._sizes, tuple(wanted), needed[0], host())
        inside = computable(tensors, self._inside)
        d = [v if v is None or v.dtype is self._inside else v.to(self._inside) for v in d_visible]
        if lengths is not None:
            has = [k for k, v in enumerate(d) if v is not None]
            rows = gather(lengths, [_contiguous(d[k]) for k in has], [k < self.count for k in has])
            for k, v in zip(has, rows, strict=True):
                d[k] = v
        d_outputs = [v if v is None else _rows(v) for v in d[: self.count]]
        d_states = [[v, *[None] * (len(own.cell.state) - 1)] for v, own in zip(d_outputs, self.plans, strict=True)]
        final = iter(d[self.count :])
        d_final = [list(islice(final, len(own.cell.state))) for own in self.plans]
        d_data = empty(tensors[0].shape, self._inside) if needed[0] else None
        layout = self._layout if lengths is None else lengths.layout
        found, _ = run.gradients(layout, inside, computable(saved, self._inside), resets, d_states, d_final, d_data, 0)
        gradients = [d_data, *found]
        if lengths is not None:
            self._to_padded(gradients, needed, lengths)
        if inside is tensors:
            return gradients
        return [d if d is None else d.to(v.dtype) for d, v in zip(gradients, tensors, strict=True)]

    def _to_padded(self, gradients: list[Tensor | None], needed: Sequence[bool], lengths: Ragged) -> None:
        """Put the gradients of the input and of initial states back in the order of the user's sequences."""
        has = [k for k in self._states if needed[k] and gradients[k] is not None]
        flat = [_contiguous(gradients[k]) for k in has]
        padded = [empty(self.shapes[k], self._inside) for k in has]
        if has:
            scatter(lengths, flat, padded, [k == 0 for k in has])
        for k, v in zip(has, padded, strict=True):
            gradients[k] = v


def _contiguous(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor.contiguous()


def _rows(d: Tensor) -> Tensor:
    """A gradient as rows at equal distances, without gaps inside."""
    rows = d.flatten(0, -2) if d.dim() > 2 else d
    return rows if rows.stride(1) == 1 else rows.contiguous()
