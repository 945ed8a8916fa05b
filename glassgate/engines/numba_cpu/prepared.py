"""A layer's passes for one call signature: tensors come and go in the shapes and types that the user sees."""

from collections.abc import Sequence
from itertools import islice

import torch
from torch import Tensor

from glassgate.engines.memory import computable, empty
from glassgate.engines.numba_cpu.loops.batch import batch_layout
from glassgate.engines.numba_cpu.passes import Form, backward_pass, forward_pass
from glassgate.engines.numba_cpu.plan import are_few
from glassgate.engines.numba_cpu.processor import host
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
        self._result, self._memory = result, self._forward.memory(rows)
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

    def forward(self, tensors: Sequence[Tensor], resets: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
        """The outputs of all directions and their final states, and what a pass back reads beside `tensors`.

        Args:
            tensors: the input, and all tensors of the directions; all of them contiguous.
            resets: their mask, if there is one.
        """
        written = self._forward.results(self._layout, computable(tensors, self._inside), resets, self._memory, 0)
        if self._result is not self._inside:
            for k in (*self._outputs, *self._finals):
                written[k] = written[k].to(self._result)
        return [written[k] for k in (*self._outputs, *self._finals)], [written[k] for k in self._saved]

    def backward(
        self,
        tensors: Sequence[Tensor],
        saved: Sequence[Tensor],
        resets: Tensor | None,
        d_visible: Sequence[Tensor | None],
        needed: Sequence[bool],
    ) -> list[Tensor | None]:
        """The gradients of all `tensors`; None where there is none, or where it is not needed.

        Args:
            tensors, saved, resets: as in `forward`.
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
        d = iter([v if v is None or v.dtype is self._inside else v.to(self._inside) for v in d_visible])
        d_outputs = [v if v is None else _rows(v) for v in islice(d, self.count)]
        d_states = [[v, *[None] * (len(own.cell.state) - 1)] for v, own in zip(d_outputs, self.plans, strict=True)]
        d_final = [list(islice(d, len(own.cell.state))) for own in self.plans]
        d_data = empty(tensors[0].shape, self._inside) if needed[0] else None
        gradients, _ = run.gradients(
            self._layout, inside, computable(saved, self._inside), resets, d_states, d_final, d_data, 0
        )
        if inside is tensors:
            return [d_data, *gradients]
        return [d if d is None else d.to(v.dtype) for d, v in zip((d_data, *gradients), tensors, strict=True)]


def _rows(d: Tensor) -> Tensor:
    """A gradient as rows at equal distances, without gaps inside."""
    rows = d.flatten(0, -2) if d.dim() > 2 else d
    return rows if rows.stride(1) == 1 else rows.contiguous()
