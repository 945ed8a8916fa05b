"""Filling blanks: predict missing tokens from the text before and after them."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from glassgate.tasks.baselines.baseline import Baseline
from glassgate.tasks.baselines.ngrams import TokenModel
from glassgate.tasks.data import texts
from glassgate.tasks.data.batches import Batch, Encoded
from glassgate.tasks.data.batching import Batching
from glassgate.tasks.data.texts import Text, TextOptions
from glassgate.tasks.data.vocabulary import FIRST, PADDING, UNKNOWN
from glassgate.tasks.errors import OptionError
from glassgate.tasks.fill_blanks.network import BlankNetwork, BlankScores
from glassgate.tasks.loss import Loss, Mean, cross_entropy
from glassgate.tasks.networks.encoder import select_rows
from glassgate.tasks.options import option
from glassgate.tasks.predictions import Record, text_record
from glassgate.tasks.progress import Progress
from glassgate.tasks.text_task import TextTask

BLANK = "___"
"""A blank in a text; two or more underscores are a blank, too."""

_BLANK_PATTERN = re.compile("_{2,}")

# Evaluation cuts a file into pieces of this many tokens. The missing context at their ends hardly changes the scores.
_LONGEST_PIECE = 4096

_BEAM_SIZE = 32

_N_BEST = 10  # the default number of candidates


@dataclass(frozen=True, kw_only=True)
class FillBlanksOptions(TextOptions):
    """The options of filling blanks."""

    common: ClassVar = (*TextOptions.common, "tokens", "longest_blank")

    longest_blank: int = option(4, "length of the longest blank, in tokens", minimum=1)
    longest: int = option(
        256, "cut training sequences longer than this many tokens; 0 disables it", group="training", minimum=0
    )


class Candidate(NamedTuple):
    """A text for a blank, and its probability."""

    text: str
    probability: float


class FillBlanks(TextTask[FillBlanksOptions, list[list[Candidate]]]):
    """Fill blanks. Training reads texts, prediction reads lines with blanks.

    In every layer, one direction reads only the text before the blank, and the other one only the text after it. The
    prediction depends only on the two states next to the blank. In training, the length of a blank is drawn uniformly
    from 1 to `longest_blank`. The blank ends at the end of the text if the text is too short.

    Example:
        >>> from glassgate.tasks.task import Split
        >>> options = FillBlanksOptions(hidden_size=16, epochs=30, longest=20, batch_size=4, learning_rate=0.05)
        >>> task = FillBlanks(options)
        >>> _ = task.fit(Split([Text("salt and pepper, " * 30)]))
        >>> task.fill("pepper, salt a__ pepper, salt")[0][0].text
        'nd'
    """

    name = "fill-blanks"
    purpose = "fill blanks in a text from the text before and after them"
    options_type = FillBlanksOptions
    comparable_losses = False  # training uses blanks of any length, evaluation blanks of one token
    try_next = (f'fill {{run}} "some words {BLANK} and more"', "evaluate {run} {file}")
    padding = {"units": PADDING}
    target_field = "units"
    network: BlankNetwork
    builtin_data = "Python's documentation"
    builtin_options = {"hidden_size": 192, "dropout": 0.0, "epochs": 4, "learning_rate": 5e-3}

    def read(self, path: str | Path, labelled: bool = True, progress: Progress | None = None) -> Sequence[Text | str]:
        """Read texts if labelled, otherwise the lines of a text or the rows of a table, with blanks."""
        if labelled:
            return super().read(path, labelled, progress)
        return [line for _, line in texts.text_lines(path, self.reading.fill(self.options).text_column) if line.strip()]

    def batching(self) -> Batching:
        return Batching(self.options, self.options.longest, longest_evaluated=_LONGEST_PIECE)

    def build(self) -> BlankNetwork:
        return BlankNetwork(self.options, len(self.vocabularies["units"]))

    def encode(self, example: Text | str) -> Encoded:
        tokens = example.tokens if isinstance(example, Text) else texts.split(example, self.options.tokens)
        return {"units": self.vocabularies["units"].encode(tokens)}

    def loss(self, output: BlankScores, batch: Batch) -> Loss:
        token_nats, mask = cross_entropy(output.token_scores, batch["units"] - UNKNOWN)
        length_nats, _ = cross_entropy(output.length_scores, output.blank_lengths - 1)
        return [Mean.of(token_nats + length_nats, mask)]

    def observe(self, output: BlankScores, batch: Batch) -> dict[str, Tensor]:
        """Score a blank of one token at every position of the text."""
        target = batch["units"] - UNKNOWN
        nats, mask = cross_entropy(output.token_scores, target)
        return {"nats": nats, "mask": mask, "preds": output.token_scores.argmax(-1), "target": target}

    def decode(self, output: BlankScores, batch: Batch) -> list[list[list[Candidate]]]:
        symbols = self.vocabularies["units"].symbols
        probabilities = output.token_scores.float().softmax(-1)[..., FIRST - UNKNOWN :]
        best, indices = (each.tolist() for each in probabilities.topk(min(_N_BEST, probabilities.shape[-1])))
        return [
            [
                [Candidate(symbols[index], probability) for probability, index in zip(*at_position, strict=True)]
                for at_position in zip(best_of_row[:length], indices_of_row[:length], strict=True)
            ]
            for best_of_row, indices_of_row, length in zip(best, indices, batch["lengths"].tolist(), strict=True)
        ]

    def predict(self, examples: Sequence[Text | str]) -> list[list[list[Candidate]]]:
        """Return the candidates for each blank of a line. For a text, each single token is treated as a blank."""
        task = self.frozen()
        text_predictions = iter(super(FillBlanks, task).predict([each for each in examples if isinstance(each, Text)]))
        return [task.fill(each) if isinstance(each, str) else next(text_predictions) for each in examples]

    def baselines(self) -> Sequence[Baseline]:
        neighbours = TokenModel(self, "n-grams of the two tokens on each side", (2, -2, 1, -1))
        return [TokenModel(self, "unigrams"), neighbours]

    def text(self, example: Text | str, prediction: list[list[Candidate]]) -> str:
        """Return a line with its blanks filled; for a `Text`, return a table of its tokens and the best candidates."""
        if isinstance(example, Text):
            rows = zip(example.tokens, prediction, strict=True)
            return "".join(f"{token!r}\t{candidates[0].text!r}\n" for token, candidates in rows)
        first, *rest = self.parts(example)
        return first + "".join(best[0].text + part for best, part in zip(prediction, rest, strict=True))

    def record(self, example: Text | str, prediction: list[list[Candidate]]) -> Record:
        """Return the filled text, with the position and the candidates of each blank.

        For a `Text`, return its tokens, with the position and the candidates of each.
        """
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
        self, text: str, *, length: int | None = None, longest: int | None = None, n_best: int = _N_BEST
    ) -> list[list[Candidate]]:
        """Return candidates for each blank of a text, the most probable first.

        A blank is two or more underscores. It is filled from the text on both sides, up to the neighbouring blanks.

        Args:
            text: a text with blanks
            length: the number of tokens of each blank; None if unknown
            longest: the maximum number of tokens of a candidate; None for the longest blank of the training
            n_best: the number of candidates for each blank

        Raises:
            OptionError: the text has no blank, or the model was not trained for the length
        """
        longest_trained = self.options.longest_blank
        for name, value in (("length", length), ("longest", longest)):
            if value is not None and not 1 <= value <= longest_trained:
                raise OptionError(
                    f"{name}: expected 1 to {longest_trained}, the longest blank of this model's training, got "
                    f"{value}; for longer ones train with --longest-blank"
                )
        parts = self.parts(text)
        if len(parts) < 2:
            raise OptionError(f"text: expected a blank, as in 'I am {BLANK} hungry', got {text!r}")
        lengths = [length] if length else list(range(1, (longest or longest_trained) + 1))
        contexts = [
            (texts.split(before, self.options.tokens), texts.split(after, self.options.tokens))
            for before, after in pairwise(parts)
        ]
        if self.options.sequence == "line":
            contexts[-1] = (contexts[-1][0], [*contexts[-1][1], "\n"])
        task = self.frozen()
        return [task._search(*context, lengths, n_best) for context in contexts]

    def parts(self, text: str) -> list[str]:
        """Split a text at its blanks, and drop spaces between a blank and a wide character, such as a Chinese one.

        Example:
            >>> FillBlanks(FillBlanksOptions()).parts("我 ___ 饿了, so ___ hungry")
            ['我', '饿了, so ', ' hungry']
        """
        parts = _BLANK_PATTERN.split(text)
        for index, part in enumerate(parts):
            if index > 0 and _is_wide(part.lstrip(" ")[:1]):
                part = part.lstrip(" ")
            if index < len(parts) - 1 and _is_wide(part.rstrip(" ")[-1:]):
                part = part.rstrip(" ")
            parts[index] = part
        return parts

    def unknown(self, text: str) -> list[str]:
        """Return the distinct tokens of a text that are not in the vocabulary."""
        tokens = (token for part in self.parts(text) for token in texts.split(part, self.options.tokens))
        return [token for token in dict.fromkeys(tokens) if token not in self.vocabularies["units"]]

    @torch.inference_mode()
    def _search(self, before: Sequence[str], after: Sequence[str], lengths: list[int], n_best: int) -> list[Candidate]:
        """Find the most probable contents of a blank between two texts, by a beam search for each of the `lengths`."""
        network, vocabulary = self.network.eval(), self.vocabularies["units"]
        device = next(network.parameters()).device
        before_indices, after_indices = (
            torch.from_numpy(vocabulary.encode(tokens))[None].to(device) for tokens in (before, after)
        )
        output_before, state_before = network.read_before(before_indices)
        output_after = network.read_after(after_indices)
        length_scores = network.length_scores(output_before, output_after)[0, [length - 1 for length in lengths]]
        beam_size = max(_BEAM_SIZE, n_best)
        found: list[tuple[float, list[int]]] = []
        for length_score, length in zip(length_scores.float().log_softmax(-1), lengths, strict=True):
            scores, tokens = length_score[None], torch.empty(1, 0, dtype=torch.long, device=device)
            output, state = output_before, state_before
            for remaining in range(length, 0, -1):
                rows = len(output)
                beside = None if output_after is None else output_after.expand(rows, -1)
                token_scores = network.token_scores(output, beside, torch.full((rows,), remaining, device=device))
                totals = scores[:, None] + token_scores.float().log_softmax(-1)[:, FIRST - UNKNOWN :]
                scores, best = totals.flatten().topk(min(beam_size, totals.numel()))
                origins, new_tokens = best // totals.shape[1], best % totals.shape[1]
                tokens = torch.cat([tokens[origins], new_tokens[:, None]], 1)
                if remaining > 1:
                    output, state = network.read_before(new_tokens[:, None] + FIRST, select_rows(state, origins))
            found += zip(scores.exp().tolist(), tokens.tolist(), strict=True)
        found.sort(key=lambda pair: -pair[0])
        return [
            Candidate(texts.join([vocabulary.symbols[index] for index in row], self.options.tokens), probability)
            for probability, row in found[:n_best]
        ]


def _is_wide(character: str) -> bool:
    return bool(character) and unicodedata.east_asian_width(character) in "WF"
