"""One process of `glassgate train`, usually the only one: trains a new run, or resumes an interrupted one."""

import shlex
import sys
from argparse import SUPPRESS, RawDescriptionHelpFormatter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from glassgate.cli.arguments import add_help, add_options, add_processes, given_options
from glassgate.cli.invocation import invocation
from glassgate.cli.parser import Parser
from glassgate.cli.progress import Bar, display, format_scores
from glassgate.cli.stopping import exit_status, signal_name
from glassgate.tasks import TASKS, task_class, task_class_of_run
from glassgate.tasks.errors import OptionError
from glassgate.tasks.options import Options, read_config
from glassgate.tasks.progress import Interrupted
from glassgate.tasks.runs import next_folder
from glassgate.tasks.task import Task
from glassgate.tasks.training.logs import FOLDER as LOGS
from glassgate.tasks.training.logs import PICTURE
from glassgate.tasks.training.processes.group import group


def command(argv: list[str]) -> None:
    """Train as requested by the arguments after `glassgate train`."""
    if argv and not argv[0].startswith("-"):
        _start(argv[0], argv[1:])
        return
    parser = Parser(
        prog="glassgate train",
        usage="glassgate train TASK [options] | --resume RUN",
        description="Train a task. `glassgate train TASK --help` lists its options.",
        epilog="\n".join(["tasks:", *(f"  {name:<16}{row.summary}" for name, row in TASKS.items())]),
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--resume", metavar="RUN", help="resume the interrupted run in this folder")
    parser.add_argument("--lr-find", action="store_true", help=SUPPRESS)
    add_processes(parser)
    if parser.parse_known_args(argv)[0].resume is None:
        raise OptionError(f"expected a task as the first word, or --resume RUN; the tasks are {', '.join(TASKS)}")
    arguments = parser.parse_args(argv)
    if arguments.lr_find:
        raise OptionError("--lr-find: a resumed run keeps its learning rate; omit the option, or start a new run")
    _resume(arguments.resume)


def _start(name: str, argv: list[str]) -> None:
    task_type = task_class(name)
    summary = TASKS[name].summary
    parser = Parser(prog=f"glassgate train {name}", description=f"{summary[0].upper()}{summary[1:]}.", add_help=False)
    add_help(parser, task_type.options_type.common)
    parser.add_argument("--run", metavar="FOLDER", help=f"new folder for the run (default: runs/{name}-N)")
    parser.add_argument("--config", metavar="FILE", help="YAML or JSON file of options; the command line overrides it")
    parser.add_argument("--print-config", action="store_true", help="print all options as YAML and stop")
    add_processes(parser)
    add_options(parser, task_type.options_type, task_type.builtin_options)
    arguments = parser.parse_args(argv)
    values = read_config(arguments.config) if arguments.config else {}
    values |= given_options(task_type.options_type, arguments)
    options = task_type.options_type.from_mapping(values)
    if options.training_file is None:
        options = task_type.options_type.from_mapping(task_type.builtin_options | values)
    if arguments.print_config:
        print(options.to_yaml(), end="")
        return
    run = str(arguments.run or next_folder(name))
    with resumable(run), display(Console(stderr=True)) as bars:
        task = task_type(options)
        result = task.fit(run=run, progress=Bar(bars, name))
    _end(run, result, task)


def _resume(run: str) -> None:
    with resumable(run), display(Console(stderr=True)) as bars, group().connected():
        kind = group().broadcast_result(lambda: task_class_of_run(run))
        task, result = kind.resume(run, progress=Bar(bars, run))
    _end(run, result, task)


@contextmanager
def resumable(*runs: str) -> Iterator[None]:
    """End the process after Ctrl-C or SIGTERM, and print the command that resumes each training."""
    try:
        yield
    except (Interrupted, KeyboardInterrupt) as error:
        print(f"\n{signal_name(error)}", file=sys.stderr)
        for run in runs:
            if Path(run).exists():
                print(f"resume with: {invocation()} train --resume {shlex.quote(run)}", file=sys.stderr)
        raise SystemExit(exit_status(error)) from None


def _end(run: str, result: Mapping[str, Any], task: Task[Any, Any, Any]) -> None:
    for name in ("dev", "test"):
        if result[name]:
            table = task.summary.table(result[name])
            print(f"{name}\n{table}" if table else f"{name:<6}{format_scores(result[name])}")
    for sentence in result.get("warnings", ()):
        print(f"warning: {sentence}")
    print(f"the run is in {run}: scores in metrics.json, learning curves in {LOGS}/ and {PICTURE}")
    print("try next:")
    options: Options = task.options
    names = {"run": shlex.quote(run), "file": shlex.quote(options.test or options.dev or "FILE")}
    for suggestion in (task.builtin_try_next if options.training_file is None else ()) or task.try_next:
        print(f"  {invocation()} {suggestion.format(**names)}")
