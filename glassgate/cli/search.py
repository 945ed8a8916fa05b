"""`glassgate search`: find the steps of a run's data at which the states of units are similar to those of a pattern."""

import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

import glassgate as gg
from glassgate.cli.parser import Parser, positive
from glassgate.cli.progress import stages
from glassgate.cli.trained import run_parser
from glassgate.tasks import task_class_of_run
from glassgate.tasks.errors import OptionError
from glassgate.tasks.report.states import index_of, record_states, text_of
from glassgate.tasks.report.study import excerpts_of_text
from glassgate.tasks.runs import Run

_CONTEXT = 4  # the number of steps to print on each side of a match


def command(argv: list[str]) -> None:
    """Run `glassgate search` with the given arguments."""
    arguments = _parser().parse_args(argv)
    if (arguments.text is None) == (arguments.sequence_number is None):
        raise OptionError("search: expected a text or --sequence-number N, got both or neither; give one")
    start, stop = _parse_steps(arguments.steps)
    run = Run.open(arguments.run)
    task = task_class_of_run(arguments.run).load(arguments.run)
    with stages(task.name) as (progress, show_stage):
        index = index_of(task, run, progress, show_stage)
    name = arguments.state or next(iter(index.states))
    if name not in index.states:
        raise OptionError(f"--state: expected one of {', '.join(index.states)}, got {name!r}")
    if arguments.text is not None:
        excerpt = excerpts_of_text(task, arguments.text)[0]
        values, text = next(record_states(task, [excerpt]))[1][name].cpu(), text_of(task, excerpt)
    else:
        number = arguments.sequence_number
        if not 1 <= number < len(index.starts):
            raise OptionError(f"--sequence-number: expected 1 to {len(index.starts) - 1}, got {number}")
        values = index.values(name, number - 1)
        text = index.text(number - 1, 0, len(values))
    if stop > len(values):
        raise OptionError(f"--steps: expected steps from 1 to {len(values)}, got {arguments.steps}")
    units = _parse_units(arguments.units, values.shape[1]) or index.active(name, values, start, stop)
    if not units:
        raise OptionError(
            "--units: no unit is active (more than a standard deviation from its mean) at every step of the pattern; "
            "name units"
        )
    matches = gg.dynamics.search(index, name, values[start:stop], units, matches=arguments.matches)
    if arguments.json:
        records: list[dict[str, Any]] = [
            {**match._asdict(), "text": index.text(match.sequence, match.start, match.stop)} for match in matches
        ]
        print(json.dumps({"state": name, "units": units, "matches": records}))
        return
    console = Console(highlight=False)
    console.print(_line(*(text[first:last] for first, last in _around(start, stop))))
    data = (index.about or {}).get("data", "")
    console.print(f"{name}, units {', '.join(map(str, units))}; {index.steps:,} steps of the {data} data\n")
    _print_matches(console, index, matches)


def _parser() -> Parser:
    parser = run_parser(
        "search",
        "The pattern is some steps of a text, or of a sequence of the run's data. The command lists the "
        "steps of the data at which units of a layer have the most similar states. The first search stores an index "
        "of all states in the run's folder.",
        has_precision=False,
    )
    parser.add_argument("text", metavar="TEXT", nargs="?", help="text with the pattern; or use --sequence-number")
    parser.add_argument(
        "--sequence-number", type=int, metavar="N", help="sequence of the run's data with the pattern, from 1"
    )
    parser.add_argument(
        "--steps", required=True, metavar="FIRST-LAST", help="steps of the pattern, from 1, for example 5-9"
    )
    parser.add_argument(
        "--units", metavar="N,N", help="units to compare, from 0 (default: those active at every step of the pattern)"
    )
    parser.add_argument(
        "--state",
        metavar="NAME",
        help="state to compare, for example layer0.forward.c (default: the output of the first layer and direction)",
    )
    parser.add_argument("--matches", type=positive, default=10, metavar="N", help="matches to print (default: 10)")
    parser.add_argument("--json", action="store_true", help="print the matches as JSON")
    return parser


def _print_matches(console: Console, index: gg.dynamics.Index, matches: Sequence[gg.dynamics.Match]) -> None:
    for match in matches:
        texts = [index.text(match.sequence, first, last) for first, last in _around(match.start, match.stop)]
        position = Text(f"{match.distance:5.2f}  {f'{match.sequence + 1}:{match.start + 1}':<10}", style="dim")
        console.print(position + _line(*texts), soft_wrap=True)
    counts = Counter(" ".join(index.text(match.sequence, match.start, match.stop)) for match in matches)
    repeated = [f"{text!r} {count}" for text, count in counts.most_common(5) if count > 1]
    if repeated:
        console.print(f"\nmost frequent: {', '.join(repeated)}", soft_wrap=True)
    print(
        "distance: root mean square difference in standard deviations; then sequence:step. "
        f"{matches[-1].closer:.2%} of all windows are at least as close as the last match."
        if matches
        else "no sequence is as long as the pattern",
        file=sys.stderr,
    )


def _parse_steps(text: str) -> tuple[int, int]:
    """Return the index of the first step, from 0, and the index after the last step."""
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text.strip())
    first = int(match[1]) if match else 0
    last = int(match[2] or match[1]) if match else 0
    if not 1 <= first <= last:
        raise OptionError(f"--steps: expected FIRST-LAST, counted from 1, such as 5-9, got {text!r}")
    return first - 1, last


def _parse_units(text: str | None, size: int) -> list[int]:
    if text is None:
        return []
    try:
        units = [int(number) for number in text.split(",")]
    except ValueError:
        units = [-1]
    if not all(0 <= unit < size for unit in units):
        raise OptionError(f"--units: expected numbers from 0 to {size - 1}, separated by commas, got {text!r}")
    return units


def _around(start: int, stop: int) -> list[tuple[int, int]]:
    """The ranges of steps before a match, of the match, and after it."""
    return [(max(0, start - _CONTEXT), start), (start, stop), (stop, stop + _CONTEXT)]


def _line(before: list[str], match: list[str], after: list[str]) -> Text:
    """The text of a match in bold brackets, with its context."""
    separator = "" if all(len(step) <= 1 for step in (*before, *match, *after)) else " "
    line = Text(separator.join(before) + separator)
    line.append(f"[{separator.join(match)}]", style="bold")
    return line + Text(separator + separator.join(after))
