"""`gg.edit` holds, scales or replaces gates and states of a running network, by name."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

from glassgate.conversion import description
from glassgate.engines.symbolic.values import NotTraceable
from glassgate.glass.contexts import uncompiled
from glassgate.layers.edits import Edit, Edits, Selection, editable_widths
from glassgate.layers.stack import Recurrent


def hold(value: float | Tensor, *, units: Selection = None, steps: Selection = None) -> Edit:
    """Hold units at a value, for `gg.edit`.

    Args:
        value: one number, or a tensor with one number per unit.
        units, steps: an index, a slice, several indices or a mask; all by default. Step 0 is the first of the
            sequence, also in a reverse direction.
    """
    return Edit("hold", value, units, steps)


def scale(factor: float | Tensor, *, units: Selection = None, steps: Selection = None) -> Edit:
    """Multiply the values of units by a factor, for `gg.edit`. The other arguments are those of `gg.hold`."""
    return Edit("scale", factor, units, steps)


def replace(values: Tensor, *, units: Selection = None, steps: Selection = None) -> Edit:
    """Replace the values of units, for `gg.edit`.

    Args:
        values: (L, N, H), as in a recording, or (L, 1, H) for all sequences. Only the values at `units` and `steps`
            are read.
        units, steps: as in `gg.hold`.
    """
    if not isinstance(values, Tensor):
        raise TypeError(f"replace: values must be a tensor (L, N, H), got {type(values).__name__}")
    return Edit("replace", values, units, steps)


def patch(
    tape: Mapping[str, Tensor], names: str | Iterable[str], steps: Selection = None, units: Selection = None
) -> dict[str, Edit]:
    """Replace values by recorded values of another call, for `gg.edit`.

    Args:
        tape: the recording of the other call, from `gg.record`.
        names: the names of gates and states, such as "layer0.forward.f".
        steps, units: as in `gg.hold`. Each value is replaced by the recorded value of the same unit and step.

    Example:
        >>> import torch, glassgate as gg
        >>> layer, one, other = gg.LSTM(3, 4), torch.randn(5, 2, 3), torch.randn(5, 2, 3)
        >>> with torch.no_grad(), gg.record(layer) as tape:
        ...     output, _ = layer(one)
        >>> with gg.edit(layer, gg.patch(tape, ["layer0.forward.h", "layer0.forward.c"], steps=2)):
        ...     patched, _ = layer(other)
        >>> torch.allclose(patched[2], output[2])
        True
    """
    return {
        name: replace(tape[name], units=units, steps=steps) for name in ([names] if isinstance(names, str) else names)
    }


@contextmanager
def edit(module: nn.Module, edits: Mapping[str, Edit | Sequence[Edit]]) -> Iterator[None]:
    """Edit gates and states of a module's recurrent layers inside a `with` block.

    An edited gate changes everything that the step computes from it. A state is edited at the end of a step, so the
    edit affects later steps and layers. Edits become part of the cell's equations. The kernels therefore run them, and
    gradients pass through them. A value that is held or replaced has no gradient. Regularisers, lengths, resets and
    recordings work as usual. Nested edits apply one after the other. A stream cannot be created inside the block, and
    existing streams ignore edits. A module that `torch.compile` has compiled runs uncompiled inside the block.

    Args:
        module: a layer, or a model that contains layers.
        edits: one edit or several, by the name of a gate or state as in `gg.record`: "encoder.layer0.forward.f".

    Raises:
        KeyError: no gate or state has that name.
        TypeError: the module has no layer of glassgate, or kernels do not support its cell.
        ShapeError, IndexError: values, units or steps do not match the layer. Some checks run only when the layer is
            called.

    Example:
        >>> import torch, glassgate as gg
        >>> layer, change = gg.LSTM(3, 4), gg.hold(1.0, units=[3], steps=slice(1, 3))
        >>> with gg.edit(layer, {"layer0.forward.f": change}), gg.record(layer) as tape:
        ...     output, _ = layer(torch.randn(5, 2, 3))
        >>> tape["layer0.forward.f"][:, 0, 3] == 1
        tensor([False,  True,  True, False, False])
    """
    with apply_edits(group_by_layer(module, edits)):
        yield


def group_by_layer(module: nn.Module, edits: Mapping[str, Edit | Sequence[Edit]]) -> dict[Recurrent, Edits]:
    """Check edits, and group them by layer."""
    editable = editable_values(module)
    changes: dict[Recurrent, dict[str, dict[str, list[Edit]]]] = {}
    for name, edit in edits.items():
        if name not in editable:
            raise KeyError(f"edit: no gate or state {name!r}; there are {', '.join(editable)}")
        layer, label, short_name, width = editable[name]
        in_order: list[Edit] = [edit] if isinstance(edit, Edit) else list(edit) if isinstance(edit, Sequence) else []
        if not in_order or not all(isinstance(each, Edit) for each in in_order):
            raise TypeError(f"edit: {name!r} must be given gg.hold, gg.scale or gg.replace, got {edit!r}")
        for each in in_order:
            each.check(name, width)
        changes.setdefault(layer, {}).setdefault(label, {}).setdefault(short_name, []).extend(in_order)
    return {layer: Edits(by_direction) for layer, by_direction in changes.items()}


def editable_values(module: nn.Module) -> dict[str, tuple[Recurrent, str, str, int]]:
    """All gates and states that can be edited, by name: the layer, the direction, the short name and the width of each.

    Raises:
        TypeError: the module has no layer of glassgate, or kernels do not support a cell.
    """
    editable: dict[str, tuple[Recurrent, str, str, int]] = {}
    for prefix, layer in module.named_modules():
        if not isinstance(layer, Recurrent):
            continue
        for part in layer.glassgate.parts:
            label = f"{prefix}.{part.label}" if prefix else part.label
            try:
                widths = editable_widths(layer.cell, part)
            except NotTraceable as error:
                raise NotTraceable(f"edit: {error}, where nothing can be edited") from None
            editable |= {f"{label}.{name}": (layer, part.label, name, width) for name, width in widths.items()}
    if not editable:
        raise TypeError(f"edit: the module must be or hold a recurrent layer of glassgate, got {description(module)}")
    return editable


@contextmanager
def apply_edits(changes: Mapping[Recurrent, Edits]) -> Iterator[None]:
    """Apply edits to layers, after the edits that they already have."""
    previous = {layer: layer.glassgate.edits for layer in changes}
    with uncompiled("edit"):
        for layer, edits in changes.items():
            outer = layer.glassgate.edits
            layer.glassgate.edits = edits if outer is None else outer.followed_by(edits)
        try:
            yield
        finally:
            for layer, outer in previous.items():
                layer.glassgate.edits = outer
