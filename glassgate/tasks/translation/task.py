"""Translation: the task's data, network, loss, scores and predictions."""

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from glassgate.tasks.baselines.baseline import Baseline
from glassgate.tasks.data import texts
from glassgate.tasks.data.batches import Batch, Encoded
from glassgate.tasks.data.batching import Batching
from glassgate.tasks.data.files import STDIN
from glassgate.tasks.data.held_out import ByContent, Rule
from glassgate.tasks.data.pairs import Pair, are_two_files, examine, read_pairs
from glassgate.tasks.data.raw_text import RawTokeniser, note_on_unsegmented, raw_tokeniser
from glassgate.tasks.data.reading import Reading
from glassgate.tasks.data.sniff import sniff
from glassgate.tasks.data.toy.generated import dates_and_numbers
from glassgate.tasks.data.vocabulary import FIRST, PADDING, UNKNOWN, Vocabulary
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.loss import Loss, Mean, cross_entropy
from glassgate.tasks.metrics.summary import Summary
from glassgate.tasks.pictures.attention import AttentionWeights, attention_picture
from glassgate.tasks.predictions import Record
from glassgate.tasks.progress import Progress
from glassgate.tasks.runs import write
from glassgate.tasks.task import Split, Task, Vocabularies
from glassgate.tasks.translation.baselines import Copy, NearestSource
from glassgate.tasks.translation.network import Output, Translator
from glassgate.tasks.translation.options import SUBWORD, TranslationOptions, tokenizer_for
from glassgate.tasks.translation.search import END, Hypothesis, Search, search
from glassgate.tasks.translation.subwords import Subwords

if TYPE_CHECKING:
    from torchmetrics import MetricCollection

_END = "\n"  # the end of a translation; sentences do not contain it
_MAX_SENTENCES, _MAX_TOKENS = 256, 4096  # of an evaluation batch
_BUILTIN_PAIRS = 12_000
_MAX_WRITTEN = 200  # the maximum number of translations in `translations.tsv`
_MAX_DRAWN = 4  # the maximum number of translations in `attention.svg`


class Translated(NamedTuple):
    """A translation.

    Attributes:
        text: the translation
        score: the logarithm of its probability, divided by the length penalty
        probability: the probability of all its tokens, including the end
    """

    text: str
    score: float
    probability: float


class TranslationSummary(Summary):
    """Signatures of sacrebleu, `translations.tsv` and `attention.svg`."""

    def signatures(self) -> dict[str, str]:
        from glassgate.tasks.translation.scores import signatures

        return signatures(self.task.fitted["bleu"])

    def write(self, encoded: Sequence[Encoded], folder: Path) -> list[Path]:
        task, encoded = self.task, encoded[:_MAX_WRITTEN]
        rows: list[list[str]] = [[] for _ in encoded]
        pictures: dict[int, AttentionWeights] = {}
        source, target = (task.vocabularies[side].symbols for side in ("source", "target"))
        for output, batch, pieces in task.outputs(encoded):
            hypotheses, references = task.hypotheses(output, batch, task.search), task.references(batch)
            for piece, (best, *_), reference in zip(pieces, hypotheses, references, strict=True):
                indices = encoded[piece.index]["source"]
                tokens = [source[n - FIRST] if n != UNKNOWN else "\N{REPLACEMENT CHARACTER}" for n in indices]
                rows[piece.index] = [task.join(tokens, 0), reference, task.target_text(best)]
                if piece.index < _MAX_DRAWN and task.options.attention != "none":
                    weights = task.attention_weights(indices, np.array([*best.tokens, END]))
                    target_tokens = [*(target[index - FIRST] for index in best.tokens), ""]
                    pictures[piece.index] = AttentionWeights(tokens, target_tokens, weights)
        files = [folder / "translations.tsv"]
        lines = ["\t".join(row) for row in (["source", "reference", "translation"], *rows)]
        write(files[0], "".join(f"{line}\n" for line in lines).encode())
        if pictures:
            files.append(folder / "attention.svg")
            write(files[1], attention_picture(*(pictures[index] for index in sorted(pictures))).encode())
        return files


