"""Tagging: a label for each unit of a sequence, the words of a sentence or the characters of a text."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from glassgate.tasks.data import python_source
from glassgate.tasks.data.batches import Batch, Encoded
from glassgate.tasks.data.tagged import FORMATS, UNITS, Tagged, format_of, read_columns, read_conllu, read_text
from glassgate.tasks.data.vocabulary import FIRST, PADDING, Vocabulary
from glassgate.tasks.encoder import encoder
from glassgate.tasks.errors import DataError
from glassgate.tasks.options import Options, option
from glassgate.tasks.task import Split, Task, Vocabularies

_UNLABELLED = -100
_NO_TOKEN = -1


@dataclass(frozen=True, kw_only=True)
class TaggingOptions(Options):
    """What tagging can be told."""

    format: str = option("auto", "of the files; by their suffix if auto", group="data", choices=FORMATS)
    column: str | None = option(
        None, "column of the labels: a name in CoNLL-U (upos, xpos, ...), else a number from 1", group="data"
    )
    unit: str = option("word", "what has a label in plain text", group="data", choices=UNITS)
    label_suffix: str = option(".labels", "turns a text file's name into its label file's", group="data")
    least_count: int = option(2, "times a unit must occur in training to have a vector of its own", least=1)
    longest: int = option(
        256, "units; longer sequences are cut for training, never for results; 0 to cut none", group="training", least=0
    )


class Tagging(Task[TaggingOptions, Tagged, list[str]]):
    """Label each unit of a sequence.

    Example:
        >>> rain = Tagged(["it", "rained"], ["PRON", "VERB"])
        >>> tagging = Tagging(TaggingOptions(hidden_size=8, epochs=20, least_count=1, learning_rate=0.1))
        >>> _ = tagging.fit(Split([rain]))
        >>> tagging.predict([Tagged(["it", "rained"], None)])
        [['PRON', 'VERB']]
    """

    name = "tagging"
    options_type = TaggingOptions
    monitor = "accuracy"
    padding: ClassVar = {"units": PADDING, "labels": _UNLABELLED, "tokens": _NO_TOKEN}
    own_options: ClassVar = {
        "format": "python",
        "hidden_size": 96,
        "embedding_size": 32,
        "learning_rate": 1e-2,
        "epochs": 1,
    }

    @property
    def longest_piece(self) -> int:
        return self.options.longest

    def read(self, path: str | Path, labelled: bool = True) -> list[Tagged]:
        options = self.options
        format = format_of(path, options.format)
        if format == "conllu":
            return read_conllu(path, options.column or "upos")
        if format == "python":
            return python_source.read(path, labelled)
        if format == "text":
            return read_text(path, options.unit, options.label_suffix, labelled)
        return read_columns(path, options.column, "\t" if format == "tsv" else None, labelled)

    def read_own(self) -> Split[Tagged]:
        train, held_out = python_source.standard_library()
        return Split(train, test=held_out)

    def collect(self, examples: Sequence[Tagged]) -> Vocabularies:
        return {
            "units": Vocabulary.of(chain.from_iterable(each.units for each in examples), self.options.least_count),
            "labels": Vocabulary.of(chain.from_iterable(each.labels or () for each in examples)),
        }

    def build(self) -> nn.Module:
        return Tagger(self.options, len(self.vocabularies["units"]), len(self.vocabularies["labels"].symbols))

    def encode(self, example: Tagged) -> Encoded:
        fields = {"units": self.vocabularies["units"].encode(example.units)}
        if example.labels is not None:
            fields["labels"] = self._label_numbers(example, example.labels)
        if example.tokens:
            fields["tokens"] = np.full(len(example.units), _NO_TOKEN)
            for number, (start, end) in enumerate(example.tokens):
                fields["tokens"][start:end] = number
        return fields

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        return F.cross_entropy(output.flatten(0, 1).float(), batch["labels"].flatten(), ignore_index=_UNLABELLED)

    def metrics(self) -> MetricCollection:
        count = len(self.vocabularies["labels"].symbols)
        scores: dict[str, Metric | MetricCollection] = {
            "accuracy": MulticlassAccuracy(count, average="micro", ignore_index=_UNLABELLED),
            "macro_f1": MulticlassF1Score(count, average="macro", ignore_index=_UNLABELLED),
            "whole_tokens": WholeTokens(),
        }
        return MetricCollection(scores)

    def observe(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        labels = batch["labels"]
        tokens = batch.get("tokens", torch.full_like(labels, _NO_TOKEN))
        return {"preds": output.argmax(-1), "target": labels, "tokens": tokens}

    def decode(self, output: Tensor, batch: Batch) -> list[list[str]]:
        symbols = self.vocabularies["labels"].symbols
        rows = zip(output.argmax(-1).tolist(), batch["lengths"].tolist(), strict=True)
        return [[symbols[number] for number in row[:length]] for row, length in rows]

    def text(self, example: Tagged, prediction: list[str]) -> str:
        rows = zip(example.units, prediction, strict=True)
        return "".join(f"{_visible(unit)}\t{label}\n" for unit, label in rows)

    def _label_numbers(self, example: Tagged, labels: Sequence[str]) -> np.ndarray:
        vocabulary = self.vocabularies["labels"]
        numbers = vocabulary.encode(labels) - FIRST
        if (numbers < 0).any():
            place = int(np.argmax(numbers < 0))
            raise DataError(
                example.source or "given examples",
                example.line(place),
                f"label {labels[place]!r} was not among the {len(vocabulary.symbols)} labels of the training data "
                f"({_some(vocabulary.symbols)}); correct the label, choose another --column, or train with it",
            )
        return numbers


class Tagger(nn.Module):
    """Vectors of the units, recurrent layers over them, and a score for each label.

    Args:
        options: sizes and cell
        units: how many units are known, padding and unknown included
        labels: how many labels there are
    """

    def __init__(self, options: TaggingOptions, units: int, labels: int):
        super().__init__()
        self.embedding = nn.Embedding(units, options.embedding_size, padding_idx=PADDING)
        self.dropout = nn.Dropout(options.dropout)
        self.encoder = encoder(options)
        self.head = nn.Linear(options.hidden_size * (1 + options.bidirectional), labels)

    def forward(self, batch: Batch) -> Tensor:
        """From `units`, `(N, L)`, and `lengths`, `(N,)`, to `(N, L, labels)`."""
        vectors = self.dropout(self.embedding(batch["units"]))
        output, _ = self.encoder(vectors, lengths=batch["lengths"])
        return self.head(self.dropout(output))


class WholeTokens(Metric):
    """The share of tokens, each made of several units, whose units are all labelled right.

    Example:
        >>> metric = WholeTokens()
        >>> metric.update(torch.tensor([[1, 1, 2]]), torch.tensor([[1, 1, 1]]), torch.tensor([[0, 0, 1]]))
        >>> metric.compute()
        tensor(0.5000)
    """

    right: Tensor
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("right", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("total", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor, tokens: Tensor) -> None:
        """Count a batch: all arguments `(N, L)`, tokens numbered from 0 in each row, -1 where there is none."""
        rows = torch.arange(len(tokens), device=tokens.device)[:, None] * (tokens.max() + 1)
        inside = tokens >= 0
        numbers, places = torch.unique((tokens + rows)[inside], return_inverse=True)
        wrong = torch.zeros(len(numbers), dtype=torch.long, device=tokens.device)
        wrong.index_add_(0, places, (preds != target)[inside].long())
        self.right += (wrong == 0).sum()
        self.total += len(numbers)

    def compute(self) -> Tensor:
        """Return the share, not a number where there was no token."""
        return self.right / self.total


def _visible(unit: str) -> str:
    return unit if unit.isprintable() else unit.encode("unicode_escape").decode()


def _some(symbols: Sequence[str], most: int = 12) -> str:
    return ", ".join(symbols[:most]) + (", ..." if len(symbols) > most else "")
