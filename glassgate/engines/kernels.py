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
from glassgate.engines.plan import by_direction, given_of, text_for
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
    """Calls of one layer with the signature of a certain call, without lengths.

    Args:
        steps, directions: that call. Only the shapes and types of its tensors matter; but noise that is not drawn again
            is the same at every call.
        form: the shape of input and output without the last axis, as the user has them.
        states: the shape of each state of a direction, as the user has them.
        save: whether gradients will be asked for.
        draws: for each direction what draws its noise.
    """

    def __init__(
        self,
        steps: Steps,
        directions: list[Direction],
        form: Sequence[int],
        states: Sequence[tuple[int, ...]],
        save: bool,
        draws: Sequence[Callable[[], dict[str, Tensor]]],
    ) -> None:
        from glassgate.engines.numba_cpu.prepared import PreparedPasses
        from glassgate.engines.numba_cpu.run import terms_of

        data = steps.data
        plans, given = tuple([backend.planned(direction) for direction in directions]), given_of(directions)
        result, inside = result_type(data.dtype), data.new_empty(0, data.shape[1], dtype=COMPUTED_IN[data.dtype])
        sizes = [plan.sizes(own, inside, terms_of(result, [plan], own)) for plan, own in by_direction(plans, given)]
        count = data.shape[0] // sizes[0].N
        self._save, self._noise = (
            save,
            [(direction.noise, draw) for direction, draw in zip(directions, draws, strict=True)],
        )
        cells = directions if any([d.cell is not directions[0].cell for d in directions]) else directions[:1]
        self._cells = [(d.cell, "weight_hr" in d.weights, meaning_of(d.cell)) for d in cells]
        self._passes = PreparedPasses(plans, tuple(sizes), count, result, tuple(form), states, save)

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
        return all([equations is plan.equations for equations, plan in zip(found, self._passes.plans, strict=False)])

    def run(self, data: Tensor, given: Sequence[Sequence[Tensor]], resets: Tensor | None) -> Sequence[Tensor]:
        """The output of each direction and the final states of each, from contiguous tensors.

        Args:
            data: the input.
            given: for each direction its parameters, its initial states and those of resets.
            resets: the mask, if there is one.
        """
        tensors = [data]
        for own, (noise, draw) in zip(given, self._noise, strict=True):
            tensors += own
            if noise:
                tensors += [v.contiguous() for v in (noise | draw()).values()]
        if self._save:
            results: tuple[Tensor, ...] = PreparedLayer.apply(self._passes, resets, *tensors)
            return results
        return self._passes.forward(tensors, resets)[0]
