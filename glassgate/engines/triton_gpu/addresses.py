"""The indices, names and addresses of values in a kernel, as text. `emit.py` writes the lines that use them."""

from collections.abc import Iterable

from glassgate.engines.lowering.ir import Carry, Value
from glassgate.engines.triton_gpu.dialect import TRITON
from glassgate.engines.triton_gpu.kernel import HEAD_WIDTHS, Kernel, Pointer
from glassgate.engines.triton_gpu.phases import Phases
from glassgate.engines.triton_gpu.products import gate_offset

UNIT = {"H": ("unit", "unit_ok"), "P": ("out", "out_ok")}
"""The variables of each axis of units: one with indices of units, and one with the mask of the units that exist."""


class Addresses:
    """Writes the addresses of values, and collects the parameters and indices that the addresses use.

    Args:
        phases: the phases of the pass.
        name: the name of the kernel.
        ragged: whether the lengths of sequences differ.
        by_rows: whether a program computes whole rows.
    """

    other_parameters: tuple[str, ...] = ("iteration", "T", "N", "H", "P", "heads")
    """The parameters that are not tensors of the pass. Kernels for ragged sequences also have `Rows.starts`."""

    def __init__(self, phases: Phases, name: str, ragged: bool, by_rows: bool) -> None:
        self.phases, self.loop, self.axes = phases, phases.loop, phases.axes
        self.ragged, self.reverse = ragged, phases.loop.reverse
        additional = [*HEAD_WIDTHS] * (phases.heads > 1) + ["starts"] * ragged
        self.kernel = Kernel(name, (*self.other_parameters, *additional), by_rows)
        self.names = TRITON.names()
        self.variables: dict[tuple[object, ...], str] = {}
        """The variables by their contents."""
        self.used_variables: set[str] = set()
        self.is_next_step = False
        """Whether the lines belong to phase 0 of the next step."""

    def index_lines(self) -> list[str]:
        """The lines that compute the sequences and units of this program, and the rows of its buffers."""
        lines = [
            "# The sequences and units of this program",
            "seq = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]",
            "here = seq < N",
        ]
        for axis, (index, mask) in UNIT.items():
            if index not in self.used_variables:
                continue
            if self.phases.heads > 1 and not self.kernel.by_rows:
                width = f"{axis}_of_head"
                lines += [
                    f"blocks = ({width} + UNITS - 1) // UNITS",
                    f"{index}_head = tl.program_id(1) // blocks",
                    f"{index} = tl.program_id(1) % blocks * UNITS + tl.arange(0, UNITS)[None, :]",
                    f"{mask} = ({index} < {width}) & ({index}_head < heads)",
                    f"{index} += {index}_head * {width}",
                ]
            else:
                lines += [
                    f"{index} = tl.program_id(1) * UNITS + tl.arange(0, UNITS)[None, :]",
                    f"{mask} = {index} < {axis}",
                ]
        return lines + self.buffer_lines()

    def buffer_lines(self) -> list[str]:
        """The lines that compute the rows of this step and of the next step in buffers. `iteration` may be -1."""
        parities = {"seq_now": "(iteration & 1)", "seq_next": "((iteration + 1) & 1)"}
        lines = [f"{name} = seq + {parity} * N" for name, parity in parities.items() if name in self.used_variables]
        return ["# Two buffers for values from step to step: for even and for odd steps", *lines] if lines else []

    def row_lines(self, iteration: str) -> list[str]:
        """The lines that compute the rows of a step. A step before the first or after the last one has no rows."""
        reverse_step = {"0": "T - 1", "iteration": "T - 1 - iteration", "iteration + 1": "T - 2 - iteration"}[iteration]
        lines = [f"t = {reverse_step if self.reverse else iteration}"]
        if self.ragged:
            live = "live = seq < tl.load(starts + t + 2) - start"
            return [*lines, "start = tl.load(starts + t + 1)", "row = start + seq", live]
        lines.append("row = t * N.to(tl.int64) + seq")
        return [*lines, f"live = here & ({'t >= 0' if self.reverse else 't < T'})"] if self.is_next_step else lines

    @property
    def live(self) -> str:
        """The variable with the mask of the sequences that have this step."""
        self.used_variables |= {"row", "live"}
        return "live" if self.ragged or self.is_next_step else "here"

    def variable_of(self, value: Value, gate: int | None = None) -> str:
        """The variable that holds a value, or its block for one gate."""
        name = self.phases.name_of(value)
        if gate is not None:
            axis = self.phases.gates_of(value)
            assert axis is not None
            labels = self.axes[axis].labels
            name += f"_{labels[gate]}" + (str(gate) if labels.count(labels[gate]) > 1 else "")
        return self.variable(name, value, gate)

    def next_variable_of(self, carry: Carry) -> str:
        """The variable that holds the next value of a carry."""
        return self.variable(f"{self.variable_of(carry.before)}_next", "next", carry.before)

    def variable(self, name: str, *held: object) -> str:
        """The variable for some content of the kernel. A new variable gets this name if it is free."""
        if held not in self.variables:
            self.variables[held] = self.names.new(name)
        return self.variables[held]

    def pointer(self, kind: str, value: Value) -> Pointer:
        """The parameter for the tensor of a value. A new parameter is added to the kernel."""
        suffix = {"carry": "_carry", "stored": "_stored", "shared": "_shared"}.get(kind, "_ptr")
        name = self.phases.name_of(value).removesuffix("_all")
        stride = self.variable(f"{name}_stride", "stride", value) if kind == "sequence" else ""
        pointer = Pointer(kind, value, self.variable(f"{name}{suffix}", kind, value), stride)
        if pointer not in self.kernel.pointers:
            self.kernel.pointers.append(pointer)
        return pointer

    def unit_variables(self, value: Value) -> tuple[str, str, str] | None:
        """The axis of the units of a value, and the variables with their indices and mask; None without units."""
        axis = self.phases.units_of(value)
        if axis is None:
            return None
        self.used_variables.add(UNIT[axis][0])
        self.kernel.axes.add(axis)
        return axis, *UNIT[axis]

    def gate_indices(self, value: Value) -> Iterable[int | None]:
        """The indices of the gates of a value; a single None if it has no gates."""
        axis = self.phases.gates_of(value)
        return range(len(self.axes[axis].labels)) if axis else (None,)

    def address_and_mask(
        self, kind: str, value: Value, like: Value, gate: int | None, row: str = ""
    ) -> tuple[str, str]:
        """The address and the mask of the elements of a value, or of the block of one gate.

        Args:
            kind: the kind of the `Pointer`.
            value: the value in memory, with all steps if `kind` is "sequence".
            like: the value at one step.
            gate: the index of the gate; None for all elements.
            row: the row in a buffer. The default is the row of the step to which the lines belong.
        """
        units, pointer = self.unit_variables(like), self.pointer(kind, value)
        axes, mask = value.type.axes, "here"
        width, of_unit, masks = "", "", list[str]()
        if units is not None:
            width, of_unit, masks = f" * {units[0]}", f" + {gate_offset(gate, units[0])}{units[1]}", [units[2]]
        if kind == "sequence":
            return f"{pointer.parameter} + row * {pointer.stride}{of_unit}", " & ".join([self.live, *masks])
        if kind == "given":
            per_row = "N" in axes
            of_row = f" + seq{width}" if per_row else ""
            return f"{pointer.parameter}{of_row}{of_unit}", " & ".join([mask, *masks] if per_row else masks)
        count = len([*self.gate_indices(like)])
        row = row or ("seq_next" if self.is_next_step else "seq_now")
        self.used_variables.add(row)
        rows = f"{row} * {count}{width}" if count > 1 else f"{row}{width}"
        return f"{pointer.parameter} + {rows}{of_unit}", " & ".join([mask, *masks])
