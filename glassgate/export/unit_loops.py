"""The program of one step as loops over units, one per phase. The emitters of C and JavaScript print it."""

from collections import Counter
from dataclasses import dataclass

from glassgate.engines.axes import UNITS
from glassgate.export.step_values import (
    Affine,
    Constant,
    Phase,
    Pointwise,
    Step,
    StepValue,
    SumOverUnits,
    levels_of,
    operands_of,
)


@dataclass(frozen=True)
class UnitLoop:
    """The loop of one phase.

    Attributes:
        phase: the phase.
        scalars: the single numbers that are computed before the loop.
        values: the vectors that the loop computes.
        constants: the constant vectors that the loop reads.
        sums: the sums over units that the loop accumulates.
        results: the names of the new states and gates that the loop stores.
    """

    phase: Phase
    scalars: list[Pointwise]
    values: list[Affine | Pointwise]
    constants: list[Constant]
    sums: list[SumOverUnits]
    results: list[str]


class StepProgram:
    """The loops of a step.

    Args:
        step: the values of the step.

    Attributes:
        results: the gates and the new states by name.
        kept: the vectors that are stored as arrays, because a later loop or a matrix product reads them.
        loops: the loops in order.
    """

    def __init__(self, step: Step) -> None:
        self.values, self._states = step.values, step.states
        self._levels = levels_of(step.values)
        self.results = {**step.gates, **step.new_states}
        readers = self._levels.published
        published = {value for value in readers if any(isinstance(reader, Affine) for reader in readers[value])}
        self.kept = [
            value
            for value in step.values
            if isinstance(value, Affine | Pointwise)
            and (value in published or (value in self._levels.read_later and not value.is_scalar))
        ]
        self._use_counts = Counter(
            operand for value in step.values if not isinstance(value, Affine) for operand in operands_of(value)
        )
        vectors = [value for value in step.values if isinstance(value, Affine | Pointwise) and not value.is_scalar]
        summed = [value.x for value in step.values if isinstance(value, SumOverUnits)]
        self._computing_phases = {self.phase_of(value) for value in (*vectors, *summed)}
        phases = sorted({*self._computing_phases, *map(self.storing_phase, self.results)})
        scalars = [value for value in step.values if isinstance(value, Pointwise) and value.is_scalar]
        self.loops: list[UnitLoop] = []
        for phase in phases:
            ready = [value for value in scalars if self._levels[value] <= phase[0]]
            scalars = [value for value in scalars if value not in ready]
            self.loops.append(self._loop(phase, ready))

    def _loop(self, phase: Phase, scalars: list[Pointwise]) -> UnitLoop:
        values = [v for v in self.values if isinstance(v, Affine | Pointwise) and self.phase_of(v) == phase]
        sums = [v for v in self.values if isinstance(v, SumOverUnits) and self.phase_of(v.x) == phase]
        results = [name for name in self.results if self.storing_phase(name) == phase]
        read: list[StepValue | float] = [arg for v in values if isinstance(v, Pointwise) for arg in v.args]
        read += [total.x for total in sums] + [self.results[name] for name in results]
        constants = dict.fromkeys(arg for arg in read if isinstance(arg, Constant) and not arg.is_scalar)
        return UnitLoop(phase, scalars, values, list(constants), sums, results)

    def phase_of(self, value: StepValue) -> Phase:
        """The phase that computes a value. Values that a step only reads belong to level 0."""
        return self._levels[value], value.axis

    def storing_phase(self, result: str) -> Phase:
        """The phase that stores a new state or a gate: the one that computes it, or else the last of its axis."""
        value = self.results[result]
        axis = self._states[result].axis if result in self._states else UNITS
        if isinstance(value, Affine | Pointwise) and value.axis == axis:
            return self.phase_of(value)
        level = self._levels[value]
        later = [phase for phase in self._computing_phases if phase[1] == axis and phase[0] >= level]
        return max(later, default=(level, axis))

    def is_inlined(self, value: StepValue) -> bool:
        """Whether a value without a name is part of the expression of its only reader."""
        is_stored = value in self.kept or value in self.results.values()
        is_operation = isinstance(value, Pointwise) and not value.is_named
        return is_operation and not is_stored and self._use_counts[value] == 1
