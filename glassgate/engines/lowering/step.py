"""The program of one step: its phases, and the values that phases store, recompute, publish or sum over units.

Some operations read all units of a value, for example the product of a row vector and a recurrent weight. They can only
start when all units have been computed, which several programs or iterations of a loop do. A *phase* is the part of a
step between two such points. `StepProgram` divides a step into phases. Targets print them and place their memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from glassgate.engines.axes import PER_ROW, UNITS, Axis

V = TypeVar("V")
Key = tuple[int, Axis]
"""Identifies a phase: its level, and the axis of its units."""


def levels_of(
    values: Iterable[V], operands: Callable[[V], Iterable[V]], needs_all_units: Callable[[V, V], bool]
) -> dict[V, int]:
    """The level of each value: the number of completed phases that it needs.

    Args:
        values: the values of a step, each after its operands.
        operands: returns the operands of a value. Operands outside of the step have level 0.
        needs_all_units: whether a value reads all units of an operand, so that it belongs to a later phase.

    Example:
        >>> operands = {"h": [], "r": ["h"], "rh": ["r", "h"], "product": ["rh"]}
        >>> levels_of(operands, operands.__getitem__, lambda value, operand: value == "product")
        {'h': 0, 'r': 0, 'rh': 0, 'product': 1}
    """
    levels: dict[V, int] = {}
    for value in values:
        levels[value] = max((levels.get(arg, 0) + needs_all_units(value, arg) for arg in operands(value)), default=0)
    return levels


@dataclass(eq=False)
class Phase(Generic[V]):
    """One phase of a step.

    Attributes:
        level: the number of phases that must be complete before this one.
        axis: the axis of its units.
        results: the values that the step computes for later steps or passes and that this phase stores.
        sums: the sums over units whose terms the phase computes. They are complete after the phase.
        published: the values that a product of a later phase reads. Every unit reads them.
        stored: the values that a later phase of the step reads at the same rows and units.
        values: all values that the phase computes or reads, each after its operands.
    """

    level: int
    axis: Axis
    results: list[V] = field(default_factory=list)
    sums: list[V] = field(default_factory=list)
    published: dict[V, None] = field(default_factory=dict)
    stored: dict[V, None] = field(default_factory=dict)
    values: list[V] = field(default_factory=list)

    @property
    def key(self) -> Key:
        """Identifies the phase in its step."""
        return self.level, self.axis

    @property
    def is_empty(self) -> bool:
        """Whether the phase computes nothing for other phases, steps or passes."""
        return not (self.results or self.sums or self.published or self.stored)


P = TypeVar("P", bound=Phase)


class StepProgram(ABC, Generic[V, P]):
    """A step, divided into phases. A subclass supplies the graph of the values, and decides which are recomputed.

    Args:
        values: the values of the step, each after its operands.
        phase: constructs a phase from its level and axis.

    Attributes:
        level: the level of each value.
        phases: the phases by level and axis, in order.
    """

    def __init__(self, values: Sequence[V], phase: Callable[[int, Axis], P]) -> None:
        self.values, self._new_phase = values, phase
        self._position = {value: k for k, value in enumerate(values)}
        self.level = levels_of(values, self.operands, self.needs_all_units)
        self.phases: dict[Key, P] = {}

    @abstractmethod
    def operands(self, value: V) -> Iterable[V]:
        """The values from which a step computes a value."""

    @abstractmethod
    def axis_of(self, value: V) -> Axis:
        """The axis of a value within a row."""

    @abstractmethod
    def is_product(self, value: V) -> bool:
        """Whether a value is the result of a matrix product, which a phase computes at its start."""

    @abstractmethod
    def is_sum(self, value: V) -> bool:
        """Whether a value is a sum over units that the phase with its terms accumulates."""

    @abstractmethod
    def is_read(self, value: V) -> bool:
        """Whether no phase computes a value, because it comes from outside of the step or is a sum."""

    def needs_all_units(self, value: V, operand: V) -> bool:
        """Whether a value needs all units of an operand, which must be complete before the phase begins."""
        return self.is_product(value) or self.is_sum(value)

    def is_recomputed(self, value: V) -> bool:
        """Whether each phase computes a value again instead of reading it."""
        return self.axis_of(value) == PER_ROW

    def is_in_results(self, value: V) -> bool:
        """Whether later phases read a value where it is stored as a result of the step."""
        return False

    def key_of(self, value: V) -> Key:
        """The phase of the level and the units of a value. A phase of all units computes single numbers."""
        axis = self.axis_of(value)
        return self.level.get(value, 0), UNITS if axis == PER_ROW else axis

    def phase_of(self, value: V) -> P:
        """The phase that computes a value."""
        return self.phases[self.key_of(value)]

    def computes(self, phase: P, value: V) -> bool:
        """Whether a phase computes a value itself instead of reading it."""
        return not self.is_read(value) and (self.is_recomputed(value) or self.key_of(value) == phase.key)

    def divide(self, results: Sequence[tuple[Key, V]]) -> None:
        """Divide the step into phases.

        Args:
            results: the values that the step computes for later steps or passes, each with the phase that stores it.
        """
        operands = (operand for value in self.values for operand in self.operands(value))
        keys = {*map(self.key_of, self.values), *map(self.key_of, operands), *(key for key, _ in results)}
        self.phases = {key: self._new_phase(*key) for key in sorted(keys)}
        for key, value in results:
            self.phases[key].results.append(value)
        for value in self.values:
            for operand in self.operands(value):
                if self.is_sum(value):
                    self.phase_of(operand).sums.append(value)
                elif self.needs_all_units(value, operand):
                    self.phase_of(operand).published[operand] = None
        # A phase that computes a stored value may read others, so later phases come first.
        for phase in reversed(self.phases.values()):
            phase.values = self._values_of(phase)
            for value in phase.values:
                if not (self.computes(phase, value) or self.is_read(value) or self.is_in_results(value)):
                    self.phase_of(value).stored[value] = None
        self.phases = {key: phase for key, phase in self.phases.items() if not phase.is_empty}

    def _values_of(self, phase: P) -> list[V]:
        needed: set[V] = set()
        terms = [term for value in phase.sums for term in self.operands(value)]
        pending = [*phase.results, *terms, *phase.published, *phase.stored]
        while pending:
            value = pending.pop()
            if value not in needed:
                needed.add(value)
                if self.computes(phase, value) and not self.is_product(value):
                    pending += self.operands(value)
        return sorted(needed, key=lambda value: self._position.get(value, -1))
