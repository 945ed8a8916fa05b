"""`glassgate demo`: train a bidirectional and a one-directional network to colour Python code, and compare them."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from glassgate.cli.arguments import positive
from glassgate.cli.colours import coloured, legend
from glassgate.cli.invocation import invocation
from glassgate.cli.parallel import run_parallel
from glassgate.cli.parser import Parser
from glassgate.cli.progress import display
from glassgate.cli.training import resumable
from glassgate.glass.page import page
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.data.toy.python_code import standard_library
from glassgate.tasks.progress import Progress
from glassgate.tasks.report.live.page import live
from glassgate.tasks.report.study import given, study
from glassgate.tasks.runs import Run, next_folder, write_json
from glassgate.tasks.tagging import Labels, Tagging, TaggingOptions
from glassgate.tasks.task import Split

_LINES = 14
_MODELS = {"bidirectional": True, "one-directional": False}


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
    options = {name: _options(both, arguments.seed) for name, both in _MODELS.items()}
    console.print("Reading the Python files of the standard library ...")
    train, held_out = standard_library(every=arguments.every)
    split = Split(train, test=held_out)
    _describe(console, split)
    jobs = {name: partial(_learn, each, run / name, split) for name, each in options.items()}
    with resumable(*(str(run / name) for name in jobs)), display(console) as bars:
        trained = run_parallel(jobs, bars)
    results = {name: result for name, (result, _) in trained.items()}
    predictions = {name: labels for name, (_, labels) in trained.items()}
    write_json(run / "demo.json", {"held_out": [each.source for each in split.test], "results": results})
    _compare(console, {name: result["test"] for name, result in results.items()})
    _show(console, split.test, predictions)
    model = run / "bidirectional"
    written = _live(model, run / "live.html")
    console.print(f"\nType code and see the response of every gate, in any browser: {written}", soft_wrap=True)
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


def _live(run: Path, output: Path) -> Path:
    """Write the interactive report of a model."""
    task = Tagging.load(run)
    excerpts = given(task, _CODE)
    output.write_text(page(study(task, excerpts, "Python code", run), live=live(task, excerpts, run)), "utf-8")
    return output


def _options(bidirectional: bool, seed: int) -> TaggingOptions:
    """Return the options of a model; each model uses an equal number of processors."""
    threads = max(1, (os.cpu_count() or 1) // len(_MODELS))
    ours = {"bidirectional": bidirectional, "seed": seed, "threads": threads}
    return TaggingOptions.from_mapping(Tagging.builtin_options | ours)


def _learn(
    options: TaggingOptions, run: Path, split: Split[Tagged], progress: Progress
) -> tuple[dict[str, Any], list[Labels]]:
    """Train one model; return its scores and its predictions for the held-out files."""
    task = Tagging(options)
    return task.fit(split, run=run, progress=progress), task.predict(split.test)


def _describe(console: Console, split: Split[Tagged]) -> None:
    characters = [sum(len(each.tokens) for each in part) for part in (split.train, split.test)]
    console.print(
        f"Training data: {len(split.train)} files, {characters[0]:,} characters.\n"
        f"Held-out data: {len(split.test)} files, {characters[1]:,} characters: "
        + ", ".join(each.source for each in split.test)
    )


def _compare(console: Console, scores: dict[str, dict[str, float]]) -> None:
    table = Table(title="Scores on the held-out files")
    table.add_column("reads")
    for score in scores["bidirectional"]:
        table.add_column(score.replace("_", " "), justify="right")
    for name, row in scores.items():
        table.add_row(name, *(f"{value:.2%}" for value in row.values()))
    console.print(table)


def _show(console: Console, files: Sequence[Tagged], predictions: dict[str, list[Labels]]) -> None:
    """Print the part of the held-out code with the most kinds of labels and differences between the models."""
    first, *_ = predictions

    def variety(place: int, start: int, stop: int) -> tuple[int, int]:
        labels = files[place].labels or ()
        wrong = sum(a != b for a, b in zip(labels[start:stop], predictions[first][place][start:stop], strict=True))
        return len(set(labels[start:stop])), wrong

    place, start, stop = max(
        ((place, *stretch) for place, each in enumerate(files) for stretch in _stretches(str(each.tokens))),
        key=lambda where: variety(*where),
    )
    shown = files[place]
    line = shown.tokens[:start].count("\n") + 1
    for name, labels in predictions.items():
        console.print(f"\n{shown.source} from line {line}, as the {name} model sees it:\n")
        truth = (shown.labels or ())[start:stop]
        console.print(coloured(shown.tokens[start:stop], labels[place][start:stop], truth), soft_wrap=True)
    console.print(legend())


def _stretches(text: str) -> list[tuple[int, int]]:
    """The start and end of each passage of `_LINES` lines that follows a blank line."""
    starts = [0, *(place + 1 for place, unit in enumerate(text) if unit == "\n")]
    return [
        (start, end)
        for before, start, end in zip(starts, starts[1:], starts[1 + _LINES :], strict=False)
        if start == before + 1
    ]
