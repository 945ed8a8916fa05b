"""Writes a trained run as C: the network, its tables in `NAME_tables.h`, and a program in `NAME_main.c`."""

import os
import re
from importlib import resources
from pathlib import Path
from typing import Any

from torch import nn

import glassgate as gg
from glassgate.tasks import part_of
from glassgate.tasks.c.parts import Parts
from glassgate.tasks.c.source import quoted
from glassgate.tasks.errors import OptionError
from glassgate.tasks.runs import all_or_none
from glassgate.tasks.task import Task

_LIBRARIES = ("math", "stdio", "stdlib", "string")


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
            f"{name}_main.c": _program(task, parts, weights == "file"),
        }
        for file, text in texts.items():
            renamed = re.sub(r"\bnet(?=_|\.[ch]\b|\.weights| \*/)", name, text)
            (temporary / file).write_text(renamed, encoding="utf-8")
        files = sorted(os.listdir(temporary), key=lambda file: (file.endswith("_main.c"), file))
    return [target / file for file in files]


def _program(task: Task[Any, Any, Any], parts: Parts, reads_weights: bool) -> str:
    """The text of the program.

    Args:
        reads_weights: whether the program reads the weights from a file
    """
    usage = " Its argument is the file of the weights (net.weights)." if reads_weights else ""
    head = f"""\
/* A {task.name} model trained by Glassgate. Reads a line for each sequence from standard input:
   {parts.reads}. Prints {parts.prints}.{usage}
   Build: cc -std=c99 -O3 net.c net_main.c -lm -o net */
#include "net_tables.h"
"""
    libraries = "".join(f"#include <{library}.h>\n" for library in _LIBRARIES)
    sources = (
        resources.files(__package__).joinpath(f"{each}.c").read_text("utf-8") for each in ("input", parts.program)
    )
    return "\n".join([head, libraries, *sources])


def _tables(task: Task[Any, Any, Any], parts: Parts, reads_weights: bool, max_steps: int) -> str:
    """The header with the tables, the variables for the states of the network's parts, and their initialisation.

    Args:
        reads_weights: whether the program reads the weights from a file
    """
    states = {key: parts.states.get(key, key) for key in parts.modules}
    lines = ["static net_weights weights;"] if reads_weights else []
    lines += [f"static net_{key}_state {state};" for key, state in states.items()]
    lines += ["", "/* Initialises the parts of the network. */", "static void start(int argc, char **argv) {"]
    if reads_weights:
        lines += [
            '    const char *path = argc > 1 ? argv[1] : "net.weights";',
            "    if (net_load(&weights, path)) {",
            '        fprintf(stderr, "%s: not the weights of this program\\n", path);',
            "        exit(1);",
            "    }",
        ]
    else:
        lines += ["    (void)argc;", "    (void)argv;"]
    argument = ", &weights" if reads_weights else ""
    lines += [f"    net_{key}_init(&{state}{argument});" for key, state in states.items()]
    too_long = quoted(f"more than {max_steps} steps; export the run again with a larger --max-steps")
    return "\n".join(
        [
            f"/* The tables of a {task.name} model trained by Glassgate, for one program. */",
            '#include "net.h"\n\n#include <math.h>\n#include <stdio.h>\n#include <stdlib.h>\n',
            f"#define TOO_LONG {too_long}",
            *parts.tables,
            *lines,
            "}",
            "",
        ]
    )
