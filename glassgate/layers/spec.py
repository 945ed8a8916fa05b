"""`Spec`: the structure of a layer, for sessions, exports and files."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch

from glassgate.layers.base import BaseLayer
from glassgate.layers.levels import Level, levels_of
from glassgate.layers.parts import Part


@dataclass(frozen=True)
class Spec:
    """The structure of a layer: its sizes and options for inference, but neither its equations nor its weights.

    Attributes:
        name: the name of the layer's class, for messages.
        dtype: the dtype of input, output and states.
        parts: one `Part` for each direction of each layer.
        hidden_size: the hidden sizes of each layer, one per direction.

    The other attributes are the arguments of `Recurrent` with the same names.
    """

    name: str
    dtype: torch.dtype
    parts: tuple[Part, ...]
    input_size: int
    hidden_size: Sequence[tuple[int, ...]]
    num_layers: int
    bias: bool
    batch_first: bool
    bidirectional: bool
    proj_size: int
    merge: str
    residual: bool
    learn_initial_state: bool

    @staticmethod
    def of(layer: BaseLayer, dtype: torch.dtype, name: str | None = None) -> "Spec":
        """Return the structure of a layer. The default of `name` is the name of the layer's class."""
        options = {option: getattr(layer, option) for option in OPTIONS} | {"hidden_size": layer.glassgate.hidden_sizes}
        return Spec(name or layer.glassgate.class_name, dtype, layer.glassgate.parts, **options)

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The levels of the stack."""
        return levels_of(self.parts, self.merge, self.residual)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `Recurrent` that this structure contains, by name."""
        return {option: getattr(self, option) for option in OPTIONS}

    @property
    def num_directions(self) -> int:
        """D: 2 if bidirectional, else 1."""
        return 2 if self.bidirectional else 1

    @property
    def output_size(self) -> int:
        """The number of features of the output, or of one direction's output if directions are not merged."""
        return self.levels[-1].widths[0]


OPTIONS = tuple(field.name for field in fields(Spec) if field.name not in ("name", "dtype", "parts"))
"""The names of the arguments of `Recurrent` in a `Spec`."""
