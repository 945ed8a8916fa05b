"""Batches contain every token once, with every kind of batching; rows of streams and of chunks continue in the next."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassgate.tasks.data.batches import Loader
from glassgate.tasks.data.batching import (
    Batches,
    Batching,
    ChunkBatching,
    Chunks,
    Piece,
    StreamBatching,
    Streams,
    evaluation_batches,
    padding_fraction,
    training_batches,
)
from glassgate.tasks.forecasting.options import ForecastingOptions
from glassgate.tasks.forecasting.windows import WindowBatching
from glassgate.tasks.options import Options

LENGTHS = [7, 23, 1, 12]
SMALL = Options(batch_size=3)
WAYS = {
    "whole": Batching(SMALL),
    "pieces": Batching(SMALL, 5, longest_evaluated=4),
    "chunks": ChunkBatching(SMALL, 5),
    "streams": StreamBatching(SMALL, 5),
}


def tokens_in(batches: Batches) -> Counter[tuple[int, int]]:
    return Counter((piece.index, k) for batch in batches for piece in batch for k in range(piece.start, piece.stop))


@pytest.mark.parametrize("name", WAYS)
def test_every_token_is_read_once(name: str) -> None:
    way, each = WAYS[name], {(index, k): 1 for index, length in enumerate(LENGTHS) for k in range(length)}
    assert tokens_in(way.training(LENGTHS, 0)) == tokens_in(way.evaluation(LENGTHS)) == each
    assert way.count_units(LENGTHS) == len(each)
    assert list(way.training(LENGTHS, 0)) == list(way.training(LENGTHS, 0))
    assert len({str(list(way.training(LENGTHS, epoch))) for epoch in range(8)}) > 1


def test_windows_cover_each_origin_once() -> None:
    way = WindowBatching(ForecastingOptions(look_back=3, horizon=2, batch_size=4), context=6)
    starts = [(piece.index, piece.start) for batch in way.training(LENGTHS, 0) for piece in batch]
    assert sorted(starts) == [(k, s) for k, length in enumerate(LENGTHS) for s in range(length - 4)]
    assert way.count_examples(LENGTHS) == len(starts)
    assert way.count_units(LENGTHS) == 5 * len(starts)
    assert {len(piece) for batch in way.evaluation(LENGTHS) for piece in batch} == {8}


ANY_LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=6)


def covered(batches: list) -> list[tuple[int, int]]:
    """Return the sequence and the position of each token, in order."""
    return sorted(
        (piece.index, position) for batch in batches for piece in batch for position in range(piece.start, piece.stop)
    )


@given(ANY_LENGTHS, st.integers(1, 5), st.integers(1, 9), st.integers(0, 9))
def test_every_token_is_in_one_piece(lengths: list[int], rows: int, longest: int, first: int) -> None:
    tokens = [(index, position) for index, length in enumerate(lengths) for position in range(length)]
    assert covered(Streams(lengths, rows, longest, first)) == tokens
    assert covered(evaluation_batches(lengths, rows, longest)) == tokens
    assert covered(training_batches(lengths, rows, longest, seed=1, epoch=first)) == tokens


@given(ANY_LENGTHS, st.integers(1, 5), st.integers(1, 9), st.integers(0, 9))
def test_rows_of_a_stream_continue(lengths: list[int], rows: int, longest: int, first: int) -> None:
    batches = list(Streams(lengths, rows, longest, first))
    assert len(batches) == len(Streams(lengths, rows, longest, first))
    assert not any(piece.continues for piece in batches[0])
    height = -(-sum(lengths) // rows)
    for before, after in pairwise(batches):
        for one, other in zip(before, after, strict=True):
            assert other.continues == (len(other) > 0 and one.index == other.index and one.stop == other.start)
    for row in range(rows):
        assert sum(len(batch[row]) for batch in batches) <= height


@given(ANY_LENGTHS, st.integers(1, 5), st.integers(1, 9))
def test_rows_of_chunks_continue_in_the_next_batch(lengths: list[int], rows: int, chunk: int) -> None:
    cuts = training_batches(lengths, rows, 0, seed=1, epoch=0)
    batches, groups = list(Chunks(cuts, chunk)), list(cuts)
    assert len(batches) == len(Chunks(cuts, chunk))
    assert covered(batches) == covered(groups)
    assert sum(not any(piece.continues for piece in batch) for batch in batches) == len(groups)
    for before, after in pairwise(batches):
        assert any(map(len, after))
        if after[-1].continues:
            for one, other in zip(before, after, strict=True):
                assert other.continues == (len(other) > 0)
                assert not len(other) or (one.index == other.index and one.stop == other.start)


def test_chunks_have_nearly_equal_sizes() -> None:
    batching, lengths = ChunkBatching(Options(batch_size=1), 50), [1, 60, 74, 76, 254]
    sizes = {tuple(len(piece) for (piece,) in batching.training([length], 0)) for length in lengths}
    assert sizes == {(1,), (60,), (74,), (38, 38), (51, 51, 51, 51, 50)}
    assert batching.count_examples(lengths) == 1 + 1 + 1 + 2 + 5


@pytest.mark.parametrize("longest", [1, 7, 100])
def test_pieces_have_at_most_the_requested_length(longest: int) -> None:
    for batches in (
        Streams([50, 3], 2, longest),
        evaluation_batches([50, 3], 2, longest),
        training_batches([50, 3], 2, longest, 1, 0),
    ):
        assert max(len(piece) for batch in batches for piece in batch) <= longest


def test_padding_is_counted_from_the_tensors() -> None:
    lengths = [int(length) for length in np.random.default_rng(0).geometric(0.06, 2000)]
    encoded = [{"units": np.full(length, 5)} for length in lengths]
    batches = training_batches(lengths, batch_size=32, longest=0, seed=1, epoch=0)
    tensors = [batch["units"] for batch in Loader(encoded, batches, {"units": 0})]
    empty = sum(int((tensor == 0).sum()) for tensor in tensors)
    assert padding_fraction(batches) == pytest.approx(empty / sum(tensor.numel() for tensor in tensors))
    assert padding_fraction(batches) < 0.1
    unsorted = [[Piece(n, 0, lengths[n]) for n in range(start, min(start + 32, 2000))] for start in range(0, 2000, 32)]
    assert padding_fraction(unsorted) > 0.5
