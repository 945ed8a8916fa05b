"""The prepared calls of a frozen layer; see `frozen.py`.

`FrozenCall` is the shortest path, for sequences of equal length. Calls with different lengths, and calls of cells that
declare axes, are those of a layer (`call.py`), with the packed weights of the frozen layer.
"""

from collections.abc import Callable, Sequence
from operator import call
from typing import Any

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.backend import PackedLengths, Signature
from glassgate.engines.fixed_weights import FrozenDirections, PackedPass
from glassgate.engines.memory import LOW_ADDRESS, allocator
from glassgate.layers.call import Call, CallOptions, LevelCall
from glassgate.layers.levels import Level, merge_of
from glassgate.layers.spec import Spec
from glassgate.layers.states import States
from glassgate.layout import Layout


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
        if input.dim() not in (2, 3) or input.shape[-1] != spec.input_size or 0 in input.shape:
            return None
        transposed = spec.batch_first and input.dim() == 3
        leading = input.shape[1::-1] if transposed else input.shape[:-1]  # (L, N) or (L,)
        final_shapes = _shapes_of_states(spec, compute_dtype, leading[1:], hx)
        if final_shapes is None:
            return None
        N = leading[1] if len(leading) > 1 else 1
        passes = [own for layer in packed if (own := layer.passes(leading[0], N)) is not None]
        if len(passes) < len(packed):
            return None
        defaults = _stacked(default_states(N), final_shapes)
        return FrozenCall(spec.levels, passes, (*leading, final_shapes[0][-1]), final_shapes, defaults, transposed)

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


def prepare_call(
    spec: Spec,
    packed: Sequence[FrozenDirections],
    default_states: Callable[[int], States],
    compute_dtype: torch.dtype,
    cell: Cell,
    input: Tensor,
    hx: Any,
    lengths: Sequence[int] | PackedLengths,
) -> Call | None:
    """Prepare calls that `FrozenCall` does not support. Return None if they need the general path.

    Args:
        spec, packed, default_states, compute_dtype, hx: as in `FrozenCall.prepare`.
        cell: the equations of the layer.
        input: the input of the call, or the rows of a packed input.
        lengths: the lengths of the sequences; empty if they are equal.
    """
    is_packed = isinstance(lengths, PackedLengths)
    if input.dim() != 3 - is_packed or input.shape[-1] != spec.input_size or 0 in input.shape:
        return None
    first, second = (1, len(lengths.order)) if isinstance(lengths, PackedLengths) else input.shape[:2]
    L, N = (second, first) if spec.batch_first and not is_packed else (first, second)
    final_shapes = _shapes_of_states(spec, compute_dtype, (N,), hx)
    if final_shapes is None:
        return None
    transposed = spec.batch_first and not is_packed and L > 1 and N > 1
    leading = (N,) if is_packed else (L, N) if transposed else (first, second)
    state_shapes = [shape[1:] if len(spec.parts) > 1 else shape for shape in final_shapes]
    signature = Signature(leading, state_shapes, save=False, shared_initial=hx is None)
    levels = []
    for level, directions in zip(spec.levels, packed, strict=True):
        calls = directions.prepare(L, N, signature)
        if calls is None:
            return None
        levels.append(LevelCall(level, _train, calls, [cell] * len(level.parts), ()))
    defaults = _stacked(default_states(N), final_shapes) if hx is None else ()
    layout = Layout(spec.name, L, N, spec.batch_first)
    options = CallOptions(layout, defaults, 1, transposed, None, None, False, False, False)
    return Call(levels, options, len(final_shapes))


def _train(*arguments: Any) -> Sequence[Tensor]:
    raise AssertionError("a frozen layer is not trained")


def _shapes_of_states(
    spec: Spec, compute_dtype: torch.dtype, batch: Sequence[int], hx: Any
) -> list[tuple[int, ...]] | None:
    """Return the shape of each state, with all parts stacked. None if a call needs the general path."""
    forms = {tuple([form.shape for form in part.forms.values()]) for part in spec.parts}
    if len(forms) > 1 or spec.dtype != compute_dtype or (spec.num_directions > 1 and spec.merge == "none"):
        return None
    shapes = [(len(spec.parts), *batch, *shape) for shape in forms.pop()]
    given_states = hx if type(hx) is tuple else (hx,)
    if hx is not None and (
        [tuple(v.shape) for v in given_states] != shapes or (type(hx) is tuple) != (len(shapes) > 1)
    ):
        return None
    return shapes


def _stacked(states: States, shapes: Sequence[tuple[int, ...]]) -> tuple[Tensor, ...]:
    """Return each state with all parts stacked."""
    return tuple([torch.stack(v).view(shape) for v, shape in zip(zip(*states, strict=True), shapes, strict=True)])
