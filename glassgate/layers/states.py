"""Converts initial and final states between the layouts of users and of engines."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from glassgate.engines.contract import Result
from glassgate.engines.memory import in_memory
from glassgate.layers.parts import Part, StateForm
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
        forms = [part.forms[name] for part in parts]
        label = f"{name}_0" if argument == "hx" else f"{argument}'s {name}"
        by_part = _by_part(operation, label, value, forms, layout)
        for state in by_part:
            check_like(operation, label, state, data.dtype, data.device, "input")
        by_part = in_memory(by_part)
        by_part = [state.unsqueeze(0) for state in by_part] if layout.unbatched else by_part
        by_state.append([_flat(state) for state in by_part])
    return [tuple(map(layout.to_ranks, part_states)) for part_states in zip(*by_state, strict=True)]


def _flat(state: Tensor) -> Tensor:
    """Flatten the axes of each row: (N, *) to (N, width)."""
    return state if state.dim() == 2 else state.reshape(len(state), -1)


def with_axes(rows: Tensor, form: StateForm) -> Tensor:
    """Restore the axes of flat rows: (..., width) to (..., *)."""
    return rows if len(form.shape) == 1 else rows.reshape((*rows.shape[:-1], *form.shape))


def _by_part(operation: str, name: str, value: Any, forms: list[StateForm], layout: Layout) -> Sequence[Tensor]:
    """Split one state into the tensors of all parts. `value` is a stacked tensor, or a tuple if widths differ."""
    batch, axis = ((), "") if layout.unbatched else ((layout.rows,), "N, ")
    shapes, letters = [form.shape for form in forms], axis + forms[0].letters
    one_per_part = isinstance(value, tuple | list) and len(value) == len(shapes)
    if len(set(shapes)) == 1 and not one_per_part:
        expected = len(shapes), *batch, *shapes[0]
        check_shape(
            operation, name, value, f"({', '.join(['num_layers * D', letters][: 1 + bool(letters)])})", expected
        )
        return [value.squeeze(0)] if len(shapes) == 1 else value.unbind(0)
    if not one_per_part:
        got = f"{len(value)} of them" if isinstance(value, tuple | list) else type(value).__name__
        raise ShapeError(
            f"{operation}: {name} must be a tuple of num_layers * D = {len(shapes)} tensors, as sizes differ, "
            f"got {tuple(value.shape) if isinstance(value, Tensor) else got}"
        )
    for k, (state, shape) in enumerate(zip(value, shapes, strict=True)):
        check_shape(operation, f"{name}[{k}]", state, f"({letters})", (*batch, *shape))
    return value


def as_hx(parts: Sequence[Part], final: list[tuple[Tensor, ...]], layout: Layout) -> State:
    """Convert the final states of every layer and direction to the layout of `hx`."""
    states: list[Tensor | tuple[Tensor, ...]] = []
    for name, state_of_parts in zip(parts[0].forms, zip(*final, strict=True), strict=True):
        by_part = [layout.from_ranks(state) for state in state_of_parts]
        if layout.unbatched:
            by_part = [state.squeeze(0) for state in by_part]
        by_part = [with_axes(state, part.forms[name]) for state, part in zip(by_part, parts, strict=True)]
        if len(by_part) == 1:
            states.append(by_part[0].unsqueeze(0))
        else:
            same_shape = all([state.shape == by_part[0].shape for state in by_part])  # exported sizes have no hash
            states.append(torch.stack(by_part) if same_shape else tuple(by_part))
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
    hx = as_hx(parts, [result.final for result in results], layout)
    return (output, hx, by_name(parts, results, layout.restore)) if return_states else (output, hx)


def by_name(parts: Sequence[Part], results: Sequence[Result], restore: Callable[[Tensor], Any]) -> dict[str, Any]:
    """Return all states at all steps, by names such as "layer0.forward.c".

    Args:
        parts, results: the part and the result of each layer and direction.
        restore: converts each state to the user's layout.
    """
    return {
        f"{part.label}.{name}": restore(with_axes(value, form))
        for part, result in zip(parts, results, strict=True)
        for (name, form), value in zip(part.forms.items(), result.states, strict=True)
    }
