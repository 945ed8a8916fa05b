"""`glassgate predict`: print the predictions of a trained run for a file or standard input."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from glassgate.cli.colours import can_colour, colour
from glassgate.cli.trained import load, read, run_parser
from glassgate.tasks.data.files import STDIN
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.pictures.attention import attention_picture
from glassgate.tasks.runs import write
from glassgate.tasks.task import Task

_CHUNK_SIZE = 4096  # the number of examples that are predicted at a time
_MAX_DRAWN = 4  # the number of examples in the picture


def command(argv: list[str]) -> None:
    """Run `glassgate predict` with the given arguments."""
    parser = run_parser("predict", "Print the predictions of a trained run.", argv)
    parser.add_argument(
        "file", metavar="FILE", help=f"data file, or {STDIN} for standard input with a sequence per line"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object per line, with probabilities, spans and character offsets",
    )
    parser.add_argument("--picture", metavar="FILE.svg", help="draw the attention weights of the first sequences")
    arguments = parser.parse_args(argv)
    task: Task[Any, Any, Any] = load(arguments)
    examples = read(task, arguments.file)
    console = Console()
    for start in range(0, len(examples), _CHUNK_SIZE):
        chunk = examples[start : start + _CHUNK_SIZE]
        for example, prediction in zip(chunk, task.predict(chunk), strict=True):
            if arguments.json:
                print(json.dumps(task.record(example, prediction), ensure_ascii=False))
            elif console.is_terminal and isinstance(example, Tagged) and can_colour(example.tokens, prediction):
                console.print(colour(example.tokens, prediction), soft_wrap=True)
            else:
                print(task.text(example, prediction))
    if arguments.picture:
        svg = attention_picture(*(task.attend(example) for example in examples[:_MAX_DRAWN]))
        write(Path(arguments.picture), svg.encode())
