"""The parts of a stack: one for each layer and direction, with its sizes and the names of its parameters."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from glassgate.cell import Cell, check_heads
from glassgate.shapes import check_size

HiddenSizes = int | tuple[int, int] | Sequence[int | tuple[int, int]]
"""hidden_size: one for all, (forward, backward), or a list with one of these per layer."""


class Part(NamedTuple):
    """One direction of one layer: the shapes and names of its parameters, and the widths of its states."""

    layer: int
    direction: int
    hidden_size: int
    suffix: str
    label: str
    shapes: dict[str, tuple[int, ...]]
    names: dict[str, str]
    widths: dict[str, int]


def sizes_by_layer(name: str, hidden_size: Any, layers: int, directions: int) -> list[tuple[int, ...]]:
    """Convert `hidden_size` in any of its forms to a tuple per layer, with one size per direction."""
    by_layer = hidden_size if isinstance(hidden_size, list) else [hidden_size] * layers
    if len(by_layer) != layers:
        raise ValueError(f"{name}: hidden_size as a list must have num_layers = {layers} entries, got {len(by_layer)}")
    result = []
    for entry in by_layer:
        sizes = tuple(entry) if isinstance(entry, tuple | list) else (entry,) * directions
        if len(sizes) != directions:
            raise ValueError(
                f"{name}: hidden_size must be an int or a tuple of {directions} (one per direction), got {entry!r}"
            )
        for size in sizes:
            check_size(name, "hidden_size", size)
        result.append(sizes)
    return result


def check_sizes(
    name: str, cell: Cell, sizes: Sequence[tuple[int, ...]], proj_size: Any, merge: str, bidirectional: bool
) -> None:
    """Raises unless the cell, the projection and the merging of directions support the sizes of each layer."""
    if not isinstance(proj_size, int) or isinstance(proj_size, bool):
        raise TypeError(f"{name}: proj_size must be an int, got {proj_size!r} of type {type(proj_size).__name__}")
    if proj_size < 0:
        raise ValueError(
            f"{name}: proj_size should be a positive integer or zero to disable projections, got {proj_size!r}"
        )
    for of_layer in sizes:
        if proj_size >= min(of_layer):
            raise ValueError(
                f"{name}: proj_size has to be smaller than hidden_size, got {proj_size} and {min(of_layer)}"
            )
        check_heads(name, cell, (*of_layer, proj_size))
        if len(set(of_layer)) > 1 and not proj_size and bidirectional and merge in ("sum", "mean"):
            raise ValueError(f"{name}: merge={merge!r} needs two directions of equal size, got {of_layer}")


def parts_of(
    cell: Cell, input_size: int, sizes: Sequence[tuple[int, ...]], proj_size: int, bias: bool, merge: str
) -> Iterator[Part]:
    """Yield the parts of a stack in torch's order. `sizes` are the hidden sizes of each layer, one per direction."""
    input_sizes = [input_size] * len(sizes[0])
    for layer, of_layer in enumerate(sizes):
        for direction, hidden_size in enumerate(of_layer):
            shapes = cell.shapes(input_sizes[direction], hidden_size, proj_size, bias)
            widths = dict.fromkeys(cell.state, hidden_size) | {cell.state[0]: proj_size or hidden_size}
            suffix = f"_l{layer}{'_reverse' * direction}"
            label = f"layer{layer}.{('forward', 'reverse')[direction]}"
            names = {name: name + suffix for name in shapes}
            yield Part(layer, direction, hidden_size, suffix, label, shapes, names, widths)
        outputs = [proj_size or size for size in of_layer]
        input_sizes = [sum(outputs)] * len(of_layer) if merge == "concat" else outputs


def output_size(parts: Sequence[Part], merge: str) -> int:
    """The number of features of the output; that of one direction if directions are not merged."""
    widths = [next(iter(part.widths.values())) for part in parts if part.layer == parts[-1].layer]
    return sum(widths) if merge == "concat" else widths[0]
