"""Filling blanks: the units that are missing from a text, from what stands before them and after."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics import MeanMetric, MetricCollection

from glassgate.tasks.data import keyed
from glassgate.tasks.data import text as texts
from glassgate.tasks.data.batches import Batch, Batches, Encoded, Lengths, drawn_for, whole
from glassgate.tasks.data.lines import read_lines
from glassgate.tasks.data.text import Text, TextOptions
from glassgate.tasks.data.vocabulary import FIRST, PADDING, UNKNOWN
from glassgate.tasks.encoder import encoder
from glassgate.tasks.errors import OptionError
from glassgate.tasks.mean import Loss, Mean, full
from glassgate.tasks.options import option
from glassgate.tasks.progress import Progress
from glassgate.tasks.records import Record, text_record
from glassgate.tasks.scores import Likelihood
from glassgate.tasks.seen import Seen, seen, visible
from glassgate.tasks.task import Split, Task, Vocabularies

BLANK = "___"

_BLANK = re.compile("_{2,}")
# Evaluation cuts a file into pieces so long that the missing neighbours at their ends show in no score.
_LONGEST_PIECE = 4096
# Rows of the search, and candidates returned.
_WIDTH = 32
_MOST = 10

State = Tensor | tuple[Tensor, ...] | None


@dataclass(frozen=True, kw_only=True)
class FillBlanksOptions(TextOptions):
    """What filling blanks can be told."""

    longest_blank: int = option(4, "units of the longest blank that the model learns to fill", least=1)
    longest: int = option(256, "units; longer sequences are cut for training; 0 to cut none", group="training", least=0)


class Candidate(NamedTuple):
    """What may stand in a blank, and how probable that is."""

    text: str
    probability: float


class Blanks(NamedTuple):
    """What a network says of a blank at each unit of a batch.

    Attributes:
        units: `(N, L, U)`, scores for the blank's first unit
        lengths: `(N, L, longest)`, scores for the blank's length, from 1
        left: `(N, L)`, the length that `units` supposes
    """

    units: Tensor
    lengths: Tensor
    left: Tensor


class FillBlanks(Task[FillBlanksOptions, Text | str, list[list[Candidate]]]):
    """Fill blanks; to train on are texts, to predict from lines that have blanks.

    Each direction stops at the blank: the states beside it are all that the answer is made from, at any depth. The
    length of a blank is predicted as one uniformly drawn from 1 to `longest_blank`, as in training.

    Example:
        >>> options = FillBlanksOptions(hidden_size=16, epochs=30, longest=20, batch_size=4, learning_rate=0.05)
        >>> task = FillBlanks(options)
        >>> _ = task.fit(Split([Text("salt and pepper, " * 30)]))
        >>> task.fill("pepper, salt a__ pepper, salt")[0][0].text
        'nd'
    """

    name = "fill-blanks"
    options_type = FillBlanksOptions
    monitor = "nats"
    lower_is_better = True
    one_loss = False  # training has blanks of any length, scoring has those of one unit
    try_next = (f'fill {{run}} "some words {BLANK} and more"', "evaluate {run} {file}")
    padding = {"units": PADDING}
    answer_field = "units"
    own_options = {"hidden_size": 192, "dropout": 0.0, "epochs": 4, "learning_rate": 5e-3}

    @property
    def longest_piece(self) -> int:
        return self.options.longest

    def evaluation_batches(self, lengths: Lengths) -> Batches:
        return whole(lengths, self.evaluation_rows, _LONGEST_PIECE)

    def read(self, path: str | Path, labelled: bool = True, progress: Progress | None = None) -> Sequence[Text | str]:
        """Read texts, or the lines that are to be filled."""
        if labelled:
            return texts.read_text(path, self.options.unit, self.options.sequence, progress, self.options.text_column)
        return [line for _, line in read_lines(path) if line.strip()]

    def of_rows(self, rows: Iterator[tuple[int, Any, keyed.Names]]) -> list[Text | str]:
        return [*texts.of_rows(rows, self.options)]

    def read_own(self) -> Split[Text | str]:
        options = self.options
        return Split(*texts.hold_out(texts.documentation(options.unit, options.sequence), options.held_out))

    def read_split(self, progress: Progress) -> Split[Text | str]:
        split, options = super().read_split(progress), self.options
        if options.data is None or options.dev or options.test:
            return split
        return Split(*texts.hold_out(cast(Sequence[Text], split.train), options.held_out))

    def collect(self, examples: Sequence[Text | str]) -> Vocabularies:
        return {"units": texts.vocabulary(cast(Sequence[Text], examples), self.options.unit, self.options.least_count)}

    def build(self) -> "BlankNetwork":
        return BlankNetwork(self.options, len(self.vocabularies["units"]))

    def encode(self, example: Text | str) -> Encoded:
        units = example.units if isinstance(example, Text) else texts.split(example, self.options.unit)
        return {"units": self.vocabularies["units"].encode(units)}

    def loss(self, output: Blanks, batch: Batch) -> Loss:
        inside = batch["units"] != PADDING
        lengths = F.cross_entropy(full(output.lengths[inside]), output.left[inside] - 1, reduction="none")
        return [Mean.of(self._nats(output, batch) + lengths)]

    def metrics(self) -> MetricCollection:
        return MetricCollection({"likelihood": Likelihood(), "accuracy": MeanMetric()})

    def observe(self, output: Blanks, batch: Batch) -> dict[str, Tensor]:
        """Score blanks of one unit, at every place of the text."""
        inside = batch["units"] != PADDING
        right = output.units.argmax(-1) + UNKNOWN == batch["units"]
        return {"nats": self._nats(output, batch), "value": right[inside].float()}

    def decode(self, output: Blanks, batch: Batch) -> list[list[list[Candidate]]]:
        symbols = self.vocabularies["units"].symbols
        chances = output.units.float().softmax(-1)[..., FIRST - UNKNOWN :]
        best, numbers = chances.topk(min(_MOST, chances.shape[-1]))
        rows = zip(best.tolist(), numbers.tolist(), batch["lengths"].tolist(), strict=True)
        return [
            [
                [Candidate(symbols[number], chance) for chance, number in zip(*place, strict=True)]
                for place in zip(of_row[:length], which[:length], strict=True)
            ]
            for of_row, which, length in rows
        ]

    def see(self, output: Blanks, batch: Batch) -> Seen:
        """Return each unit as if it were missing."""
        names = ["unknown", *map(visible, self.vocabularies["units"].symbols)]
        targets = batch["units"] - UNKNOWN
        return seen(output.units.log_softmax(-1), names, targets, range(targets.shape[1]))

    def of_text(self, text: str) -> Text | str:
        return Text(texts.split(text, self.options.unit))

    def predict(self, examples: Sequence[Text | str]) -> list[list[list[Candidate]]]:
        """Return candidates for each blank of a line; for each unit of a text, as if it were missing."""
        units = iter(super().predict([each for each in examples if isinstance(each, Text)]))
        return [self.fill(each) if isinstance(each, str) else next(units) for each in examples]

    def text(self, example: Text | str, prediction: list[list[Candidate]]) -> str:
        """Return a line with the likeliest in its blanks; of a text a line for each unit, and the likeliest there."""
        if isinstance(example, Text):
            return "".join(f"{u!r}\t{best[0].text!r}\n" for u, best in zip(example.units, prediction, strict=True))
        first, *rest = self.parts(example)
        return first + "".join(best[0].text + part for best, part in zip(prediction, rest, strict=True))

    def record(self, example: Text | str, prediction: list[list[Candidate]]) -> Record:
        """Return the candidates of each blank and its place in the filled text; of a text those of each token."""
        found = [{"candidates": [each._asdict() for each in candidates]} for candidates in prediction]
        if isinstance(example, Text):
            return text_record(example.units, self.options.unit, found)
        text, *rest = self.parts(example)
        blanks: list[Record] = []
        for candidates, part in zip(found, rest, strict=True):
            best = str(candidates["candidates"][0]["text"])
            blanks.append({"start": len(text), "end": len(text) + len(best), **candidates})
            text += best + part
        return {"text": text, "blanks": blanks}

    def fill(
        self, text: str, *, length: int | None = None, longest: int | None = None, most: int = _MOST
    ) -> list[list[Candidate]]:
        """Return candidates for each blank of a text, the most probable first.

        A blank is two underscores or more. Of several, each is filled from the text up to its neighbours.

        Args:
            text: what stands around the blanks
            length: units in a blank; None where it is not known
            longest: units of the longest candidate; as many as in training if None
            most: candidates to return

        Raises:
            OptionError: no blank in the text; a length that the model was not trained on
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
            (texts.split(before, self.options.unit), texts.split(after, self.options.unit))
            for before, after in pairwise(parts)
        ]
        if self.options.sequence == "line":
            pairs[-1] = (pairs[-1][0], [*pairs[-1][1], "\n"])
        return [self._candidates(*pair, lengths, most) for pair in pairs]

    def parts(self, text: str) -> list[str]:
        """Part a text at its blanks; spaces between a blank and a character as wide as a Chinese one are no text.

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
        """Return the units of a text that the model does not know, each once."""
        units = (unit for part in self.parts(text) for unit in texts.split(part, self.options.unit))
        return [unit for unit in dict.fromkeys(units) if unit not in self.vocabularies["units"]]

    @torch.inference_mode()
    def _candidates(
        self, before: Sequence[str], after: Sequence[str], lengths: list[int], most: int
    ) -> list[Candidate]:
        """Search for what a blank holds, unit by unit from the left, for each length by itself."""
        network, vocabulary = self.network.eval(), self.vocabularies["units"]
        assert isinstance(network, BlankNetwork)
        device = next(network.parameters()).device
        rows = [torch.from_numpy(vocabulary.encode(units))[None].to(device) for units in (before, after)]
        left, start = network.read_before(rows[0])
        right = network.read_after(rows[1])
        priors = network.length_scores(left, right)[0, [length - 1 for length in lengths]].float().log_softmax(-1)
        width = max(_WIDTH, most)
        found: list[tuple[float, list[int]]] = []
        for prior, length in zip(priors, lengths, strict=True):
            scores, made = prior[None], torch.empty(1, 0, dtype=torch.long, device=device)
            here, state = left, start
            for remaining in range(length, 0, -1):
                beside = None if right is None else right.expand(len(here), -1)
                chances = network.unit_scores(here, beside, torch.full((len(here),), remaining, device=device))
                totals = scores[:, None] + chances.float().log_softmax(-1)[:, FIRST - UNKNOWN :]
                scores, best = totals.flatten().topk(min(width, totals.numel()))
                origin, number = best // totals.shape[1], best % totals.shape[1]
                made = torch.cat([made[origin], number[:, None]], 1)
                if remaining > 1:
                    here, state = network.go_on(number + FIRST, _rows(state, origin))
            found += zip(scores.exp().tolist(), made.tolist(), strict=True)
        found.sort(key=lambda each: -each[0])
        symbols, unit = vocabulary.symbols, self.options.unit
        return [Candidate(texts.join([symbols[n] for n in row], unit), chance) for chance, row in found[:most]]

    def _nats(self, output: Blanks, batch: Batch) -> Tensor:
        """Minus the logarithm of the probability of each unit, `(S,)`."""
        inside = batch["units"] != PADDING
        targets = batch["units"][inside] - UNKNOWN
        return F.cross_entropy(full(output.units[inside]), targets, reduction="none")


class BlankNetwork(nn.Module):
    """Vectors of the units, recurrent layers whose directions never meet, and scores from the states beside a blank.

    Args:
        options: sizes, cell and the longest blank
        units: how many units are known, padding and unknown included
    """

    def __init__(self, options: FillBlanksOptions, units: int):
        super().__init__()
        size = options.hidden_size
        beside = size * (1 + options.bidirectional)
        self.longest = options.longest_blank
        self.embedding = nn.Embedding(units, options.embedding_size, padding_idx=PADDING)
        self.dropout = nn.Dropout(options.dropout)
        self.encoder = encoder(options, merge="none")
        self.beside = nn.Linear(beside, size)
        self.left = nn.Embedding(self.longest + 1, size)
        self.lengths = nn.Linear(size, self.longest)
        self.units = nn.Linear(size, units - UNKNOWN)

    def forward(self, batch: Batch) -> Blanks:
        """From `units`, `(N, L)`, and `lengths`, `(N,)`; blanks have random lengths in training, else one unit."""
        numbers, lengths = batch["units"], batch["lengths"]
        forward, backward, _ = self._read(numbers, lengths)
        left = torch.ones_like(numbers)
        if self.training:
            rest = lengths[:, None] - torch.arange(numbers.shape[1], device=numbers.device)
            drawn = drawn_for(batch, lambda shape: torch.randint(1, self.longest + 1, shape, device=numbers.device))
            left = drawn.minimum(rest.clamp(min=1))
        before = F.pad(forward, (0, 0, 1, 0))[:, :-1]
        after = None if backward is None else _after(backward, left, self.longest)
        return Blanks(self.unit_scores(before, after, left), self.length_scores(before, after), left)

    def unit_scores(self, before: Tensor, after: Tensor | None, left: Tensor) -> Tensor:
        """Scores for the first unit of a blank.

        Args:
            before, after: `(..., H)`, the states of the directions beside the blank
            left: `(...)`, its length
        """
        return self.units(self._joined(before, after, left))

    def length_scores(self, before: Tensor, after: Tensor | None) -> Tensor:
        """Scores for the lengths of a blank from 1 on."""
        unknown = torch.zeros(before.shape[:-1], dtype=torch.long, device=before.device)
        return self.lengths(self._joined(before, after, unknown))

    def _joined(self, before: Tensor, after: Tensor | None, left: Tensor) -> Tensor:
        """One vector of the two states and the blank's length, 0 where it is not known."""
        both = before if after is None else torch.cat([before, after], -1)
        return self.dropout(torch.tanh(self.beside(both) + self.left(left)))

    def read_before(self, numbers: Tensor) -> tuple[Tensor, State]:
        """Read what stands before a blank, `(1, L)`: the state beside it, `(1, H)`, and all to go on from."""
        if not numbers.shape[1]:
            return self._nothing(), None
        forward, _, state = self._read(numbers)
        return forward[:, -1], state

    def read_after(self, numbers: Tensor) -> Tensor | None:
        """Read what stands after a blank, `(1, L)`, from its end: the state beside it; None with one direction."""
        if not self.encoder.bidirectional:
            return None
        _, backward, _ = self._read(numbers) if numbers.shape[1] else (None, None, None)
        return self._nothing() if backward is None else backward[:, 0]

    def go_on(self, numbers: Tensor, state: State) -> tuple[Tensor, State]:
        """Read one unit more in each row, `(N,)`."""
        forward, _, state = self._read(numbers[:, None], state=state)
        return forward[:, -1], state

    def _read(
        self, numbers: Tensor, lengths: Tensor | None = None, state: State = None
    ) -> tuple[Tensor, Tensor | None, State]:
        vectors = self.dropout(self.embedding(numbers))
        output, state = self.encoder(vectors, state, lengths=lengths)
        if not self.encoder.bidirectional:
            return self.dropout(output), None, state
        forward, backward = output
        return self.dropout(forward), self.dropout(backward), state

    def _nothing(self) -> Tensor:
        return self.beside.weight.new_zeros(1, self.encoder.output_size)


def _rows(state: State, origin: Tensor) -> State:
    """Pick rows of a recurrent state; None, the initial one, is the same in every row."""
    if isinstance(state, tuple):
        return tuple(part.index_select(1, origin) for part in state)
    return None if state is None else state.index_select(1, origin)


def _after(backward: Tensor, left: Tensor, longest: int) -> Tensor:
    """The backward state behind a blank that begins at each unit, zero where the text ends."""
    steps = torch.arange(left.shape[1], device=left.device) + left
    padded = F.pad(backward, (0, 0, 0, longest))
    return padded.gather(1, steps[..., None].expand(-1, -1, backward.shape[-1]))


def _wide(character: str) -> bool:
    return bool(character) and unicodedata.east_asian_width(character) in "WF"
