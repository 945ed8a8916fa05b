"""The cached equations of each cell. They are traced again when a value that the step reads has changed."""

import ctypes
import weakref
from collections.abc import Callable, Mapping
from functools import partial, wraps
from types import CodeType
from typing import Any, TypeVar

import torch

from glassgate.cell import Cell
from glassgate.cell_axes import UNITS
from glassgate.engines.symbolic.arrays.cell import ArrayCell, Sizes
from glassgate.engines.symbolic.arrays.step import ArrayStep, array_step
from glassgate.engines.symbolic.arrays.text import format_step
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.engines.symbolic.step import equations_of, explain_refusals
from glassgate.engines.symbolic.values import NotTraceable
from glassgate.engines.symbolic.watch import Watch
from glassgate.engines.torch_names import VERSION, mark_constant
from glassgate.engines.verify import NotDifferentiable, first_array_difference, first_difference
from glassgate.shapes import ShapeError

FIRST_WITH_OBJECTS = (2, 12)
"""The first version of torch in which functions that torch.compile treats as constant accept objects as arguments."""

Traced = TypeVar("Traced")

_interned: dict[str, Equations] = {}
_verified: set[tuple[str, tuple[CodeType, ...]]] = set()
"""The equations that `verify.py` has compared with a step, each with the code of the step."""


def intern_equations(equations: Equations) -> Equations:
    """Return the one object for all equations with this text, so that caches can use it as a key."""
    return _interned.setdefault(equations.text, equations)


class TracedCell:
    """The equations that were traced from a cell. They are valid while the values that its step reads are unchanged.

    Args:
        cell: the cell, stored as a weak reference.

    Attributes:
        watch: detects changes of the values that the step reads.
        cached: the results of `equations`, by its argument `projected`.
    """

    def __init__(self, cell: Cell) -> None:
        self.cell = weakref.ref(cell, partial(_forget, id(cell)))
        self.watch = Watch(cell)
        self.cached: dict[bool, Equations | str] = {}
        self._array_steps: dict[Sizes, ArrayStep | str] = {}

    def is_valid_for(self, cell: Cell) -> bool:
        """Whether this was traced from the cell, and the cell has not changed since."""
        return self.cell() is cell and self.watch.conditions.hold(cell)

    def equations(self, projected: bool) -> Equations | str:
        """The equations of one step, or the reason why no kernel can express them.

        Args:
            projected: whether the output goes through `weight_hr`.
        """
        result = self.cached.get(projected)
        if result is None:
            cell = self.cell()
            assert cell is not None
            try:
                result = intern_equations(self._verified_equations(cell, projected))
            except NotTraceable as error:
                result = str(error)
            self.cached[projected] = result
        return result

    def array_step(self, input_size: int, hidden_size: int, proj_size: int = 0) -> ArrayStep | str:
        """One step of a cell that declares axes, or the reason why no kernel can express it."""
        key = input_size, hidden_size, proj_size
        if key not in self._array_steps:
            cell = self.cell()
            assert cell is not None
            try:
                self._array_steps[key] = self._verified_array_step(cell, key)
            except NotTraceable as error:
                self._array_steps[key] = str(error)
        return self._array_steps[key]

    def _verified_array_step(self, cell: Cell, sizes: Sizes) -> ArrayStep:
        def trace() -> ArrayStep:
            return explain_refusals(cell._class_name, lambda: array_step(cell, *sizes, is_watched=self.watch.contains))

        if isinstance(cell, ArrayCell):
            step = cell.steps.get(sizes)
            if step is None:
                raise _refusal(cell, f"was traced for layers of the sizes {[*cell.steps]}")
            return interned_array_step(step)
        step = self._repeated(cell, trace)
        text = format_step(step)
        if format_step(self._repeated(cell, trace)) != text:
            raise _refusal(cell, "is not the same when it is run twice")
        try:
            wrong = first_array_difference(cell, step)
        except NotDifferentiable as error:
            raise _refusal(cell, f"uses an operation without gradients ({error})") from None
        if wrong:
            raise _refusal(cell, f"gives another value for {wrong} than the graph that was traced from it")
        return interned_array_step(step)

    def _verified_equations(self, cell: Cell, projected: bool) -> Equations:
        if isinstance(cell, GraphCell):
            if cell.equations.projected != projected:
                raise _refusal(cell, f"is that of a layer {'without' if projected else 'with'} proj_size")
            return cell.equations
        if cell.declaration is not None:
            raise NotTraceable(f"cell {cell._class_name}: {_reason_of_axes(cell)}")
        equations = self._trace(cell, projected)
        key = equations.text, tuple(self.watch.codes)
        if key not in _verified:
            if self._trace(cell, projected).text != equations.text:
                raise _refusal(cell, "is not the same when it is run twice")
            try:
                wrong = first_difference(cell, equations)
            except ShapeError:  # a message about the shapes of this check would not help the user
                raise _refusal(cell, "returns a value of another shape than its equations") from None
            except NotDifferentiable as error:
                raise _refusal(cell, f"uses an operation without gradients ({error})") from None
            if wrong:
                raise _refusal(cell, f"gives another value for {wrong} than the graph that was traced from it")
            _verified.add(key)
        return equations

    def _trace(self, cell: Cell, projected: bool) -> Equations:
        return self._repeated(cell, lambda: equations_of(cell, projected, self.watch.contains))

    def _repeated(self, cell: Cell, trace: Callable[[], Traced]) -> Traced:
        """The result of tracing, after which the values that the step reads are unchanged."""
        for _ in range(2):
            if self.watch.refused:
                raise _refusal(cell, f"reads {self.watch.refused}")
            traced = trace()
            changed = self.watch.conditions.first_change(cell)
            if changed is None:
                return traced
            # The first run of a step may cache a value. Such a step writes nothing when it runs again.
            self.watch = Watch(cell)
        raise _refusal(cell, f"writes to {changed}, which a kernel would not")


