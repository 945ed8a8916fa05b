"""`glassgate export`: a trained run's network as a file for deployment."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import glassgate as gg
from glassgate.cli.parser import Parser
from glassgate.tasks import run_class
from glassgate.tasks.errors import OptionError
from glassgate.tasks.onnx_models.models import write
from glassgate.tasks.runs import Run
from glassgate.tasks.task import Task

PRECISIONS = ("float32", "int8", "bfloat16")


def command(words: list[str]) -> None:
    """Export a run as requested by the arguments after `glassgate export`."""
    parser = Parser(prog="glassgate export", description="Write a trained run's network as a file for deployment.")
    parser.add_argument("run", metavar="RUN", help="folder of a trained run")
    parser.add_argument(
        "--to", required=True, choices=[*TARGETS], help="form: session, a file for gg.load_session; onnx"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="the file (RUN/session.safetensors, RUN/model.onnx)")
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="float32", help="of the recurrent layers' weights (float32)"
    )
    parser.add_argument("--no-verify", action="store_true", help="do not compare an ONNX model with the run")
    arguments = parser.parse_args(words)
    task = run_class(arguments.run).load(arguments.run)
    precision, verify = arguments.precision, not arguments.no_verify
    print(TARGETS[arguments.to](task, Path(arguments.run), arguments.output, precision, verify))


def _session(task: Task[Any, Any, Any], run: Path, output: str | None, precision: str, verify: bool) -> str:
    """Write a session."""
    path = Path(output) if output else run / "session.safetensors"
    try:
        gg.freeze(task.network.eval(), precision).save(path)
    except (gg.EngineError, ValueError) as error:
        raise OptionError(str(error)) from None
    return (
        f"{path}: load it with gg.load_session({str(path)!r}, model={type(task).__name__}.load({str(run)!r}).network)"
    )


def _onnx(task: Task[Any, Any, Any], run: Path, output: str | None, precision: str, verify: bool) -> str:
    """Write ONNX models."""
    if precision != "float32":
        raise OptionError(f"--to onnx writes float32, got --precision {precision}")
    return "\n".join(write(task, Run.open(run), Path(output) if output else run / "model.onnx", verify))


TARGETS: dict[str, Callable[[Task[Any, Any, Any], Path, str | None, str, bool], str]] = {
    "session": _session,
    "onnx": _onnx,
}
"""For each form the function that writes it and returns a line for the user."""
