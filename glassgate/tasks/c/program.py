"""Writes a trained run as C: the network, its tables in `NAME_tables.h`, and a program in `NAME_main.c`.

The module `c` of a task has a function `export(task)`, which returns the `Parts` of its program.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from torch import Tensor, nn

import glassgate as gg
from glassgate.tasks import part_of
from glassgate.tasks.errors import OptionError
from glassgate.tasks.runs import all_or_none
from glassgate.tasks.task import Task


@dataclass(frozen=True)
class Parts:
    """The task-specific parts of the program of a run.

    Attributes:
        modules: the modules of the network by name; `gg.to_c` exports each as C functions
        program: the program for the kind of output: "answer" (one per sequence), "tags" (one per token) or "forecast"
        tables: the tables and constants of the run, as C
        reads: a description of an input line
        prints: a description of the output
    """

    modules: Mapping[str, nn.Module]
    program: str
    tables: Sequence[str]
    reads: str
    prints: str


def units(task: Task[Any, Any, Any]) -> list[str]:
    """Return the vocabulary as C. The tokens begin at index FIRST, after padding and the unknown token."""
    vocabulary = task.vocabularies["units"]
    first = len(vocabulary) - len(vocabulary.symbols)
    return [constants(UNITS=len(vocabulary), FIRST=first), strings("unit_names", vocabulary.symbols)]


def constants(**values: int) -> str:
    """Return the definitions of macros by name."""
    return "".join(f"#define {name} {int(value)}\n" for name, value in values.items())


def strings(name: str, values: Iterable[str]) -> str:
    """Return the definition of an array of strings."""
    return f"static const char *const {name}[] = {{\n{_rows(map(quoted, values))}}};\n"


def numbers(name: str, values: Iterable[float] | Tensor, type: str = "double") -> str:
    """Return the definition of an array of numbers. A tensor is flattened."""
    if isinstance(values, Tensor):
        values = values.detach().flatten().tolist()
    return f"static const {type} {name}[] = {{\n{_rows(map(_number, values))}}};\n"


def quoted(text: str) -> str:
    """Return a text as a string literal of C.

    Example:
        >>> print(quoted('say "é"?'))
        "say \\"\\303\\251\\"\\?"
    """
    escapes = {ord('"'): '\\"', ord("\\"): "\\\\", ord("?"): "\\?"}  # "??" would begin a trigraph
    characters = (escapes.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in text.encode())
    return '"' + "".join(characters) + '"'


def _number(value: float) -> str:
    return "-INFINITY" if value == float("-inf") else repr(float(value))


def _rows(items: Iterable[str]) -> str:
    items = list(items)
    return "".join(f"    {', '.join(items[start : start + 8])},\n" for start in range(0, len(items), 8))


def unsupported_error(task: Task[Any, Any, Any], part: str, remedy: str) -> OptionError:
    """Return the error for a run that cannot be written as a C program."""
    return OptionError(f"--to c cannot express {part} of this {task.name} run; {remedy}")


def write_program(
    task: Task[Any, Any, Any],
    folder: str | os.PathLike[str],
    name: str = "model",
    *,
    weights: str = "const",
    max_steps: int = 4096,
) -> list[Path]:
    """Write a trained task as C99: its network, its tables, and a program that predicts from standard input.

    The program reads numbers, such as the indices that `task.encode` returns. It prints the predictions of `task.text`.

    Args:
        task: a trained task
        folder: the folder of the files; created if it is missing
        name: the prefix of the names of files and functions
        weights: "const" for arrays in the C file, "file" for a separate file, `NAME.weights`
        max_steps: the length of the longest sequence, for a stack of bidirectional layers

    Returns:
        the paths of the files; the last one is the program's

    Raises:
        OptionError: the run cannot be written as a C program, or the folder cannot be written to
    """
    module = part_of(task, "c")
    if module is None:
        raise OptionError(
            f"--to c does not support runs of {task.name}; write its layers with gg.to_c(TASK.network.encoder, FOLDER)"
        )
    task.network.eval()
    parts: Parts = module.export(task)
    target = Path(folder)
    with all_or_none(target, create=True) as temporary:
        try:
            gg.to_c(nn.ModuleDict(dict(parts.modules)), temporary, name, weights=weights, max_steps=max_steps)
        except ValueError as error:
            raise OptionError(str(error)) from None
        texts = {
            f"{name}_tables.h": _tables(task, parts, weights == "file", max_steps),
            f"{name}_main.c": _main(task, parts, weights == "file"),
        }
        for file, text in texts.items():
            renamed = re.sub(r"\bnet(?=_|\.[ch]\b|\.weights| \*/)", name, text)
            (temporary / file).write_text(renamed, encoding="utf-8")
        files = sorted(os.listdir(temporary), key=lambda file: (file.endswith("_main.c"), file))
    return [target / file for file in files]


def _main(task: Task[Any, Any, Any], parts: Parts, reads_weights: bool) -> str:
    """The text of the program."""
    usage = " Its argument is the file of the weights (net.weights)." if reads_weights else ""
    head = f"""\
/* A {task.name} model trained by Glassgate. Reads a line for each sequence from standard input:
   {parts.reads}. Prints {parts.prints}.{usage}
   Build: cc -std=c99 -O3 net.c net_main.c -lm -o net */
#include "net_tables.h"
"""
    libraries = "".join(f"#include <{library}.h>\n" for library in ("math", "stdio", "stdlib", "string"))
    folder = resources.files(__package__)
    sources = (folder.joinpath(f"{each}.c").read_text("utf-8") for each in ("input", parts.program))
    return "\n".join([head, libraries, *sources])


def _tables(task: Task[Any, Any, Any], parts: Parts, reads_weights: bool, max_steps: int) -> str:
    """The header with the tables, the variables for the states of the network's parts, and their initialisation."""
    variables = "".join(f"static net_{key}_state {key};\n" for key in parts.modules)
    argument = ", &weights" if reads_weights else ""
    inits = "".join(f"    net_{key}_init(&{key}{argument});\n" for key in parts.modules)
    too_long = quoted(f"more than {max_steps} steps; export the run again with a larger --max-steps")
    tables = "".join(f"{table}\n" for table in parts.tables)
    return f"""\
/* The tables of a {task.name} model trained by Glassgate, for one program. */
#include "net.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TOO_LONG {too_long}
{tables}{_WEIGHTS if reads_weights else ""}{variables}
/* Initialises the parts of the network. */
static void start(int argc, char **argv) {{
{_LOAD_WEIGHTS if reads_weights else _IGNORE_ARGUMENTS}{inits}}}
"""


_WEIGHTS = "static net_weights weights;\n"
_LOAD_WEIGHTS = """\
    const char *path = argc > 1 ? argv[1] : "net.weights";
    if (net_load(&weights, path)) {
        fprintf(stderr, "%s: not the weights of this program\\n", path);
        exit(1);
    }
"""
_IGNORE_ARGUMENTS = """\
    (void)argc;
    (void)argv;
"""
