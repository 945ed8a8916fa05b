"""Checks of a cell's declarations that layers make when they are created."""

import inspect
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import torch
from torch import nn

from glassgate.cell import Cell
from glassgate.cell_axes import Noise, Parameter
from glassgate.system import SYSTEM
from glassgate.user_warning import warn_user


def check_cell(operation: str, cell: object) -> None:
    """Raise unless `cell` is a valid cell. Warn about parameters that are not trained."""
    if not isinstance(cell, Cell):
        remedy = "for example gg.cells.LSTM()"
        if isinstance(cell, type) and issubclass(cell, Cell):
            remedy = f"call the class: {cell.__name__}()"
        raise TypeError(f"{operation}: cell must be an instance of glassgate.Cell, got {cell!r}; {remedy}")
    if not cell.gates and not cell.inputs:
        raise ValueError(f"cell {type(cell).__name__}: gates must name at least one gate, got ()")
    if not isinstance(cell.heads, int) or cell.heads < 1:
        raise ValueError(f"cell {type(cell).__name__}: heads must be a positive integer, got {cell.heads!r}")
    _check_parameters(cell)
    _check_step(cell)
    reserved = {"weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr", *(f"{state}_0" for state in cell.state)}
    if taken := sorted(reserved & set(cell.parameters)):
        raise ValueError(
            f"cell {type(cell).__name__}: parameters must have other names than {taken}, which the layer itself uses"
        )


def check_heads(operation: str, cell: Cell, widths: Iterable[int]) -> None:
    """Raise ValueError unless the number of heads divides each width of a state."""
    for width in widths:
        if width % cell.heads:
            raise ValueError(f"{operation}: sizes must be multiples of the cell's {cell.heads} heads, got {width}")


def check_memory(
    operation: str, cell: Cell, shapes: Mapping[str, tuple[int, ...]], device: Any, dtype: torch.dtype | None
) -> None:
    """Raise MemoryError if a cell has own parameters or axes, and its parameters exceed the memory of the machine."""
    example = torch.empty(0, device=device, dtype=dtype)
    if (cell.declaration is None and not cell.parameters) or not example.is_cpu or type(example) is not torch.Tensor:
        return
    available = SYSTEM.memory_size()
    needed = example.itemsize * sum(map(prod, shapes.values()))
    if available is not None and needed > available:
        name, shape = max(shapes.items(), key=lambda item: prod(item[1]))
        raise MemoryError(
            f"{operation}: the parameters of {cell!r} need {needed / 2**30:.1f} GiB, and this machine has "
            f"{available / 2**30:.1f} GiB; the largest is {name} {shape}; use smaller axes or a smaller hidden_size"
        )


def _check_parameters(cell: Cell) -> None:
    """Raise unless `parameters` and `noise` have values of their classes. Warn about learnable tensors elsewhere."""
    name = type(cell).__name__
    for kind, expected, example in (
        ("parameters", Parameter, "glassgate.Parameter, such as {'gain': glassgate.Parameter(1.0)}"),
        ("noise", Noise, "glassgate.cell.Noise, such as {'xi': glassgate.cell.Noise(deviation=0.1)}"),
    ):
        declared = getattr(cell, kind)
        if not isinstance(declared, Mapping) or not all(isinstance(v, expected) for v in declared.values()):
            raise TypeError(f"cell {name}: {kind} must be a dict of names and {example}, got {declared!r}")
    for each in cell.noise.values():
        if each.state not in (None, *cell.state):
            raise ValueError(f"cell {name}: noise must have the shape of one of {cell.state}, got state={each.state!r}")
    for attribute, value in getattr(cell, "__dict__", {}).items():
        tensors = value.parameters() if isinstance(value, nn.Module) else [value] * isinstance(value, nn.Parameter)
        if any(tensor.requires_grad for tensor in tensors):
            warn_user(
                f"cell {name}: the layer does not train or move the parameters in attribute {attribute!r}; declare "
                "vectors in `parameters`, and replace a matrix by an additional gate"
            )


def _check_step(cell: Cell) -> None:
    """Raise TypeError unless `step` accepts the arguments (a, s), or (a, s, p) if the cell has parameters."""
    try:
        signature = inspect.signature(cell.step)
        signature.bind(*"asp"[: 3 if cell.parameters else 2])
    except TypeError:
        expected = "(self, a, s, p), since the cell has parameters" if cell.parameters else "(self, a, s)"
        actual = str(signature).replace("(", "(self, ", 1).replace("(self, )", "(self)")
        raise TypeError(f"cell {type(cell).__name__}: step must be step{expected}, got step{actual}") from None
