"""The structure of a layer, apart from its equations and weights: for sessions, exports and files."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch

from glassgate.layers.parts import Part

if TYPE_CHECKING:
    from glassgate.layers.stack import Recurrent


@dataclass(frozen=True)
class Spec:
    """The structure of a layer: everything but its equations and weights.

    Attributes:
        name: of the layer's class, for messages.
        dtype: of input, output and states.
        parts: each direction of each layer.

    The other attributes are arguments of `Recurrent`: those that matter for inference.
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
    def of(layer: "Recurrent", dtype: torch.dtype, name: str | None = None) -> "Spec":
        """The description of a layer whose parameters have this type."""
        options = {option: getattr(layer, option) for option in OPTIONS} | {"hidden_size": layer._sizes}
        return Spec(name or layer._name, dtype, layer._parts, **options)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `Recurrent`."""
        return {option: getattr(self, option) for option in OPTIONS}

    @property
    def num_directions(self) -> int:
        """D: 2 if bidirectional, else 1."""
        return 2 if self.bidirectional else 1

    @property
    def output_size(self) -> int:
        """Features of the output; those of one direction if directions are not merged."""
        widths = [next(iter(part.widths.values())) for part in self.parts[-self.num_directions :]]
        return sum(widths) if self.merge == "concat" else widths[0]


OPTIONS = tuple(field.name for field in fields(Spec))[3:]
