"""Filling blanks: predict missing tokens from the text before and after them."""

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from glassgate.tasks.data import texts
from glassgate.tasks.data.batches import Batch, Encoded
from glassgate.tasks.data.batching import Batching
from glassgate.tasks.data.texts import Text
from glassgate.tasks.data.vocabulary import FIRST, PADDING, UNKNOWN
from glassgate.tasks.errors import OptionError
from glassgate.tasks.fill_blanks.network import BlankNetwork, Blanks
from glassgate.tasks.fill_blanks.options import FillBlanksOptions
from glassgate.tasks.loss import Loss, Mean, cross_entropy
from glassgate.tasks.networks.states import selected
from glassgate.tasks.predictions import Record, text_record
from glassgate.tasks.progress import Progress
from glassgate.tasks.text_task import TextTask

if TYPE_CHECKING:
    from torchmetrics import MetricCollection

BLANK = "___"

_BLANK = re.compile("_{2,}")

# Evaluation cuts a file into pieces of this length; the missing context at their ends does not change the scores.
_LONGEST_PIECE = 4096

# Rows of the search, and candidates returned.
_WIDTH = 32

_MOST = 10


class Candidate(NamedTuple):
    """A text for a blank, and its probability."""

    text: str
    probability: float


class FillBlanks(TextTask[FillBlanksOptions, list[list[Candidate]]]):
    """Fill blanks. Training reads texts, prediction reads lines with blanks.

    Each direction stops at the blank, in every layer, and the prediction depends only on the two states next to it. In
    training, the length of a blank is drawn uniformly from 1 to `longest_blank`.

    Example:
        >>> from glassgate.tasks.task import Split
        >>> options = FillBlanksOptions(hidden_size=16, epochs=30, longest=20, batch_size=4, learning_rate=0.05)
        >>> task = FillBlanks(options)
        >>> _ = task.fit(Split([Text("salt and pepper, " * 30)]))
        >>> task.fill("pepper, salt a__ pepper, salt")[0][0].text
        'nd'
    """

    name = "fill-blanks"
    options_type = FillBlanksOptions
    comparable_losses = False  # training uses blanks of any length, evaluation blanks of one token
    try_next = (f'fill {{run}} "some words {BLANK} and more"', "evaluate {run} {file}")
    padding = {"units": PADDING}
    target_field = "units"
    builtin_options = {"hidden_size": 192, "dropout": 0.0, "epochs": 4, "learning_rate": 5e-3}

    def read(self, path: str | Path, labelled: bool = True, progress: Progress | None = None) -> Sequence[Text | str]:
        """Read texts, or lines and rows with blanks."""
        if labelled:
            return super().read(path, labelled, progress)
        return [line for _, line in texts.text_lines(path, self.options.text_column) if line.strip()]

    def batching(self) -> Batching:
        return Batching(self.options, self.options.longest, longest_evaluated=_LONGEST_PIECE)

    def build(self) -> BlankNetwork:
        return BlankNetwork(self.options, len(self.vocabularies["units"]))

    def encode(self, example: Text | str) -> Encoded:
        units = example.tokens if isinstance(example, Text) else texts.split(example, self.options.tokens)
        return {"units": self.vocabularies["units"].encode(units)}

    def loss(self, output: Blanks, batch: Batch) -> Loss:
        units, mask = cross_entropy(output.token_scores, batch["units"] - UNKNOWN)
        lengths, _ = cross_entropy(output.lengths, output.blank_lengths - 1)
        return [Mean.of(units + lengths, mask)]

    def metrics(self) -> "MetricCollection":
        from torchmetrics import MetricCollection

        from glassgate.tasks.metrics.scores import Accuracy, Likelihood

        return MetricCollection({"likelihood": Likelihood(), "accuracy": Accuracy()})

    def observe(self, output: Blanks, batch: Batch) -> dict[str, Tensor]:
        """Score blanks of one token, at every position of the text."""
        target = batch["units"] - UNKNOWN
        nats, mask = cross_entropy(output.token_scores, target)
        return {"nats": nats, "mask": mask, "preds": output.token_scores.argmax(-1), "target": target}

    def decode(self, output: Blanks, batch: Batch) -> list[list[list[Candidate]]]:
        symbols = self.vocabularies["units"].symbols
        chances = output.token_scores.float().softmax(-1)[..., FIRST - UNKNOWN :]
        best, numbers = chances.topk(min(_MOST, chances.shape[-1]))
        rows = zip(best.tolist(), numbers.tolist(), batch["lengths"].tolist(), strict=True)
        return [
            [
                [Candidate(symbols[number], chance) for chance, number in zip(*place, strict=True)]
                for place in zip(of_row[:length], which[:length], strict=True)
            ]
            for of_row, which, length in rows
        ]

    def predict(self, examples: Sequence[Text | str]) -> list[list[list[Candidate]]]:
        """Return candidates for each blank of a line; for a text, candidates for each token as if it were missing."""
        task = self.frozen()
        units = iter(super(FillBlanks, task).predict([each for each in examples if isinstance(each, Text)]))
        return [task.fill(each) if isinstance(each, str) else next(units) for each in examples]

    def text(self, example: Text | str, prediction: list[list[Candidate]]) -> str:
        """Return a line with its blanks filled; for a text, a line for each token and the most probable one."""
        if isinstance(example, Text):
            return "".join(f"{u!r}\t{best[0].text!r}\n" for u, best in zip(example.tokens, prediction, strict=True))
        first, *rest = self.parts(example)
        return first + "".join(best[0].text + part for best, part in zip(prediction, rest, strict=True))

    def record(self, example: Text | str, prediction: list[list[Candidate]]) -> Record:
        """Return the candidates of each blank and its place in the filled text; of a text those of each token."""
        by_blank = [{"candidates": [each._asdict() for each in candidates]} for candidates in prediction]
        if isinstance(example, Text):
            return text_record(example.tokens, self.options.tokens, by_blank)
        text, *rest = self.parts(example)
        blanks: list[Record] = []
        for candidates, part in zip(by_blank, rest, strict=True):
            best = str(candidates["candidates"][0]["text"])
            blanks.append({"start": len(text), "end": len(text) + len(best), **candidates})
            text += best + part
        return {"text": text, "blanks": blanks}

    def fill(
        self, text: str, *, length: int | None = None, longest: int | None = None, most: int = _MOST
    ) -> list[list[Candidate]]:
        """Return candidates for each blank of a text, the most probable first.

        A blank is two or more underscores. Each blank is filled from the text between its adjacent blanks.

        Args:
            text: a text with blanks
            length: the number of tokens of each blank; None if unknown
            longest: the maximum number of tokens of a candidate; as in training if None
            most: the number of candidates to return

        Raises:
            OptionError: the text has no blank, or the model was not trained for the length
        """
        known = self.options.longest_blank
        for name, value in (("length", length), ("longest", longest)):
            if value is not None and not 1 <= value <= known:
                raise OptionError(
                    f"{name}: expected 1 to {known}, the longest blank of this model's training, got {value}; "
                    "for longer ones train with --longest-blank"
                )
        parts = self.parts(text)
        if len(parts) < 2:
            raise OptionError(f"text: expected a blank, as in 'I am {BLANK} hungry', got {text!r}")
        lengths = [length] if length else list(range(1, (longest or known) + 1))
        pairs = [
            (texts.split(before, self.options.tokens), texts.split(after, self.options.tokens))
            for before, after in pairwise(parts)
        ]
        if self.options.sequence == "line":
            pairs[-1] = (pairs[-1][0], [*pairs[-1][1], "\n"])
        task = self.frozen()
        return [task._candidates(*pair, lengths, most) for pair in pairs]

    def parts(self, text: str) -> list[str]:
        """Split a text at its blanks; spaces between a blank and a wide character, such as a Chinese one, are dropped.

        Example:
            >>> FillBlanks(FillBlanksOptions()).parts("我 ___ 饿了, so ___ hungry")
            ['我', '饿了, so ', ' hungry']
        """
        parts = _BLANK.split(text)
        for place, part in enumerate(parts):
            if place and _wide(part.lstrip(" ")[:1]):
                part = part.lstrip(" ")
            if place < len(parts) - 1 and _wide(part.rstrip(" ")[-1:]):
                part = part.rstrip(" ")
            parts[place] = part
        return parts

    def unknown(self, text: str) -> list[str]:
        """Return the distinct tokens of a text that are not in the vocabulary."""
        units = (unit for part in self.parts(text) for unit in texts.split(part, self.options.tokens))
        return [unit for unit in dict.fromkeys(units) if unit not in self.vocabularies["units"]]

    @torch.inference_mode()
    def _candidates(
        self, before: Sequence[str], after: Sequence[str], lengths: list[int], most: int
    ) -> list[Candidate]:
        """Search for the content of a blank, token by token from the left, separately for each length."""
        network, vocabulary = self.network.eval(), self.vocabularies["units"]
        assert isinstance(network, BlankNetwork)
        device = next(network.parameters()).device
        rows = [torch.from_numpy(vocabulary.encode(units))[None].to(device) for units in (before, after)]
        output_before, start = network.read_before(rows[0])
        output_after = network.read_after(rows[1])
        priors = network.length_scores(output_before, output_after)[0, [length - 1 for length in lengths]]
        priors = priors.float().log_softmax(-1)
        width = max(_WIDTH, most)
        scored: list[tuple[float, list[int]]] = []
        for prior, length in zip(priors, lengths, strict=True):
            scores, tokens = prior[None], torch.empty(1, 0, dtype=torch.long, device=device)
            before_blank, state = output_before, start
            for remaining in range(length, 0, -1):
                after_blank = None if output_after is None else output_after.expand(len(before_blank), -1)
                chances = network.unit_scores(
                    before_blank, after_blank, torch.full((len(before_blank),), remaining, device=device)
                )
                totals = scores[:, None] + chances.float().log_softmax(-1)[:, FIRST - UNKNOWN :]
                scores, best = totals.flatten().topk(min(width, totals.numel()))
                origin, number = best // totals.shape[1], best % totals.shape[1]
                tokens = torch.cat([tokens[origin], number[:, None]], 1)
                if remaining > 1:
                    before_blank, state = network.advance(number + FIRST, selected(state, origin))
            scored += zip(scores.exp().tolist(), tokens.tolist(), strict=True)
        scored.sort(key=lambda each: -each[0])
        symbols, unit = vocabulary.symbols, self.options.tokens
        return [Candidate(texts.join([symbols[n] for n in row], unit), chance) for chance, row in scored[:most]]


def _wide(character: str) -> bool:
    return bool(character) and unicodedata.east_asian_width(character) in "WF"
