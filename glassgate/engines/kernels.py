"""Engines that run the kernels of a backend, inside operators that autograd, torch.compile and torch.export support.

One operator runs the forward pass of all directions of a layer, and another operator runs the backward pass.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from glassgate.engines.backend import (
    ArrayKernels,
    Backend,
    InputProduct,
    PreparedCalls,
    Signature,
    Train,
)
from glassgate.engines.contract import (
    PLAIN_TYPES,
    Direction,
    Reason,
    Recording,
    Result,
    Steps,
    is_transformed,
    result_type,
    results_of,
)
from glassgate.engines.input_product import input_product
from glassgate.engines.memory import LARGE, empty
from glassgate.engines.plan import Plan, format_layer, format_plans, operands_of, plan_of
from glassgate.engines.registry import BACKENDS
from glassgate.engines.torch_names import dispatch_mode_count, frame_callback
from glassgate.engines.torch_op import autograd, calls
from glassgate.engines.torch_op.function import eager_apply
from glassgate.engines.traced_cells import why_not_traceable


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute x W^T + b as `linear` does. In inference, a large result is in memory without page faults."""
    needs_grad = torch.is_grad_enabled() and any([v is not None and v.requires_grad for v in (x, weight, bias)])
    if needs_grad or not x.is_cpu or x.shape[0] * weight.shape[0] * x.itemsize < LARGE:
        return linear(x, weight, bias)
    out = empty((x.shape[0], weight.shape[0]), x.dtype)
    return torch.mm(x, weight.t(), out=out) if bias is None else torch.addmm(bias, x, weight.t(), out=out)


