"""`glassgate export`: write a trained run's network as a file for deployment."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import glassgate as gg
from glassgate.cli.trained import run_parser
from glassgate.tasks import task_class_of_run
from glassgate.tasks.c.program import write_program
from glassgate.tasks.errors import OptionError
from glassgate.tasks.onnx.models import write
from glassgate.tasks.runs import Run
from glassgate.tasks.task import Task


def command(argv: list[str]) -> None:
    """Run `glassgate export` with the given arguments."""
    parser = run_parser("export", "Write a trained run's network as a file for deployment.")
    parser.add_argument(
        "--to",
        required=True,
        choices=[*TARGETS],
        help="format: session (a file for gg.load_session), onnx, or c (a folder with a program in C)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        help="file or folder (default: RUN/session.safetensors, RUN/model.onnx or RUN/c)",
    )
    parser.add_argument("--no-verify", action="store_true", help="do not compare an ONNX model with the run")
    parser.add_argument(
        "--no-operators",
        action="store_true",
        help="write RNN, GRU and LSTM of an ONNX model as loops (Scan), for runtimes such as OpenVINO",
    )
    parser.add_argument("--name", default="model", help="prefix of files and functions in C (default: model)")
    parser.add_argument(
        "--weights",
        choices=("const", "file"),
        default="const",
        help="weights in C: const (in the code) or file (a separate file) (default: const)",
    )
    parser.add_argument(
        "--max-steps",
        type=int,
        default=4096,
        metavar="N",
        help="longest sequence for a stack of bidirectional layers in C (default: 4096)",
    )
    arguments = parser.parse_args(argv)
    if arguments.to != "session" and arguments.weight_precision not in (None, "float32"):
        raise OptionError(f"--to {arguments.to} writes float32, got --weight-precision {arguments.weight_precision}")
    task = task_class_of_run(arguments.run).load(arguments.run)
    print(TARGETS[arguments.to](task, Path(arguments.run), arguments))


def _session(task: Task[Any, Any, Any], run: Path, arguments: Namespace) -> str:
    """Write a session. Returns the line to print."""
    path = Path(arguments.output or run / "session.safetensors")
    try:
        gg.freeze(task.network.eval(), arguments.weight_precision or "float32").save(path)
    except (gg.EngineError, ValueError) as error:
        raise OptionError(str(error)) from None
    return (
        f"{path}: load it with gg.load_session({str(path)!r}, model={type(task).__name__}.load({str(run)!r}).network)"
    )


def _onnx(task: Task[Any, Any, Any], run: Path, arguments: Namespace) -> str:
    """Write ONNX models. Returns the lines to print."""
    path = Path(arguments.output or run / "model.onnx")
    return "\n".join(write(task, Run.open(run), path, not arguments.no_verify, not arguments.no_operators))


def _c(task: Task[Any, Any, Any], run: Path, arguments: Namespace) -> str:
    """Write a program in C. Returns the line to print."""
    folder, name = Path(arguments.output or run / "c"), arguments.name
    *other_files, program = write_program(task, folder, name, weights=arguments.weights, max_steps=arguments.max_steps)
    sources = " ".join(str(path) for path in (*other_files, program) if path.suffix == ".c")
    return f"{program}: build it with: cc -std=c99 -O3 {sources} -lm -o {folder / name}"


TARGETS: dict[str, Callable[[Task[Any, Any, Any], Path, Namespace], str]] = {
    "session": _session,
    "onnx": _onnx,
    "c": _c,
}
"""The function that writes each format and returns the text to print."""
