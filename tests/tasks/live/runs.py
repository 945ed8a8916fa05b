"""Small runs of every task, and their answers computed in Python, for comparison with interactive pages."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

import glassgate as gg
from glassgate.glass.edit import editable_values
from glassgate.tasks import task_class
from glassgate.tasks.data.batches import collate
from glassgate.tasks.data.batching import Piece
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.data.pairs import Pair
from glassgate.tasks.language_model.music import parse_roll
from glassgate.tasks.report.study import Excerpt, excerpts_of_text
from glassgate.tasks.report.task_view import view_of
from glassgate.tasks.task import Split, Task
from tests.tasks.test_every_task import SPLITS

SMALL: dict[str, Any] = {"hidden_size": 6, "embedding_size": 5, "epochs": 1, "threads": 1, "learning_rate": 0.05}
WAVES = [Labelled(np.sin(np.arange(12)[:, None] * [speed, 2 * speed]).astype(np.float32), label) for speed, label in
         ((0.2, "slow"), (0.5, "fast"), (0.3, "slow"), (0.6, "fast"))]  # fmt: skip
NUMBERS = [Labelled(each.content, f"{k}.5 -{k}") for k, each in enumerate(WAVES)]
MUSIC = parse_roll("60 64 67\n60 64 67\n62 65 69\n-\n60 72\n59 62 67\n60 64 67")
TEXTS = {
    "tagging": "play it now, stop the jazz",
    "classification": "good bad day",
    "language-model": "tick\ntock kit",
    "fill-blanks": "salt and sand",
    "translation": "three two one",
    "regression": "good day, awful",
}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "tagging": ("tagging", {"head": "crf", "character_size": 3}),
    "classification": ("classification", {"pooling": "attention", "cell": "gru", "num_layers": 2, "least_count": 1}),
    "classification, last": ("classification", {"pooling": "last", "bidirectional": True, "least_count": 1}),
    "language-model": ("language-model", {"tied": True}),
    "fill-blanks": ("fill-blanks", {"cell": "rnn"}),
    "translation": ("translation", {"source_tokens": "word", "target_tokens": "word", "bidirectional": True}),
    "translation, additive": ("translation", {"source_tokens": "character", "attention": "additive", "tied": True}),
    "translation, none": ("translation", {"source_tokens": "word", "target_tokens": "word", "attention": "none",
                                          "cell": "peepholelstm"}),
    "regression": ("regression", {"least_count": 1}),
    "forecasting": ("forecasting", {"horizon": 4, "look_back": 12, "head": "quantiles", "normalize": "window"}),
    "forecasting, recursive": ("forecasting", {"horizon": 4, "look_back": 12, "model": "recursive", "head": "mse"}),
    "forecasting, segments": ("forecasting", {"horizon": 4, "look_back": 12, "model": "segments", "segment": 3,
                                              "head": "gaussian", "calendar": True}),
    "forecasting, counts": ("forecasting", {"horizon": 4, "look_back": 12, "head": "negative-binomial"}),
    "classification of series": ("classification", {"pooling": "concat", "waves": True}),
    "regression of series": ("regression", {"waves": True}),
    "language-model, music": ("language-model", {"tokens": "notes"}),
    "language-model, bytes": ("language-model", {"tokens": "byte", "num_layers": 2}),
    "translation, subwords": ("translation", {"source_tokens": "subword", "target_tokens": "subword", "subwords": 30,
                                              "input_feeding": True}),
}  # fmt: skip
"""The task and its options, by the name of the run."""


def trained(name: str) -> Task[Any, Any, Any]:
    """Return a small run of a task."""
    task_name, options = RUNS[name]
    kind = task_class(task_name)
    options = dict(options)
    waves = options.pop("waves", False)
    task = kind(kind.options_type.from_mapping(SMALL | options))
    if options.get("tokens") == "notes":
        task.fit(Split([MUSIC] * 4))
        return task
    different = [replace(each, content=(each.content + 5 * (k // 2))[k % 2 :]) for k, each in enumerate(WAVES)]
    rows = NUMBERS if task_name == "regression" else different
    task.fit(Split(rows * 2, rows[:2]) if waves else SPLITS[task_name])
    return task


def excerpts(task: Task[Any, Any, Any]) -> list[Excerpt]:
    """Return the excerpts that the page of a task shows."""
    if task.name == "forecasting":
        series = SPLITS["forecasting"].train[0]
        return [Excerpt(series, *view_of(task).excerpt(series, (0, len(series))))]
    if "mean" in task.fitted or "series" in task.fitted:
        return [Excerpt(NUMBERS[0] if task.name == "regression" else WAVES[0], 0, 12)]
    if "keys" in task.fitted or getattr(task.options, "tokens", "") == "notes":
        return [Excerpt(MUSIC, 0, len(MUSIC.steps))]
    return excerpts_of_text(task, TEXTS[task.name])


def random_inputs(
    task: Task[Any, Any, Any], excerpt: Excerpt, random: np.random.Generator, count: int
) -> list[tuple[Any, Excerpt]]:
    """Return random texts or series, each as an input of the page and as an excerpt for Python."""
    if task.name == "forecasting":
        back = task.options.steps_back
        walks = [random.normal(0, 3, back).cumsum()[:, None].tolist() for _ in range(count)]
        return [(rows, excerpt._replace(example=_changed(task, excerpt, rows))) for rows in walks]
    if isinstance(getattr(excerpt.example, "content", None), np.ndarray):
        waves = [random.normal(0, 1, excerpt.example.content.shape).astype(np.float32).tolist() for _ in range(count)]
        return [(rows, excerpt._replace(example=_changed(task, excerpt, rows))) for rows in waves]
    texts = [random_text(task, random) for _ in range(count)]
    return [(text, excerpts_of_text(task, text)[0]) for text in texts]


def _changed(task: Task[Any, Any, Any], excerpt: Excerpt, rows: Any) -> Any:
    return view_of(task).with_series(excerpt.example, excerpt.stop, rows)


def random_text(task: Task[Any, Any, Any], random: np.random.Generator) -> str:
    """Return known tokens and unknown ones of several scripts, with punctuation, in random order."""
    if getattr(task.options, "tokens", "") == "notes":
        steps = [
            sorted(set(random.integers(21, 109, random.integers(5)).tolist())) for _ in range(random.integers(1, 9))
        ]
        return "\n".join(" ".join(map(str, step)) or "-" for step in steps)
    known = task.vocabularies.get("units") or task.vocabularies["source"]
    strange = ["žužu", "Don't", "(stop)", "wait...", "北京", "naïve!", '"x"', "3.14", "😀", "a.b.", "now,"]
    symbols = [each for each in known.symbols if each.isprintable() and each.strip()]
    words = [str(random.choice(symbols)), *random.choice([*symbols, *strange], random.integers(0, 10)).tolist()]
    gap = random.choice([" ", "  ", "\n"]) if "character" in vars(task.options).values() else " "
    return str(gap).join(random.permutation(words).tolist())


def answers(task: Task[Any, Any, Any], excerpt: Excerpt, edits: dict[str, Any], target: str | None = None) -> Any:
    """Return the probabilities of each answer, the predicted numbers, or the log-probability of the notes of music."""
    example = excerpt.example if target is None else Pair(excerpt.example.source, target)
    batch = collate([task.encode(example)], [Piece(0, excerpt.start, excerpt.stop)], task.padding)
    view = view_of(task)
    network = task.network.eval()
    with torch.no_grad(), gg.engine("reference"):
        if edits:
            with gg.edit(network, edits):
                output = view.run(network, batch)
        else:
            output = view.run(network, batch)
        answered = view.answers(output, batch)
    if answered.answers[0].agreement is not None:
        return answered.groups[0].logs[0, :, 0].tolist()
    if answered.answers[0].best[0].probability is None:
        if task.name == "regression":
            offset, factor = (torch.tensor(each) for each in task.fitted["numbers"][:2])
        else:
            offset, factor = batch["shift"], batch["scale"]
        return (answered.evidence[0] * factor + offset).tolist()
    return [row.exp().tolist() for group in answered.groups for row in group.logs[0]]


def random_edits(
    task: Task[Any, Any, Any], random: np.random.Generator, count: int = 2
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return random edits, for Python and for a page. Edits of a decoder apply to all steps."""
    names = [name for name in editable_values(task.network) if name.startswith(("encoder.", "decoder."))]
    edits, given_edits = {}, []
    for name in random.choice(names, min(count, len(names)), replace=False).tolist():
        value, unit, start = round(float(random.uniform(-1, 1)), 2), int(random.integers(4)), int(random.integers(2))
        kinds = ["hold", "scale"] if name.startswith("decoder.") else ["hold", "scale", "replace"]
        kind = str(random.choice(kinds))
        change: dict[str, Any] = {"name": name, "kind": kind, "units": [unit, unit + 1]}
        where: dict[str, Any] = {"units": change["units"]}
        if not name.startswith("decoder."):
            change |= {"from": start, "to": start + 1 + 2 * (kind != "replace")}
            where["steps"] = slice(change["from"], change["to"])
        if kind == "replace":
            values = random.normal(0, 0.5, (2, 1, editable_values(task.network)[name][3])).astype(np.float32)
            edits[name] = gg.replace(torch.from_numpy(values), **where)
            given_edits.append(change | {"values": values.flatten().tolist()})
        else:
            edits[name] = getattr(gg, kind)(value, **where)
            given_edits.append(change | {"value": value})
    return edits, given_edits
