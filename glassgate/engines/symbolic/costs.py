"""The costs of a backend's operations and memory, from which follows which values are stored and which recomputed."""

from collections.abc import Mapping
from dataclasses import dataclass

from glassgate.engines.symbolic.operations import MASKS, OPERATIONS


@dataclass(frozen=True, eq=False)
class Costs:
    """The cost of one value, in any unit that a backend chooses.

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
        """The cost of an operation; zero for one whose result no buffer holds, and for one that is not elementwise."""
        if op not in OPERATIONS or op in MASKS or op == "detach":
            return 0.0
        return self.operations.get(op, self.other)
