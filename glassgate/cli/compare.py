"""`glassgate compare`: what tutorials claim of recurrent networks, measured, on one page each."""

import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from glassgate.compare import contest as contests
from glassgate.compare.contest import Contest
from glassgate.compare.contestants import CELLS, cell_of, hidden_size
from glassgate.compare.problems import PROBLEMS
from glassgate.compare.trial import Trial
from glassgate.tasks.errors import UserError

LAGS = (50, 100, 200, 500, 1000)


def command(words: list[str]) -> None:
    """Compare as the words after `glassgate compare` say."""
    parser = ArgumentParser(
        prog="glassgate compare",
        description="Train cells of equal parameter counts on problems with long lags, and write a page of what they "
        "remember: curves, success by lag, gradients over time. It may be interrupted; the same command continues.",
    )
    parser.add_argument(
        "--cells",
        default="rnn,gru,lstm",
        help="separated by commas: " + ", ".join(CELLS) + ", or FILE.py:Class (rnn,gru,lstm)",
    )
    parser.add_argument(
        "--problems", help="separated by commas: " + ", ".join(PROBLEMS) + " (all; with --quick adding)"
    )
    parser.add_argument("--lags", help="steps, separated by commas (50,100,200,500,1000; with --quick 100)")
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each kind (5)")
    parser.add_argument("--sequences", type=int, help="the most that one training sees (100000; with --quick 48000)")
    parser.add_argument("--parameters", type=int, default=2_700, help="the most that a recurrent layer has (2700)")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="trainings at once (one per processor)"
    )
    parser.add_argument("--quick", action="store_true", help="one problem at one lag: minutes")
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", default="runs/compare", help="where pages and figures go (runs/compare)"
    )
    arguments = parser.parse_args(words)
    contest = _contest(arguments)
    folder = Path(arguments.output)
    console = Console(highlight=False)
    console.print("Gradients at the start and after a short training ...")
    gradients = contests.gradients(contest)
    results = _run(contest, folder / "trials", arguments.processes, console)
    from glassgate.compare.long_lags import write

    for file in write(contest, results, gradients, folder):
        console.print(str(file))


def _contest(arguments: Any) -> Contest:
    """What the arguments ask for, every name and number checked before anything runs."""
    quick = arguments.quick
    cells = _names("--cells", arguments.cells)
    problems = _names("--problems", arguments.problems or ("adding" if quick else ",".join(PROBLEMS)))
    for problem in problems:
        if problem not in PROBLEMS:
            raise UserError(f"--problems must be of {', '.join(PROBLEMS)}, got {problem!r}")
    for name in ("seeds", "parameters", "processes"):
        if getattr(arguments, name) < 1:
            raise UserError(f"--{name} must be 1 or more, got {getattr(arguments, name)}")
    sequences = arguments.sequences or (48_000 if quick else 100_000)
    if sequences < 32:
        raise UserError(f"--sequences must be at least one batch of 32, got {sequences}")
    lags = tuple(
        _lag(lag) for lag in _names("--lags", arguments.lags or ("100" if quick else ",".join(map(str, LAGS))))
    )
    for cell in cells:
        for problem in problems:
            hidden_size(cell_of(cell), PROBLEMS[problem].features, arguments.parameters)
    biases = contests.FORGET_BIASES[::2] if quick else contests.FORGET_BIASES
    bias_seeds = 1 if quick else arguments.seeds
    return Contest(cells, problems, lags, arguments.seeds, sequences, arguments.parameters, biases, bias_seeds)


def _names(option: str, text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UserError(f"{option} must name at least one, got {text!r}")
    return names


def _lag(text: str) -> int:
    try:
        lag = int(text)
    except ValueError:
        raise UserError(f"--lags must be whole numbers of steps, got {text!r}") from None
    if not 10 <= lag <= 100_000:
        raise UserError(f"--lags must be from 10 to 100000 steps, got {lag}")
    return lag


def _run(contest: Contest, folder: Path, processes: int, console: Console) -> list[dict[str, Any]]:
    columns = (
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, TextColumn("{task.description}"), console=console) as progress:
        bar = progress.add_task("", total=len(contest.trials))

        def told(trial: Trial, result: dict[str, Any]) -> None:
            progress.update(bar, advance=1, description=_line(trial, result))

        try:
            return contests.run(contest.trials, folder, processes, told)
        except KeyboardInterrupt:
            console.print(f"What has ended is kept in {folder}; the same command continues.")
            raise


def _line(trial: Trial, result: dict[str, Any]) -> str:
    after = result["sequences_until_solved"]
    how = f"solved after {after:,} sequences" if after else f"not solved, {result['wrong_of_2560']:,} of 2,560 wrong"
    bias = "" if trial.forget_bias is None else f", forget bias {trial.forget_bias:g}"
    return f"{trial.cell} {trial.problem}{f' at lag {trial.lag}' if trial.lag else ''}{bias}: {how}"
