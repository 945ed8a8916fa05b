"""The shapes of the operators' results, for torch.compile and torch.export."""

from collections.abc import Sequence

from torch import Tensor

from glassgate.engines.memory import COMPUTED_IN
from glassgate.engines.plan import by_direction, plans_in


def forward(
    data: Tensor,
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    given: Sequence[Tensor],
    plans: str,
    all_states: bool,
    save: bool,
) -> list[Tensor]:
    S, results, behind = data.shape[0], [], []
    for plan, own in by_direction(plans_in(plans), given):
        sizes = plan.sizes(own, data)
        widths = list(plan.of_states(sizes).values())
        results += [data.new_empty(S, n) for n in (widths if all_states or save else widths[:1])]
        results += [data.new_empty(sizes.N, n) for n in widths]
        if save:
            behind += [data.new_empty(S, n, dtype=COMPUTED_IN[data.dtype]) for n in plan.kept(sizes).values()]
    return [*results, *behind]


def backward(
    data: Tensor,
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    given: Sequence[Tensor],
    flat: Sequence[Tensor],
    d_results: Sequence[Tensor],
    reached: Sequence[int],
    plans: str,
    data_too: bool,
) -> list[Tensor]:
    d = [data.new_empty(data.shape if data_too else (0,))]
    for plan, own in by_direction(plans_in(plans), given):
        d += [data.new_empty(v.shape if has else (0,)) for v, has in zip(own, plan.differentiable, strict=True)]
    return d
