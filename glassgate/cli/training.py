"""Trains in a process of `glassgate train`: starts a new run, or resumes an interrupted one."""

import shlex
import sys
from argparse import SUPPRESS, RawDescriptionHelpFormatter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console

from glassgate.cli.parser import Parser, add_help, add_options, given_options, invocation
from glassgate.cli.progress import Bar, display, format_scores, score_table
from glassgate.cli.stopping import ending, exit_status
from glassgate.cli.train import add_processes
from glassgate.tasks import installed_tasks, task_class, task_class_of_run
from glassgate.tasks.errors import OptionError
from glassgate.tasks.options import Options, read_config
from glassgate.tasks.progress import Interrupted
from glassgate.tasks.runs import next_folder
from glassgate.tasks.task import Task
from glassgate.tasks.training.logs import FOLDER as LOGS
from glassgate.tasks.training.logs import PICTURE
from glassgate.tasks.training.processes.group import Group

_MAX_COLUMNS = 6  # scores in the table of baselines


def command(argv: list[str]) -> None:
    """Train as requested by the arguments after `glassgate train`."""
    if argv and not argv[0].startswith("-"):
        _start(argv[0], argv[1:])
        return
    parser = Parser(
        prog="glassgate train",
        usage="glassgate train TASK [options] | --resume RUN",
        description="Train a task. `glassgate train TASK --help` lists its options.",
        epilog="\n".join(["tasks:", *(f"  {name:<16}{task_class(name).purpose}" for name in installed_tasks())]),
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--resume", metavar="RUN", help="resume the interrupted run in this folder")
    parser.add_argument("--lr-find", action="store_true", help=SUPPRESS)
    add_processes(parser)
    if parser.parse_known_args(argv)[0].resume is None:
        raise OptionError(
            f"expected a task as the first word, or --resume RUN; the tasks are {', '.join(installed_tasks())}"
        )
    arguments = parser.parse_args(argv)
    if arguments.lr_find:
        raise OptionError("--lr-find: a resumed run keeps its learning rate; omit the option, or start a new run")
    _resume(arguments.resume)


def _start(task_name: str, argv: list[str]) -> None:
    task_type = task_class(task_name)
    purpose = task_type.purpose
    parser = Parser(
        prog=f"glassgate train {task_name}", description=f"{purpose[:1].upper()}{purpose[1:]}.", add_help=False
    )
    add_help(parser, task_type.options_type.common)
    parser.add_argument("--run", metavar="FOLDER", help=f"new folder for the run (default: runs/{task_name}-N)")
    parser.add_argument("--config", metavar="FILE", help="YAML or JSON file of options; the command line overrides it")
    builtin = task_type.builtin_data or "none"
    parser.add_argument("--demo", action="store_true", help=f"train on the built-in data of the task: {builtin}")
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
    if options.training_file is None and not (arguments.demo or options.dev or options.test):
        raise OptionError(_describe_demo(task_type))
    run = str(arguments.run or next_folder(task_name))
    with resumable(run), display(Console(stderr=True)) as bars:
        task = task_type(options)
        result = task.fit(run=run, progress=Bar(bars, task_name))
    _print_result(run, result, task)


def _describe_demo(task_type: type[Task[Any, Any, Any]]) -> str:
    """The message for a training without data: its built-in data, and the options for them."""
    if not task_type.builtin_data:
        return "data: expected a file to train on, got none; give one with --data FILE"
    options = task_type.options_type.from_mapping(task_type.builtin_options)
    plan = {"epochs": options.epochs or "by the size of the data", "hidden_size": options.hidden_size}
    plan |= task_type.builtin_options
    settings = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in plan.items())
    return (
        "data: expected a file to train on, got none; give one with --data FILE, or add --demo to train on "
        f"{task_type.builtin_data} ({settings})"
    )


def _resume(run: str) -> None:
    processes = Group.from_environment()
    with resumable(run), display(Console(stderr=True)) as bars, processes.connected():
        task_type = processes.broadcast_result(lambda: task_class_of_run(run))
        task, result = task_type.resume(run, progress=Bar(bars, run))
    _print_result(run, result, task)


@contextmanager
def resumable(*runs: str) -> Iterator[None]:
    """End the process after Ctrl-C or SIGTERM, and print the command that resumes each training."""
    try:
        yield
    except (Interrupted, KeyboardInterrupt) as error:
        print(f"\n{ending(error)}", file=sys.stderr)
        for run in runs:
            if Path(run).exists():
                print(f"resume with: {invocation()} train --resume {shlex.quote(run)}", file=sys.stderr)
        raise SystemExit(exit_status(error)) from None


def _print_baselines(result: Mapping[str, Any], task: Task[Any, Any, Any]) -> None:
    """Print the scores of the network and of the baselines, beginning with the score that selects the best epoch."""
    compared = result.get("baselines")
    if not compared:
        return
    rows = {"this network": task.summary.epoch_scores(result[compared["part"]]), **compared["scores"]}
    names = dict.fromkeys([task.monitor, *chain.from_iterable(rows.values())])
    columns = [name for name in names if any(name in scores for scores in compared["scores"].values())]
    print(f"compared with simple models on the {compared['part']} data")
    print(score_table(rows, columns[:_MAX_COLUMNS]))
    for name, note in compared.get("notes", {}).items():
        print(f"{name}: {note}")


def _print_result(run: str, result: Mapping[str, Any], task: Task[Any, Any, Any]) -> None:
    for part in ("dev", "test"):
        if scores := result[part]:
            table = task.summary.table(scores)
            print(f"{part}\n{table}" if table else f"{part:<6}{format_scores(scores)}")
    _print_baselines(result, task)
    for sentence in result.get("warnings", ()):
        print(f"warning: {sentence}")
    print(f"the run is in {run}: scores in metrics.json, learning curves in {LOGS}/ and {PICTURE}")
    print("try next:")
    options: Options = task.options
    placeholders = {"run": shlex.quote(run), "file": shlex.quote(options.test or options.dev or "FILE")}
    for suggestion in (task.builtin_try_next if options.training_file is None else ()) or task.try_next:
        print(f"  {invocation()} {suggestion.format(**placeholders)}")
