"""`glassgate evaluate`: the scores of a trained run on a labelled file."""

import json
from argparse import ArgumentParser

from glassgate.cli.progress import told
from glassgate.tasks import run_class


def command(words: list[str]) -> None:
    """Score as the words after `glassgate evaluate` say."""
    parser = ArgumentParser(prog="glassgate evaluate", description="Score a trained run on a labelled file.")
    parser.add_argument("run", metavar="RUN", help="folder that training made")
    parser.add_argument("file", metavar="FILE", help="labelled data, in the format that the run was trained on")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args(words)
    task = run_class(arguments.run).load(arguments.run)
    scores = task.evaluate(task.read(arguments.file))
    print(json.dumps(scores) if arguments.json else told(scores))
