"""`glassgate demo`: train a bidirectional and a one-directional network to colour Python code, and compare them."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from glassgate.cli.colours import colour, legend
from glassgate.cli.parallel import run_parallel
from glassgate.cli.parser import Parser, invocation, positive
from glassgate.cli.progress import display
from glassgate.cli.training import resumable
from glassgate.glass.page import page
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.data.toy.python_code import standard_library
from glassgate.tasks.live.page import live
from glassgate.tasks.progress import Progress
from glassgate.tasks.report.study import excerpts_of_text, study
from glassgate.tasks.runs import Run, next_folder, write, write_json
from glassgate.tasks.tagging import Labels, Tagging, TaggingOptions
from glassgate.tasks.task import Split

_LINES = 14  # the number of lines of code to print
_MODELS = {"bidirectional": True, "one-directional": False}  # whether each model is bidirectional, by name


def command(argv: list[str]) -> None:
    """Run `glassgate demo` with the given arguments."""
    parser = Parser(
        prog="glassgate demo",
        description="Train two networks on Python's own library to colour Python code, character by character. One "
        "reads the code in both directions, the other one only forward. Compare them on files that neither has seen.",
    )
    parser.add_argument(
        "--run", metavar="FOLDER", help="new folder for models, scores and pages (default: runs/demo-N)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="seed of the weights and the order of batches (default: 1)"
    )
    parser.add_argument(
        "--every",
        type=positive,
        default=1,
        metavar="N",
        help="train on every N-th file only, which is faster (default: 1)",
    )
    arguments = parser.parse_args(argv)
    run = Path(arguments.run or next_folder("demo"))
    Run.check_new(run)
    console = Console(highlight=False)
    options = {name: _options(bidirectional, arguments.seed) for name, bidirectional in _MODELS.items()}
    console.print("Reading the Python files of the standard library ...")
    train, held_out = standard_library(every=arguments.every)
    split = Split(train, test=held_out)
    _print_sizes(console, split)
    jobs = {name: partial(_train, model_options, run / name, split) for name, model_options in options.items()}
    with resumable(*(str(run / name) for name in jobs)), display(console) as bars:
        trained = run_parallel(jobs, bars)
    results = {name: result for name, (result, _) in trained.items()}
    predictions = {name: labels for name, (_, labels) in trained.items()}
    write_json(run / "demo.json", {"held_out": [file.source for file in split.test], "results": results})
    _print_scores(console, {name: result["test"] for name, result in results.items()})
    _print_code(console, split.test, predictions)
    model = run / "bidirectional"
    live_page = _write_live_page(model, run / "live.html")
    console.print(f"\nType code and see the response of every gate, in any browser: {live_page}", soft_wrap=True)
    hints = {
        f"report {model} --live": "writes an interactive page: type code and see the response of every gate",
        f"predict {model} FILE.py": "colours a file of yours",
        f"evaluate {model} FILE.py": "measures the accuracy on a file",
        "train tagging --help": "trains on your own data",
    }
    width = max(map(len, hints))
    lines = [f"  {invocation()} {command:<{width}}  {purpose}" for command, purpose in hints.items()]
    console.print("\n".join([f"\nModels, configuration and scores are in {run}. Try next:", *lines]), soft_wrap=True)


_CODE = """\
def greet(names):
    for name in names:
        print("hello", name)  # to everyone
    return len(names)
"""


def _write_live_page(run: Path, output: Path) -> Path:
    """Write the interactive report of a model."""
    task = Tagging.load(run)
    excerpts = excerpts_of_text(task, _CODE)
    write(output, page(study(task, excerpts, "Python code", run), live=live(task, excerpts, run)).encode())
    return output


def _options(bidirectional: bool, seed: int) -> TaggingOptions:
    """Return the options of a model. The processors are divided equally among the models."""
    threads = max(1, (os.cpu_count() or 1) // len(_MODELS))
    settings = {"bidirectional": bidirectional, "seed": seed, "threads": threads}
    return TaggingOptions.from_mapping(Tagging.builtin_options | {"baselines": False} | settings)


def _train(
    options: TaggingOptions, run: Path, split: Split[Tagged], progress: Progress
) -> tuple[dict[str, Any], list[Labels]]:
    """Train a model. Returns its scores and its predictions for the held-out files."""
    task = Tagging(options)
    return task.fit(split, run=run, progress=progress), task.predict(split.test)


def _print_sizes(console: Console, split: Split[Tagged]) -> None:
    characters = [sum(len(file.tokens) for file in part) for part in (split.train, split.test)]
    console.print(
        f"Training data: {len(split.train)} files, {characters[0]:,} characters.\n"
        f"Held-out data: {len(split.test)} files, {characters[1]:,} characters: "
        + ", ".join(file.source for file in split.test)
    )


def _print_scores(console: Console, scores: dict[str, dict[str, float]]) -> None:
    table = Table(title="Scores on the held-out files")
    table.add_column("model")
    for score in scores["bidirectional"]:
        table.add_column(score.replace("_", " "), justify="right")
    for name, row in scores.items():
        table.add_row(name, *(f"{value:.2%}" for value in row.values()))
    console.print(table)


def _print_code(console: Console, files: Sequence[Tagged], predictions: dict[str, list[Labels]]) -> None:
    """Print the held-out passage with the most different labels or, at a tie, most mistakes of the first model."""
    first_model, *_ = predictions

    def variety(index: int, start: int, stop: int) -> tuple[int, int]:
        labels, predicted = (files[index].labels or ())[start:stop], predictions[first_model][index][start:stop]
        return len(set(labels)), sum(a != b for a, b in zip(labels, predicted, strict=True))

    index, start, stop = max(
        ((index, *passage) for index, file in enumerate(files) for passage in _passages(str(file.tokens))),
        key=lambda passage: variety(*passage),
    )
    file = files[index]
    line = file.tokens[:start].count("\n") + 1
    for name, labels in predictions.items():
        console.print(f"\n{file.source} from line {line}, as the {name} model sees it:\n")
        truth = (file.labels or ())[start:stop]
        console.print(colour(file.tokens[start:stop], labels[index][start:stop], truth), soft_wrap=True)
    console.print(legend())


def _passages(text: str) -> list[tuple[int, int]]:
    """The start and end of each passage of `_LINES` lines that follows a blank line."""
    starts = [0, *(index + 1 for index, character in enumerate(text) if character == "\n")]
    return [
        (start, end)
        for start_of_previous, start, end in zip(starts, starts[1:], starts[1 + _LINES :], strict=False)
        if start == start_of_previous + 1  # the previous line is empty
    ]
