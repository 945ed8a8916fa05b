"""`glassgate cells`: list the built-in cells, or describe one of them."""

import difflib
import inspect
import re
from collections.abc import Mapping

import torch
from rich.console import Console
from rich.table import Table

import glassgate as gg
from glassgate.cli.parser import Parser, positive
from glassgate.tasks.errors import OptionError

_STEPS, _ROWS = 100, 16  # the call for which the engine is chosen

GROUPS: Mapping[str, Mapping[str, type[gg.Cell]]] = {
    "Common cells": {name: getattr(gg.cells, name) for name in sorted(gg.cells.__all__, key=str.lower)},
    "Classic cells": gg.cells.CLASSIC,
    "State spaces": gg.cells.STATE_SPACES,
    "Cells with a matrix as memory": gg.cells.MATRIX_MEMORIES,
}
"""The built-in cells by name, in groups."""


def command(argv: list[str]) -> None:
    """Run `glassgate cells` with the given arguments."""
    parser = Parser(
        prog="glassgate cells",
        description="List the built-in cells with their papers. With a name, print the equations of this cell, the "
        "number of its parameters, and the engine that runs it.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="name of a cell, such as GRU")
    parser.add_argument("--input-size", type=positive, default=96, metavar="N", help="input features (default: 96)")
    parser.add_argument("--hidden-size", type=positive, default=128, metavar="N", help="units (default: 128)")
    parser.add_argument("--draw", metavar="FILE.svg", help="also write a diagram of the cell")
    arguments = parser.parse_args(argv)
    console = Console(highlight=False)
    if arguments.name is None:
        if arguments.draw:
            raise OptionError("--draw needs the name of a cell, such as `glassgate cells GRU --draw GRU.svg`")
        _print_list(console)
        return
    cell = _find(arguments.name)
    _print_cell(console, cell, arguments.input_size, arguments.hidden_size)
    if arguments.draw:
        gg.draw(cell()).save(arguments.draw)
        console.print(arguments.draw, markup=False, soft_wrap=True)


def source(cell: type[gg.Cell]) -> tuple[str, str, str]:
    """Return the authors, the year and the publication from the docstring of a cell; empty if it has no paper."""
    paragraph = " ".join((inspect.getdoc(cell) or "").partition("\n\n")[0].split())
    match = re.search(r"\(([^()]*?) ((?:19|20)\d\d)(?:, ((?:[^()]|\([^()]*\))*))?\)", paragraph)
    return (match[1], match[2], match[3] or "") if match else ("", "", "")


def _find(name: str) -> type[gg.Cell]:
    cells = {each.lower(): cell for group in GROUPS.values() for each, cell in group.items()}
    if name.lower() in cells:
        return cells[name.lower()]
    similar = [cells[each].__name__ for each in difflib.get_close_matches(name.lower(), cells, n=1)]
    hint = f"did you mean {similar[0]}?" if similar else "`glassgate cells` lists them"
    raise OptionError(f"expected the name of a cell, got {name!r}; {hint}")


def _print_list(console: Console) -> None:
    for title, group in GROUPS.items():
        table = Table(title=title, title_justify="left")
        for column in ("cell", "authors", "year", "publication"):
            table.add_column(column)
        for name, cell in group.items():
            table.add_row(name, *source(cell))
        console.print(table)
    console.print("`glassgate cells NAME` prints the equations of a cell.", markup=False)


def _print_cell(console: Console, cell_type: type[gg.Cell], input_size: int, hidden_size: int) -> None:
    cell = cell_type()
    try:
        layer = gg.Recurrent(cell, input_size, hidden_size)
    except ValueError as error:
        raise OptionError(f"{error}; give another --input-size or --hidden-size") from None
    table = Table()
    table.add_column("parameter")
    table.add_column("shape")
    table.add_column("numbers", justify="right")
    parameters = {name.removesuffix("_l0"): value for name, value in layer.named_parameters()}
    for name, value in parameters.items():
        table.add_row(name, str(tuple(value.shape)), f"{value.numel():,}")
    table.add_section()
    table.add_row("all", "", f"{sum(value.numel() for value in parameters.values()):,}")
    with torch.no_grad():
        choice = gg.explain(layer, torch.zeros(_STEPS, _ROWS, input_size))
    description = [
        f"gg.cells.{cell!r}",
        inspect.getdoc(cell) or "",
        *_notation(cell_type),
        f"gates: {' '.join(cell.gates)}\nstates: {' '.join(cell.state)}",
        f"Input size {input_size}, hidden size {hidden_size}:",
    ]
    console.print("\n\n".join(description), markup=False, soft_wrap=True)
    console.print(table)
    console.print(f"\n{_STEPS} steps of {_ROWS} rows: {choice}", markup=False, soft_wrap=True)


def _notation(cell: type[gg.Cell]) -> list[str]:
    """Return the paragraph on the notation of the equations from the docstring of the cell's module, if it has one."""
    paragraphs = (inspect.getdoc(inspect.getmodule(cell)) or "").split("\n\n")
    return [paragraph for paragraph in paragraphs if paragraph.startswith("In the equations")]
