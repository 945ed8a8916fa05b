"""The names that the code of a function reads: globals, attributes and modules."""

import dis
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

READERS = frozenset(
    {"getattr", "hasattr", "vars", "dir", "__dict__", "__getattr__", "__getattribute__", "__reduce__", "__reduce_ex__"}
    | {"attrgetter", "methodcaller", "getmembers", "getattr_static", "asdict", "astuple", "replace", "fields"}
    | {"copy", "deepcopy", "format", "format_map", "match"}
)
"""Names of functions and attributes. Code that uses one of these can read attributes that it does not name."""


class Names(NamedTuple):
    """The names that code reads.

    Attributes:
        globals: names of globals and of built-in functions.
        attributes: names of attributes, and text that may be one.
        imports: names of imported modules.
    """

    globals: frozenset[str]
    attributes: frozenset[str]
    imports: frozenset[str]


@lru_cache(4096)
def names_in(code: CodeType) -> Names:
    """The names that code and the functions in it read."""
    of_globals, attributes, imports = set(), set(), set()
    for function_code in all_code(code):
        attributes |= set(_identifiers(function_code.co_consts))
        for instruction in dis.get_instructions(function_code):
            operation, name = instruction.opname, instruction.argval
            if operation == "MATCH_CLASS":
                attributes.add("match")
            if instruction.opcode not in dis.hasname:
                continue
            if operation == "IMPORT_NAME":
                imports.add(name)
            elif not operation.endswith(("_ATTR", "_METHOD", "_FROM")):
                of_globals.add(name)
            else:
                attributes.add(name)
    return Names(frozenset(of_globals), frozenset(attributes), frozenset(imports))


def globals_of(code: CodeType) -> frozenset[str]:
    """The names of globals that code reads."""
    return names_in(code).globals


def all_code(code: CodeType) -> Iterator[CodeType]:
    """The code and that of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from all_code(constant)


def _identifiers(constants: Any) -> Iterator[str]:
    """The text in constants that may be the name of an attribute, as in `getattr(self, "rate")` or in a pattern."""
    for constant in constants:
        if isinstance(constant, str) and constant.isidentifier():
            yield constant
        elif isinstance(constant, tuple | frozenset):
            yield from _identifiers(constant)
