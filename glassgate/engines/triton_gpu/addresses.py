"""The indices, names and addresses of values in a kernel, as text. `emit.py` writes the lines that use them."""

from collections.abc import Iterable
from keyword import iskeyword

from glassgate.engines.lowering.ir import Value
from glassgate.engines.triton_gpu.kernel import CONSTANTS, OF_HEADS, Kernel, Pointer
from glassgate.engines.triton_gpu.mathematics import FUNCTIONS
from glassgate.engines.triton_gpu.phases import Phases
from glassgate.engines.triton_gpu.products import offset

RESERVED = frozenset(FUNCTIONS) | frozenset(CONSTANTS) | {
    "tl", "iteration", "T", "N", "H", "P", "heads", "starts",
    "t", "seq", "row", "start", "live", "here", "seq_now", "seq_next", *OF_HEADS, "blocks",
    "unit", "unit_ok", "unit_head", "out", "out_ok", "out_head", "block", "column", "column_ok", "left", "right",
    "expected", "arrived", "patience",
}  # fmt: skip
"""Names of functions and of the kernels' own variables. Values get other names."""

UNIT = {"H": ("unit", "unit_ok"), "P": ("out", "out_ok")}
"""For each axis of units, the variables with the indices of units and with the mask of units that exist."""


class Addresses:
    """The places of a kernel's values, and the parameters and indices that their addresses use.

    Args:
        phases: the phases of the pass.
        name: the name of the kernel.
        ragged: whether sequences have lengths of their own.
        by_rows: whether a program owns whole rows.
    """

    numbers: tuple[str, ...] = ("iteration", "T", "N", "H", "P", "heads")
    """The scalar parameters. Kernels for lengths also get `starts`, the first row of each step."""

    def __init__(self, phases: Phases, name: str, ragged: bool, by_rows: bool) -> None:
        self.phases, self.loop, self.axes = phases, phases.loop, phases.axes
        self.ragged, self.reverse = ragged, phases.loop.reverse
        more = [*OF_HEADS] * (phases.heads > 1) + ["starts"] * ragged
        self.out = Kernel(name, (*self.numbers, *more), by_rows)
        self.used: set[str] = set()
        self.ahead = False
        """Whether the lines belong to phase 0 of the next step."""

    def indices(self) -> list[str]:
        """The rows and units of this program, and the buffers of this step and the next one."""
        lines = [
            "# The sequences and units of this program",
            "seq = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]",
            "here = seq < N",
        ]
        for axis, (index, mask) in UNIT.items():
            if index not in self.used:
                continue
            if self.phases.heads > 1 and not self.out.by_rows:
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
        return lines + self.buffers()

    def buffers(self) -> list[str]:
        """The rows of the buffers of this step and of the next one. `iteration` may be -1."""
        places = {"seq_now": "(iteration & 1)", "seq_next": "((iteration + 1) & 1)"}
        lines = [f"{name} = seq + {parity} * N" for name, parity in places.items() if name in self.used]
        return ["# Two buffers for values from step to step: for even and for odd steps", *lines] if lines else []

    def rows_of_step(self, iteration: str) -> list[str]:
        """The lines that compute the rows of a step. A step before the first or after the last has no rows."""
        back = {"0": "T - 1", "iteration": "T - 1 - iteration", "iteration + 1": "T - 2 - iteration"}[iteration]
        lines = [f"t = {back if self.reverse else iteration}"]
        if self.ragged:
            ends = "live = seq < tl.load(starts + t + 2) - start"
            return [*lines, "start = tl.load(starts + t + 1)", "row = start + seq", ends]
        lines.append("row = t * N.to(tl.int64) + seq")
        return [*lines, f"live = here & ({'t >= 0' if self.reverse else 't < T'})"] if self.ahead else lines

    @property
    def live(self) -> str:
        """The mask of the sequences that have this step."""
        self.used |= {"row", "live"}
        return "live" if self.ragged or self.ahead else "here"

    def name(self, value: Value, gate: int | None = None) -> str:
        """The variable of a value, or of one gate's block of it."""
        name = self.phases.name_of(value)
        if gate is not None:
            axis = self.phases.gates_of(value)
            assert axis is not None
            labels = self.axes[axis].labels
            name += f"_{labels[gate]}" + (str(gate) if labels.count(labels[gate]) > 1 else "")
        return name + "_" if name in RESERVED or iskeyword(name) else name

    def pointer(self, kind: str, value: Value) -> Pointer:
        """The parameter of a tensor."""
        suffix = {"carry": "_carry", "stored": "_stored", "shared": "_shared"}.get(kind, "_ptr")
        pointer = Pointer(kind, value, self.phases.name_of(value).removesuffix("_all") + suffix)
        if any(other.value is not value and other.parameter == pointer.parameter for other in self.out.pointers):
            pointer = pointer._replace(parameter=value.name + suffix)
        if pointer not in self.out.pointers:
            self.out.pointers.append(pointer)
        return pointer

    def units(self, value: Value) -> tuple[str, str, str] | None:
        """The axis, the index and the mask of the units of a value."""
        axis = self.phases.units_of(value)
        if axis is None:
            return None
        self.used.add(UNIT[axis][0])
        self.out.axes.add(axis)
        return axis, *UNIT[axis]

    def gates(self, value: Value) -> Iterable[int | None]:
        """The numbers of a value's gates; only None if it has none."""
        axis = self.phases.gates_of(value)
        return range(len(self.axes[axis].labels)) if axis else (None,)

    def place(self, kind: str, value: Value, like: Value, gate: int | None, row: str = "") -> tuple[str, str]:
        """The address and the mask of a value's elements, or of one gate's.

        Args:
            kind: the kind of its `Pointer`.
            value: the value.
            like: the value at this step.
            gate: the gate.
            row: the row in a buffer. The default is this step's; in phase 0, the next step's.
        """
        units, pointer = self.units(like), self.pointer(kind, value)
        axes, mask = value.type.axes, "here"
        width, of_unit, masks = "", "", list[str]()
        if units is not None:
            width, of_unit, masks = f" * {units[0]}", f" + {offset(gate, units[0])}{units[1]}", [units[2]]
        if kind == "sequence":
            return f"{pointer.parameter} + row * {pointer.stride}{of_unit}", " & ".join([self.live, *masks])
        if kind == "given":
            per_row = "N" in axes
            of_row = f" + seq{width}" if per_row else ""
            return f"{pointer.parameter}{of_row}{of_unit}", " & ".join([mask, *masks] if per_row else masks)
        count = len([*self.gates(like)])
        row = row or ("seq_next" if self.ahead else "seq_now")
        self.used.add(row)
        rows = f"{row} * {count}{width}" if count > 1 else f"{row}{width}"
        return f"{pointer.parameter} + {rows}{of_unit}", " & ".join([mask, *masks])
