"""The program of one step as loops over units, one per phase. The emitters of C and JavaScript print it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from glassgate.engines.axes import UNITS, Axis
from glassgate.engines.lowering.step import Key, Phase, StepProgram
from glassgate.export.step_values import (
    Affine,
    Constant,
    Input,
    Pointwise,
    Step,
    StepValue,
    SumOverUnits,
    needs_all_units,
    operands_of,
)


@dataclass(eq=False)
class UnitLoop(Phase[StepValue]):
    """The loop of one phase.

    Attributes:
        scalars: the single numbers that are computed before the loop.
        computed: the vectors that the loop computes.
        names: the names of the new states and gates that the loop stores.
    """

    scalars: list[Pointwise] = field(default_factory=list)
    computed: list[Affine | Pointwise] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    @property
    def constants(self) -> list[Constant]:
        """The constant vectors that the loop reads."""
        return [value for value in self.values if isinstance(value, Constant) and not value.is_scalar]

    @property
    def totals(self) -> list[SumOverUnits]:
        """The sums over units that the loop accumulates."""
        return [value for value in self.sums if isinstance(value, SumOverUnits)]


class UnitLoops(StepProgram[StepValue, UnitLoop]):
    """The loops of a step.

    Args:
        step: the values of the step.

    Attributes:
        outcome: the gates and the new states by name.
        kept: the vectors that are stored as arrays, because a later loop or a matrix product reads them.
        loops: the loops in order.
    """

    def __init__(self, step: Step) -> None:
        super().__init__(step.values, UnitLoop)
        self._states = step.states
        self.outcome = {**step.gates, **step.new_states}
        scalars = [value for value in step.values if isinstance(value, Pointwise) and value.is_scalar]
        vectors = [value for value in step.values if isinstance(value, Affine | Pointwise) and not value.is_scalar]
        self._computing = {*map(self.key_of, vectors), *(key for v in step.values for key in self._keys_of_terms(v))}
        self.divide([(self.storing_key(name), value) for name, value in self.outcome.items()])
        stored = {value for phase in self.phases.values() for value in (*phase.published, *phase.stored)}
        self.kept = [value for value in step.values if value in stored and not self.is_read(value)]
        self._use_counts = Counter(
            operand for value in step.values if not isinstance(value, Affine) for operand in operands_of(value)
        )
        self.loops = [*self.phases.values()]
        for loop in self.loops:
            loop.scalars = [scalar for scalar in scalars if self.level[scalar] <= loop.level]
            scalars = [scalar for scalar in scalars if scalar not in loop.scalars]
            loop.computed = [value for value in vectors if self.key_of(value) == loop.key]
            loop.names = [name for name in self.outcome if self.storing_key(name) == loop.key]

    def _keys_of_terms(self, value: StepValue) -> Iterable[Key]:
        return map(self.key_of, operands_of(value)) if self.is_sum(value) else ()

    def operands(self, value: StepValue) -> Iterable[StepValue]:
        """The values that a value is computed from."""
        return operands_of(value)

    def needs_all_units(self, value: StepValue, operand: StepValue) -> bool:
        """Whether a value reads all units of an operand. Inputs are complete before the step."""
        return needs_all_units(value, operand)

    def axis_of(self, value: StepValue) -> Axis:
        """The axis of a vector, or that of a single number."""
        return value.axis

    def is_product(self, value: StepValue) -> bool:
        """Whether a value is a sum of matrix products."""
        return isinstance(value, Affine)

    def is_sum(self, value: StepValue) -> bool:
        """Whether a value is a sum over units."""
        return isinstance(value, SumOverUnits)

    def is_read(self, value: StepValue) -> bool:
        """Whether a value is an input, a constant or a sum. A sum is complete after the loop that accumulates it."""
        return isinstance(value, Input | Constant | SumOverUnits)

    def storing_key(self, name: str) -> Key:
        """The phase that stores a new state or a gate: the one that computes it, or else the last of its axis."""
        value = self.outcome[name]
        axis = self._states[name].axis if name in self._states else UNITS
        if isinstance(value, Affine | Pointwise) and value.axis == axis:
            return self.key_of(value)
        level = self.level[value]
        later = [key for key in self._computing if key[1] == axis and key[0] >= level]
        return max(later, default=(level, axis))

    def is_inlined(self, value: StepValue) -> bool:
        """Whether a value without a name is part of the expression of its only reader."""
        is_stored = value in self.kept or value in self.outcome.values()
        is_operation = isinstance(value, Pointwise) and not value.is_named
        return is_operation and not is_stored and self._use_counts[value] == 1
