"""Converts initial and final states between the layouts of users and of engines."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from glassgate.engines.contract import Result
from glassgate.engines.memory import in_memory
from glassgate.layers.parts import Part
from glassgate.layout import Layout
from glassgate.shapes import ArgumentTypeError, ShapeError, check_like, check_shape

State = Tensor | tuple[Any, ...]
"""States in the layout of `hx`: a tensor (num_layers * D, N, H), or a tuple with one tensor per state.

If widths differ, each tensor is replaced by a tuple of tensors (N, H).
"""

States = list[tuple[Tensor, ...]]
"""The states (N, H) of each layer and direction. Rows are in the order of ranks; see `Layout`."""


def check_restart(operation: str, restart: object, resets: object) -> None:
    """Raise TypeError if a call has `restart` without `resets`."""
    if restart is not None and resets is None:
        raise TypeError(f"{operation}: restart sets the states after a reset, so it must be given with resets")


def from_hx(
    operation: str, parts: Sequence[Part], hx: State, data: Tensor, layout: Layout, argument: str = "hx"
) -> States:
    """Check the user's `hx` and convert it to the states of each layer and direction.

    Args:
        operation: the name of the layer's class, for messages.
        parts: the parts of the layer: one for each direction of each of its `num_layers` layers.
        hx: the states in the user's layout.
        data: a tensor with the dtype and device that the states must have.
        layout: the layout of the input.
        argument: the name of the argument of the call, "hx" or "restart".
    """
    names = tuple(parts[0].widths)
    per_state = (hx,) if len(names) == 1 else hx
    if not isinstance(per_state, tuple | list) or len(per_state) != len(names):
        expected = ", ".join(f"{n}_0" for n in names)
        got = f"{len(hx)} of them" if isinstance(hx, tuple | list) else type(hx).__name__
        error = ShapeError if isinstance(hx, tuple | list | Tensor) else ArgumentTypeError
        raise error(f"{operation}: {argument} must be a tuple of {len(names)} states ({expected}), got {got}")
    by_state = []
    for name, value in zip(names, per_state, strict=True):
        letters = "H_out" if name == names[0] else "H_cell"
        label = f"{name}_0" if argument == "hx" else f"{argument}'s {name}"
        by_part = _by_part(operation, label, letters, value, [part.widths[name] for part in parts], layout)
        for state in by_part:
            check_like(operation, label, state, data.dtype, data.device, "input")
        by_part = in_memory(by_part)
        by_state.append([state.unsqueeze(0) for state in by_part] if layout.unbatched else by_part)
    return [tuple(map(layout.to_ranks, part_states)) for part_states in zip(*by_state, strict=True)]


def _by_part(
    operation: str, name: str, letters: str, value: Any, widths: list[int], layout: Layout
) -> Sequence[Tensor]:
    """Split one state into the tensors of all parts. `value` is a stacked tensor, or a tuple if widths differ."""
    batch, axis = ((), "") if layout.unbatched else ((layout.rows,), "N, ")
    one_per_part = isinstance(value, tuple | list) and len(value) == len(widths)
    if len(set(widths)) == 1 and not one_per_part:
        check_shape(operation, name, value, f"(num_layers * D, {axis}{letters})", (len(widths), *batch, widths[0]))
        return [value.squeeze(0)] if len(widths) == 1 else value.unbind(0)
    if not one_per_part:
        got = f"{len(value)} of them" if isinstance(value, tuple | list) else type(value).__name__
        raise ShapeError(
            f"{operation}: {name} must be a tuple of num_layers * D = {len(widths)} tensors, as sizes differ, "
            f"got {tuple(value.shape) if isinstance(value, Tensor) else got}"
        )
    for k, (state, width) in enumerate(zip(value, widths, strict=True)):
        check_shape(operation, f"{name}[{k}]", state, f"({axis}{letters})", (*batch, width))
    return value


def as_hx(final: list[tuple[Tensor, ...]], layout: Layout) -> State:
    """Convert the final states of every layer and direction to the layout of `hx`."""
    states: list[Tensor | tuple[Tensor, ...]] = []
    for state_of_parts in zip(*final, strict=True):
        by_part = [layout.from_ranks(state) for state in state_of_parts]
        if layout.unbatched:
            by_part = [state.squeeze(0) for state in by_part]
        if len(by_part) == 1:
            states.append(by_part[0].unsqueeze(0))
        else:
            same_width = len({state.shape[-1] for state in by_part}) == 1
            states.append(torch.stack(by_part) if same_width else tuple(by_part))
    return states[0] if len(states) == 1 else tuple(states)


def user_results(
    parts: Sequence[Part], outputs: Sequence[Tensor], results: Sequence[Result], layout: Layout, return_states: bool
) -> Any:
    """Return the results of a call, in the layout of its input, as `Recurrent.forward` returns them.

    Args:
        parts, results: the part and the result of each layer and direction.
        outputs: the output of the last layer, or one output per direction if directions are not merged.
        layout: the layout of the input.
        return_states: whether to also return every state at every step, by name.
    """
    restored = tuple([layout.restore(out) for out in outputs])
    output = restored if len(restored) > 1 else restored[0]
    hx = as_hx([result.final for result in results], layout)
    return (output, hx, by_name(parts, results, layout.restore)) if return_states else (output, hx)


def by_name(parts: Sequence[Part], results: Sequence[Result], restore: Callable[[Tensor], Any]) -> dict[str, Any]:
    """Return all states at all steps, by names such as "layer0.forward.c".

    Args:
        parts, results: the part and the result of each layer and direction.
        restore: converts each state to the user's layout.
    """
    return {
        f"{part.label}.{name}": restore(value)
        for part, result in zip(parts, results, strict=True)
        for name, value in zip(part.widths, result.states, strict=True)
    }
