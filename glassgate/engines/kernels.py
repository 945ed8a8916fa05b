"""The CPU engine: a layer's kernels as operators that autograd, torch.compile and torch.export know.

One operator runs all directions of a layer forward, another one back.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

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
from glassgate.engines.memory import COMPUTED_IN
from glassgate.engines.plan import given_of, text_for
from glassgate.engines.torch_op import backend
from glassgate.engines.torch_op.autograd import Layer, PreparedLayer


def why_not(steps: Steps, directions: list[Direction], all_states: bool = False) -> Reason | None:
    """What kernels lack for this call, or None."""
    if steps.data.device.type != "cpu":
        return Reason(f"kernels run on the CPU, and the input is on {steps.data.device}")
    if steps.data.dtype not in COMPUTED_IN:
        return Reason(f"kernels compute in floating point, and the input is {steps.data.dtype}")
    if is_transformed():
        return Reason("kernels have no rule for vmap, jvp and other transforms of torch.func")
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


def products(steps: Steps, directions: list[Direction]) -> str | None:
    """How numbers are multiplied in a call that wants them rounded to bfloat16."""
    from glassgate.engines.numba_cpu.amx import explained
    from glassgate.engines.numba_cpu.run import terms_wanted

    terms = terms_wanted(result_type(steps.data.dtype), given_of(directions))
    return explained(terms, len(directions[0].initial[0])) if terms else None


def run(
    steps: Steps,
    directions: list[Direction],
    all_states: bool = False,
    recordings: Sequence[Recording] | None = None,
) -> list[Result]:
    """One layer, all of its directions in one call, for which `why_not` has just found nothing."""
    record, given = recordings is not None, given_of(directions)
    data, sizes, resets = steps
    dtype = result_type(data.dtype)
    save = torch.is_grad_enabled() and (data.requires_grad or any(v.requires_grad for v in given))
    compiling = torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0
    # Or else this code was left as it is by the compiler, which looks at all that it calls.
    if record and (compiling or callable(torch._C._dynamo.eval_frame.get_eval_frame_callback())):
        raise RuntimeError("record: a compiled graph shows no gates; call torch.compile before gg.record")
    if compiling:
        text = text_for(directions, record)
        flat = torch.ops.glassgate.layer(data, sizes, resets, given, text, all_states, save, dtype)
    else:
        plans = [backend.planned(direction, record) for direction in directions]
        if save:
            flat = Layer.apply(steps, plans, recordings, all_states, dtype, data, *given)
        else:
            flat = backend.forward(steps, plans, given, all_states, False, dtype, recordings)
    results, at = [], 0
    for direction in directions:
        count = len(direction.initial)
        every = count if all_states or save else 1
        states, final = flat[at : at + every], flat[at + every : at + every + count]
        results.append(Result(tuple(states if all_states else states[:1]), tuple(final)))
        at += every + count
    return results


class Prepared:
    """Calls of one direction like a certain one, without lengths.

    Args:
        steps, direction: that one; of its tensors only the forms count, but noise that is not drawn is the same at
            every call.
        form: the axes of input and output but for the last one, as the user has them.
        states: the shape of each state, as the user has them.
        save: whether gradients will be asked for.
        draw: gives the noise that a call draws.

    Attributes:
        fits: whether this is the way for such calls.
    """

    def __init__(
        self,
        steps: Steps,
        direction: Direction,
        form: Sequence[int],
        states: Sequence[tuple[int, ...]],
        save: bool,
        draw: Callable[[], dict[str, Tensor]],
    ) -> None:
        from glassgate.engines.numba_cpu.prepared import PreparedPasses
        from glassgate.engines.numba_cpu.run import terms_of

        data, _, resets = steps
        plan, given, self._save = backend.planned(direction), given_of([direction]), save
        self._cell, self._projected = direction.cell, "weight_hr" in direction.weights
        result = result_type(data.dtype)
        sizes = plan.sizes(given, data, terms_of(result, [plan], given))
        self._noise, self._draw = {name: v.contiguous() for name, v in direction.noise.items()}, draw
        count, masked = data.shape[0] // sizes.N, resets is not None
        self._passes = PreparedPasses(plan, sizes, count, data.dtype, result, form, states, save, masked)
        self.fits = self._passes.fits

    def holds(self) -> bool:
        """Whether the cell's equations are still these."""
        return meaning_of(self._cell).found.get(self._projected) is self._passes.plan.equations

    def run(self, data: Tensor, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The output and the final states, from the input and from parameters, states and resets in order."""
        if self._noise:
            given = *given, *(self._noise | self._draw()).values()
        if self._save:
            results: tuple[Tensor, ...] = PreparedLayer.apply(self._passes, data, *given)
            return results
        (output,), final, _ = self._passes.forward(data, given)
        return output, *final
