"""The directions of each layer of a stack, with their sizes and the names of their parameters."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from glassgate.shapes import check_size

Sizes = int | tuple[int, int] | Sequence[int | tuple[int, int]]
"""hidden_size: one for all, (forward, backward), or a list with one of these a layer."""


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
