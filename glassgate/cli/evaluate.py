"""`glassgate evaluate`: print the scores of a trained run on a labelled file."""

import filecmp
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glassgate.cli.progress import format_scores
from glassgate.cli.trained import load, read, run_parser
from glassgate.tasks.data.files import STDIN
from glassgate.tasks.data.held_out import ByContent
from glassgate.tasks.data.unknown import unknown_fraction, unknown_label_warnings, unknown_tokens_note
from glassgate.tasks.metrics.scores import by_label, label_table
from glassgate.tasks.options import Options
from glassgate.tasks.runs import Run
from glassgate.tasks.task import Task
from glassgate.tasks.training.scoring import compute_metrics, scores_of

_MAX_HASHES = 100_000  # examples that are compared with those of the training
_MIN_HITS = 3
_MIN_FRACTION = 0.1  # of the file or of the training data, for a note about examples in both


def command(argv: list[str]) -> None:
    """Run `glassgate evaluate` with the given arguments."""
    parser = run_parser("evaluate", "Score a trained run on a labelled file.", argv)
    parser.add_argument("file", metavar="FILE", help="labelled data in the format of the training data")
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    parser.add_argument("--report", metavar="FOLDER", help="folder for further results, such as a confusion matrix")
    arguments = parser.parse_args(argv)
    task: Task[Any, Any, Any] = load(arguments)
    examples = read(task, arguments.file, labelled=True)
    found = ""
    if _contains_training_data(task.options, arguments.file):
        found = f"{arguments.file} contains the data that the run was trained on"
    elif count := _count_trained(task, examples, Run.open(arguments.run).content.get("sample", {})):
        found = f"about {count:,} of the {len(examples):,} examples of {arguments.file} are in the training data"
    if found:
        print(f"note: {found}, so the scores are higher than on new data", file=sys.stderr)
    encoded = task.encoded(examples)
    unknown = unknown_fraction(task.input_field, encoded) if task.vocabularies else None
    for sentence in (
        *unknown_label_warnings(task.targets, task.vocabularies, task.corpus(examples), arguments.file),
        unknown_tokens_note(unknown, arguments.file),
    ):
        if sentence:
            print(f"warning: {sentence}", file=sys.stderr)
    metrics = compute_metrics(task, encoded)
    scores, label_rows = scores_of(metrics), by_label(metrics)
    if arguments.json:
        signatures = task.summary.signatures()
        content: dict[str, object] = {**scores, **({} if unknown is None else {"unknown_tokens": unknown})}
        content |= {f"by_{kind}": rows for kind, rows in label_rows.items()}
        print(json.dumps(content | ({"signatures": signatures} if signatures else {})))
    else:
        print(task.summary.table(scores) or format_scores(scores))
        if unknown is not None:
            print(f"unknown tokens {unknown:.2%}")
        for kind, rows in label_rows.items():
            print(f"\n{label_table(kind, rows)}")
    if arguments.report:
        folder = Path(arguments.report)
        folder.mkdir(parents=True, exist_ok=True)
        files = task.summary.write(encoded, folder)
        for file in files:
            print(file, file=sys.stderr)
        if not files:
            print(f"{task.name} has no results other than its scores", file=sys.stderr)


def _count_trained(task: Task[Any, Any, Any], examples: Sequence[Any], sample: Mapping[str, Any]) -> int:
    """Estimate how many examples are in the training data, from the hashes in a run; 0 if only a few of them are.

    Args:
        sample: the number of training examples, and the hashes of evenly spaced ones; empty if the run stores none
    """
    rule = task.held_out_rule
    if not sample or not isinstance(rule, ByContent):
        return 0
    trained, hashes = {*sample["hashes"]}, rule.hashes(examples, _MAX_HASHES)
    hits = sum(each in trained for each in hashes)
    count = round(hits * sample["count"] / len(sample["hashes"]) * len(examples) / len(hashes))
    is_many = hits >= _MIN_HITS and count >= _MIN_FRACTION * min(len(examples), sample["count"])
    return min(count, len(examples)) if is_many else 0


def _contains_training_data(options: Options, file: str) -> bool:
    """Whether a file is the training file of a run, or a copy of it."""
    trained = options.training_file
    if trained is None or STDIN in (trained, file):
        return False
    if not Path(trained).is_file() or not Path(file).is_file():
        return os.path.realpath(trained) == os.path.realpath(file)
    return os.path.samefile(trained, file) or filecmp.cmp(trained, file, shallow=False)
