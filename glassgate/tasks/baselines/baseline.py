"""The base class of baselines. A baseline takes the place of a task's network, so the task's own metrics score it."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

import numpy as np
from torch import nn

from glassgate.tasks.data.batches import Encoded, lengths

MAX_UNITS = 2**21
"""The maximum number of tokens or steps from which a baseline learns."""
MAX_EXAMPLES = 20_000
"""The maximum number of texts or series from which a baseline learns."""


class Baseline(nn.Module):
    """A simple model. Its `forward` takes a batch and returns the output of the task's network.

    Args:
        task: the task, with its options, vocabularies and fitted values

    Attributes:
        name: the name in tables and in metrics.json
        note: the examples from which the model learned, if it did not learn from all of them
    """

    name: str
    note = ""

    def __init__(self, task: Any):
        super().__init__()
        self.task = task

    def learn(self, train: Sequence[Encoded], dev: Sequence[Encoded]) -> None:
        """Learn from encoded training examples, and choose settings by encoded dev examples, if there are any."""
        raise NotImplementedError

    def observed(self, encoded: Sequence[Encoded]) -> Iterator[dict[str, Any]]:
        """Yield the arguments of the metrics' `update` for encoded examples."""
        task = copy(self.task)
        task.network = self
        for output, batch, _ in task.outputs(encoded):
            yield task.observe(output, batch)

    def limited(
        self, train: Sequence[Encoded], max_units: int = MAX_UNITS, max_examples: int = MAX_EXAMPLES
    ) -> list[Encoded]:
        """Return evenly spaced examples within the limits, at least one, and set `note` if these are not all."""
        mean = max(1.0, float(np.mean(lengths(train))))
        count = max(1, min(len(train), max_examples, int(max_units / mean)))
        if count < len(train):
            self.note = f"trained on {count:,} of {len(train):,} examples"
        return [train[k * len(train) // count] for k in range(count)]


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore the warnings of scikit-learn about few iterations, constant targets and ill-conditioned matrices."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