class Translation(Task[TranslationOptions, Pair, list[Translated]]):
    """Translate a sequence. A prediction is a list of translations, the best first.

    Attributes:
        search: the settings of the beam search; assign a `Search` to change them

    Example:
        >>> pairs = [Pair(f"{a} {b}", f"{b} {a}") for a in "abcd" for b in "abcd"]
        >>> options = TranslationOptions(
        ...     source_tokens="token", target_tokens="token", hidden_size=32, epochs=40, batch_size=8, dropout=0.0
        ... )
        >>> task = Translation(options)
        >>> _ = task.fit(Split(pairs))
        >>> task.predict([Pair("a d")])[0][0].text
        'd a'
    """

    name = "translation"
    purpose = "translate sequences, for example sentences or dates, with attention"
    options_type = TranslationOptions
    try_next = ("translate {run} {file}", "evaluate {run} {file}")
    builtin_try_next = ('translate {run} <<< "the twenty-first of March 1987"',)
    padding = {"source": PADDING, "target": PADDING, "reference": 0}
    input_field = "source"
    network: Translator
    summary_type = TranslationSummary
    builtin_data = "dates and numbers"
    builtin_options = {
        "source_tokens": "character",
        "target_tokens": "character",
        "hidden_size": 128,
        "embedding_size": 64,
        "dropout": 0.1,
        "learning_rate": 2e-3,
        "epochs": 8,
        "best_by": "exact_match",
    }

    def __init__(self, options: TranslationOptions):
        super().__init__(options)
        self.search = Search(options.beam, options.length_penalty)

    @property
    def monitor(self) -> str:
        return self.options.best_by

    def examine(self, path: str | Path) -> Reading:
        return examine(path, (self.options.source_column, self.options.target_column))

    def read(self, path: str | Path, labelled: bool = True, progress: Progress | None = None) -> Sequence[Pair]:
        options = self.options
        columns = options.source_column, options.target_column
        progress = progress or Progress()
        pairs = read_pairs(path, labelled, options.reverse, self.reading, columns)
        if not are_two_files(path) and (encoding := sniff(path).encoding):
            progress.note(f"{path}: pairs{encoding}")
        if not labelled and str(path) == STDIN and any(pair.target for pair in pairs):
            column = 2 if self.options.reverse else 1
            progress.note(f"standard input: sources in column {column}; the other columns are not translated")
        if labelled or (tokeniser := self._raw_tokeniser) is None:
            return pairs
        unsegmented = [pair.line or 0 for pair in pairs if tokeniser.is_unsegmented(self._lower(pair.source))]
        if unsegmented:
            progress.note(note_on_unsegmented(path, unsegmented))
        return [dataclasses.replace(pair, source=self.insert_blanks(pair.source)) for pair in pairs]

    def read_builtin(self) -> Split[Pair]:
        return self.split(dates_and_numbers(_BUILTIN_PAIRS))

    @property
    def held_out_rule(self) -> Rule[Pair]:
        return ByContent(lambda pair: pair.source.strip().lower())

    def batching(self) -> Batching:
        return Batching(self.options, rows=_MAX_SENTENCES, max_units=_MAX_TOKENS)

    def collect(self, examples: Sequence[Pair]) -> Vocabularies:
        options = self.options
        sides = [self._lower(pair.source) for pair in examples], [self._target(pair) for pair in examples]
        self.fitted = {"bleu": tokenizer_for(sides[1]) if options.bleu == "auto" else options.bleu}
        if options.joint:
            sides = ([*sides[0], *sides[1]],) * 2
        learned = [
            Subwords.learn(lines, options.subwords).content if kind == SUBWORD else None
            for lines, kind in zip(sides[: 1 if options.joint else 2], self._token_kinds, strict=False)
        ]
        self.fitted["subwords"] = [learned[0], learned[-1]]
        vars(self).pop("_subwords", None)
        counts = [Counter(token for text in sides[side] for token in self._split(text, side)) for side in (0, 1)]
        self.fitted["ratio"] = counts[1].total() / max(1, counts[0].total())
        source, target = (Vocabulary.of(each, options.least_count) for each in counts)
        target = Vocabulary([_END, *target.symbols])
        return {"source": target if options.joint else source, "target": target}

    def build(self) -> Translator:
        source_size, target_size = (len(self.vocabularies[side]) for side in ("source", "target"))
        return Translator(self.options, source_size, target_size, self.options.joint)

    def encode(self, example: Pair) -> Encoded:
        tokens = self.source_tokens(example)
        if not tokens:
            raise DataError(example.file, example.line, "the source is empty; remove the line, or fill it in")
        fields = {"source": self.vocabularies["source"].encode(tokens)}
        if example.target is not None:
            target = self._lower(example.target)
            fields["target"] = self.vocabularies["target"].encode([*self._split(target, 1), _END])
            fields["reference"] = np.frombuffer(target.encode(), np.uint8)
        return fields

    def is_unknown(self, example: Pair) -> bool:
        """Whether all tokens of a source are unknown, so that its translation is meaningless."""
        return bool((self.vocabularies["source"].encode(self.source_tokens(example)) == UNKNOWN).all())

    def begin_step(self, done: float) -> None:
        self.network.teacher_forcing = self.options.teacher_fraction(done)

    def loss(self, output: Output, batch: Batch) -> Loss:
        return [Mean.of(*_nats(output, batch, self.options.label_smoothing))]

    def metrics(self) -> "MetricCollection":
        from torchmetrics import MetricCollection

        from glassgate.tasks.metrics.scores import Likelihood
        from glassgate.tasks.translation.scores import TranslationScores

        return MetricCollection({"likelihood": Likelihood(), "translations": TranslationScores(self.fitted["bleu"])})

    def observe(self, output: Output, batch: Batch) -> dict[str, Any]:
        return self._observe(output, batch, self.search)

    def glance(self, output: Output, batch: Batch) -> dict[str, Any]:
        """Like `observe`, but with greedy translations, which take the most probable token at each step."""
        return self._observe(output, batch, Search(beam=1))

    def decode(self, output: Output, batch: Batch) -> list[list[Translated]]:
        def translated(hypothesis: Hypothesis) -> Translated:
            probability = math.exp(self.search.log_probability(hypothesis))
            return Translated(self.target_text(hypothesis), hypothesis.score, probability)

        return [[*map(translated, hypotheses)] for hypotheses in self.hypotheses(output, batch, self.search)]

    def baselines(self) -> Sequence[Baseline]:
        return [Copy(self), NearestSource(self)]

    def text(self, example: Pair, prediction: list[Translated]) -> str:
        """Return the best translation."""
        return prediction[0].text

    def record(self, example: Pair, prediction: list[Translated]) -> Record:
        """Return the translations, the best first, each with its probability."""
        return {"text": example.source, "translations": [each._asdict() for each in prediction]}

    def translate(self, sources: Sequence[str]) -> list[str]:
        """Return the best translation of each source."""
        pairs = [Pair(self.insert_blanks(source)) for source in sources]
        return [hypotheses[0].text for hypotheses in self.predict(pairs)]

    def attend(self, example: Pair) -> AttentionWeights:
        """Return the decoder's attention weights for the target, or for the best translation without a target."""
        if self.options.attention == "none":
            raise OptionError("attention: expected a run with attention, got none; train with --attention general")
        if example.target is None:
            example = dataclasses.replace(example, target=self.predict([example])[0][0].text)
        fields, target = self.encode(example), self._lower(example.target or "")
        weights = self.attention_weights(fields["source"], fields["target"])
        return AttentionWeights([*self.source_tokens(example)], [*self._split(target, 1), ""], weights)

    @torch.inference_mode()
    def attention_weights(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the attention weight of each source token for each target token, `(T, S)`, from their indices."""
        device = next(self.network.parameters()).device
        self.network.eval()
        sources = torch.from_numpy(source)[None].to(device)
        memory, state = self.network.encode(sources, torch.tensor([len(source)]))
        previous = F.pad(torch.from_numpy(target)[None].to(device), (1, -1), value=PADDING)
        weights = self.network.decoder.readouts(previous, memory, state)[1]
        assert weights is not None
        return weights[0].float().cpu().numpy()

    @property
    def _raw_tokeniser(self) -> RawTokeniser | None:
        """Splits raw text as the training data was split. None before training, and if tokens are not words."""
        if self.options.source_tokens not in ("word", "token") or "vocabularies" not in vars(self):
            return None
        return raw_tokeniser(self.vocabularies["source"])

    def source_tokens(self, example: Pair) -> Sequence[str]:
        """Return the tokens of the source."""
        return self._split(self._lower(example.source), 0)

    def insert_blanks(self, text: str) -> str:
        """Insert spaces between the tokens of a source, as in the training data."""
        if self._raw_tokeniser is None:
            return text
        tokens = texts.split(self._lower(text), self.options.source_tokens)
        refined = self._raw_tokeniser.refine(tokens)
        return text if refined == list(tokens) else " ".join(refined)

    def _observe(self, output: Output, batch: Batch, settings: Search) -> dict[str, Any]:
        nats, mask = _nats(output, batch)
        return {
            "nats": nats,
            "mask": mask,
            "hypotheses": [self.target_text(hypotheses[0]) for hypotheses in self.hypotheses(output, batch, settings)],
            "references": self.references(batch),
        }

    def references(self, batch: Batch) -> list[str]:
        """Return the reference translations of a batch."""
        return [bytes(row).rstrip(b"\0").decode() for row in batch["reference"].cpu().numpy()]

    def hypotheses(self, output: Output, batch: Batch, settings: Search) -> list[list[Hypothesis]]:
        """Return the translations of each source of a batch, the best first."""
        limits = [10 + int(2 * self.fitted["ratio"] * length) for length in batch["lengths"].tolist()]
        return search(self.network.decoder, output.memory, output.state, limits, settings)

    def encode_split(self, split: Split[Pair]) -> dict[str, Sequence[Encoded]]:
        """Encode the parts of a split, without training pairs longer than the option `longest`."""
        encoded, longest = super().encode_split(split), self.options.longest
        if longest:
            lengths = (max(len(each["source"]), len(each["target"]) - 1) for each in encoded["train"])
            fitting = [each for each, length in zip(encoded["train"], lengths, strict=True) if length <= longest]
            if not fitting:
                message = f"longest: every pair to train on is longer than {longest} tokens; choose a larger maximum"
                raise OptionError(message)
            encoded["train"] = fitting
        return encoded

    @property
    def _token_kinds(self) -> tuple[str, str]:
        """The kinds of tokens of the source and of the target."""
        return self.options.source_tokens, self.options.target_tokens

    @cached_property
    def _subwords(self) -> list[Subwords | None]:
        return [content and Subwords(content) for content in self.fitted["subwords"]]

    def _split(self, text: str, side: int) -> Sequence[str]:
        """The tokens of a text of the source (side 0) or of the target (side 1)."""
        subwords = self._subwords[side]
        return subwords.split(text) if subwords else texts.split(text, self._token_kinds[side])

    def target_text(self, hypothesis: Hypothesis) -> str:
        """Return a translation as text."""
        symbols = self.vocabularies["target"].symbols
        return self.join([symbols[index - FIRST] for index in hypothesis.tokens], 1)

    def join(self, tokens: Sequence[str], side: int) -> str:
        """Join tokens of the source (side 0) or of the target (side 1) to a text."""
        kind = self._token_kinds[side]
        return Subwords.join(tokens) if kind == SUBWORD else texts.join(tokens, kind)

    def _lower(self, text: str) -> str:
        return text.lower() if self.options.lower else text

    def _target(self, example: Pair) -> str:
        if example.target is None:
            raise DataError(example.file, example.line, "expected a translation to learn from, got none; add it")
        return self._lower(example.target)


def _nats(output: Output, batch: Batch, label_smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """The negative log probability of each target token, and the mask of tokens that are not padding, `(N, T)`."""
    assert output.scores is not None
    return cross_entropy(output.scores, batch["target"] - UNKNOWN, label_smoothing)
