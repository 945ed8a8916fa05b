"""The `cell` option: a name of `glassgate.cells` with arguments, a class in a Python file, or a `gg.Cell` object."""

import ast
import difflib
import json
import re
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassgate.tasks.errors import OptionError

if TYPE_CHECKING:
    import glassgate as gg

# The lower-case names of the cells that read all features of their input, listed here so that help is available before
# torch is loaded. Cells with inputs of their own, such as the time between steps, are not for tasks.
CELLS = (
    "activatedgru", "activatedlstm", "antisymmetricrnn", "atr", "brc", "cfn", "cifg", "clippedlstm", "cornn", "ctrnn",
    "deltanet", "fastgrnn", "fastrnn", "gatedantisymmetricrnn", "gateddeltanet", "gla", "gru", "grup", "gruv3", "hgrn2",
    "hyperlstm", "indrnn", "janet", "layernormgru", "layernormlstm", "lem", "lightru", "ligru", "linearattention",
    "lmu", "lru", "lstm", "lstm1997", "mamba2", "mgu", "mingru", "minimalrnn", "minlstm", "mlstm",
    "multiplicativelstm", "mut1", "mut2", "mut3", "nas", "nbrc", "peepholelstm", "qrnn", "ran", "residuallstm",
    "retnet", "rglru", "rhn", "rnn", "rwkv7", "s4d", "s5", "scrn", "sgrn", "slstm", "sru", "star", "ugrnn", "unicornn",
)  # fmt: skip

HELP = "lstm, gla(heads=4), FILE.py:Class"

_IN_FILE = re.compile(r"(.*\.py):(\w+)(\(.*\))?", re.DOTALL)


def check(value: Any) -> "str | gg.Cell":
    """Check a value of the option. Return it as a lower-case name with arguments, a class in a file, or a cell.

    The value is a name in any case or `FILE.py:Class`, with or without keyword arguments, a `gg.Cell` object, or a
    result of `as_json`.
    """
    if isinstance(value, str):
        if is_in_file(value):
            return value
        name, arguments = _parse(value)
        if arguments:
            _build(name, arguments)
        return name + (f"({', '.join(f'{key}={v!r}' for key, v in arguments.items())})" if arguments else "")

    import glassgate as gg

    try:
        if isinstance(value, Mapping):
            return gg.cell_from_json(json.dumps(value))
        return gg.cell_from_json(gg.cell_to_json(value))
    except ValueError as error:
        raise OptionError(f"cell: {error}") from None
    except TypeError as error:
        reason = str(error).removesuffix("; it runs on the reference engine")
        raise OptionError(f"cell: expected a name, FILE.py:Class or a gg.Cell that can be stored: {reason}") from None


def is_in_file(value: "str | gg.Cell") -> bool:
    """Whether a checked value of the option is `FILE.py:Class`, with or without arguments."""
    return isinstance(value, str) and _IN_FILE.fullmatch(value) is not None


def _parse(value: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the keyword arguments of a text such as "GLA" or "gla(heads=4)"."""
    name, parenthesis, rest = value.strip().partition("(")
    name = name.strip().lower()
    if name not in CELLS:
        near = difflib.get_close_matches(name, CELLS, 1)
        remedy = f"did you mean {near[0]}?" if near else "`glassgate cells` lists the built-in cells"
        raise OptionError(f"cell: expected a built-in cell or FILE.py:Class, got {value!r}; {remedy}")
    return name, _arguments(parenthesis + rest, value)


def _arguments(text: str, value: str) -> dict[str, Any]:
    """Return the keyword arguments of a text such as "(heads=4)"."""
    try:
        call = ast.parse(f"f{text or '()'}", mode="eval").body
        if isinstance(call, ast.Call) and not call.args and all(each.arg for each in call.keywords):
            return {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
    except (SyntaxError, ValueError):
        pass
    raise OptionError(f"cell: expected keyword arguments, such as gla(heads=4), got {value!r}")


def _build(name: str, arguments: Mapping[str, Any]) -> "gg.Cell":
    import glassgate as gg

    built_in = {name: getattr(gg.cells, name) for name in gg.cells.__all__}
    built_in |= gg.cells.CLASSIC | gg.cells.STATE_SPACES | gg.cells.MATRIX_MEMORIES
    cell: type[gg.Cell] = {each.lower(): kind for each, kind in built_in.items()}[name]
    try:
        built = cell(**arguments)
        gg.Recurrent(built, 4, 4 * built.heads, device="meta")  # it checks the arguments
        return built
    except (TypeError, ValueError, ArithmeticError) as error:
        reason = str(error).replace("__init__()", name)
        raise OptionError(f"cell: {reason}; see `glassgate cells {cell.__name__}`") from None


def as_json(value: "str | gg.Cell") -> Any:
    """Return the JSON form of the option's value: a name, or the equations of the cell."""
    if isinstance(value, str):
        return value

    import glassgate as gg

    return json.loads(gg.cell_to_json(value))


def build_cell(value: "str | gg.Cell") -> "gg.Cell":
    """Return the cell for a checked value of the option; an OptionError if the value names a file."""
    if not isinstance(value, str):
        return value
    if is_in_file(value):
        raise OptionError(f"cell: expected the equations of {value}, got only its name; train again")
    return _build(*_parse(value))


def from_file(location: str) -> "gg.Cell":
    """Execute the Python file of `FILE.py:Class`, with or without arguments, and return a cell of this class."""
    import glassgate as gg

    match = _IN_FILE.fullmatch(location)
    assert match is not None, "`is_in_file` is true"
    file, class_name, arguments = match[1], match[2], _arguments(match[3], location)
    if not Path(file).is_file():
        raise OptionError(f"{file}: no such file; give the Python file that defines the cell")
    try:
        cell_type = runpy.run_path(file, run_name=f"glassgate_cell_of_{Path(file).stem}").get(class_name)
    except Exception as error:  # the user's file may raise anything
        raise OptionError(f"{file}: cannot be loaded: {type(error).__name__}: {error}") from error
    if not (isinstance(cell_type, type) and issubclass(cell_type, gg.Cell)):
        got = "nothing of that name" if cell_type is None else f"{type(cell_type).__name__} {class_name}"
        raise OptionError(f"{file}: {class_name} must be a subclass of glassgate.Cell, got {got}")
    try:
        return cell_type(**arguments)
    except (TypeError, ValueError) as error:
        remedy = f"give the arguments as in {file}:{class_name}(heads=4)"
        raise OptionError(f"{location}: the cell cannot be made: {error}; {remedy}") from None
