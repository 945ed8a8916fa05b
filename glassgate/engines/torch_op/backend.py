"""The kernels that compute a layer's pass, loaded when first asked for."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from glassgate.engines.contract import Recording, Steps
from glassgate.engines.memory import COMPUTED_IN, readable


def forward(*args: Any) -> list[Tensor]:
    """`layer.forward` of the kernels."""
    from glassgate.engines.numba_cpu import layer

    return layer.forward(*args)


def forward_of_operator(
    data: Tensor,
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    given: Sequence[Tensor],
    form: str,
    all_states: bool,
    save: bool,
) -> list[Tensor]:
    return forward(Steps(data, batch_sizes, resets), form, given, all_states, save)


def backward(
    data: Tensor,
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    given: Sequence[Tensor],
    flat: Sequence[Tensor],
    d_results: Sequence[Tensor],
    reached: Sequence[int],
    form: str,
    data_too: bool,
    needed: Sequence[bool] | None = None,
    recordings: Sequence[Recording] | None = None,
) -> list[Tensor]:
    """`layer.backward`, with the gradients of the results numbered `reached`."""
    from glassgate.engines.numba_cpu import layer

    d = {place: readable(v, COMPUTED_IN[data.dtype]) for place, v in zip(reached, d_results, strict=True)}
    return layer.backward(Steps(data, batch_sizes, resets), form, given, flat, d, data_too, needed, recordings)
