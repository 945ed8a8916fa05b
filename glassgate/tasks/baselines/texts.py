"""Baselines of tasks that predict each token of a text from others: unigrams, and n-grams of neighbouring tokens."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassgate.tasks.baselines.baseline import MAX_UNITS, Baseline
from glassgate.tasks.baselines.ngrams import NGrams
from glassgate.tasks.data.batches import Batch, Encoded, lengths
from glassgate.tasks.data.vocabulary import UNKNOWN

_CHUNK = 2**16  # tokens whose probabilities are computed at once


class TokenModel(Baseline):
    """Predicts each token from neighbouring tokens by an n-gram model.

    Args:
        task: the task; `target_field` names the field of the tokens
        name: the name of the model
        offsets: the positions of the context relative to the token, the farthest first; empty for unigrams
    """

    name: str  # type: ignore[misc]

    def __init__(self, task: Any, name: str, offsets: Sequence[int] = ()):
        super().__init__(task)
        self.name, self.offsets = name, tuple(offsets)

    def learn(self, train: Sequence[Encoded], dev: Sequence[Encoded]) -> None:
        field, units = self.task.target_field, int(np.sum(lengths(train)))
        parts: list[tuple[np.ndarray, np.ndarray]] = []
        left = MAX_UNITS
        for fields in reversed(train):
            tokens = fields[field]
            parts.append(self._columns(tokens, max(0, len(tokens) - left), len(tokens)))
            left -= len(tokens)
            if left <= 0:
                self.note = f"trained on the last {MAX_UNITS:,} of {units:,} tokens"
                break
        contexts, symbols = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        self.model = NGrams(contexts, symbols, len(self.task.vocabularies["units"]) - UNKNOWN)

    def observed(self, encoded: Sequence[Encoded]) -> Iterator[dict[str, Any]]:
        for fields in encoded:
            tokens = fields[self.task.target_field]
            for start in range(0, len(tokens), _CHUNK):
                contexts, symbols = self._columns(tokens, start, min(len(tokens), start + _CHUNK))
                nats = -np.log(self.model.probabilities(contexts, symbols))
                observed = {"nats": nats, "mask": nats >= 0, "target": symbols}
                observed["preds"] = self.model.most_probable(contexts)
                yield {name: torch.from_numpy(values)[None] for name, values in observed.items()}

    def compute(self, batch: Batch) -> Tensor:
        raise NotImplementedError("`observed` reads whole texts, as contexts extend over the bounds of batches")

    def _columns(self, tokens: np.ndarray, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """The contexts, `(L, C)`, and the symbols, `(L,)`, of the tokens from `start` to `stop`.

        Symbol 0 is the unknown token. Contexts are -1 before the beginning and after the end of the text.
        """
        low, high = min((0, *self.offsets)), max((0, *self.offsets))
        first, last = max(0, start + low), min(len(tokens), stop + high)
        read = np.asarray(tokens[first:last], np.int64) - UNKNOWN
        padded = np.pad(read, (first - start - low, stop + high - last), constant_values=-1)
        columns = [padded[offset - low :][: stop - start] for offset in self.offsets]
        contexts = np.stack(columns, 1) if columns else np.zeros((stop - start, 0), np.int64)
        return contexts, padded[-low:][: stop - start]
