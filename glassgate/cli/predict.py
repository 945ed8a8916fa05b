"""`glassgate predict`: what a trained run says of a file or of standard input."""

from argparse import ArgumentParser

from rich.console import Console

from glassgate.cli.colours import can_colour, coloured
from glassgate.tasks import run_class
from glassgate.tasks.data.lines import STDIN
from glassgate.tasks.data.tagged import Tagged


def command(words: list[str]) -> None:
    """Predict as the words after `glassgate predict` say."""
    parser = ArgumentParser(prog="glassgate predict", description="Let a trained run label a file or standard input.")
    parser.add_argument("run", metavar="RUN", help="folder that training made")
    parser.add_argument("file", metavar="FILE", help=f"data, or {STDIN} for standard input, a sequence a line")
    arguments = parser.parse_args(words)
    task = run_class(arguments.run).load(arguments.run)
    examples = task.read(arguments.file, labelled=False)
    console = Console()
    for example, prediction in zip(examples, task.predict(examples), strict=True):
        if console.is_terminal and isinstance(example, Tagged) and can_colour(example.units, prediction):
            console.print(coloured(example.units, prediction), soft_wrap=True)
        else:
            print(task.text(example, prediction))
