"""The addresses of a matrix product's operands, as text. `emit.py` and `persistent.py` write the loops around them."""

from dataclasses import dataclass

from glassgate.engines.lowering.ir import Contract, Value
from glassgate.engines.triton_gpu.phases import Phases


@dataclass(frozen=True)
class Product:
    """One product of a row vector and a weight, for the units that a program computes.

    A weight has one row per unit or, if it has gates, one row per unit and gate. Its columns are the units of one head.

    Args:
        phases: the phases of the pass.
        contract: the product.
        unit: the variable with the indices of the units that the program computes.
        left_address, weight_address: the parameters with the addresses of the row vector and of the weight.
    """

    phases: Phases
    contract: Contract
    unit: str
    left_address: str
    weight_address: str

    @property
    def left_value(self) -> Value:
        """The row vector. The product sums over its units."""
        return self.phases.graph.origin(self.contract.a)

    @property
    def gate_axis(self) -> str | None:
        """The gate axis of the weight; None if it has no gates."""
        return next((a for a in self.contract.b.type.axes if self.phases.axes[a].labels), None)

    @property
    def gates(self) -> range:
        """The indices of the gates of the weight."""
        return range(len(self.phases.axes[self.gate_axis].labels) if self.gate_axis else 1)

    @property
    def over_gates(self) -> bool:
        """Whether the product sums over gates, as in a backward pass."""
        return self.gate_axis in self.contract.over

    @property
    def _row_axis(self) -> str:
        return self.contract.b.type.axes[-2]

    @property
    def _column_axis(self) -> str:
        return self.contract.b.type.axes[-1]

    @property
    def _summed_axis(self) -> str:
        return next(a for a in self.contract.over if a != self.gate_axis)

    @property
    def _by_head(self) -> bool:
        return "K" in self.contract.b.type.axes

    def _extent(self, axis: str) -> str:
        return self.phases.units_of_axis(axis)

    def _width(self, axis: str) -> str:
        """The extent of an axis in the weight of one head."""
        return f"{self._extent(axis)}_of_head" if self._by_head else self._extent(axis)

    @property
    def formula(self) -> str:
        """The product in matrix notation."""
        left = self.phases.name_of(self.left_value)
        return f"{left} @ {self.contract.b.name}" + ("" if self._summed_axis == self._row_axis else ".T")

    @property
    def columns(self) -> str:
        """The number of columns of the left operand, as text."""
        return self._width(self._summed_axis)

    @property
    def _head(self) -> str:
        return f"{self.unit}_head * {self.columns} + " if self._by_head else ""

    def left(self, gate: int, column: str, row: str) -> str:
        """The address of the left operand for a gate; the same for all gates unless the product sums over them."""
        axis = self.phases.gates_of(self.left_value)
        count = f"{len(self.phases.axes[axis].labels)} * " if axis and len(self.phases.axes[axis].labels) > 1 else ""
        extent = self._extent(self._summed_axis)
        of_gate = gate_offset(gate if self.over_gates else 0, extent)
        return f"{self.left_address} + {row} * {count}{extent} + {of_gate}{self._head}{column}[None, :]"

    def right(self, gate: int, column: str) -> str:
        """The addresses of the weight's block for a gate, with the shape (columns of the left operand, units)."""
        width = self._width(self._column_axis)
        of_gate = gate_offset(gate, self._extent(self._row_axis))
        if self._summed_axis == self._row_axis:
            row = f"{of_gate}{self._head}{column}[:, None]"
            column_of_weight = f"{self.unit} - {self.unit}_head * {width}" if self._by_head else self.unit
        else:
            row, column_of_weight = f"{of_gate}{self.unit}", f"{column}[:, None]"
        return f"{self.weight_address} + {f'({row})' if '+' in row else row} * {width} + {column_of_weight}"


def gate_count(phases: Phases, product: Value) -> int:
    """The number of gates of the weight of a product."""
    return max(len(phases.axes[a].labels) or 1 for a in phases.contract(product).b.type.axes)


def gate_offset(gate: int | None, width: str) -> str:
    """The offset of the block of a gate, followed by " + "; empty for the first gate."""
    return "" if not gate else f"{width} + " if gate == 1 else f"{gate} * {width} + "
