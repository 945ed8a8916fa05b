"""`glassgate translate`: translate the lines of a file or of standard input."""

import sys
from dataclasses import replace
from pathlib import Path

from glassgate.cli.trained import load, read, run_parser
from glassgate.tasks.data.files import STDIN
from glassgate.tasks.errors import OptionError
from glassgate.tasks.pictures.attention import attention_picture
from glassgate.tasks.runs import write
from glassgate.tasks.translation import Translation


def command(argv: list[str]) -> None:
    """Run `glassgate translate` with the given arguments."""
    parser = run_parser("translate", "Translate a file, or standard input, line by line.", argv)
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        default=STDIN,
        help="sentences in lines, or a data file (default: standard input)",
    )
    parser.add_argument("--beam", type=int, metavar="N", help="beam size; 1 is greedy (default: as in training)")
    parser.add_argument(
        "--length-penalty",
        type=float,
        metavar="X",
        help="length penalty; 0 favours short translations (default: as in training)",
    )
    parser.add_argument("--n-best", type=int, default=1, metavar="N", help="translations per sentence (default: 1)")
    parser.add_argument("--picture", metavar="FILE.svg", help="draw the attention of the first sentence")
    arguments = parser.parse_args(argv)
    task: Translation = load(arguments, Translation)
    settings = {"beam": arguments.beam, "length_penalty": arguments.length_penalty}
    task.search = replace(task.search, **{name: value for name, value in settings.items() if value is not None})
    if not 1 <= arguments.n_best <= task.search.beam:
        raise OptionError(
            f"n_best: expected 1 to {task.search.beam}, the size of the beam, got {arguments.n_best}; enlarge --beam"
        )
    pairs = read(task, arguments.file)
    unknown_pairs = [pair for pair in pairs if task.is_unknown(pair)]
    if len(unknown_pairs) == len(pairs):
        raise OptionError(
            f"{arguments.file}: the training data had none of its tokens; check its language, and the run's direction"
        )
    for pair in unknown_pairs:
        print(
            f"{pair.file}:{pair.line}: the training data had none of this line's tokens, so its translation is a guess",
            file=sys.stderr,
        )
    next_line = 1
    for pair, hypotheses in zip(pairs, task.predict(pairs), strict=True):
        print("\n" * ((pair.line or next_line) - next_line), end="")  # empty lines of the input stay empty
        next_line = (pair.line or next_line) + 1
        for hypothesis in hypotheses[: arguments.n_best]:
            numbered = f"{next_line - 1}\t{hypothesis.score:.4f}\t{hypothesis.text}"
            print(hypothesis.text if arguments.n_best == 1 else numbered)
    if arguments.picture:
        svg = attention_picture(task.attend(replace(pairs[0], target=None)))
        write(Path(arguments.picture), svg.encode())
