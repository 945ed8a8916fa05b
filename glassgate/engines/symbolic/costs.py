"""What a backend's operations and memory cost: from that follows what is stored and what is computed again."""

from collections.abc import Mapping
from dataclasses import dataclass

from glassgate.engines.symbolic.operations import MASKS, OPERATIONS


@dataclass(frozen=True, eq=False)
class Costs:
    """Of one value each, in any one unit; a backend states its own.

    Attributes:
        operations: of elementwise operations, by name.
        other: of those that are not named there.
        read: to read a value that is stored anyway.
        carry: to store a value in one stage of a step and read it in a later one.
        keep: to store a value of every step in training and read it in the backward pass.
    """

    operations: Mapping[str, float]
    other: float
    read: float
    carry: float
    keep: float

    def of(self, op: str) -> float:
        """Of an operation; nothing for those whose result no buffer holds, and for what is no elementwise operation."""
        if op not in OPERATIONS or op in MASKS or op == "detach":
            return 0.0
        return self.operations.get(op, self.other)
