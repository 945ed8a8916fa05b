"""A prepared call of a frozen layer; see `frozen.py`."""

from collections.abc import Callable, Sequence
from operator import call
from typing import Any

import torch
from torch import Tensor

from glassgate.engines.backend import FrozenDirections, PackedPass
from glassgate.engines.memory import LOW_ADDRESS, allocator
from glassgate.layers.levels import Level, merge_of
from glassgate.layers.spec import Spec
from glassgate.layers.states import States


class FrozenCall:
    """A prepared call of one signature: sequences of equal length, and parts with equal widths.

    Args:
        levels: the levels of the stack.
        passes: the precompiled passes of each level, one per direction.
        output_shape: the time-major shape of the output of one direction.
        final_shapes: the shape of each final state, with all parts stacked.
        default_states: the initial states of a call without `hx`, with the shapes `final_shapes`.
        transposed: whether input and output are batch-first.
    """

    def __init__(
        self,
        levels: Sequence[Level],
        passes: Sequence[Sequence[PackedPass]],
        output_shape: tuple[int, ...],
        final_shapes: Sequence[tuple[int, ...]],
        default_states: tuple[Tensor, ...],
        transposed: bool,
    ) -> None:
        pairs = zip(levels, passes, strict=True)
        self._levels = [(own, merge_of(level), any(level.residual)) for level, own in pairs]
        """The passes of each level, the function that merges their outputs, and whether the input is added."""
        self._transposed = transposed
        self._default_states = default_states  # keeps the memory at the addresses alive
        self._default_addresses = [v.data_ptr() for v in default_states]
        self._new_output = allocator(output_shape, default_states[0].dtype)
        self._new_final = [allocator(shape, default_states[0].dtype) for shape in final_shapes]
        self._bytes_per_part = [v.nbytes // len(v) for v in default_states]

    @staticmethod
    def prepare(
        spec: Spec,
        packed: Sequence[FrozenDirections],
        default_states: Callable[[int], States],
        compute_dtype: torch.dtype,
        input: Tensor,
        hx: Any,
    ) -> "FrozenCall | None":
        """Prepare calls with these shapes. Return None if they need the general path, which also reports errors.

        Args:
            spec: the description of the layer.
            packed: the directions of each layer.
            default_states: returns the initial states of a call without `hx`, for a number of sequences.
            compute_dtype: the dtype of the computation.
            input, hx: the arguments of the call.
        """
        widths = {tuple(part.widths.values()) for part in spec.parts}
        if len(widths) > 1 or spec.dtype != compute_dtype or (spec.num_directions > 1 and spec.merge == "none"):
            return None
        if input.dim() not in (2, 3) or input.shape[-1] != spec.input_size or 0 in input.shape:
            return None
        transposed = spec.batch_first and input.dim() == 3
        leading = input.shape[1::-1] if transposed else input.shape[:-1]  # (L, N) or (L,)
        N, part_count, (state_widths,) = leading[1] if len(leading) > 1 else 1, len(spec.parts), widths
        final_shapes = [(part_count, *leading[1:], width) for width in state_widths]
        given_states = hx if type(hx) is tuple else (hx,)
        if hx is not None and (
            [tuple(v.shape) for v in given_states] != final_shapes or (type(hx) is tuple) != (len(final_shapes) > 1)
        ):
            return None
        passes = [own for layer in packed if (own := layer.passes(leading[0], N)) is not None]
        if len(passes) < len(packed):
            return None
        by_state = zip(*default_states(N), strict=True)
        defaults = tuple([torch.stack(v).view(shape) for v, shape in zip(by_state, final_shapes, strict=True)])
        return FrozenCall(spec.levels, passes, (*leading, state_widths[0]), final_shapes, defaults, transposed)

    def __call__(self, input: Any, hx: Any) -> tuple[Tensor, Any] | None:
        """Run the call. Return None if a tensor has no memory, which the general path reports."""
        x = input.transpose(0, 1) if self._transposed else input
        x = x.contiguous()
        data, initial = x.data_ptr(), self._default_addresses
        if hx is not None:
            given_states = [v if v.is_contiguous() else v.contiguous() for v in (hx if type(hx) is tuple else (hx,))]
            initial = [*map(Tensor.data_ptr, given_states)]
            if min(initial) < LOW_ADDRESS:
                return None
        if data < LOW_ADDRESS:
            return None
        final_states = [*map(call, self._new_final)]
        # The addresses of the initial and the final states of the current part.
        final, part = [*map(Tensor.data_ptr, final_states)], 0
        for passes, merge, adds_input in self._levels:
            outputs, below = [], x
            for packed_pass in passes:
                if part:
                    initial = [address + size for address, size in zip(initial, self._bytes_per_part, strict=True)]
                    final = [address + size for address, size in zip(final, self._bytes_per_part, strict=True)]
                outputs.append(output := self._new_output())
                packed_pass.run(data, (*initial, output.data_ptr(), *final))
                part += 1
            x = output if merge is None else merge(outputs)
            if adds_input:
                x = x + below
            data = x.data_ptr()
        output = x.transpose(0, 1) if self._transposed else x
        return output, tuple(final_states) if len(final_states) > 1 else final_states[0]
