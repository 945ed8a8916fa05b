"""The baselines of language models of music: how often each key sounds, in general and after the previous step."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from glassgate.tasks.baselines.baseline import Baseline
from glassgate.tasks.data.batches import Batch, Encoded


class KeyFrequencies(Baseline):
    """Predicts each key by the fraction of the steps in which it sounds."""

    name = "frequency of each key"

    def learn(self, train: Sequence[Encoded], dev: Sequence[Encoded]) -> None:
        steps = np.concatenate([each["targets"] for each in self.limited(train)])
        self.logits = _log_odds(steps.sum(0), len(steps))

    def forward(self, batch: Batch) -> Tensor:
        return self.logits.expand_as(batch["targets"])


class KeyTransitions(Baseline):
    """Predicts each key by the fraction of the steps in which it sounds after sounding, or after not sounding."""

    name = "each key from its previous step"

    def learn(self, train: Sequence[Encoded], dev: Sequence[Encoded]) -> None:
        kept = self.limited(train)
        before, steps = (np.concatenate([each[name] for each in kept]) for name in ("inputs", "targets"))
        self.after_sound = _log_odds((steps * before).sum(0), before.sum(0))
        self.after_silence = _log_odds((steps * (1 - before)).sum(0), (1 - before).sum(0))

    def forward(self, batch: Batch) -> Tensor:
        return torch.where(batch["inputs"] > 0, self.after_sound, self.after_silence)


def _log_odds(count: np.ndarray, total: "np.ndarray | int") -> Tensor:
    """The log odds of `count` out of `total`, with one occurrence and one absence added."""
    return torch.from_numpy(np.log((count + 1) / (total - count + 1)).astype(np.float32))
