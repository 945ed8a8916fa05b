"""`glassgate fill`: list candidates for the blanks of a text, with their probabilities."""

import sys

from glassgate.cli.parser import positive
from glassgate.cli.trained import load, run_parser
from glassgate.tasks.data.files import STDIN
from glassgate.tasks.data.lines import decoded_as, read_lines
from glassgate.tasks.fill_blanks import BLANK, FillBlanks


def command(argv: list[str]) -> None:
    """Run `glassgate fill` with the given arguments."""
    parser = run_parser("fill", "List candidates for the blanks of a text.", argv=())
    parser.add_argument(
        "text",
        metavar="TEXT",
        help=f"text with blanks of two or more underscores: 'I am {BLANK} hungry.'; {STDIN} reads standard input",
    )
    parser.add_argument("--length", type=int, metavar="N", help="length of each blank, in tokens (default: estimated)")
    parser.add_argument(
        "--longest-blank",
        type=int,
        metavar="N",
        help="length of the longest candidate, in tokens (default: as in training)",
    )
    parser.add_argument("--n-best", type=positive, default=10, metavar="N", help="number of candidates (default: 10)")
    arguments = parser.parse_args(argv)
    task: FillBlanks = load(arguments, FillBlanks)
    with decoded_as(task.options.encoding):
        text = arguments.text if arguments.text != STDIN else "\n".join(line for _, line in read_lines(STDIN))
    blanks = task.fill(text, length=arguments.length, longest=arguments.longest_blank, n_best=arguments.n_best)
    if unknown := task.unknown(text):
        print(
            f"unknown tokens, not in the model's training data: {' '.join(map(repr, unknown))}",
            file=sys.stderr,
        )
    for number, candidates in enumerate(blanks, start=1):
        if len(blanks) > 1:
            print(f"blank {number}")
        for candidate, probability in candidates:
            print(f"{probability:8.2%}  {candidate if candidate.isprintable() else repr(candidate)}")
