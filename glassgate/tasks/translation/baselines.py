"""The baselines of translation: a copy of the source, and the translation of the most similar training source."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from glassgate.tasks.baselines.baseline import Baseline
from glassgate.tasks.baselines.features import TextFeatures
from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.data.vocabulary import FIRST, UNKNOWN

_BLOCK = 256  # sources that are compared with all training sources at once


class TranslationBaseline(Baseline):
    """Writes translations as text. It has no probabilities, so it has no likelihood either."""

    def translations(self, encoded: Sequence[Encoded]) -> list[str]:
        """Return the translation of each source."""
        raise NotImplementedError

    def observed(self, encoded: Sequence[Encoded]) -> Iterator[dict[str, Any]]:
        for start in range(0, len(encoded), _BLOCK):
            block = [encoded[index] for index in range(start, min(len(encoded), start + _BLOCK))]
            references = [bytes(each["reference"]).decode() for each in block]
            unknown, mask = torch.tensor([torch.nan]), torch.tensor([True])
            hypotheses = self.translations(block)
            yield {"nats": unknown, "mask": mask, "hypotheses": hypotheses, "references": references}


class Copy(TranslationBaseline):
    """Copies the known tokens of the source."""

    name = "copy of the source"

    def learn(self, train: Sequence[Encoded], dev: Sequence[Encoded]) -> None:
        self.symbols = self.task.vocabularies["source"].symbols

    def translations(self, encoded: Sequence[Encoded]) -> list[str]:
        rows = ([self.symbols[index - FIRST] for index in each["source"] if index != UNKNOWN] for each in encoded)
        return [self.task.join(row, 0) for row in rows]


class NearestSource(TranslationBaseline):
    """Returns the translation of the training source with the most similar TF-IDF; of equal ones, the most frequent."""

    name = "translation of the most similar training source"

    def learn(self, train: Sequence[Encoded], dev: Sequence[Encoded]) -> None:
        kept = self.limited(train)
        self.targets = [bytes(each["reference"]).decode() for each in kept]
        self.features = TextFeatures([each["source"] for each in kept], self.task.vocabularies["source"], 1)

    def translations(self, encoded: Sequence[Encoded]) -> list[str]:
        from collections import Counter

        similarities = (self.features.of([each["source"] for each in encoded]) @ self.features.train.T).toarray()
        result = []
        for row in similarities:
            nearest = np.flatnonzero(row >= row.max() - 1e-9)
            result.append(Counter(self.targets[index] for index in nearest).most_common(1)[0][0])
        return result
