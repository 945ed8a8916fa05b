"""The cached equations of each cell. They are traced again when a value that the step reads has changed."""

import weakref
from collections.abc import Callable
from functools import partial
from types import CodeType
from typing import Any

from glassgate.cell import Cell
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import NotTraceable
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.engines.symbolic.step import equations_of
from glassgate.engines.symbolic.watch import Watch
from glassgate.engines.verify import difference
from glassgate.shapes import ShapeError

_interned: dict[str, Equations] = {}
_verified: set[tuple[str, tuple[CodeType, ...]]] = set()


def interned(equations: Equations) -> Equations:
    """The canonical object for all equations with this content. Caches use it as a key."""
    return _interned.setdefault(equations.text, equations)


class Meaning:
    """The equations of a cell, valid while the values that its step reads stay the same.

    Args:
        cell: the cell, stored as a weak reference.
    """

    def __init__(self, cell: Cell) -> None:
        self.cell, self.type = weakref.ref(cell, partial(_forget, id(cell))), type(cell)
        self.watch = Watch(cell)
        self.traced: dict[bool, Equations | str] = {}

    def is_valid_for(self, cell: Cell) -> bool:
        """Whether these are still the equations of the cell."""
        return self.cell() is cell and type(cell) is self.type and self.watch.is_unchanged()

    def equations(self, projected: bool) -> Equations | str:
        """The equations of one step, or the reason why no kernel can express them.

        Args:
            projected: whether the output goes through `weight_hr`.
        """
        traced = self.traced.get(projected)
        if traced is None:
            cell = self.cell()
            assert cell is not None
            try:
                traced = interned(self._find(cell, projected))
            except NotTraceable as error:
                traced = str(error)
            self.traced[projected] = traced
        return traced

    def _find(self, cell: Cell, projected: bool) -> Equations:
        if isinstance(cell, GraphCell):
            if cell.equations.projected != projected:
                raise _refusal(cell, f"is that of a layer {'without' if projected else 'with'} proj_size")
            return cell.equations
        equations = self._traced(cell, projected)
        key = equations.text, tuple(self.watch.codes)
        if key not in _verified:
            if self._traced(cell, projected).text != equations.text:
                raise _refusal(cell, "is not the same when it is run twice")
            try:
                wrong = difference(cell, equations)
            except ShapeError:  # a message about the shapes of this check would not help the user
                raise _refusal(cell, "returns a value of another shape than its equations") from None
            if wrong:
                raise _refusal(cell, f"gives another value for {wrong} than the graph that was traced from it")
            _verified.add(key)
        return equations

    def _traced(self, cell: Cell, projected: bool) -> Equations:
        for _ in range(2):
            if self.watch.refused:
                raise _refusal(cell, f"reads {self.watch.refused}")
            equations = equations_of(cell, projected)
            where = self.watch.first_change()
            if where is None:
                return equations
            # A value that is computed once and cached does not change when the step runs again.
            self.watch = Watch(cell)
        raise _refusal(cell, f"writes to {where}, which a kernel would not")


_known: dict[int, Meaning] = {}


def _forget(key: int, _: Any) -> None:
    _known.pop(key, None)


def meaning_of(cell: Cell) -> Meaning:
    """The current equations of a cell, from the cache if they are still valid."""
    known = _known.get(id(cell))
    if known is None or not known.is_valid_for(cell):
        known = _known[id(cell)] = Meaning(cell)
    return known


def current_equations(cell: Cell, projected: bool = False) -> Equations:
    """The equations of one step.

    Raises:
        NotTraceable: the step uses an operation that the kernels do not support; the message names it.
    """
    traced = meaning_of(cell).equations(projected)
    if isinstance(traced, str):
        raise NotTraceable(traced)
    return traced


def cached_equations(cell: Cell, projected: bool) -> Equations:
    """The equations that were traced at the beginning of the call. Later changes of the cell are not detected."""
    known = _known.get(id(cell))
    traced = known.traced.get(projected) if known is not None and known.cell() is cell else None
    return traced if isinstance(traced, Equations) else current_equations(cell, projected)


def constant(function: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.compiler.assume_constant_result`, which would import the whole compiler."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@constant
def untraceable(cell: Cell, projected: bool) -> str | None:
    """Why no kernel can express the cell, or None."""
    traced = meaning_of(cell).equations(projected)
    return traced if isinstance(traced, str) else None


def _refusal(cell: Cell, fault: str) -> NotTraceable:
    return NotTraceable(f"cell {cell._class_name}: step {fault}; it runs on the reference engine")
