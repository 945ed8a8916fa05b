"""Which units make which batch, a function of seed and epoch alone, and the padded tensors made of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

Encoded = Mapping[str, np.ndarray]
Batch = dict[str, Tensor]

# Evaluation pads whole sequences; a batch holds no more units than this, unless one sequence alone does.
_MOST_UNITS = 2**18


@dataclass(frozen=True, slots=True)
class Piece:
    """Units `start` to `stop` of sequence `index`."""

    index: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def whole(lengths: Sequence[int], batch_size: int) -> list[list[Piece]]:
    """Batch whole sequences by falling length, for evaluation.

    Example:
        >>> [len(piece) for batch in whole([2, 9, 5], batch_size=2) for piece in batch]
        [9, 5, 2]
    """
    batches: list[list[Piece]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        room = min(batch_size, _MOST_UNITS // len(batches[-1][0])) if batches else 0
        if not batches or len(batches[-1]) >= room:
            batches.append([])
        batches[-1].append(Piece(index, 0, lengths[index]))
    return batches


def shuffled(lengths: Sequence[int], batch_size: int, longest: int, seed: int, epoch: int) -> list[list[Piece]]:
    """Batch an epoch's pieces with their likes in length, the batches in random order.

    Args:
        lengths: units of each sequence
        batch_size: pieces a batch
        longest: longer sequences are cut into pieces of so many units, from a random offset on; 0 to cut none
        seed: what the order follows from
        epoch: number of the epoch, from 0

    Example:
        >>> batches = shuffled([3, 5, 3, 5], batch_size=2, longest=0, seed=1, epoch=0)
        >>> sorted([len(piece) for piece in batch] for batch in batches)
        [[3, 3], [5, 5]]
    """
    random = np.random.default_rng([seed, epoch])
    pieces = []
    for index, length in enumerate(lengths):
        cuts = [0, length]
        if longest and length > longest:
            cuts[1:1] = range(1 + int(random.integers(longest)), length, longest)
        pieces += [Piece(index, start, stop) for start, stop in pairwise(cuts)]
    pieces = [pieces[place] for place in random.permutation(len(pieces))]
    pieces.sort(key=len)
    batches = [pieces[start : start + batch_size] for start in range(0, len(pieces), batch_size)]
    return [batches[place] for place in random.permutation(len(batches))]


def collate(encoded: Sequence[Encoded], pieces: Sequence[Piece], padding: Mapping[str, int]) -> Batch:
    """Cut the pieces out of their sequences and pad each field to one tensor.

    Args:
        encoded: each sequence's fields: `(L, ...)` a value for each unit, or `()` one for the sequence
        pieces: what the batch is made of
        padding: the value that fills each field

    Returns:
        the fields, `(N, L, ...)` or `(N,)`, and the pieces' `lengths`, `(N,)`
    """
    batch = {}
    for name, fill in padding.items():
        if name in encoded[pieces[0].index]:
            batch[name] = _padded([_cut(encoded[piece.index][name], piece) for piece in pieces], fill)
    batch["lengths"] = torch.tensor([len(piece) for piece in pieces])
    return batch


class Loader:
    """The batches of one epoch, from one of them on; Lightning takes it for a data loader."""

    def __init__(
        self, encoded: Sequence[Encoded], batches: Sequence[Sequence[Piece]], padding: Mapping[str, int], first: int = 0
    ):
        self.encoded = encoded
        self.batches = batches[first:]
        self.padding = padding

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        return (collate(self.encoded, pieces, self.padding) for pieces in self.batches)


def _cut(field: np.ndarray, piece: Piece) -> np.ndarray:
    return field[piece.start : piece.stop] if field.ndim else field


def _padded(arrays: Sequence[np.ndarray], fill: int) -> Tensor:
    shape = [max(sizes) for sizes in zip(*(array.shape for array in arrays), strict=True)]
    padded = np.full((len(arrays), *shape), fill, dtype=arrays[0].dtype)
    for place, array in enumerate(arrays):
        where: tuple[int | slice, ...] = (place, *(slice(size) for size in array.shape))
        padded[where] = array
    return torch.from_numpy(padded)
