"""Language models: predict the next token of a text, or the next notes of a piece of music, from the previous ones."""

import codecs
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from glassgate.tasks.baselines.baseline import Baseline
from glassgate.tasks.baselines.ngrams import TokenModel
from glassgate.tasks.data import records, texts
from glassgate.tasks.data.batches import Batch, Encoded
from glassgate.tasks.data.batching import Batching, ChunkBatching, StreamBatching
from glassgate.tasks.data.corpus import Corpus
from glassgate.tasks.data.held_out import ByContent, Rule
from glassgate.tasks.data.reading import NO_READING, Reading
from glassgate.tasks.data.texts import Text, TextOptions
from glassgate.tasks.data.vocabulary import FIRST, PADDING, UNKNOWN
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.language_model.baselines import KeyModel
from glassgate.tasks.language_model.music import LOWEST_KEY, NUM_KEYS, Roll, is_music, read_rolls
from glassgate.tasks.language_model.network import LanguageNetwork
from glassgate.tasks.loss import Loss, Mean, cross_entropy, to_float
from glassgate.tasks.networks.encoder import step_mask
from glassgate.tasks.options import option, override
from glassgate.tasks.predictions import Record, text_record
from glassgate.tasks.progress import Progress
from glassgate.tasks.task import Split, Task, Vocabularies
from glassgate.tasks.text_task import TextTask
from glassgate.tasks.wording import printable

if TYPE_CHECKING:
    from torchmetrics import MetricCollection

NOTES = "notes"
"""The kind of tokens of piano rolls."""
_MIN_TEMPERATURE = 1e-30  # in float32, scores divided by a smaller temperature could become NaN


