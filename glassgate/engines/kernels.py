"""Engines made of backends: a layer's kernels as operators that autograd, torch.compile and torch.export know.

One operator runs all directions of a layer forward, another one backward.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.engines.backend import Backend, Compiled, Packed, PreparedPasses, Signature
from glassgate.engines.contract import (
    PLAIN,
    Direction,
    Reason,
    Recording,
    Result,
    Steps,
    is_transformed,
    result_type,
)
from glassgate.engines.meaning import meaning_of, untraceable
from glassgate.engines.plan import given_of, plan_of, text_for
from glassgate.engines.registry import BACKENDS
from glassgate.engines.torch_op import transforms
from glassgate.engines.torch_op.autograd import Layer, PreparedCall, PreparedLayer
from glassgate.engines.torch_op.operators import text_of


class Kernels(NamedTuple):
    """A backend as an engine.

    Attributes:
        name: the backend's, in `registry.BACKENDS`.
    """

    name: str

    @property
    def backend(self) -> Backend:
        """The backend."""
        return BACKENDS[self.name]

    def why_not(self, steps: Steps, directions: list[Direction], all_states: bool = False) -> Reason | None:
        """Why the backend cannot run this call, or None."""
        if (reason := self.backend.why_not(steps, directions)) is not None:
            return reason
        if is_transformed() and (reason := transforms.why_not(steps, directions)) is not None:
            return reason
        if not (torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack()):
            for tensor in (steps.data, *given_of(directions)):
                kind = type(tensor)
                if kind not in PLAIN and kind.__torch_dispatch__ is not Tensor.__torch_dispatch__:
                    return Reason(f"kernels read memory, and a {kind.__name__} computes in its own way")
        seen = None
        for direction in directions:
            if direction.cell is not seen:
                seen = direction.cell
                reason = untraceable(seen, "weight_hr" in direction.weights)
                if reason is not None:
                    return Reason(reason, of_cell=True)
        return None

    def compiled(self, directions: Sequence[Direction], record: bool = False) -> Compiled:
        """The directions, compiled by the backend; `record`: whether gates and their gradients are results too."""
        return self.backend.compile(tuple([plan_of(d, self.backend.costs, record) for d in directions]))

    def run(
        self,
        steps: Steps,
        directions: list[Direction],
        all_states: bool = False,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Result]:
        """One layer, all of its directions in one call. The caller has checked `why_not`."""
        record, given = recordings is not None, given_of(directions)
        if is_transformed():
            return self._results(directions, transforms.run(self.name, steps, directions), True, all_states)
        data, sizes, resets = steps
        dtype = result_type(data.dtype, data.device.type)
        save = torch.is_grad_enabled() and (data.requires_grad or any(v.requires_grad for v in given))
        compiling = torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0
        # torch.compile looks at every function that it calls, also at code that it leaves as it is.
        if record and (compiling or callable(torch._C._dynamo.eval_frame.get_eval_frame_callback())):
            raise RuntimeError("record: a compiled graph shows no gates; call torch.compile before gg.record")
        if compiling:
            text = text_of(self.name, [text_for(directions, record)])
            flat = torch.ops.glassgate.layer(data, sizes, resets, given, text, all_states, save, dtype)
        else:
            compiled = self.compiled(directions, record)
            if save:
                flat = Layer.apply(compiled, self.name, steps, recordings, all_states, dtype, data, *given)
            else:
                flat = compiled.forward(steps, given, all_states, False, dtype, recordings)
        return self._results(directions, flat, all_states or save, all_states)

    @staticmethod
    def _results(
        directions: Sequence[Direction], flat: Sequence[Tensor], has_all: bool, all_states: bool
    ) -> list[Result]:
        """The results of each direction, from those of a call that has every state at every step, or the output."""
        results, at = [], 0
        for direction in directions:
            count = len(direction.initial)
            every = count if has_all else 1
            states, final = flat[at : at + every], flat[at + every : at + every + count]
            results.append(Result(tuple(states if all_states else states[:1]), tuple(final)))
            at += every + count
        return results

    def prepared(
        self,
        steps: Steps,
        directions: list[Direction],
        signature: Signature,
        draws: Sequence[Callable[[], dict[str, Tensor]]],
    ) -> "Prepared | None":
        """Calls with the signature of this one, see `choose.prepared`; None if the backend does not prepare calls."""
        dtype = result_type(steps.data.dtype, steps.data.device.type)
        compiled = self.compiled(directions, signature.record)
        passes = compiled.prepared(given_of(directions), steps, dtype, signature)
        return None if passes is None else Prepared(passes, self.name, directions, signature.save, draws)


class Prepared:
    """Calls of one layer with the signature of a certain call.

    Args:
        passes: the layer's, for this signature.
        backend: its name.
        directions: of that call. Noise that is not drawn again is the same at every call.
        save: whether gradients will be asked for.
        draws: for each direction a function that draws its noise.
    """

    def __init__(
        self,
        passes: PreparedPasses,
        backend: str,
        directions: list[Direction],
        save: bool,
        draws: Sequence[Callable[[], dict[str, Tensor]]],
    ) -> None:
        self.passes, self._backend, self._save = passes, backend, save
        self._noise = [(direction.noise, draw) for direction, draw in zip(directions, draws, strict=True)]
        self._draws = any([noise for noise, _ in self._noise])
        cells = directions if any([d.cell is not directions[0].cell for d in directions]) else directions[:1]
        self._cells = [(d.cell, "weight_hr" in d.weights, meaning_of(d.cell)) for d in cells]

    def holds(self) -> bool:
        """Whether the equations of the cells are still the same."""
        for cell, _, meaning in self._cells:
            if type(cell) is not meaning.type or not meaning.watch.holds():
                return self._holds_again()
        return True

    def _holds_again(self) -> bool:
        """Whether cells that have changed still have the same equations."""
        self._cells = [(cell, projected, meaning_of(cell)) for cell, projected, _ in self._cells]
        found = [meaning.found.get(projected) for _, projected, meaning in self._cells]
        return all([equations is plan.equations for equations, plan in zip(found, self.passes.plans, strict=False)])

    def run(
        self,
        data: Tensor,
        given: Sequence[Tensor],
        resets: Tensor | None,
        lengths: Sequence[int] | Packed | None = None,
        recordings: Sequence[Recording] | None = None,
    ) -> Sequence[Tensor]:
        """The visible states and the final states of each direction, from contiguous tensors.

        Args:
            data: the input.
            given: of each direction its parameters, its initial states and those of resets.
            resets: the mask, if there is one.
            lengths: of the sequences, if they differ.
            recordings: one per direction, if gates are recorded.
        """
        passes, tensors = self.passes, (data, *given)
        if self._draws:
            tensors = self._with_noise(tensors)
        ragged = None if lengths is None else passes.ragged(lengths)
        if self._save:
            call = PreparedCall(passes, self._backend, ragged, recordings)
            results: tuple[Tensor, ...] = PreparedLayer.apply(call, resets, *tensors)
            return results
        return passes.forward(tensors, resets, ragged, recordings)[0]

    def _with_noise(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The tensors, those of each direction followed by its noise."""
        rest, found = iter(tensors), [tensors[0]]
        next(rest)
        for plan, (noise, draw) in zip(self.passes.plans, self._noise, strict=True):
            found += islice(rest, plan.given - len(plan.noise))
            found += [v.contiguous() for v in (noise | draw()).values()]
        return tuple(found)
