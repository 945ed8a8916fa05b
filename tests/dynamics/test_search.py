"""Search for steps with similar states: an exhaustive search, planted patterns, and files."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor

import glassgate as gg
from tests.compare import noise

NAME = "layer0.forward.h"


def indexed(lengths: list[int], units: int = 6) -> tuple[gg.dynamics.Index, list[Tensor]]:
    sequences = [noise(k, length, units).float() for k, length in enumerate(lengths)]
    texts = [[f"é{k}.{t}" for t in range(length)] for k, length in enumerate(lengths)]
    return gg.dynamics.Index.of(({NAME: values} for values in sequences), texts, {"data": "noise"}), sequences


def test_search_equals_an_exhaustive_search() -> None:
    index, sequences = indexed([40, 3, 25])
    pattern, units = noise(9, 5, 6).float(), [1, 4, 5]
    deviation = torch.cat(sequences).std(0, correction=0)
    expected = sorted(
        (((values[t : t + 5] - pattern)[:, units] / deviation[units]).square().mean().sqrt().item(), k, t)
        for k, values in enumerate(sequences)
        for t in range(len(values) - 4)
    )
    best_matches = gg.dynamics.search(index, NAME, pattern, units, matches=4, apart=1)
    assert [(m.sequence, m.start, m.stop) for m in best_matches] == [(k, t, t + 5) for _, k, t in expected[:4]]
    assert [m.distance for m in best_matches] == pytest.approx([d for d, *_ in expected[:4]], abs=0.02)
    assert [m.closer for m in best_matches] == pytest.approx([n / len(expected) for n in (1, 2, 3, 4)])
    without_overlap = gg.dynamics.search(index, NAME, pattern, units, matches=99)
    starts = sorted((m.sequence, m.start) for m in without_overlap)
    assert all(b[0] != a[0] or b[1] - a[1] >= 5 for a, b in pairwise(starts))
    assert all(m.sequence != 1 for m in without_overlap)  # it is shorter than the pattern


def test_planted_patterns_and_active_units_are_found_in_a_file(tmp_path: Path) -> None:
    _, sequences = indexed([50, 60])
    sequences[0][10:14, 2:4] = sequences[1][30:34, 2:4] = torch.tensor([4.0, -4.0])
    planted = gg.dynamics.Index.of([{NAME: values} for values in sequences], [["é"] * 50, ["x"] * 60], {"data": "a"})
    planted.save(tmp_path / "index.safetensors")
    read = gg.dynamics.Index.open(tmp_path / "index.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["index.safetensors"]
    assert (read.about, read.steps) == ({"data": "a"}, 110)
    assert read.text(0, 48, 99) == ["é", "é"]
    assert (read.values(NAME, 1) - sequences[1]).abs().max() < 0.05
    assert sorted(read.active(NAME, sequences[0], 10, 14)) == [2, 3]
    best_matches = gg.dynamics.search(read, NAME, sequences[0][10:14], [2, 3], matches=2)
    assert {(m.sequence, m.start) for m in best_matches} == {(0, 10), (1, 30)}
    assert all(m.distance < 0.05 for m in best_matches)


def test_invalid_arguments_raise_errors(tmp_path: Path) -> None:
    index, _ = indexed([8])
    with pytest.raises(KeyError, match=r"no state .c.; there are layer0.forward.h"):
        gg.dynamics.search(index, "c", torch.zeros(2, 6), [0])
    with pytest.raises(gg.ShapeError, match=r"pattern must be \(L, H\) = \(L, 6\), got \(2, 5\)"):
        gg.dynamics.search(index, NAME, torch.zeros(2, 5), [0])
    with pytest.raises(ValueError, match=r"units must be one or more numbers from 0 to 5, got \[6\]"):
        gg.dynamics.search(index, NAME, torch.zeros(2, 6), [6])
    with pytest.raises(IndexError, match="sequence must be below 1, got 1"):
        index.values(NAME, 1)
    expected = "expected at least one step, and as many texts as steps or no texts, got 8 steps and 7 texts"
    with pytest.raises(ValueError, match=expected):
        gg.dynamics.Index.of([{NAME: torch.zeros(8, 2)}], [["a"] * 7])
    (tmp_path / "other.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"other.safetensors: expected an index of states, got a damaged file or"):
        gg.dynamics.Index.open(tmp_path / "other.safetensors")
