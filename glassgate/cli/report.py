"""`glassgate report`: write a page about one trained run, or about two runs side by side."""

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from glassgate.cli.parser import Parser
from glassgate.cli.progress import stages
from glassgate.cli.strips import strips
from glassgate.cli.trained import is_run, run_parser, set_file_options
from glassgate.glass.languages import LANGUAGES, speaking
from glassgate.glass.live.page import Live, check_size
from glassgate.glass.page import page
from glassgate.glass.places import MAX_BYTES
from glassgate.tasks import task_class_of_run
from glassgate.tasks.errors import OptionError
from glassgate.tasks.live.page import live
from glassgate.tasks.report.states import places_of
from glassgate.tasks.report.study import excerpts_of_file, excerpts_of_split, excerpts_of_text, read_data, study
from glassgate.tasks.runs import Run, write


def command(argv: list[str]) -> None:
    """Run `glassgate report` with the given arguments."""
    arguments = _parser(argv).parse_args(argv)
    # A single argument after the first run is the second run if it is a run's folder. Otherwise, it is the text.
    if arguments.other is not None and arguments.text is None and not is_run(arguments.other):
        arguments.text, arguments.other = arguments.other, None
    if arguments.text is not None and arguments.file:
        raise OptionError("--file: expected a text or a file, got both; leave one of them out")
    if arguments.live and (arguments.other is not None or arguments.terminal):
        raise OptionError("--live: expected one run and no --terminal; leave out the second run, or --terminal")
    if arguments.language != "en" and arguments.terminal:
        raise OptionError("--language: the report in the terminal is in English; leave out --language, or --terminal")
    output = Path(arguments.output)
    if not output.resolve().parent.is_dir():
        raise OptionError(f"--output: the folder {output.parent} does not exist; create it, or choose another path")
    folders = [arguments.run] if arguments.other is None else [arguments.run, arguments.other]
    runs = [Run.open(folder) for folder in folders]
    tasks = [task_class_of_run(folder).load(folder) for folder in folders]
    task = tasks[0]
    if tasks[-1].name != task.name:
        raise OptionError(
            f"two runs side by side must be of one task, got {task.name} and {tasks[-1].name}; write two pages"
        )
    with speaking(arguments.language), stages(task.name) as (progress, show_stage):
        split = None
        if arguments.text is not None:
            excerpts = excerpts_of_text(task, arguments.text)
        elif arguments.file:
            set_file_options(task, arguments)
            excerpts = excerpts_of_file(task, arguments.file, progress)
        else:
            split = read_data(task, runs[0], progress)
            excerpts = excerpts_of_split(task, split, runs[0].metrics())
        studies = [
            study(trained, excerpts, title, run.path, show_stage)
            for trained, run, title in zip(tasks, runs, _titles(runs), strict=True)
        ]
        content, live_part = "", None
        if not arguments.terminal:
            show_stage("choosing sequences for the search")
            for trained, run, result in zip(tasks, runs, studies, strict=True):
                result.places = places_of(trained, run, split, result, MAX_BYTES // len(studies))
            show_stage("drawing the page")
            if arguments.live:
                live_part = live(
                    task, excerpts, runs[0].path, half_precision=arguments.bits == 16, file=arguments.file or ""
                )
            content = page(*studies, live=live_part)
    for note in dict.fromkeys(note for run_study in studies for note in run_study.notes):
        print(f"report: {note}", file=sys.stderr)
    if arguments.terminal:
        console = Console(highlight=False)
        for run_study in studies:
            console.print(strips(run_study, console), soft_wrap=True)
        return
    if live_part is not None:
        _announce_size(live_part, content)
    write(output, content.encode())
    print(f"{output}: {len(content.encode()) / 1e6:.1f} MB, opens in any browser", file=sys.stderr)


def _parser(argv: list[str]) -> Parser:
    parser = run_parser(
        "report",
        "Write an HTML page that shows how a trained run processes a text, or examples of its dev data: "
        "findings, gates, memory, gradients. Two runs of one task are shown side by side. The page is one file that "
        "opens from disk, without a server.",
        argv,
        has_precision=False,
    )
    parser.add_argument(
        "other", metavar="RUN", nargs="?", help="folder of a second run, shown side by side with the first"
    )
    parser.add_argument(
        "text", metavar="TEXT", nargs="?", help="text to read (default: examples of the run's dev data)"
    )
    parser.add_argument(
        "--file", metavar="FILE", help="file to read instead of TEXT, in the format of the training data"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="report.html", help="file for the page (default: report.html)"
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="add a section that runs the network in the browser, to type a text and change gates",
    )
    parser.add_argument(
        "--language",
        choices=tuple(LANGUAGES),
        default="en",
        help="language of the page: en (English, the default) or zh (Chinese); texts of the data stay as they are",
    )
    parser.add_argument(
        "--bits", type=int, choices=(16, 32), default=32, help="bits per weight in the --live section (default: 32)"
    )
    parser.add_argument(
        "--terminal", action="store_true", help="print the text and its gates instead of writing a page"
    )
    return parser


def _announce_size(live_part: Live, content: str) -> None:
    """Print the size of an interactive page, or raise an error if it is too large."""
    try:
        size = check_size(content)
    except ValueError as error:
        raise OptionError(f"--live: {error}; for weights with 16 bits, add --bits 16") from None
    note = f"; weights have 16 bits, each within {live_part.error:.1g} of its value" if live_part.error else ""
    print(f"report: the page has {size / 1e6:.1f} MB{note}", file=sys.stderr)


def _titles(runs: Sequence[Run]) -> list[str]:
    """The names of the folders of the runs, or their paths if two names are equal."""
    names = [run.path.name for run in runs]
    return names if len(set(names)) == len(names) else [str(run.path) for run in runs]
