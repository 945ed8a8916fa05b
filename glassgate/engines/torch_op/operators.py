"""The torch operators of layers, for torch.compile and torch.export. `schema.py` registers these functions.

`glassgate::layer` runs a call. It is composed of other operators: those that compute the parameters of kernels, and
`layer_forward`, whose gradient `autograd.LayerFunction` computes by `layer_backward`. A graph contains `layer`, or the
operators that it is composed of. The functions `fake_*` return empty results of the right shapes.

Arguments of all operators:

- `tensors`: the input and the operands of the layer. For a cell that declares axes, the input is the pre-activations,
  and the parameters of the passes are those of the kernels (`arrays/parameters.py`), not those of the layer.
- `batch_sizes`, `resets`: see `Steps`.
- `layer`: the static part of the call as text; see `plan.format_layer`.
- `dtype`: the dtype of the results.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassgate.engines.arrays.passes import ArrayPasses
from glassgate.engines.backend import ArrayKernels
from glassgate.engines.contract import Recording
from glassgate.engines.plan import parse_plans, state_result_count
from glassgate.engines.registry import BACKENDS
from glassgate.engines.torch_names import below_autograd, forward_ad
from glassgate.engines.torch_op.autograd import GradientRequest, LayerFunction, LayerGradients, gradients_of_call
from glassgate.engines.torch_op.calls import SingleCall
from glassgate.engines.torch_op.function import apply_in_operator
from glassgate.engines.torch_op.schema import library


class Call(NamedTuple):
    """A call that an operator runs.

    Attributes:
        passes: its passes.
        kernel_tensors: returns the tensors of the passes, from those of the operator `layer`.
        all_states: whether every state at every step is a result, not only the output.
    """

    passes: SingleCall | ArrayPasses
    kernel_tensors: Callable[[Sequence[Tensor]], list[Tensor]]
    all_states: bool

    def visible(self, flat: Sequence[Tensor]) -> list[Tensor]:
        """The results of the operator `layer`, from those of a training call."""
        by_direction = self.passes.by_direction(flat[: state_result_count(self.passes.plans)])
        return [v for states, final in by_direction for v in (*states[: None if self.all_states else 1], *final)]


@lru_cache(1024)
def parse_layer(layer: str, dtype: torch.dtype, save: bool = True) -> Call:
    """The call with these arguments of an operator."""
    head, _, content = layer.partition("\n")
    name, kind, states = head.split("\t")
    backend, all_states = BACKENDS[name], states == "all states"
    if kind == "equations":
        return Call(SingleCall(name, parse_plans(content, backend.costs), save, dtype, all_states), list, all_states)
    kernels: ArrayKernels | None = getattr(backend, "array_kernels", None)
    assert kernels is not None
    return Call(*kernels.parse(content, dtype, all_states, save), all_states)


@dataclass(frozen=True)
class OperatorPasses:
    """`Passes` that run the operators `layer_forward` and `layer_backward`.

    Attributes:
        passes: the passes that the operators run.
        layer, dtype: arguments of the operators.
    """

    passes: SingleCall | ArrayPasses
    layer: str
    dtype: torch.dtype
    plans = property(attrgetter("passes.plans"))
    planned = property(attrgetter("passes.planned"))
    by_direction = property(attrgetter("passes.by_direction"))
    in_torch = property(attrgetter("passes.in_torch"))

    def forward(
        self,
        tensors: Sequence[Tensor],
        resets: Tensor | None,
        ragged: Tensor | None = None,
        recordings: Sequence[Recording] | None = None,
    ) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """See `Passes`."""
        with torch.enable_grad(), below_autograd():  # an outer transform differentiates too
            flat = torch.ops.glassgate.layer_forward([*tensors], ragged, resets, self.layer, self.dtype, True)
        count = state_result_count(self.plans)
        return flat[:count], flat[count:]

    def backward(
        self,
        tensors: Sequence[Tensor],
        saved: Sequence[Tensor],
        resets: Tensor | None,
        d_visible: Sequence[Tensor | None],
        needed: Sequence[bool],
        ragged: Tensor | None = None,
        recordings: Sequence[Recording] | None = None,
        groups: int = 0,
    ) -> list[Tensor | None]:
        """See `Passes`. The plans record no factors."""
        assert not groups
        return gradients_of_call(self, ragged, resets, tensors, saved, d_visible, needed, self._run_backward)

    def _run_backward(
        self, request: GradientRequest, ragged: Tensor | None, resets: Tensor | None, *tensors: Tensor
    ) -> list[Tensor]:
        """Do the same as `LayerGradients`."""
        indices = [*request.needed], [*request.reached]
        gradients: list[Tensor] = torch.ops.glassgate.layer_backward(
            [*tensors], ragged, resets, self.layer, self.dtype, *indices
        )
        return gradients


def layer(
    tensors: Sequence[Tensor], batch_sizes: Tensor | None, resets: Tensor | None, layer: str, dtype: torch.dtype
) -> list[Tensor]:
    """Run a call. Return for each direction the output or all states at every step, then its final states."""
    call = parse_layer(layer, dtype)
    tensors = call.kernel_tensors(tensors)
    if below_autograd is None and _is_recorded(tensors):
        return call.visible([v.to(dtype) for v in call.passes.in_torch(tensors, resets, batch_sizes)])
    results: list[Tensor] = torch.ops.glassgate.layer_forward(tensors, batch_sizes, resets, layer, dtype, False)
    return results


def differentiable_layer_forward(
    tensors: Sequence[Tensor], batch_sizes: Tensor | None, resets: Tensor | None, *options: Any
) -> list[Tensor]:
    """Do the same as `layer_forward`, at the level of autograd or of one transform."""
    layer, dtype, save = options
    if not save and not _is_recorded(tensors):
        with below_autograd():
            results: list[Tensor] = torch.ops.glassgate.layer_forward(tensors, batch_sizes, resets, *options)
            return results
    call = parse_layer(layer, dtype)
    passes = OperatorPasses(call.passes, layer, dtype)
    flat = apply_in_operator(LayerFunction)(passes, batch_sizes, None, None, resets, *tensors)
    return [*flat] if save else call.visible(flat)


def _is_recorded(tensors: Sequence[Tensor]) -> bool:
    """Whether autograd records operations on these tensors, or forward-mode differentiation is active."""
    return (torch.is_grad_enabled() and any([v.requires_grad for v in tensors])) or forward_ad._current_level >= 0


def layer_forward(
    tensors: Sequence[Tensor], batch_sizes: Tensor | None, resets: Tensor | None, *options: Any
) -> list[Tensor]:
    """Run the forward pass. The options are `layer`, `dtype` and `save`.

    With `save`, the results are every state at every step and every final state, then the tensors that the backward
    pass reads. Otherwise they are those of `layer`.
    """
    return [*LayerFunction.forward(parse_layer(*options).passes, batch_sizes, None, None, resets, *tensors)]


def fake_layer_forward(
    tensors: Sequence[Tensor], batch_sizes: Tensor | None, resets: Tensor | None, *options: Any
) -> list[Tensor]:
    return parse_layer(*options).passes.empty_results(tensors, batch_sizes)


def layer_backward(
    tensors: Sequence[Tensor], batch_sizes: Tensor | None, resets: Tensor | None, *options: Any
) -> list[Tensor]:
    """Run the backward pass. `tensors` are those of `LayerGradients`.

    The options are `layer`, `dtype`, and the attributes `needed` and `reached` of the request.
    """
    layer, dtype, needed, reached = options
    passes = parse_layer(layer, dtype).passes
    request = GradientRequest(passes, tuple(needed), tuple(reached), state_result_count(passes.plans))
    return [*LayerGradients.forward(request, batch_sizes, resets, *tensors)]


def fake_layer_backward(
    tensors: Sequence[Tensor], batch_sizes: Tensor | None, resets: Tensor | None, *options: Any
) -> list[Tensor]:
    return [torch.empty_like(v) for v, need in zip(tensors, options[2], strict=False) if need]


if below_autograd is not None:
    library.impl("layer_forward", differentiable_layer_forward, "Autograd")
