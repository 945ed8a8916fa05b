"""Each token is in one batch of an epoch, with every kind of batching. Epochs differ, and equal seeds repeat them."""

from collections import Counter

import pytest

from glassgate.tasks.data.batching import Batches, Batching, ChunkBatching, StreamBatching
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
