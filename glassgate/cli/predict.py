"""`glassgate predict`: print the predictions of a trained run for a file or standard input."""

import json
from pathlib import Path

from rich.console import Console

from glassgate.cli.colours import can_colour, colour
from glassgate.cli.parser import Parser
from glassgate.cli.trained import add_encoding, add_run, add_weight_precision, load, read
from glassgate.tasks.data.files import STDIN
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.pictures.attention import attention_picture
from glassgate.tasks.runs import write

_CHUNK_SIZE = 4096  # the number of examples that are predicted at a time
_MAX_DRAWN = 4  # the number of examples in the picture


def command(argv: list[str]) -> None:
    """Run `glassgate predict` with the given arguments."""
    parser = Parser(prog="glassgate predict", description="Print the predictions of a trained run.")
    add_run(parser)
    add_weight_precision(parser)
    add_encoding(parser)
    parser.add_argument(
        "file", metavar="FILE", help=f"data file, or {STDIN} for standard input with a sequence per line"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object per line, with probabilities, spans and character offsets",
    )
    parser.add_former_name("--format", "--json", {"text": False, "json": True})
    parser.add_argument("--picture", metavar="FILE.svg", help="draw the attention weights of the first sequences")
    arguments = parser.parse_args(argv)
    task = load(arguments)
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
