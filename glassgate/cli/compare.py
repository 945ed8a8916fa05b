"""`glassgate compare`: test claims of tutorials about recurrent networks, and write a page for each comparison."""

import os
import re
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from glassgate.claims import comparison as comparisons
from glassgate.claims.cells import cell_of, hidden_size
from glassgate.claims.comparison import Comparison
from glassgate.claims.problems import PROBLEMS
from glassgate.claims.trial import Trial
from glassgate.cli.parser import Parser
from glassgate.tasks.cells import HELP
from glassgate.tasks.errors import UserError

LAGS = (50, 100, 200, 500, 1000)


def command(argv: list[str]) -> None:
    """Run `glassgate compare` with the given arguments."""
    subcommands = {"directions": _compare_directions, "products": _compare_products}
    if argv and argv[0] in subcommands:
        subcommands[argv[0]](argv[1:])
        return
    parser = _parser(
        "",
        "Train cells with equal numbers of parameters on problems with long lags, and write a page with learning "
        "curves, success rates at each lag, and gradients over time. An interrupted command continues when it is run "
        "again. `glassgate compare directions` compares reading directions, and `glassgate compare products` the speed "
        "of implementations of an LSTM.",
        "only one problem at one lag; takes minutes",
    )
    problems = ", ".join(PROBLEMS)
    parser.add_argument(
        "--cells",
        default="rnn,gru,lstm",
        metavar="NAMES",
        help=f"cells, separated by commas: {HELP} (default: rnn,gru,lstm); `glassgate cells` lists them",
    )
    parser.add_argument(
        "--problems",
        metavar="NAMES",
        help=f"problems, separated by commas: {problems} (default: all; with --quick: adding)",
    )
    parser.add_argument(
        "--lags",
        metavar="N,N",
        help="lags in steps, separated by commas (default: 50,100,200,500,1000; with --quick: 100)",
    )
    parser.add_argument(
        "--seeds", type=int, default=5, metavar="N", help="training runs per cell, problem and lag (default: 5)"
    )
    parser.add_argument(
        "--sequences",
        type=int,
        metavar="N",
        help="maximum number of sequences per training run (default: 100000; with --quick: 48000)",
    )
    parser.add_argument(
        "--parameters",
        type=int,
        default=2_700,
        metavar="N",
        help="maximum number of parameters of a recurrent layer (default: 2700)",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="parallel training runs (default: one per processor)",
    )
    arguments = parser.parse_args(argv)
    comparison = _parse_comparison(arguments)
    folder, console = Path(arguments.output), Console(highlight=False)
    from glassgate.claims.long_lags import check_gradients, describe_unsolved, write

    for sentence in comparisons.describe_starts(comparison):
        console.print(sentence, soft_wrap=True)
    console.print("Gradients at the start and after a short training ...")
    gradients = comparisons.measure_gradients(comparison, folder / "gradients")
    check_gradients(comparison, gradients)
    results = _run(comparison, folder / "trials", arguments.processes, console)
    files = write(comparison, results, gradients, folder)
    if sentences := describe_unsolved(comparison, comparisons.summarize(results)):
        console.print(sentences, soft_wrap=True)
    _print_paths(console, files)


def _parser(name: str, description: str, quick_help: str) -> Parser:
    parser = Parser(prog=f"glassgate compare {name}".strip(), description=description)
    parser.add_argument("--quick", action="store_true", help=quick_help)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        default="runs/compare",
        help="folder for pages and figures (default: runs/compare)",
    )
    return parser


def _print_paths(console: Console, files: Sequence[Path]) -> None:
    for file in files:
        console.print(str(file), soft_wrap=True)


def _compare_directions(argv: list[str]) -> None:
    parser = _parser(
        "directions",
        "Train taggers that read forward, backward or in both directions, and language models that read in one or in "
        "both directions. A language model of both directions reads the token that it predicts.",
        "only one seed, and fewer updates",
    )
    parser.add_argument(
        "--data",
        metavar="FILE",
        help="labelled text to train on, as for `glassgate train tagging` (default: Python's library)",
    )
    parser.add_argument(
        "--test", metavar="FILE", help="labelled text to score on (default: every fifth sequence of --data)"
    )
    arguments = parser.parse_args(argv)
    from glassgate.claims import directions

    console = Console(highlight=False)
    train, test = directions.to_texts(*_tagged_text(arguments))
    settings = directions.Settings(updates=150, seeds=1) if arguments.quick else directions.Settings(800, 3)
    results = directions.measure(train, test, settings, lambda line: console.print(line, soft_wrap=True))
    _print_paths(console, directions.write(results, Path(arguments.output)))