@dataclass(frozen=True, kw_only=True)
class LanguageModelOptions(TextOptions):
    """The options of language models.

    Raises:
        OptionError: the model is bidirectional, or notes have tied weights; see `Options`
    """

    common: ClassVar = (*TextOptions.common, "tokens", "chunk")

    tokens: str = option(
        "character",
        "kind of predicted tokens; notes are piano rolls",
        group="data",
        choices=(*texts.TOKEN_KINDS, NOTES),
    )
    hidden_size: int = override("hidden_size", 256, help="hidden units")
    bidirectional: bool = override(
        "bidirectional", False, help="not available: a language model reads in one direction"
    )
    tied: bool = option(False, "share the weights of embedding and output")
    chunk: int = option(
        50,
        "tokens or steps of music per chunk; the state is carried to the next chunk, the gradient is not",
        group="training",
        minimum=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bidirectional:
            raise OptionError(
                "bidirectional: expected one direction for a language model, got two: the second one comes from the "
                "end of the text and has seen the token that is to be predicted; leave the option out, or fill blanks, "
                "which reads from both ends: glassgate train fill-blanks"
            )
        if self.tied and self.tokens == NOTES:
            raise OptionError("tied: notes have no embedding to share; leave the option out")


class LanguageModel(TextTask[LanguageModelOptions, list[float]]):
    """Predict each token from the previous ones. A prediction is the surprise of each token, in nats.

    Example:
        >>> options = LanguageModelOptions(hidden_size=16, epochs=20, chunk=10, batch_size=2, learning_rate=0.05)
        >>> model = LanguageModel(options)
        >>> _ = model.fit(Split([Text("tick tock " * 20)]))
        >>> "".join(model.generate("tick", length=5, temperature=0))
        ' tock'
    """

    name = "language-model"
    purpose = "predict and continue a text, or music"
    options_type = LanguageModelOptions
    try_next = ("generate {run} --length 300 --temperature 0.8", "evaluate {run} {file}")
    padding = {"inputs": PADDING, "targets": PADDING}
    # "targets" has the tokens; "inputs" has the tokens of the steps before, and begins with padding.
    input_field = target_field = "targets"
    network: LanguageNetwork
    builtin_data = "Python's documentation"
    builtin_options = {"dropout": 0.0, "epochs": 3, "batch_size": 16, "learning_rate": 5e-3}

    def examine(self, path: str | Path) -> Reading:
        if self.options.tokens == LanguageModelOptions.tokens and is_music(path):
            return Reading.of(tokens=NOTES)
        return NO_READING if self.options.tokens == NOTES else super().examine(path)

    def follow(self, reading: Reading) -> None:
        super().follow(reading)
        if reading.options:
            self.options = self.requested = reading.fill(self.options)

    def split_of(self, data: Any) -> Split[Text | Roll]:
        split = super().split_of(data)
        if len(split.train) and isinstance(split.train[0], Roll):
            self.follow(Reading.of(tokens=NOTES))
        return split

    def read(self, path: str | Path, labelled: bool = True, progress: Progress | None = None) -> Sequence[Text | Roll]:
        """Read a text, or piano rolls. If a file of rolls has a test part, return only that part."""
        is_new = "vocabularies" not in vars(self)
        if self.options.tokens != NOTES and not (is_new and self.examine(path).get("tokens")):
            return super().read(path, labelled, progress)
        parts = read_rolls(path)
        name = "test" if parts["test"] else "train and dev" if parts["train"] and parts["dev"] else None
        if progress is not None:
            counts = ", ".join(f"{len(pieces)} in {part}" for part, pieces in parts.items() if pieces)
            used = f"; the {name} part{' is' if name == 'test' else 's are'} used" if name else ""
            progress.note(f"{path}: piano rolls, {counts}{used}")
        return [*(parts["test"] or [*parts["train"], *parts["dev"]])]

    def from_rows(self, rows: Iterator[tuple[int, Any, records.LabelNames]]) -> list[Text | Roll]:
        return Task.from_rows(self, rows) if self.options.tokens == NOTES else super().from_rows(rows)

    def as_corpus(self, examples: Sequence[Text | Roll]) -> Corpus[Text | Roll]:
        return Task.as_corpus(self, examples) if self.options.tokens == NOTES else super().as_corpus(examples)

    def read_builtin(self) -> Split[Text | Roll]:
        if self.options.tokens == NOTES:
            raise OptionError("tokens: notes has no built-in training data; give piano rolls with --data")
        return super().read_builtin()

    def read_split(self, progress: Progress) -> Split[Text | Roll]:
        data = self.options.data
        if data is None or not (self.options.tokens == NOTES or is_music(data)):
            return super().read_split(progress)
        progress.reading()
        split, options = super().read_split(Progress()), self.options  # each part of the file has its own use
        if options.tokens != NOTES:
            return split
        parts = read_rolls(data)
        if not parts["train"]:
            raise DataError(data, None, "expected pieces to train on, got none; add a part named train")
        if not (parts["dev"] or parts["test"]):
            return split
        files = split if options.dev or options.test else Split(())
        return Split(parts["train"], files.dev or parts["dev"], files.test or parts["test"])

    @property
    def held_out_rule(self) -> Rule[Any]:
        return ByContent(attrgetter("steps")) if self.options.tokens == NOTES else super().held_out_rule

    def batching(self) -> Batching:
        """Return the batching: streams of files and pieces of music are read chunk by chunk, lines are read whole."""
        if self.options.tokens == NOTES:
            return ChunkBatching(self.options, self.options.chunk)
        if self.options.sequence == "file":
            return StreamBatching(self.options, self.options.chunk)
        return Batching(self.options)

    def collect(self, examples: Sequence[Text | Roll]) -> Vocabularies:
        return {} if self.options.tokens == NOTES else super().collect(examples)

    def build(self) -> LanguageNetwork:
        symbols = self.vocabularies.get("units")
        return LanguageNetwork(self.options, None if symbols is None else len(symbols))

    def encode(self, example: Text | Roll) -> Encoded:
        if isinstance(example, Roll):
            before = np.concatenate([np.zeros_like(example.steps[:1]), example.steps[:-1]])
            return {"inputs": before, "targets": example.steps}
        indices = self.vocabularies["units"].encode(example.tokens)
        return {"inputs": texts.shift_right(indices, PADDING), "targets": indices}

    def loss(self, output: Tensor, batch: Batch) -> Loss:
        return [Mean.of(*self._nats(output, batch))]

    def metrics(self) -> "MetricCollection":
        if self.options.tokens != NOTES:
            return super().metrics()
        from torchmetrics import MetricCollection

        from glassgate.tasks.metrics.scores import Likelihood, NoteF1

        return MetricCollection({"likelihood": Likelihood(per_token=False), "note_f1": NoteF1()})

    def observe(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Score every token. In music, score the steps from the second one on, as in published results."""
        nats, mask = self._nats(output, batch)
        if self.options.tokens == NOTES:
            notes = {"notes": output[:, 1:] > 0, "true_notes": batch["targets"][:, 1:] > 0}
            return {"nats": nats[:, 1:], "mask": mask[:, 1:], **notes}
        target = batch["targets"] - UNKNOWN
        return {"nats": nats, "mask": mask, "preds": output.argmax(-1), "target": target}

    def decode(self, output: Tensor, batch: Batch) -> list[list[float]]:
        nats, _ = self._nats(output, batch)
        return [row[:length] for row, length in zip(nats.tolist(), batch["lengths"].tolist(), strict=True)]

    def baselines(self) -> Sequence[Baseline]:
        if self.options.tokens == NOTES:
            keys = ("frequency of each key", False), ("each key from its previous step", True)
            return [KeyModel(self, *each) for each in keys]
        return [TokenModel(self, "unigrams"), TokenModel(self, "5-grams", (-4, -3, -2, -1))]

    def text(self, example: Text | Roll, prediction: list[float]) -> str:
        """Return a line for each token, or step of music, with its surprise in nats."""
        steps = map(notes_of, example.steps) if isinstance(example, Roll) else map(printable, example.tokens)
        return "".join(f"{step}\t{nats:.3f}\n" for step, nats in zip(steps, prediction, strict=True))

    def record(self, example: Text | Roll, prediction: list[float]) -> Record:
        """Return each token, or step of music, with its surprise in nats and its probability."""
        scores = [{"nats": nats, "probability": math.exp(-nats)} for nats in prediction]
        if isinstance(example, Roll):
            pairs = zip(map(notes_of, example.steps), scores, strict=True)
            return {"steps": [{"notes": notes, **score} for notes, score in pairs]}
        return text_record(example.tokens, self.options.tokens, scores)

    def generate(
        self,
        prompt: str = "",
        length: int = 500,
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
    ) -> Iterator[str]:
        """Continue a text token by token, or generate music as one line of MIDI numbers per step.

        Args:
            prompt: the beginning of the text, which is not returned; empty for music
            length: the number of tokens or steps to generate; a model of lines begins a new line after a line end
            temperature: below 1 favours probable tokens, above 1 improbable ones; 0 always takes the most probable one
            top_k: sample only from this many of the most probable tokens; 0 for all
            top_p: sample only from the smallest set of most probable tokens with at least this total probability
            seed: the seed of the random choices; None to generate another text at each call

        Raises:
            OptionError: a value out of range; an option that music does not support; a prompt with unknown tokens
        """
        for name, value, is_valid, expected in (
            ("seed", seed, seed is None or 0 <= seed < 2**64, "0 to 2**64 - 1"),
            ("length", length, length >= 0, "0 or more"),
            ("temperature", temperature, temperature >= 0, "0 or more"),
            ("top_k", top_k, top_k >= 0, "0 or more"),
            ("top_p", top_p, 0 < top_p <= 1, "more than 0 and at most 1"),
        ):
            if not is_valid:
                raise OptionError(f"{name}: expected {expected}, got {value}")
        random = torch.Generator()
        random.seed() if seed is None else random.manual_seed(seed)
        network = self.frozen().network
        if self.options.tokens != NOTES:
            sample = partial(sample_token, temperature=temperature, top_k=top_k, top_p=top_p, random=random)
            return self._generate_text(network, self._split_prompt(prompt), length, sample)
        if prompt or top_k or top_p < 1:
            raise OptionError("prompt, top_k, top_p: music takes none of them; leave them out")
        return self._generate_music(network, length, temperature, random)

    def _split_prompt(self, prompt: str) -> list[str]:
        """Split a prompt into tokens. Unknown tokens are an error if the model has never seen one in training."""
        tokens = list(texts.split(prompt, self.options.tokens))
        unknown = [token for token in tokens if token not in self.vocabularies["units"]]
        if unknown and self.options.least_count == 1:
            raise OptionError(
                f"prompt: expected tokens that the training data had, got {unknown[0]!r}; "
                "leave it out, or train on text that has it"
            )
        return tokens

    def _generate_text(
        self, network: LanguageNetwork, prompt: list[str], length: int, sample: Callable[[Tensor], int]
    ) -> Iterator[str]:
        vocabulary, token_kind = self.vocabularies["units"], self.options.tokens
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        previous, state = prompt[-1] if prompt else "\n", None
        inputs = [PADDING, *vocabulary.encode(prompt).tolist()]
        for _ in range(length):
            logits, state = _advance(network, torch.tensor([inputs]), state)
            index = sample(logits[FIRST - UNKNOWN :])
            token = vocabulary.symbols[index]
            if token_kind == "byte":
                yield decoder.decode(token.encode("latin-1"))
            else:
                yield texts.gap(previous, token, token_kind) + token
            previous, inputs = token, [index + FIRST]
            if token == "\n" and self.options.sequence == "line":
                inputs, state = [PADDING], None

    def _generate_music(
        self, network: LanguageNetwork, length: int, temperature: float, random: torch.Generator
    ) -> Iterator[str]:
        notes, state = torch.zeros(NUM_KEYS), None
        for _ in range(length):
            logits, state = _advance(network, notes[None, None], state)
            scaled = logits / max(temperature, _MIN_TEMPERATURE)
            probabilities = scaled.sigmoid() if temperature else (logits > 0).float()
            notes = torch.bernoulli(probabilities, generator=random)
            yield notes_of(notes.numpy()) + "\n"

    def _nats(self, output: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """The negative log-probability of each token, or of the notes of each step, and the mask of the steps."""
        targets = batch["targets"]
        if self.options.tokens == NOTES:
            return surprise(output, targets), step_mask(batch["lengths"], targets)
        return cross_entropy(output, targets - UNKNOWN)


@torch.inference_mode()
def _advance(network: LanguageNetwork, inputs: Tensor, state: object) -> tuple[Tensor, object]:
    """Read inputs, and return the scores after the last input and the final state."""
    logits, state = network.advance(inputs.to(next(network.parameters()).device), None, state)
    return logits[0, -1].float().cpu(), state


def surprise(output: Tensor, notes: Tensor) -> Tensor:
    """Return the negative log-probability of the notes of each step, `(..., L)`, by the scores of the keys.

    Both arguments are `(..., L, 88)`. A note is 1 where a key sounds and 0 elsewhere.
    """
    scores = to_float(output)
    return F.binary_cross_entropy_with_logits(scores, notes.to(scores.dtype), reduction="none").sum(-1)


def notes_of(step: np.ndarray) -> str:
    """Return the MIDI numbers of a step, separated by spaces; "-" for silence."""
    return " ".join(str(key + LOWEST_KEY) for key in np.flatnonzero(step)) or "-"


def sample_token(logits: Tensor, temperature: float, top_k: int, top_p: float, random: torch.Generator) -> int:
    """Sample a token from logits, `(V,)`, and return its index. `LanguageModel.generate` describes the settings.

    Example:
        >>> sample_token(torch.tensor([0.0, 9.0, 8.0]), 1.0, 1, 1.0, torch.Generator())
        1
    """
    if temperature == 0:
        return int(logits.argmax())
    scaled = (logits - logits.max()) / max(temperature, _MIN_TEMPERATURE)
    probabilities, order = scaled.softmax(-1).sort(descending=True, stable=True)
    probability_before = probabilities.cumsum(-1) - probabilities
    is_allowed = probability_before < top_p
    is_allowed[0] = True
    if top_k:
        is_allowed[top_k:] = False
    return int(order[torch.multinomial(probabilities * is_allowed, 1, generator=random)])
