"""`glassgate export`: a trained run's network as a file for deployment."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import glassgate as gg
from glassgate.cli.parser import Parser
from glassgate.tasks import run_class
from glassgate.tasks.errors import OptionError
from glassgate.tasks.task import Task

PRECISIONS = ("float32", "int8", "bfloat16")


def command(words: list[str]) -> None:
    """Export as the words after `glassgate export` say."""
    parser = Parser(prog="glassgate export", description="Write a trained run's network as a file for deployment.")
    parser.add_argument("run", metavar="RUN", help="folder of a trained run")
    parser.add_argument("--to", required=True, choices=[*TARGETS], help="form: session, a file for gg.load_session")
    parser.add_argument("-o", "--output", metavar="FILE", help="the file (RUN/session.safetensors)")
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="float32", help="of the recurrent layers' weights (float32)"
    )
    arguments = parser.parse_args(words)
    task = run_class(arguments.run).load(arguments.run)
    print(TARGETS[arguments.to](task, Path(arguments.run), arguments.output, arguments.precision))


def _session(task: Task[Any, Any, Any], run: Path, output: str | None, precision: str) -> str:
    """Write a session, and say how to load it."""
    path = Path(output) if output else run / "session.safetensors"
    try:
        gg.freeze(task.network.eval(), precision).save(path)
    except (gg.EngineError, ValueError) as error:
        raise OptionError(f"export: {error}") from None
    return (
        f"{path}: load it with gg.load_session({str(path)!r}, model={type(task).__name__}.load({str(run)!r}).network)"
    )


TARGETS: dict[str, Callable[[Task[Any, Any, Any], Path, str | None, str], str]] = {"session": _session}
"""For each form the function that writes it and returns a line for the user."""
