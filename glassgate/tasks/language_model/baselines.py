"""The baselines of language models of music: how often each key sounds, in general and after the previous step."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassgate.tasks.baselines.baseline import Baseline
from glassgate.tasks.data.batches import Batch, Encoded


class KeyModel(Baseline):
    """Predicts each key by the fraction of the steps in which it sounds, of all or of those after the same state of it.

    Args:
        task: the task
        name: the name
        reads_previous: whether steps after the key sounded are counted apart from steps after it did not
    """

    def __init__(self, task: Any, name: str, reads_previous: bool):
        super().__init__(task)
        self.name, self.reads_previous = name, reads_previous

    def learn(self, train: Sequence[Encoded], dev: Sequence[Encoded]) -> None:
        kept = self.limited(train)
        before, steps = (np.concatenate([each[name] for each in kept]) for name in ("inputs", "targets"))
        sounded = before * self.reads_previous
        self.after_sound = _log_odds((steps * sounded).sum(0), sounded.sum(0))
        self.after_silence = _log_odds((steps * (1 - sounded)).sum(0), (1 - sounded).sum(0))

    def forward(self, batch: Batch) -> Tensor:
        return torch.where((batch["inputs"] > 0) & self.reads_previous, self.after_sound, self.after_silence)


def _log_odds(count: np.ndarray, total: np.ndarray) -> Tensor:
    """The log odds of `count` out of `total`, with one occurrence and one absence added."""
    return torch.from_numpy(np.log((count + 1) / (total - count + 1)).astype(np.float32))
