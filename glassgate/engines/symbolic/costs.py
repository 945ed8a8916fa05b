"""The costs of a backend's operations and memory accesses, which decide whether a value is stored or recomputed."""

from collections.abc import Mapping
from dataclasses import dataclass

from glassgate.engines.symbolic.operations import MASKS, PRIMITIVES
from glassgate.engines.symbolic.ops import Operation


@dataclass(frozen=True, eq=False)
class Costs:
    """The costs per value, in a unit of the backend's choice.

    Attributes:
        operations: the cost of each elementwise operation, by name.
        other: the cost of the operations without an entry in `operations`.
        read: the cost to read a value that the forward pass stores in any case.
        carry: the cost to store a value in one stage of a step and read it in a later stage of the same step.
        keep: the cost to store a value at every step in training and read it in the backward pass.
    """

    operations: Mapping[str, float]
    other: float
    read: float
    carry: float
    keep: float

    def of(self, op: Operation) -> float:
        """The cost of an operation; zero for "detach", boolean results and operations that are not elementwise.

        An operation that is composed of several costs as much as the most expensive primitive.
        """
        if not isinstance(op, str) or op in MASKS or op == "detach":
            return 0.0
        if op not in PRIMITIVES:
            return max(self.operations.values(), default=self.other)
        return self.operations.get(op, self.other)
