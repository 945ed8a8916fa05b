"""Tagging: a label for each word or character of a sequence, and an intent if the training data has intents."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from glassgate.tasks.baselines.baseline import Baseline
from glassgate.tasks.data import bio, records, tagged
from glassgate.tasks.data.batches import Batch, Encoded, move
from glassgate.tasks.data.batching import Batching
from glassgate.tasks.data.columns import Layout, Wanted
from glassgate.tasks.data.corpus import NUMBER, NUMBERS, SEQUENCE, SYMBOL, Corpus, corpus_of_files
from glassgate.tasks.data.detect import SUFFIXES
from glassgate.tasks.data.files import STDIN, suffix_of
from glassgate.tasks.data.formats import detect_format, sources_of
from glassgate.tasks.data.held_out import ByContent, Rule
from glassgate.tasks.data.lines import encoding_note
from glassgate.tasks.data.raw_text import raw_tokeniser, read_raw
from glassgate.tasks.data.reading import Reading
from glassgate.tasks.data.sniff import sniff, source_of
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.data.toy import python_code as python_source
from glassgate.tasks.data.unknown import UNLABELLED
from glassgate.tasks.data.vocabulary import FIRST, PADDING, Tokens, Vocabulary
from glassgate.tasks.data.word_vectors import Vectors, read_vectors
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.loss import Loss, Mean, cross_entropy
from glassgate.tasks.metrics.summary import LabelSummary
from glassgate.tasks.predictions import Record, tagged_record
from glassgate.tasks.progress import Progress
from glassgate.tasks.tagging.baselines import MostFrequentLabels
from glassgate.tasks.tagging.network import Scores, Spellings, Tagger
from glassgate.tasks.tagging.options import TaggingOptions
from glassgate.tasks.task import Split, Task, Vocabularies
from glassgate.tasks.wording import printable, shortened_list

if TYPE_CHECKING:
    from torchmetrics import Metric, MetricCollection

_NO_TOKEN = -1
"""The value of the field "tokens" for characters that belong to no token."""


class Labels(list[str]):
    """The predicted labels of a sequence, one per token.

    Attributes:
        probabilities: the probability of each label
        intent: the intent of the sequence; None for a run without intents
        intent_probability: the probability of the intent
    """

    def __init__(
        self,
        labels: Iterable[str],
        intent: str | None = None,
        probabilities: Sequence[float] = (),
        intent_probability: float | None = None,
    ):
        super().__init__(labels)
        self.intent = intent
        self.probabilities = probabilities
        self.intent_probability = intent_probability


class Tagging(Task[TaggingOptions, Tagged, Labels]):
    """Label each token of a sequence.

    Example:
        >>> rain = Tagged(["it", "rained"], ["PRON", "VERB"])
        >>> tagging = Tagging(TaggingOptions(hidden_size=8, epochs=20, singleton_dropout=0.0, learning_rate=0.1))
        >>> _ = tagging.fit(Split([rain]))
        >>> tagging.predict([Tagged(["it", "rained"], None)])
        [['PRON', 'VERB']]
    """

    name = "tagging"
    purpose = "label each word of a sentence or each character of a text"
    options_type = TaggingOptions
    padding: ClassVar = {
        "units": PADDING,
        "characters": PADDING,
        "labels": UNLABELLED,
        "tokens": _NO_TOKEN,
        "intent": UNLABELLED,
    }
    targets: ClassVar = {"labels": "labels", "intent": "intents"}
    builtin_data = "Python's standard library"
    builtin_options: ClassVar = {
        "format": "python",
        "hidden_size": 96,
        "embedding_size": 32,
        "least_count": 2,
        "dropout": 0.0,
        "batch_size": 32,
        "learning_rate": 1e-2,
        "epochs": 1,
    }
    target_field = "labels"
    builtin_try_next = ("predict {run} FILE.py", "evaluate {run} FILE.py")

    summary_type = LabelSummary

    network: Tagger
    _vectors: Vectors | None = None  # the pretrained vectors, from `collect` to `start`

    @property
    def monitor(self) -> str:
        if "intents" in self.vocabularies:
            return "frame_accuracy"
        return "f1" if self.fitted["bio"] else "accuracy"

    def examine(self, path: str | Path) -> Reading:
        _, layout = self._detect_format(path, self.options.label_suffix)
        if layout is None or layout.kind != "columns" or layout.label_column is None:
            return Reading()
        columns = {"text_column": str(layout.token_column + 1), "label_column": str(layout.label_column + 1)}
        return Reading.of(layout.width, **columns)

    def _detect_format(self, path: str | Path, suffix: str | None) -> tuple[str, Layout | None]:
        """The format of a file, and the layout of its columns. `suffix` is that of label files; None without labels."""
        options, labels, stdin_format = self.options, list[str](), "text"
        if "vocabularies" in vars(self):
            labels, trained_on = (
                self.vocabularies["labels"].symbols,
                SUFFIXES.get(suffix_of(options.data or ""), "text"),
            )
            stdin_format = trained_on if suffix is not None or trained_on == "python" else "text"
        wanted = Wanted(options.label_column, options.text_column, suffix, labels, self.reading)
        return detect_format(path, options.format, wanted, stdin_format)

    def read(self, path: str | Path, labelled: bool = True, progress: Progress | None = None) -> Sequence[Tagged]:
        options = self.options
        suffix = options.label_suffix if labelled else None
        format, layout = self._detect_format(path, suffix)
        if format == "python":
            return python_source.read(path, labelled)
        if format == "text" and "vocabularies" in vars(self) and not labelled and options.tokens != "character":
            return read_raw(path, raw_tokeniser(self.vocabularies["units"]), progress)
        sources = sources_of(path, format, suffix)
        if layout is not None:
            examples = tagged.read_columns(path, layout, labelled)
        elif format == "text":
            examples = tagged.read_text(path, options.tokens, options.label_suffix, labelled)
        elif format == "lines":
            examples = tagged.read_labelled_lines(path)
        elif format == "folder":
            examples = tagged.read_folder(path, labelled)
        else:
            examples = tagged.read_rows(sniff(path, format), options.label_column, options.text_column, labelled)
        fields = {"tokens": SEQUENCE, "intent": SYMBOL, "lines": NUMBER if layout is None else NUMBERS}
        build = partial(Tagged, source=str(sources[0]))
        build = build if labelled else partial(build, labels=None)
        fields |= {"labels": SEQUENCE} if labelled else {}
        columns = options.label_column, options.text_column
        settings = ["tagged", format, *columns, options.tokens, labelled, repr(layout), *fields]
        corpus = corpus_of_files(examples, fields, build, sources, settings, progress)
        if progress is None:
            return corpus
        encoding = "" if format in ("xlsx", "parquet") else encoding_note(sources[0])
        description = layout.description() if layout else f"format {format}"
        rejected = records.note_on_rejected(path, format)
        if labelled:
            progress.note(f"{path}: {description}{encoding}; {tagged.describe_counts(corpus)}{rejected}")
            return corpus
        if str(path) == STDIN and layout and layout.unread_columns:
            progress.note(f"standard input: {description}; the other columns are not read")
        if encoding or rejected:
            progress.note(f"{path}: sequences{encoding}{rejected}")
        return corpus

    def as_corpus(self, examples: Sequence[Tagged]) -> Corpus[Tagged]:
        return tagged.corpus_of(examples)

    def from_rows(self, rows: Iterator[tuple[int, Any, records.LabelNames]]) -> list[Tagged]:
        source = source_of(rows)
        columns = self.options.label_column, self.options.text_column
        return list(tagged.read_rows(source, *columns)) if source.content else []

    def read_builtin(self) -> Split[Tagged]:
        train, held_out = python_source.standard_library()
        return Split(train, test=held_out)

    @property
    def held_out_rule(self) -> Rule[Tagged]:
        return ByContent(attrgetter("tokens"))

    def batching(self) -> Batching:
        return Batching(self.options, self.options.longest)

    def collect(self, examples: Sequence[Tagged]) -> Vocabularies:
        corpus = self.corpus(examples)
        if "labels" not in corpus.fields:
            first = next((each for each in examples if each.labels is None), corpus[0])
            raise DataError(first.source, first.line(), "expected labels to train on, one for each token, got none")
        token_counts = corpus.counts("tokens")
        tokens = Vocabulary.of(token_counts, self.options.least_count)
        labels = Vocabulary.of_labels(corpus.counts("labels"), examples[0].source)
        vocabularies = {"units": tokens, "labels": labels}
        if self.options.character_size and any(len(token) > 1 for token in token_counts):
            vocabularies["characters"] = Vocabulary.of(chain.from_iterable(token_counts), min_count=2)
        intent_counts = corpus.counts("intent")
        if intent_counts:
            vocabularies["intents"] = Vocabulary.of(intent_counts)
        self.fitted = {
            "bio": bio.is_bio(labels.symbols),
            "valid": self._requires_bio(labels.symbols, corpus),
            "singletons": FIRST + sum(token_counts[token] > 1 for token in tokens.symbols),
            "embedding_size": self.options.embedding_size,
        }
        if self.options.vectors:
            self._vectors = self._read_vectors(tokens)
            self.fitted |= {"embedding_size": self._vectors.size, "vectors": self._vectors.coverage()}
        return vocabularies

    def build(self) -> Tagger:
        sizes = {name: len(vocabulary) for name, vocabulary in self.vocabularies.items()}
        return Tagger(
            self.options,
            sizes["units"],
            self.fitted["embedding_size"],
            self.vocabularies["labels"].symbols,
            num_characters=sizes.get("characters", 0),
            first_singleton=self.fitted["singletons"],
            requires_bio=self.fitted["valid"],
            num_intents=sizes.get("intents", FIRST) - FIRST,
        )

    def start(self, progress: Progress) -> None:
        """Replace embeddings by pretrained vectors, and scale all other embeddings to the same standard deviation."""
        if self.options.vectors is None:
            return
        vectors = self._vectors or self._read_vectors(self.vocabularies["units"])
        progress.note(f"{self.options.vectors}: {vectors.coverage()}")
        weight = self.network.embedding.weight.data
        weight *= float(vectors.values.std())
        weight[torch.tensor(vectors.indices) + FIRST] = torch.from_numpy(vectors.values)
        self._vectors = None

    def encode(self, example: Tagged) -> Encoded:
        fields = {"units": self.vocabularies["units"].encode(example.tokens)}
        if "characters" in self.vocabularies:
            fields["characters"] = self._characters(example.tokens)
        if example.labels is not None:
            fields["labels"] = self.label_indices("labels", example.labels)
            if "intents" in self.vocabularies:
                if example.intent is None:
                    expected = "expected an intent, as in training, got none"
                    remedy = "write `# intent = NAME` in a line before the sequence"
                    raise DataError(example.source, example.line(), f"{expected}; {remedy}")
                fields["intent"] = self.label_indices("intents", [example.intent])[0]
        if len(example.words):
            fields["tokens"] = np.asarray(example.words, np.int64) - 1
        return fields

    def loss(self, output: Scores, batch: Batch) -> Loss:
        """Return the mean loss per label and, if there are intents, the mean loss per intent; both in nats."""
        labels, max_label = batch["labels"], output.labels.shape[-1] - 1
        if self.network.crf is None:
            loss = Mean.of(*cross_entropy(output.labels, labels))
        else:  # the CRF has no probability for unknown labels
            is_known = (labels <= max_label).all(1)
            nats = self.network.crf(output.labels, labels.clamp(max=max_label), batch["lengths"])
            num_tokens = move(batch["lengths"], is_known.device).where(is_known, 0).sum()
            loss = Mean(nats.where(is_known, 0.0).sum(), num_tokens)
        return [loss] if output.intents is None else [loss, Mean.of(*cross_entropy(output.intents, batch["intent"]))]

    def metrics(self) -> "MetricCollection":
        from torchmetrics import MetricCollection

        from glassgate.tasks.metrics.scores import Accuracy, MacroF1
        from glassgate.tasks.tagging.scores import EntityScores, FrameAccuracy, WholeTokens

        labels = self.label_names("labels")
        scores: dict[str, Metric | MetricCollection] = {"accuracy": Accuracy()}
        if self.fitted["bio"]:
            scores["entities"] = EntityScores(labels)
        else:
            scores["macro_f1"] = MacroF1(labels)
        if "intents" in self.vocabularies:
            scores["frames"] = FrameAccuracy(self.label_names("intents"))
        else:
            scores["whole_tokens"] = WholeTokens()
        return MetricCollection(scores)

    def observe(self, output: Scores, batch: Batch) -> dict[str, Tensor]:
        labels = batch["labels"]
        observed = {"preds": self.network.best(output, batch["lengths"]), "target": labels}
        if output.intents is not None:
            return observed | {"intents": output.intents.argmax(-1), "true_intents": batch["intent"]}
        return observed | {"tokens": batch.get("tokens", torch.full_like(labels, _NO_TOKEN))}

    def decode(self, output: Scores, batch: Batch) -> list[Labels]:
        symbols, lengths = self.vocabularies["labels"].symbols, batch["lengths"].tolist()
        best = self.network.best(output, batch["lengths"])
        probabilities = self.network.probabilities(output, batch["lengths"]).gather(2, best[..., None])[..., 0]
        intents: list[tuple[float | None, str | None]] = [(None, None)] * len(lengths)
        if output.intents is not None:
            names, best_intents = self.vocabularies["intents"].symbols, output.intents.float().softmax(-1).max(-1)
            intents = [(chance, names[k]) for chance, k in zip(*map(Tensor.tolist, best_intents), strict=True)]
        rows = zip(best.tolist(), probabilities.tolist(), lengths, intents, strict=True)
        return [
            Labels((symbols[index] for index in path[:length]), intent, label_probabilities[:length], probability)
            for path, label_probabilities, length, (probability, intent) in rows
        ]

    def baselines(self) -> Sequence[Baseline]:
        return [MostFrequentLabels(self)]

    def text(self, example: Tagged, prediction: Labels) -> str:
        """Return a line per token: the token, a tab and its label. With intents, the first line is the intent."""
        rows = zip(example.tokens, prediction, strict=True)
        lines = "".join(f"{printable(token)}\t{label}\n" for token, label in rows)
        return lines if prediction.intent is None else f"# intent = {prediction.intent}\n{lines}"

    def record(self, example: Tagged, prediction: Labels) -> Record:
        record = tagged_record(example, prediction, prediction.probabilities, self.fitted["bio"])
        if prediction.intent is not None:
            record |= {"intent": prediction.intent, "intent_probability": prediction.intent_probability}
        return record

    def _requires_bio(self, labels: Sequence[str], corpus: Corpus[Tagged]) -> bool:
        """Whether predicted labels must be valid BIO."""
        rule = self.options.transitions
        if rule == "auto":
            if not bio.is_bio(labels):
                return False
            return all(bio.may_follow(*pair) for pair in corpus.adjacent_pairs("labels"))
        if rule == "bio" and not bio.is_bio(labels):
            raise OptionError(
                f"transitions: bio goes with labels such as B-X, I-X and O, got {shortened_list(labels)}; set it "
                "to any or auto"
            )
        return rule == "bio"

    def _read_vectors(self, tokens: Vocabulary) -> Vectors:
        options = self.options
        vectors = read_vectors(str(options.vectors), tokens.symbols)
        if options.embedding_size not in (vectors.size, TaggingOptions.embedding_size):
            raise OptionError(
                f"embedding_size: {options.vectors} has vectors of {vectors.size} numbers, got "
                f"{options.embedding_size}; leave it out, the file sets it"
            )
        return vectors

    def _characters(self, tokens: Sequence[str]) -> np.ndarray:
        """The indices of the characters of each token, `(L, W)`, padded to the longest token."""
        characters = self.vocabularies["characters"]
        tokens = Tokens.of(tokens)
        spellings = tokens.symbols.derived(characters, lambda symbols: Spellings(symbols, characters))
        return spellings.rows(tokens.indices(0, len(tokens)))
