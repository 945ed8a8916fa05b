"""`glassgate forecast`: forecast the next steps of the series of a file, as CSV and as a picture."""

import csv
import io
import sys
from pathlib import Path

from rich.console import Console

from glassgate.cli.progress import Bar, display
from glassgate.cli.trained import load, run_parser
from glassgate.extras import install_command
from glassgate.tasks.errors import OptionError
from glassgate.tasks.forecasting.output import fan_picture, header, rows
from glassgate.tasks.forecasting.task import Forecasting
from glassgate.tasks.pictures.charts import has_matplotlib
from glassgate.tasks.runs import write
from glassgate.tasks.wording import shortened_list


def command(argv: list[str]) -> None:
    """Run `glassgate forecast` with the given arguments."""
    parser = run_parser("forecast", "Forecast the next steps of series.", argv)
    parser.add_argument("file", metavar="FILE", nargs="?", help="table of series (default: the training data)")
    parser.add_argument("-o", "--output", metavar="FILE.csv", help="file for the forecast (default: standard output)")
    parser.add_argument("--picture", metavar="FILE.svg", help="draw the forecast to an SVG or PNG file")
    arguments = parser.parse_args(argv)
    if arguments.picture and not has_matplotlib():
        remedy = f"{install_command('matplotlib')}, or leave --picture out"
        raise OptionError(f"picture: drawing needs matplotlib; {remedy}")
    if arguments.picture and Path(arguments.picture).suffix not in (".svg", ".png"):
        raise OptionError(f"picture: expected a file that ends in .svg or .png, got {arguments.picture}")
    task: Forecasting = load(arguments, Forecasting)
    with display(Console(stderr=True)) as bars:
        examples = task.read_for_forecast(arguments.file, Bar(bars, task.name))
    if unseen := [each.name for each in examples if each.name not in task.statistics.indices]:
        names, scale = shortened_list(unseen, 5), "its scale is" if len(unseen) == 1 else "their scales are"
        print(f"note: the run was not trained on {names}; {scale} computed from the file", file=sys.stderr)
    origins = list(task.forecast_from_end(examples))
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow(header(origins, task.options.levels))
    for origin in origins:
        writer.writerows(rows(origin.series, origin.start, origin.forecast))
    if arguments.picture:
        fan_picture(origins, task.options.levels, Path(arguments.picture))
    if arguments.output:
        write(Path(arguments.output), content.getvalue().encode())
    else:
        sys.stdout.write(content.getvalue())