_interned_array_steps: dict[str, ArrayStep] = {}
"""The one object for all steps with the same text, so that caches can use it as a key."""


def interned_array_step(step: ArrayStep) -> ArrayStep:
    """The one object for all steps with the same values and local variables."""
    return _interned_array_steps.setdefault(format_step(step, with_locals=True), step)


def traced_array_step(cell: Cell, *sizes: int) -> ArrayStep | str:
    """One step of a cell that declares axes, or the reason why no kernel can express it.

    Args:
        cell: the cell.
        sizes: the input size, the hidden size and the width of the projection, 0 by default.
    """
    return traced_cell(cell).array_step(*sizes)


def current_array_step(cell: Cell, *sizes: int) -> ArrayStep:
    """The same; a step that no kernel can express raises NotTraceable."""
    step = traced_array_step(cell, *sizes)
    if isinstance(step, str):
        raise NotTraceable(step)
    return step


_cache: dict[int, TracedCell] = {}
"""The traced cells, by the `id` of the cell."""


def _forget(key: int, _: Any) -> None:
    _cache.pop(key, None)


def traced_cell(cell: Cell) -> TracedCell:
    """The traced equations of a cell, from the cache if they are still valid."""
    traced = _cache.get(id(cell))
    if traced is None or not traced.is_valid_for(cell):
        traced = _cache[id(cell)] = TracedCell(cell)
    return traced


def current_equations(cell: Cell, projected: bool = False) -> Equations:
    """The equations of one step.

    Args:
        cell: the cell.
        projected: whether the output goes through `weight_hr`.

    Raises:
        NotTraceable: no kernel can express the step; the message has the reason.
    """
    equations = traced_cell(cell).equations(projected)
    if isinstance(equations, str):
        raise NotTraceable(equations)
    return equations


def cached_equations(cell: Cell, projected: bool) -> Equations:
    """The equations from the cache, without a check whether the cell has changed.

    Only for callers that have already checked the cell with `traced_cell` or `current_equations`.
    """
    traced = _cache.get(id(cell))
    equations = traced.cached.get(projected) if traced is not None and traced.cell() is cell else None
    return equations if isinstance(equations, Equations) else current_equations(cell, projected)


def assume_constant(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function of a cell whose result torch.compile treats as a constant.

    In versions of torch before `FIRST_WITH_OBJECTS`, such a function takes the address of the cell.

    Args:
        function: its first argument is a cell.
    """
    if VERSION >= FIRST_WITH_OBJECTS:
        marked: Callable[..., Any] = mark_constant(function)
        return marked

    @mark_constant
    def at_address(address: int, *args: Any) -> Any:
        return function(ctypes.cast(address, ctypes.py_object).value, *args)

    @wraps(function)
    def of_cell(cell: Cell, *args: Any) -> Any:
        return at_address(id(cell), *args) if torch.compiler.is_compiling() else function(cell, *args)

    return of_cell


@assume_constant
def why_not_traceable(cell: Cell, projected: bool) -> str | None:
    """Why no kernel can express the step of a cell, or None."""
    equations = traced_cell(cell).equations(projected)
    return equations if isinstance(equations, str) else None


def _reason_of_axes(cell: Cell) -> str:
    """Why a cell that declares axes has no `Equations`."""
    declaration = cell.declaration
    assert declaration is not None
    kinds: dict[str, Mapping[str, Any]] = {
        "state": declaration.state,
        "gate": declaration.gates,
        "parameter": cell.parameters,
    }
    for kind, values in kinds.items():
        for name, value in values.items():
            if value.axes != (UNITS,):
                return f"{kind} {name!r} has the axes ({', '.join(map(str, value.axes))}), not one number per unit"
    return "it declares gates for only x or h, initial values of states, or inputs"


def _refusal(cell: Cell, fault: str) -> NotTraceable:
    return NotTraceable(f"cell {cell._class_name}: step {fault}; it runs on the reference engine")
