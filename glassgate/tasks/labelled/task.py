"""The base of tasks that read a text or a series, and predict a label or numbers for it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from glassgate.tasks.baselines.baseline import MAX_EXAMPLES, quiet
from glassgate.tasks.baselines.features import logistic_regression
from glassgate.tasks.data import labelled as labelled_files
from glassgate.tasks.data import records, texts
from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.data.corpus import NUMBER, SEQUENCE, SYMBOL, Corpus, corpus_of_files
from glassgate.tasks.data.files import STDIN
from glassgate.tasks.data.held_out import ByContent, Rule
from glassgate.tasks.data.labelled import MANY_TEXTS, Labelled, LabelledOptions
from glassgate.tasks.data.number_labels import mean_and_deviation, with_decimal_point
from glassgate.tasks.data.raw_text import RawTokeniser, note_on_unsegmented, raw_tokeniser
from glassgate.tasks.data.reading import NO_READING, Reading
from glassgate.tasks.data.unknown import UNLABELLED
from glassgate.tasks.data.vocabulary import FIRST, PADDING, Vocabulary
from glassgate.tasks.definition import Prediction, Split
from glassgate.tasks.labelled.network import SequenceNetwork
from glassgate.tasks.networks import maps
from glassgate.tasks.networks.ridge import log_odds_factor
from glassgate.tasks.progress import Progress
from glassgate.tasks.task import Task, Vocabularies
from glassgate.tasks.wording import plural

_SHARES, _SHARE = (0.0, 0.125, 0.25, 0.5, 1.0), 0.5
_MIN_DEV = 30  # with fewer dev examples, the share is not estimated

LabelledOptionsType = TypeVar("LabelledOptionsType", bound=LabelledOptions)


class LabelledTask(Task[LabelledOptionsType, Labelled, Prediction]):
    """Reads, counts and encodes texts or series, and builds the network. Subclasses add the label and the predictions.

    Attributes:
        predicts_numbers: whether the outputs are numbers, whose means and deviations are `fitted["numbers"]`, and not
            scores of the vocabulary "labels"
    """

    network: SequenceNetwork
    predicts_numbers = False
    padding: ClassVar = {"units": PADDING, "series": 0, "label": UNLABELLED, "numbers": 0, "linear": 0}

    def examine(self, path: str | Path) -> Reading:
        return Reading.of(**self._reader(path, True, NO_READING).found)

    def _reader(self, path: str | Path, labelled: bool, reading: Reading) -> labelled_files.Reader:
        """The reader of a file, which follows the training file in columns that no option names."""
        options = reading.fill(self.options)
        columns = options.text_column, options.label_column
        return labelled_files.Reader(path, options.format, *columns, options.missing, labelled, self.predicts_numbers)

    def read(self, path: str | Path, labelled: bool = True, progress: Progress | None = None) -> Corpus[Labelled]:
        reader, progress = self._reader(path, labelled, self.reading), progress or Progress()
        is_series = reader.format in labelled_files.SERIES
        examples = self.corpus([*reader]) if is_series else self._read_texts(reader, progress)
        if str(path) == STDIN and not labelled and reader.has_unread_cells:
            progress.note(f"standard input: {reader.description}; the other columns are not read")
        if reader.skipped_links:
            links = plural(reader.skipped_links, "symbolic link")
            progress.note(f"{path}: {links} out of the folder skipped; to read the files, copy them into the folder")
        if not labelled and reader.encoding:
            progress.note(f"{path}: texts{reader.encoding}")
        rejected = records.note_on_rejected(path, reader.format)
        if labelled or reader.dropped or rejected:
            count = f"{len(examples):,} series" if is_series else plural(len(examples), "text")
            labels = f", {plural(len(examples.counts('label')), 'label')}" if self.targets else ""
            dropped = f"; {plural(reader.dropped, 'row')} without text or label dropped" if reader.dropped else ""
            progress.note(f"{path}: {reader.description}; {count}{labels}{dropped}{rejected}")
        return examples

    def _read_texts(self, reader: labelled_files.Reader, progress: Progress) -> Corpus[Labelled]:
        """Split texts into tokens."""
        options, path, labelled = self.options, reader.path, reader.labelled
        unsegmented: list[int] = []

        def tokenised() -> Iterator[Labelled]:
            for each in reader:
                tokeniser = self.raw_tokeniser_for(each)
                if tokeniser is not None and tokeniser.is_unsegmented(str(each.content)):
                    unsegmented.append(each.line or 0)
                label, raw = each.label, "" if labelled else str(each.content)
                if label and self.predicts_numbers:
                    label = with_decimal_point(label, reader.separator)
                yield replace(each, content=self.tokens(each), label=label, raw=raw)

        fields = {"content": SEQUENCE, "label": SYMBOL, "line": NUMBER} | ({} if labelled else {"raw": SEQUENCE})
        layout = reader.format, reader.text_column, reader.label_column, labelled
        settings = ["table", self.name, *layout, options.tokens, options.missing, reader.description, *fields]
        build = partial(Labelled, source=str(path))
        examples = corpus_of_files(tokenised(), fields, build, [path], settings, progress)
        if unsegmented:
            progress.note(note_on_unsegmented(path, unsegmented))
        return examples

    def as_corpus(self, examples: Sequence[Labelled]) -> Corpus[Labelled]:
        """Convert texts to tokens. Series stay objects."""
        if isinstance(examples[0].content, np.ndarray):
            return super().as_corpus(examples)
        tokenised = (replace(each, content=self.tokens(each)) for each in examples)
        fields = {"content": SEQUENCE, "label": SYMBOL, "source": SYMBOL, "line": NUMBER}
        return Corpus.of(tokenised, fields, Labelled)

    def from_rows(self, rows: Iterator[tuple[int, Any, records.LabelNames]]) -> list[Labelled]:
        return labelled_files.from_rows(rows, self.options)

    @property
    def held_out_rule(self) -> Rule[Labelled]:
        """The rule that selects by a hash of the tokens or series. A file and a data frame have the same hashes."""

        def content_to_hash(example: Labelled) -> object:
            content = example.content
            return texts.split(content, self.options.tokens) if isinstance(content, str) else content

        return ByContent(content_to_hash)

    def collect_inputs(self, examples: Corpus[Labelled]) -> Vocabularies:
        """Return the vocabulary of texts. For series, add each channel's mean and standard deviation to `fitted`."""
        content = examples[0].content
        if not isinstance(content, np.ndarray):
            token_counts = examples.counts("content")
            least_count = self.options.least_count or (1 if len(examples) <= MANY_TEXTS else 2)
            tokens = Vocabulary.of(token_counts, least_count)
            if self.options.linear:
                self.fitted |= {"texts": len(examples), "counts": [token_counts[token] for token in tokens.symbols]}
            return {"units": tokens}
        channels = content.shape[1]
        self.fitted["series"] = mean_and_deviation(np.concatenate([self._series(each, channels) for each in examples]))
        return {}

    @property
    def series_scale(self) -> list[list[float]] | None:
        """The mean and the standard deviation of each channel of the training series, `(2, C)`; None for texts."""
        series: list[list[float]] | None = self.fitted.get("series")
        return series

    def rate_for(self, batch_size: int) -> float:
        return self.requested.rate_for(batch_size, is_series=self.series_scale is not None)

    @property
    def pooling(self) -> str:
        """How the network combines the outputs of all steps: one of `POOLINGS`."""
        return "last"

    def build(self) -> SequenceNetwork:
        scale = self.series_scale
        input_size = len(scale[0]) if scale else self.options.embedding_size
        vocabulary_size = None if scale else len(self.vocabularies["units"])
        count = len(self.fitted["numbers"][0] if self.predicts_numbers else self.vocabularies["labels"].symbols)
        linear = self._linear_map(count)
        return SequenceNetwork(self.options, vocabulary_size, input_size, count, self.pooling, linear)

    def fit_map(self, examples: Corpus[Labelled], targets: np.ndarray) -> None:
        """Add a map of the texts or series to targets, `(N, K)`, to `fitted`, by ridge regression, if there are few.

        It also adds the output for each example of a map that is fitted to all others. In training, the network
        corrects these outputs, which are as good as those for new examples.
        """
        if not self.options.linear:
            return
        inputs = [each for example in examples for each in self.encode_input(example).values()]
        centred = targets - targets.mean(0)
        if self.series_scale is None:
            fitted = maps.fit_texts(inputs, maps.TokenScores(self._rarity(), targets.shape[1]), centred)
        else:
            fitted = maps.fit_series(inputs, centred)
        if fitted is None:
            return
        coefficients, left_out, _ = fitted.regression
        if factor := 1.0 if self.predicts_numbers else log_odds_factor(left_out, targets):
            self.fitted[fitted.name] = fitted.arguments(factor * coefficients)
            if len(left_out) == len(examples):
                self.fitted["left_out"] = (factor * left_out).round(4).tolist()

    def _linear_map(self, num_outputs: int) -> maps.InputMap | None:
        """The map of the tokens or the series that the network contains; None for none."""
        if "kernel" in self.fitted:
            support, coefficients, *numbers = self.fitted["kernel"]
            return maps.KernelScores(torch.tensor(support), torch.tensor(coefficients), *numbers)
        if "ridge" in self.fitted and self.series_scale is not None:
            return maps.StepScores(*map(torch.tensor, self.fitted["ridge"]))
        too_large = len(self.fitted.get("counts", ())) * num_outputs > maps.MAX_TOKEN_WEIGHTS
        if "counts" not in self.fitted or not self.options.linear or too_large:
            return None
        scores = maps.TokenScores(self._rarity(), num_outputs)
        if "ridge" in self.fitted:
            scores.weight = nn.Parameter(torch.tensor(self.fitted["ridge"]), requires_grad=False)
        return scores

    def encode_split(self, split: Split[Labelled]) -> dict[str, Sequence[Encoded]]:
        encoded = super().encode_split(split)
        if left_out := self.fitted.get("left_out"):
            pairs = zip(encoded["train"], np.array(left_out, np.float32), strict=True)
            encoded["train"] = [{**fields, "linear": outputs} for fields, outputs in pairs]
        return encoded

    def refine(self, train: Sequence[Encoded], dev: Sequence[Encoded]) -> str:
        """Average the network with a linear model, because few examples make its corrections too large.

        A network with a fitted map is averaged with this map and the best constant outputs: zero for numbers, and the
        logarithms of label frequencies. Another classifier of texts is averaged with a logistic regression on the
        features of its map. Of `_SHARES`, the share of the network is the one with the smallest loss on dev data;
        without enough of them, `_SHARE`.
        """
        head: Any = self.network.head
        scores = self.network.linear
        parameters, simple = [head.weight, head.bias], [torch.zeros_like(head.weight)]
        if "left_out" in self.fitted:
            name, constant = "ridge regression", torch.zeros(())
            if not self.predicts_numbers:
                counts = np.bincount([int(each["label"]) for each in train])
                constant = torch.from_numpy(np.log(counts / counts.sum()))
            simple.append(constant.to(head.bias))
        elif isinstance(scores, maps.TokenScores) and self._reads_logistic_regression(train):
            name = "logistic regression"
            inputs, labels = [each["units"] for each in train], np.array([int(each["label"]) for each in train])
            with quiet():
                simple += maps.fit_estimator(logistic_regression(is_text=True), inputs, scores, labels)
            parameters.append(scores.weight)
        else:
            return ""
        learned = [each.detach() for each in parameters]

        def blend(share: float) -> None:
            for each, a, b in zip(parameters, simple, learned, strict=True):
                each.data = a.lerp(b, share)

        def loss(share: float) -> float:
            blend(share)
            return sum(float(self.loss(output, batch)[0].total) for output, batch, _ in self.outputs(dev))

        share = min(_SHARES, key=loss) if len(dev) >= _MIN_DEV else _SHARE
        blend(share)
        return f"the outputs are those of a {name} and {share:.0%} of the network's correction (--no-linear)"

    def _reads_logistic_regression(self, train: Sequence[Encoded]) -> bool:
        return not self.predicts_numbers and self.network.pooling != "attention" and len(train) <= MAX_EXAMPLES

    def _rarity(self) -> Tensor:
        """The inverse document frequency of each token; it estimates the number of its texts by its occurrences."""
        texts = self.fitted["texts"]
        frequencies = torch.tensor([0] * FIRST + self.fitted["counts"], dtype=torch.float32).clamp(max=texts)
        rarity = 1 + ((1 + texts) / (1 + frequencies)).log()
        rarity[PADDING] = 0.0
        return rarity

    def encode_input(self, example: Labelled) -> dict[str, np.ndarray]:
        """Return the indices of a text's tokens, or the standardised steps of a series."""
        if self.series_scale is None:
            return {"units": self.vocabularies["units"].encode(self.tokens(example))}
        mean, deviation = np.array(self.series_scale)
        return {"series": ((self._series(example, len(mean)) - mean) / deviation).astype(np.float32)}

    def steps(self, example: Labelled) -> list[str]:
        """Return the tokens of a text, or "1", "2", ... for the steps of a series."""
        if isinstance(example.content, np.ndarray):
            return [str(step) for step in range(1, len(example.content) + 1)]
        return list(self.tokens(example))

    def tokens(self, example: Labelled) -> Sequence[str]:
        """Return the tokens of a text; a series or a text without tokens is an error."""
        content = example.content
        if isinstance(content, np.ndarray):
            raise example.fault("expected a text, as in training, got a series; give a file of texts")
        tokens = texts.split(content, self.options.tokens) if isinstance(content, str) else content
        if (tokeniser := self.raw_tokeniser_for(example)) is not None:
            tokens = tokeniser.refine(tokens)
        if not tokens:
            raise example.fault("the text is empty; remove it")
        return tokens

    def raw_text(self, example: Labelled) -> str:
        """Return the text of an example as the user wrote it or, if it is not stored, its tokens joined to a text."""
        if example.raw or isinstance(example.content, str):
            return "".join(example.raw or example.content)
        return texts.join(self.tokens(example), self.options.tokens)

    def raw_tokeniser_for(self, example: Labelled) -> RawTokeniser | None:
        """Return the tokeniser of raw text for an unlabelled text if the task is a trained classifier of words."""
        vocabulary = vars(self).get("vocabularies", {}).get("units")
        if self.predicts_numbers or example.label is not None or vocabulary is None:
            return None
        reads_raw = self.options.tokens in ("word", "token") and isinstance(example.content, str)
        return raw_tokeniser(vocabulary) if reads_raw else None

    def _series(self, example: Labelled, channels: int) -> np.ndarray:
        content = example.content
        got = f"{content.shape[-1]}" if isinstance(content, np.ndarray) else "a text"
        if not isinstance(content, np.ndarray) or content.shape[-1] != channels:
            raise example.fault(
                f"expected a series of {channels} channels, as in training, got {got}; use data with the same channels"
            )
        return content