def _tagged_text(arguments: Namespace) -> tuple[Sequence[Any], Sequence[Any]]:
    """Read the training and the test sequences."""
    from glassgate.tasks.tagging import Tagging, TaggingOptions

    task = Tagging(TaggingOptions.from_mapping({}))
    if arguments.data is None:
        if arguments.test is not None:
            raise UserError("--test requires --data, the file to train on")
        split = task.read_builtin()
        return split.train[::10], split.test
    train = list(task.read(arguments.data))
    if arguments.test is not None:
        return train, list(task.read(arguments.test))
    if len(train) < 5:
        raise UserError(
            f"{arguments.data}: expected 5 sequences or more, to keep a fifth of them for the test, got {len(train)}"
        )
    return [example for k, example in enumerate(train) if k % 5], train[::5]


def _compare_products(argv: list[str]) -> None:
    parser = _parser(
        "products",
        "Measure the speed of an LSTM layer in several implementations: one gate at a time, all gates together, the "
        "input of all steps together, gg.LSTM, torch.nn.LSTM, and ONNX Runtime if it is installed.",
        "two sizes, three rounds",
    )
    arguments = parser.parse_args(argv)
    from glassgate.claims import products

    console = Console(highlight=False)
    sizes, rounds = (products.SIZES[:2], 3) if arguments.quick else (products.SIZES, products.ROUNDS)
    rows = products.measure(sizes, rounds, lambda line: console.print(line, soft_wrap=True))
    _print_paths(console, products.write(rows, Path(arguments.output)))


def _parse_comparison(arguments: Namespace) -> Comparison:
    """Check the arguments, and return the comparison."""
    quick = arguments.quick
    cells = _names("--cells", arguments.cells)
    problems = _names("--problems", arguments.problems or ("adding" if quick else ",".join(PROBLEMS)))
    for problem in problems:
        if problem not in PROBLEMS:
            raise UserError(f"--problems must be among {', '.join(PROBLEMS)}, got {problem!r}")
    for name in ("seeds", "parameters", "processes"):
        if getattr(arguments, name) < 1:
            raise UserError(f"--{name} must be 1 or more, got {getattr(arguments, name)}")
    sequences = arguments.sequences or (48_000 if quick else 100_000)
    if sequences < 32:
        raise UserError(f"--sequences must be at least one batch of 32, got {sequences}")
    lags = arguments.lags or ("100" if quick else ",".join(map(str, LAGS)))
    for cell in cells:
        for problem in problems:
            hidden_size(cell_of(cell), PROBLEMS[problem].features, arguments.parameters)
    biases = comparisons.FORGET_BIASES[::2] if quick else comparisons.FORGET_BIASES
    bias_seeds = 1 if quick else arguments.seeds
    return Comparison(
        cells,
        problems,
        tuple(_lag(lag) for lag in _names("--lags", lags)),
        arguments.seeds,
        sequences,
        arguments.parameters,
        biases,
        bias_seeds,
    )


def _names(option: str, text: str) -> tuple[str, ...]:
    texts = re.split(r",(?![^(]*\))", text)  # not at the commas of a cell's arguments
    names = tuple(dict.fromkeys(name.strip() for name in texts if name.strip()))
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


def _run(comparison: Comparison, folder: Path, processes: int, console: Console) -> list[dict[str, Any]]:
    columns = (
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=len(comparison.trials))

        def report(trial: Trial, result: dict[str, Any]) -> None:
            progress.update(bar, advance=1, description=_outcome(trial, result))

        try:
            return comparisons.run(comparison.trials, folder, processes, report)
        except KeyboardInterrupt:
            console.print(f"Finished training runs are in {folder}; run the same command to continue.", soft_wrap=True)
            raise


def _outcome(trial: Trial, result: dict[str, Any]) -> str:
    sequences = result["sequences_until_solved"]
    outcome = f"not solved, {result['wrong_of_2560']:,} of 2,560 wrong"
    if sequences:
        outcome = f"solved after {sequences:,} sequences"
    lag = f" at lag {trial.lag}" if trial.lag else ""
    bias = "" if trial.forget_bias is None else f", forget bias {trial.forget_bias:g}"
    return f"{trial.cell} {trial.problem}{lag}{bias}: {outcome}"
