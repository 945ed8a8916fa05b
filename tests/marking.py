"""Marks tests by what their code calls: `process` if it starts a process, `training` if it trains a network."""

import inspect
from collections.abc import Iterable, Iterator
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

_OWN = ("tests", "experiments")
"""The packages whose functions are searched for calls."""
_STARTS = {"subprocess", "multiprocessing", "get_context", "Process", "ProcessPoolExecutor", "fork", "num_workers"}
"""Modules, functions and arguments that start processes."""
_COMMANDS = {"demo": {"process", "training"}, "compare": {"process", "training"}, "search": {"training"}}
_COMMANDS |= {"train": {"training"}}
"""What commands of the command line do."""


def add_marks(items: Iterable[pytest.Item]) -> None:
    """Add the marks to tests, also those of their fixtures."""
    for item in items:
        if isinstance(item, pytest.Function):
            fixtures = item._fixtureinfo.name2fixturedefs.values()
            functions = [item.function, *(each.func for definitions in fixtures for each in definitions)]
            for mark in sorted(set[str]().union(*map(marks_of, functions))):
                item.add_marker(mark)


@cache
def marks_of(function: Any) -> frozenset[str]:
    """The marks of a test or a fixture."""
    names, words = set[str](), set[str]()
    for each in _called(inspect.unwrap(function), set()):
        for code in _codes(each.__code__):
            constants = [each for v in code.co_consts for each in (v if isinstance(v, tuple) else (v,))]
            words.update(v for v in constants if isinstance(v, str))
            names.update(code.co_names)
    marks = {"process"} if (names | words) & _STARTS else set()
    marks |= {"training"} if names & {"fit", "resume"} else set()
    if names & {"main", "command"}:
        marks = marks.union(*(done for word, done in _COMMANDS.items() if word in words))
    return frozenset(marks)


def _called(function: Any, seen: set[Any]) -> Iterator[FunctionType]:
    """A function and the functions of the same packages that its code names."""
    if isinstance(function, type):
        functions = [each for each in vars(function).values() if isinstance(each, FunctionType)]
    else:
        functions = [function] if isinstance(function, FunctionType) else []
    for each in functions:
        if each not in seen and _is_own(each.__module__):
            seen.add(each)
            yield each
            names = {name for code in _codes(each.__code__) for name in code.co_names}
            found = [each.__globals__[name] for name in names if name in each.__globals__]
            modules = [value for value in found if isinstance(value, ModuleType) and _is_own(value.__name__)]
            for value in [*found, *(vars(module)[name] for module in modules for name in names & vars(module).keys())]:
                yield from _called(value, seen)


def _is_own(module: str) -> bool:
    return module.partition(".")[0] in _OWN


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function and of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
