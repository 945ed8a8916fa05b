"""The fraction of unknown tokens is exact, and a note appears from 30 % on."""

import numpy as np

from glassgate.tasks.data import unknown
from glassgate.tasks.data.unknown import unknown_fraction, unknown_tokens_note


def test_fraction_of_unknown_tokens(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(unknown, "_BLOCK_SIZE", 2)
    encoded = [{"units": np.array([1, 5, 1])}, {"units": np.array([2])}]
    assert unknown_fraction("units", encoded) == 0.5
    assert unknown_fraction("units", []) is None
    assert unknown_fraction("units", [{"series": np.zeros((2, 3))}]) is None
    assert unknown_fraction("series", [{"series": np.zeros((2, 3))}]) is None


def test_note_on_many_unknown_tokens() -> None:
    assert unknown_tokens_note(None, "a.txt") == unknown_tokens_note(0.29, "a.txt") == ""
    assert unknown_tokens_note(0.3, "a.txt").startswith("30% of the tokens of a.txt are not in the training data")
