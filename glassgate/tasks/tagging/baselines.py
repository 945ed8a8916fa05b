"""The baseline of tagging: the most frequent label of each token, and of intents a logistic regression."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from glassgate.tasks.baselines.baseline import Baseline
from glassgate.tasks.baselines.features import OnFeatures, logistic_regression, one_hot
from glassgate.tasks.data.batches import Batch, Encoded
from glassgate.tasks.tagging.network import Scores

_MAX_EXAMPLES = 200_000


class MostFrequentLabels(Baseline):
    """Predicts for each token its most frequent label; for unknown tokens, their most frequent label or any label's."""

    name = "most frequent label of each token"

    def learn(self, train: Sequence[Encoded], dev: Sequence[Encoded]) -> None:
        kept = self.limited(train, max_examples=_MAX_EXAMPLES)
        tokens, labels = (np.concatenate([each[name] for each in kept]) for name in ("units", "labels"))
        tokens, labels = tokens[labels >= 0], labels[labels >= 0]
        num_labels = len(self.task.vocabularies["labels"].symbols)
        best = int(np.bincount(labels).argmax())
        self.labels = np.full(len(self.task.vocabularies["units"]), best)
        pairs, counts = np.unique(tokens * num_labels + labels, return_counts=True)
        order = np.argsort(counts, kind="stable")  # the last assignment, of the largest count, remains
        self.labels[pairs[order] // num_labels] = pairs[order] % num_labels
        self.intents = None
        if "intents" in self.task.vocabularies:
            num_intents = len(self.task.vocabularies["intents"].symbols)
            self.intents = OnFeatures(
                self.task, "intents", logistic_regression, "intent", lambda intents: one_hot(intents, num_intents)
            )
            self.intents.learn(train, dev)

    def forward(self, batch: Batch) -> Scores:
        labels = one_hot(self.labels[batch["units"].numpy()], len(self.task.vocabularies["labels"].symbols))
        return Scores(labels, None if self.intents is None else self.intents(batch))

    def best(self, output: Scores, lengths: Tensor) -> Tensor:
        """Return the predicted labels, `(N, L)`, as the network does."""
        return output.labels.argmax(-1)