class KernelEngine(NamedTuple):
    """A backend as an engine.

    Attributes:
        name: the name of the backend in `registry.BACKENDS`.
    """

    name: str

    @property
    def backend(self) -> Backend:
        """The backend with this name."""
        return BACKENDS[self.name]

    def why_not(self, steps: Steps, directions: list[Direction], all_states: bool = False) -> Reason | None:
        """Why the backend cannot run this call; None if it can."""
        if (reason := BACKENDS[self.name].why_not(steps, directions)) is not None:
            return reason
        arrays = self._array_kernels(directions)
        if is_transformed() and (reason := calls.why_not(steps, directions)) is not None:
            return reason
        if not (torch.compiler.is_compiling() or dispatch_mode_count()):
            for tensor in (steps.data, *operands_of(directions)):
                tensor_type = type(tensor)
                if tensor_type not in PLAIN_TYPES and tensor_type.__torch_dispatch__ is not Tensor.__torch_dispatch__:
                    return Reason(f"kernels read memory, and a {tensor_type.__name__} overrides torch's operations")
        if arrays is not None:
            return arrays.why_not(steps, directions, all_states)
        cell = None
        for direction in directions:
            if direction.cell is not cell:  # both directions usually have the same cell
                cell = direction.cell
                reason = why_not_traceable(cell, "weight_hr" in direction.weights)
                if reason is not None:
                    # The author of a cell that declares axes knows that kernels need one number per unit.
                    return Reason(reason, is_general=cell.declaration is None)
        return None

    def _array_kernels(self, directions: Sequence[Direction]) -> ArrayKernels | None:
        """The backend's kernels of cells that declare axes; None for other cells, or if the backend has none."""
        if all([direction.cell.declaration is None for direction in directions]):
            return None
        kernels: ArrayKernels | None = getattr(self.backend, "array_kernels", None)
        return kernels

    def plans(self, directions: Sequence[Direction], record: bool = False) -> tuple[Plan, ...]:
        """Return the plan of each direction. With `record`, gates and their gradients are results too."""
        return tuple([plan_of(direction, self.backend.costs, record) for direction in directions])

    def run(
        self,
        steps: Steps,
        directions: list[Direction],
        all_states: bool = False,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Result]:
        """Run all directions of a layer in one call. The caller has checked `why_not`."""
        record, operands = recordings is not None, operands_of(directions)
        compiling = torch.compiler.is_compiling() or dispatch_mode_count() > 0
        # If this callback is set, torch.compile runs this frame eagerly, for example after a graph break.
        if record and (compiling or callable(frame_callback())):
            raise RuntimeError(
                "record: torch.compile was called inside the block of gg.record, and a compiled graph does not record "
                "gates; call torch.compile before the block"
            )
        if (arrays := self._array_kernels(directions)) is not None:
            product = linear if is_transformed() else partial(self._product, arrays)
            return arrays.run(steps, directions, all_states, product, autograd.LayerFunction.apply, recordings)
        if is_transformed():
            return results_of(directions, autograd.run_transformed(self.name, steps, directions), True, all_states)
        data, batch_sizes, resets = steps
        dtype = result_type(data.dtype, data.device.type)
        if compiling:
            text = format_layer(self.name, "equations", all_states, format_plans(directions))
            flat = torch.ops.glassgate.layer([data, *operands], batch_sizes, resets, text, dtype)
            return results_of(directions, flat, all_states, all_states)
        save = torch.is_grad_enabled() and (data.requires_grad or any(v.requires_grad for v in operands))
        call = calls.SingleCall(self.name, self.plans(directions, record), save, dtype, all_states)
        if save:
            flat = autograd.run(call, batch_sizes, resets, (data, *operands), recordings)
        else:
            flat = call.compiled.forward(steps, operands, all_states, False, dtype, recordings)
        return results_of(directions, flat, all_states or save, all_states)

    def _product(self, arrays: ArrayKernels, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Compute x W^T + b, (S, rows), or the output of a layer whose step returns its pre-activations."""
        if type(weight) not in PLAIN_TYPES or weight.dtype != x.dtype or torch.is_autocast_enabled(x.device.type):
            return linear(x, weight, bias)
        if not arrays.multiplies_faster(x.shape[0], x.shape[0] * weight.numel()):
            return _multiply(x, weight, bias)
        layer = [input_product(weight, bias)]
        operands, plans = operands_of(layer), self.plans(layer)
        if torch.is_grad_enabled() and (x.requires_grad or any([v.requires_grad for v in operands])):
            call = calls.SingleCall(self.name, plans, all_states=False)
            return autograd.run(call, None, None, (x, *operands), None, autograd.InputProductFunction)[0]
        return self.backend.compile(plans).forward(Steps(x, None, None), operands, False, False, x.dtype, None)[0]

    def prepare(
        self, steps: Steps, directions: list[Direction], signature: Signature
    ) -> tuple[Train, PreparedCalls] | None:
        """Prepare the calls with this signature. Return None if the backend does not prepare such calls."""
        if (arrays := self._array_kernels(directions)) is not None:
            weights = directions[0].weights
            features = steps.data[:, : weights["weight_ih"].shape[1]]
            arguments = features, weights["weight_ih"], weights.get("bias_ih"), signature.save
            product = self._prepare_product(arrays, *arguments)
            run_passes = eager_apply(autograd.LayerFunction) if signature.save else None
            own = arrays.prepare(steps, directions, signature, [product] * len(directions), run_passes)
            return None if own is None else (own.train, own)
        dtype = result_type(steps.data.dtype, steps.data.device.type)
        compiled = self.backend.compile(self.plans(directions, signature.record))
        passes = compiled.prepare(operands_of(directions), steps, dtype, signature._replace(backend=self.name))
        return None if passes is None else (partial(eager_apply(autograd.LayerFunction), passes), passes)

    def _prepare_product(
        self, arrays: ArrayKernels, x: Tensor, weight: Tensor, bias: Tensor | None, save: bool
    ) -> InputProduct:
        """A function that computes products of the shapes of x W^T + b, as `_product` does."""
        if not arrays.multiplies_faster(x.shape[0], x.shape[0] * weight.numel()):
            return _multiply
        layer = [input_product(weight, bias)]
        state, steps = layer[0].initial[0], Steps(x, None, None)
        signature = Signature((len(x),), [tuple(state.shape)], save, backend=self.name)
        passes = self.backend.compile(self.plans(layer)).prepare(operands_of(layer), steps, x.dtype, signature)
        if passes is None:
            return partial(self._product, arrays)

        rows = len(x)

        def run(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            if len(x) != rows:  # the number of packed rows differs between calls
                return self._product(arrays, x, weight, bias)
            tensors = (x, weight, state) if bias is None else (x, weight, bias, state)
            if save:
                return autograd.InputProductFunction.apply(passes, None, (), [], None, *tensors)[0]
            return passes.forward(tensors, None)[0][0]

        return run
