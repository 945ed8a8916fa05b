"""`glassgate report`: one page that shows what a trained run does, gate by gate, step by step."""

import sys
from pathlib import Path

from rich.console import Console

from glassgate.cli.parser import Parser
from glassgate.cli.progress import Bar, display
from glassgate.cli.strips import strips
from glassgate.glass.page import page
from glassgate.tasks import run_class
from glassgate.tasks.errors import OptionError
from glassgate.tasks.runs import Run
from glassgate.tasks.study import given, own, read, study


def command(words: list[str]) -> None:
    """Report as the words after `glassgate report` say."""
    parser = Parser(
        prog="glassgate report",
        description="Write one HTML page that shows what a trained run does with a text, or with examples of its own "
        "data: findings, gates, memory, gradients. It needs no network and no server; open it from disk.",
    )
    parser.add_argument("run", metavar="RUN", help="folder of a trained run")
    parser.add_argument("text", metavar="TEXT", nargs="?", help="what the run reads (examples of its dev data)")
    parser.add_argument("--file", metavar="FILE", help="read this instead of TEXT, in the format of the training data")
    parser.add_argument("-o", "--output", metavar="FILE", default="report.html", help="the page (report.html)")
    parser.add_argument("--terminal", action="store_true", help="print the text and strips of gates, write no page")
    arguments = parser.parse_args(words)
    if arguments.text is not None and arguments.file:
        raise OptionError("--file: expected a text or a file, got both; leave one of them out")
    output = Path(arguments.output)
    if not output.resolve().parent.is_dir():
        raise OptionError(f"--output: there is no folder {output.parent}; make it, or write elsewhere")
    run = Run.open(arguments.run)
    task = run_class(arguments.run).load(arguments.run)
    with display(Console(stderr=True)) as bars:
        row = bars.add_task("reading the run", total=None, said="")

        def tick(what: str) -> None:
            bars.update(row, description=what)

        progress = Bar(bars, task.name)
        if arguments.text is not None:
            stretches = given(task, arguments.text)
        elif arguments.file:
            stretches = read(task, arguments.file, progress)
        else:
            stretches = own(task, progress)
        made = study(task, stretches, run.path.name, run.path, tick)
        tick("drawing the page")
        content = "" if arguments.terminal else page(made)
        bars.update(row, total=1, completed=1)
    if arguments.terminal:
        console = Console(highlight=False)
        console.print(strips(made, console), soft_wrap=True)
        return
    _write(output, content)
    print(f"{output}: {len(content.encode()) / 1e6:.1f} MB, opens in any browser", file=sys.stderr)


def _write(output: Path, content: str) -> None:
    """Replace a file as a whole."""
    part = output.with_name(output.name + ".part")
    try:
        part.write_text(content, encoding="utf-8")
        part.replace(output)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OptionError(f"--output: {output} could not be written ({error.strerror}); choose another place") from None
