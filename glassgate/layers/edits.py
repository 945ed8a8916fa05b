"""Edits of gates and states while a layer runs, for `gg.edit`.

An edited layer runs a cell with edited equations, which multiply a value by a factor or replace it by a number. The
factors and replacements are passed to the cell in the same way as noise.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from glassgate.cell import Cell, Noise
from glassgate.engines.contract import Direction
from glassgate.engines.memory import move_to_device
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.cell import ArrayCell
from glassgate.engines.symbolic.arrays.edit import editable_axes, edited_step
from glassgate.engines.symbolic.arrays.step import ArrayStep
from glassgate.engines.symbolic.arrays.value import Value
from glassgate.engines.symbolic.arrays.value import make as make_array
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import Node, leaf
from glassgate.engines.symbolic.graph import make as make_node
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.engines.symbolic.rewrite import make_names_unique
from glassgate.engines.symbolic.step import equations_of
from glassgate.engines.symbolic.values import NotTraceable
from glassgate.engines.traced_cells import traced_array_step
from glassgate.layers.parts import Part, sizes_of
from glassgate.layout import Layout
from glassgate.shapes import ShapeError

SCALE, REPLACEMENT = "scale", "replacement"
"""The two kinds of numbers that an edited gate or state reads."""
NO_REPLACEMENT = 1e30
"""A replacement of at least this number, such as infinity, means that the value is not replaced."""

Selection = int | slice | Sequence[int] | Tensor | None
"""A selection of units or steps: an index, a slice, several indices, a mask, or None for all."""


@dataclass(frozen=True, eq=False)
class Edit:
    """One edit of a gate or state, from `gg.hold`, `gg.scale` or `gg.replace`.

    Attributes:
        kind: "hold", "scale" or "replace".
        value: the number or tensor to hold, multiply by, or replace by.
        units, steps: the edited units and steps.
    """

    kind: str
    value: float | Tensor
    units: Selection
    steps: Selection

    @property
    def per_step(self) -> bool:
        """Whether the edit differs between steps."""
        return self.steps is not None or self.kind == "replace"

    def check(self, name: str, width: int) -> None:
        """Raise unless the edit fits a gate or state with this name and width."""
        units, value = positions(f"edit: units of {name!r}", self.units, width), self.value
        if self.kind != "scale" and torch.as_tensor(value).detach().ge(NO_REPLACEMENT).any():
            raise ValueError(f"edit: the values given for {name!r} must be below {NO_REPLACEMENT:g}")
        if not isinstance(value, Tensor):
            return
        if value.requires_grad:
            raise ValueError(f"edit: the values given for {name!r} are constants; pass them detached from their graph")
        got = tuple(value.shape)
        if self.kind == "replace":
            if value.dim() < 3 or prod(got[2:]) != width:
                raise ShapeError(f"edit: the values that replace {name!r} must be (L, N, {width}), got {got}")
        elif value.dim() > 1 or (value.dim() == 1 and len(value) != len(units)):
            raise ShapeError(
                f"edit: the value for {name!r} must be a number or one for each of {len(units)} units, got {got}"
            )

    def combine(self, name: str, factor: Tensor, replacement: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        """Return the factor and the replacement of a gate or state after the earlier edits and this one.

        Args:
            name: the name of the gate or state.
            factor, replacement: the results of the earlier edits: (L, 1 or N, H), or (1, 1, H) if the edits are the
                same at all steps. The replacement is infinite where the value is not replaced.
            rows: N.
        """
        L, _, H = factor.shape
        steps = positions(f"edit: steps of {name!r}", self.steps, L)
        indices = torch.tensor(positions(f"edit: units of {name!r}", self.units, H), dtype=torch.long)
        mask = torch.zeros(L, 1, H, dtype=torch.bool)
        mask[torch.tensor(steps, dtype=torch.long)[:, None], 0, indices] = True
        selected, units = (move_to_device(v, factor.device) for v in (mask, indices))
        if self.kind == "replace":
            return factor, torch.where(selected, self._values(name, factor, steps, rows), replacement)
        value = factor.new_zeros(H)
        value[units] = self.value.to(factor) if isinstance(self.value, Tensor) else self.value
        if self.kind == "hold":
            return factor, torch.where(selected, value, replacement)
        replaced = selected & replacement.isfinite()
        return torch.where(selected, factor * value, factor), torch.where(replaced, replacement * value, replacement)

    def _values(self, name: str, like: Tensor, steps: list[int], rows: int) -> Tensor:
        """Return the values of `replace`, zero-padded to the length of the call. They must cover the selected steps."""
        assert isinstance(self.value, Tensor)
        value, L = self.value.to(like).flatten(2), like.shape[0]
        length, N = value.shape[:2]
        if N not in (1, rows) or max(steps, default=-1) >= length:
            raise ShapeError(
                f"edit: the values that replace {name!r} must be (L, N, H) = ({L}, {rows}, {like.shape[2]}), "
                f"got {tuple(value.shape)}"
            )
        return torch.cat([value[:L], value.new_zeros(max(L - length, 0), *value.shape[1:])])


def positions(label: str, selection: Selection, count: int) -> list[int]:
    """Convert a selection to indices from 0 to count - 1. `label` names the selection in error messages."""
    if selection is None:
        return list(range(count))
    if isinstance(selection, slice):
        return list(range(count))[selection]
    if isinstance(selection, int):
        values = [selection]
    else:
        values = selection.tolist() if isinstance(selection, Tensor) else list(selection)
    if values and all(isinstance(v, bool) for v in values):
        if len(values) != count:
            raise IndexError(f"{label}: a mask must have {count} entries, got {len(values)}")
        return [k for k, v in enumerate(values) if v]
    for v in values:
        if not isinstance(v, int) or isinstance(v, bool):
            raise TypeError(f"{label} must be whole numbers, a slice or a mask, got {v!r}")
        if not -count <= v < count:
            raise IndexError(f"{label} must be at least {-count} and below {count}, got {v}")
    return [v % count for v in values]


class Edits:
    """The edits of one layer.

    Args:
        changes: the edits in order, by the label of a direction ("layer0.forward") and by the name of a gate or state.
    """

    def __init__(self, changes: Mapping[str, Mapping[str, Sequence[Edit]]]) -> None:
        self.changes = changes
        self._cells: dict[tuple[int, str], tuple[Cell, Cell]] = {}
        self._noise: dict[str, tuple[Any, dict[str, Tensor]]] = {}

    def followed_by(self, other: "Edits") -> "Edits":
        """Return these edits followed by the others."""
        both: dict[str, dict[str, list[Edit]]] = {}
        for changes in (self.changes, other.changes):
            for label, by_name in changes.items():
                for name, edits in by_name.items():
                    both.setdefault(label, {}).setdefault(name, []).extend(edits)
        return Edits(both)

    def apply(self, part: Part, direction: Direction, layout: Layout) -> Direction:
        """Return a direction with its edits."""
        if not self.changes.get(part.label):
            return direction
        like, has_equal_lengths = direction.initial[0], layout.places is None and layout.packed is None
        key = (layout.length, layout.rows, like.dtype, like.device) if has_equal_lengths else None
        cached_key, noise = self._noise.get(part.label, (None, {}))
        if key is None or key != cached_key:
            noise = self._factors(part, direction.cell, layout, like)
            self._noise[part.label] = key, noise
        cell = self._cell(part, direction.cell)
        return direction._replace(cell=cell, noise={**direction.noise, **noise})

    def _factors(self, part: Part, cell: Cell, layout: Layout, like: Tensor) -> dict[str, Tensor]:
        """Return the factors and replacements, which edited equations read as noise.

        They are flat rows, see `Layout`, or one row per sequence if the edits are the same at all steps.
        """
        noise, widths = {}, part.widths if cell.declaration is None else editable_widths(cell, part)
        for name, edits in self.changes[part.label].items():
            per_step = any(edit.per_step for edit in edits)
            factor = like.new_ones(layout.length if per_step else 1, 1, widths.get(name, part.hidden_size))
            replacement = torch.full_like(factor, torch.inf)
            for edit in edits:
                factor, replacement = edit.combine(f"{part.label}.{name}", factor, replacement, layout.rows)
            for kind, values in ((SCALE, factor), (REPLACEMENT, replacement)):
                if kind in noise_kinds(edits):
                    values = values.expand(-1, layout.rows, -1)
                    noise[f"{kind}_{name}"] = layout.to_flat(values) if per_step else layout.to_ranks(values[0])
        return noise

    def _cell(self, part: Part, cell: Cell) -> Cell:
        """Return the edited cell of a direction."""
        key = id(cell), part.label
        if key not in self._cells:
            by_name = self.changes[part.label]
            numbers = {name: (noise_kinds(edits), any(e.per_step for e in edits)) for name, edits in by_name.items()}
            edited = edited_cell if cell.declaration is None else edited_array_cell
            self._cells[key] = cell, edited(cell, part, numbers)
        return self._cells[key][1]


def noise_kinds(edits: Sequence[Edit]) -> tuple[str, ...]:
    """Return the kinds of numbers (`SCALE`, `REPLACEMENT`) that the edits of one gate or state need."""
    scales = any(edit.kind == "scale" for edit in edits)
    replaces = any(edit.kind != "scale" for edit in edits)
    return (SCALE,) * scales + (REPLACEMENT,) * replaces


_edited_cells: dict[str, GraphCell] = {}

EditedValues = Mapping[str, tuple[tuple[str, ...], bool]]
"""The kinds of numbers of each edited gate or state by name, and whether they differ between steps."""


def edited_cell(cell: Cell, part: Part, numbers: EditedValues) -> Cell:
    """Return a cell with the edited equations of another cell.

    Args:
        cell: the cell, with the noise of its layer's regularisers.
        part: the direction that runs the cell.
        numbers: as in `edited_equations`.
    """
    equations = edited_equations(equations_of(cell, "weight_hr" in part.shapes), numbers)
    return _edited_cells.setdefault(equations.text, GraphCell(equations))


def edited_array_cell(cell: Cell, part: Part, numbers: EditedValues) -> Cell:
    """Return a cell with the edited step of a cell that declares axes. The arguments are those of `edited_cell`."""
    step, noise = array_step_of(cell, part), dict[str, Noise]()
    for name, (kinds, per_step) in numbers.items():
        shape = tuple([step.sizes[axis] for axis in editable_axes(step)[name]])
        noise |= {f"{kind}_{name}": Noise(0.0, False, per_step, shape=shape) for kind in kinds}
    edits = {name: partial(_edited_value, kinds) for name, (kinds, _) in numbers.items()}
    return ArrayCell.like(cell, {sizes_of(cell, part): edited_step(step, edits)}, noise)


def array_step_of(cell: Cell, part: Part) -> ArrayStep:
    """Return the traced step of a cell that declares axes.

    Raises:
        NotTraceable: no graph can express it.
    """
    step = traced_array_step(cell, *sizes_of(cell, part))
    if isinstance(step, str):
        raise NotTraceable(step)
    return step


def editable_widths(cell: Cell, part: Part) -> dict[str, int]:
    """Return the number of elements within a row of each value of a direction that can be edited, by name.

    Raises:
        NotTraceable: no graph can express the step.
    """
    if cell.declaration is None:
        gates = equations_of(cell, "weight_hr" in part.shapes).gate_values
        return dict.fromkeys(gates, part.hidden_size) | part.widths
    step = array_step_of(cell, part)
    return {name: prod([step.sizes[a] for a in axes]) for name, axes in editable_axes(step).items()}


def edited_equations(before: Equations, numbers: EditedValues) -> Equations:
    """Return equations in which gates and states are multiplied by a factor or replaced by a number.

    The factors and replacements are noise with names such as `scale_f` and `replacement_f`. The edit of a state applies
    to the result of a step. Within the same step, other equations read the unedited value.

    Args:
        before: the equations without edits.
        numbers: the kinds of numbers that each edited gate or state reads.
    """
    noise = {
        f"{kind}_{name}": Noise(0.0, False, per_step, name if name in before.state else None)
        for name, (kinds_of_value, per_step) in numbers.items()
        for kind in kinds_of_value
    }
    gates = {before.gate_values[name].name or name: name for name in numbers if name not in before.state}

    def edited(name: str, node: Node) -> Node:
        value: Node = _edited_value(
            numbers[name][0], node, lambda kind: leaf(ops.Noise(f"{kind}_{name}"), node.axis, f"{kind}_{name}")
        )
        return value

    gates_edited = before.replaced({value: partial(edited, name) for value, name in gates.items()}, noise=noise)
    states = tuple(
        edited(name, node) if name in numbers else node
        for name, node in zip(before.state, gates_edited.states, strict=True)
    )
    make_names_unique(states)
    return replace(gates_edited, states=states)


def _edited_value(kinds: tuple[str, ...], value: Any, numbers: Callable[[str], Any]) -> Any:
    """Return the graph of an edited value, from the numbers of each kind that it reads."""
    new = value * numbers(SCALE) if SCALE in kinds else value
    if REPLACEMENT not in kinds:
        return new
    replacement = numbers(REPLACEMENT)
    make = make_array if isinstance(value, Value) else make_node
    return make("where", replacement < NO_REPLACEMENT, replacement, new)
