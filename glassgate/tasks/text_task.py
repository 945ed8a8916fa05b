"""The base of tasks that learn from plain text: language models and filling blanks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from glassgate.tasks.data import records, texts
from glassgate.tasks.data.corpus import NUMBER, SEQUENCE, SYMBOL, Corpus
from glassgate.tasks.data.held_out import LastExamples, LastSteps, Rule
from glassgate.tasks.data.reading import Reading
from glassgate.tasks.data.texts import TextOptions
from glassgate.tasks.data.vocabulary import Tokens
from glassgate.tasks.definition import Prediction
from glassgate.tasks.progress import Progress
from glassgate.tasks.task import Split, Task, Vocabularies

if TYPE_CHECKING:
    from torchmetrics import MetricCollection

TextOptionsType = TypeVar("TextOptionsType", bound=TextOptions)


class TextTask(Task[TextOptionsType, Any, Prediction]):
    """Reads texts, splits them into tokens, and collects the vocabulary. Subclasses add the network and predictions."""

    lower_is_better = True
    monitor = "nats"

    def examine(self, path: str | Path) -> Reading:
        return texts.examine(path, self.options.text_column)

    def read(self, path: str | Path, labelled: bool = True, progress: Progress | None = None) -> Sequence[Any]:
        options = self.reading.fill(self.options)
        return texts.read_text(path, options.tokens, options.sequence, progress, options.text_column)

    def from_rows(self, rows: Iterator[tuple[int, Any, records.LabelNames]]) -> list[Any]:
        return texts.from_rows(rows, self.options)

    def as_corpus(self, examples: Sequence[Any]) -> Corpus[Any]:
        """Convert texts. A long one stays an object, whose tokens may be on disk."""
        if self.options.sequence == "file":
            return Corpus.of([replace(each, tokens=Tokens.of(each.tokens)) for each in examples])
        return Corpus.of(examples, {"tokens": SEQUENCE, "source": SYMBOL, "line": NUMBER}, texts.Text)

    def read_builtin(self) -> Split[Any]:
        options = self.options
        return self.split(texts.documentation(options.tokens, options.sequence))

    @property
    def held_out_rule(self) -> Rule[Any]:
        return LastExamples() if self.options.sequence == "line" else LastSteps()

    def metrics(self) -> "MetricCollection":
        from torchmetrics import MetricCollection

        from glassgate.tasks.metrics.scores import Accuracy, Likelihood

        return MetricCollection({"likelihood": Likelihood(), "accuracy": Accuracy()})

    def collect(self, examples: Sequence[Any]) -> Vocabularies:
        return {"units": texts.vocabulary(examples, self.options.tokens, self.options.least_count)}
