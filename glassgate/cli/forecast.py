"""`glassgate forecast`: the next steps of the series of a file, as CSV and as a picture."""

import csv
import io
import sys
from pathlib import Path

from rich.console import Console

from glassgate.cli.arguments import add_precision
from glassgate.cli.parser import Parser
from glassgate.cli.progress import Bar, display
from glassgate.tasks import run_class
from glassgate.tasks.errors import OptionError, RunError
from glassgate.tasks.forecasting.output import SHOWN, fan_picture, header, rows
from glassgate.tasks.forecasting.task import Forecasting
from glassgate.tasks.pictures.charts import has_pictures
from glassgate.tasks.runs import write


def command(words: list[str]) -> None:
    """Forecast as the words after `glassgate forecast` say."""
    parser = Parser(prog="glassgate forecast", description="Forecast the next steps of series.")
    parser.add_argument("run", metavar="RUN", help="folder of a trained run")
    parser.add_argument("file", metavar="FILE", nargs="?", help="table of series (the one that the run was trained on)")
    parser.add_argument("-o", "--output", metavar="FILE.csv", help="where the forecast goes (standard output)")
    parser.add_argument("--picture", metavar="FILE.svg", help="draw the forecast, as SVG or PNG")
    add_precision(parser)
    arguments = parser.parse_args(words)
    if arguments.picture and not has_pictures():
        raise OptionError("picture: drawing needs matplotlib; pip install matplotlib, or leave --picture out")
    if arguments.picture and Path(arguments.picture).suffix not in (".svg", ".png"):
        raise OptionError(f"picture: expected a file that ends in .svg or .png, got {arguments.picture}")
    kind = run_class(arguments.run)
    if not issubclass(kind, Forecasting):
        raise RunError(
            f"{arguments.run}: expected a run of {Forecasting.name}, got one of {kind.name}; "
            f"train one: glassgate train {Forecasting.name}"
        )
    task = kind.load(arguments.run).frozen(arguments.precision)
    with display(Console(stderr=True)) as bars:
        examples = task.read_for_forecast(arguments.file, Bar(bars, task.name))
    origins = list(task.from_end(examples))
    content = io.StringIO()
    lines = csv.writer(content, lineterminator="\n")
    lines.writerow(header(origins, task.options.levels))
    for each in origins:
        lines.writerows(rows(each.series, each.place, each.forecast))
    if arguments.picture:
        fan_picture(origins[:SHOWN], task.options.levels, Path(arguments.picture))
    if arguments.output:
        write(Path(arguments.output), content.getvalue().encode())
    else:
        sys.stdout.write(content.getvalue())
