"""`glassgate evaluate`: the scores of a trained run on a labelled file."""

import json
import sys
from pathlib import Path

from rich.console import Console

from glassgate.cli.parser import Parser
from glassgate.cli.progress import Bar, display, told
from glassgate.tasks import run_class
from glassgate.tasks.unseen import said_of


def command(words: list[str]) -> None:
    """Score as the words after `glassgate evaluate` say."""
    parser = Parser(prog="glassgate evaluate", description="Score a trained run on a labelled file.")
    parser.add_argument("run", metavar="RUN", help="folder that training made")
    parser.add_argument("file", metavar="FILE", help="labelled data, in the format that the run was trained on")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--report", metavar="FOLDER", help="write what else there is to see, such as a confusion matrix"
    )
    arguments = parser.parse_args(words)
    task = run_class(arguments.run).load(arguments.run)
    with display(Console(stderr=True)) as bars:
        examples = task.read(arguments.file, progress=Bar(bars, task.name))
    for sentence in said_of(task, examples, arguments.file):
        print(f"warning: {sentence}", file=sys.stderr)
    encoded = task.encoded(examples)
    scores = task.score(encoded)
    if arguments.json:
        signatures = task.signatures()
        print(json.dumps(scores | ({"signatures": signatures} if signatures else {})))
    else:
        print(task.table(scores) or told(scores))
    if arguments.report:
        folder = Path(arguments.report)
        folder.mkdir(parents=True, exist_ok=True)
        files = task.report(encoded, folder)
        for file in files:
            print(file, file=sys.stderr)
        if not files:
            print(f"{task.name} has nothing to see beside its scores", file=sys.stderr)
