"""Exports of annotation tools: JSON rows with the usual names, and formats that are recognised but not read."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassgate.tasks.errors import DataError

_EXAMINED_LINES = 40
_LEAST_EPOCH = 10**8  # seconds or milliseconds since 1970
_SPANS = re.compile(r'\[\{(?=.*"start": ?\d)(?=.*"end": ?\d)(?=.*"labels": ?\[)')
_CONLL = "export it as CoNLL 2002 or 2003, with a word and its label per line"
_SENTENCES = "write a sentence per line: the/DT dog/NN"
_PHRASE = "(S|NP|VP|FRAG|SINV|SQ|SBARQ|INTJ)"
_UNREAD = (  # a regular expression for the beginning of the file, the name of its format, and the remedy
    (r"^\ufeff?#FORMAT=WebAnno TSV", "WebAnno TSV", _CONLL),
    (r"^T\d+\t\S+ \d+ \d+(;\d+ \d+)*\t", "annotations of brat without their text", _CONLL),
    (r"^#BOS \d+", "the export format of NEGRA and TIGER", _CONLL),
    (
        r"^<(s|doc|text|p)( [^>\n]*)?>\n(.*\n)*?[^\t\n<]+\t",
        "a corpus with XML tags",
        "remove the tags, and leave an empty line after a sentence",
    ),
    (r"^\[ \S+/[A-Z$]+ (.* )?\]$", "chunks of the Penn Treebank", _SENTENCES),
    (rf"^\((ROOT|TOP|S1)?\s*\({_PHRASE}[ (-]", "trees of the Penn Treebank", _SENTENCES),
    (r"^LabVIEW Measurement\b", "a LabVIEW measurement", "remove the lines above the names of the columns"),
)


def reject_unread_format(path: str | Path, lines: Sequence[str]) -> None:
    """Raise a DataError if the first lines of a file have a format that would be read wrongly."""
    text = "\n".join(lines[:_EXAMINED_LINES])
    for pattern, name, remedy in _UNREAD:
        if match := re.search(pattern, text, re.MULTILINE):
            number = text.count("\n", 0, match.start()) + 1
            raise DataError(path, number, f"expected text or a table, got {name}, which is not read; {remedy}")


def reject_unread_json(path: str | Path, content: Any) -> None:
    """Raise a DataError if the content of a JSON file is series in a format that is not read."""
    remedy = "write a CSV file with a header, such as time,value, and a row per step"
    data = content.get("data") if isinstance(content, dict) else None
    if isinstance(data, dict) and {"resultType", "result"} <= data.keys():
        raise DataError(path, None, f"expected rows of JSON, got an answer of Prometheus, which is not read; {remedy}")
    rows = content if isinstance(content, list) else []
    are_steps = bool(rows) and all(isinstance(row, list) and len(row) > 2 and _is_epoch(row[0]) for row in rows)
    if are_steps and any(isinstance(cell, str) for cell in rows[0]):
        got = "lists of a time and numbers as strings, as Binance writes them"
        raise DataError(path, None, f"expected rows of JSON with keys, got {got}; {remedy}")


def _is_epoch(value: Any) -> bool:
    return isinstance(value, int) and value > _LEAST_EPOCH


def reject_spans(path: str | Path, line: int, column: str, values: Sequence[str]) -> None:
    """Raise a DataError if the labels in a column are spans of characters, as in a table of Label Studio."""
    if values and all(map(_SPANS.match, values)):
        got = f"got spans in JSON in column {column!r}, as Label Studio writes them"
        remedy = "export the data as JSON or CoNLL 2003 and train tagging, or name another column with --label-column"
        raise DataError(path, line, f"expected labels, {got}; {remedy}")


def usual_row(row: Any) -> Any:
    """Return a row of Label Studio, Prodigy or spaCy with the usual keys of texts, labels and spans.

    Example:
        >>> usual_row(["Anna sings", {"entities": [[0, 4, "PER"]]}])
        {'text': 'Anna sings', 'entities': [[0, 4, 'PER']]}
        >>> usual_row({"text": "fine", "accept": ["good"], "options": [], "_task_hash": 1, "answer": "accept"})
        {'text': 'fine', 'label': 'good'}
    """
    if isinstance(row, list) and [*map(type, row)] == [str, dict] and isinstance(row[1].get("entities"), list):
        return {"text": row[0], "entities": row[1]["entities"]}
    if not isinstance(row, dict):
        return row
    if isinstance(row.get("data"), dict) and _are_annotations(row.get("annotations")):
        return row["data"] | _answers(row["annotations"][0]["result"])
    if "_task_hash" in row and "answer" in row:
        chosen = {key: value for key, value in row.items() if key in ("text", "label", "spans", "meta")}
        if isinstance(row.get("accept"), list) and len(row["accept"]) == 1:
            chosen["label"] = row["accept"][0]
        return chosen
    return row


def is_rejected(row: Any) -> bool:
    """Whether an annotator has rejected or skipped a row of Prodigy with a choice or spans."""
    is_answered = isinstance(row, dict) and "_task_hash" in row and ("accept" in row or "spans" in row)
    return is_answered and row.get("answer") in ("reject", "ignore")


def _are_annotations(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict) and "result" in value[0]


def _answers(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The label of a text if the results are a choice, or else its spans."""
    values = [result.get("value", {}) for result in results]
    choices = [value["choices"] for value in values if "choices" in value]
    if choices:
        return {"label": choices[0][0] if len(choices[0]) == 1 else choices[0]}
    return {"spans": values}
