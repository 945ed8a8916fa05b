"""Every format gives the same piano rolls; errors name the file, the piece and the step."""

import json
from pathlib import Path

import numpy as np
import pytest

from glassgate.tasks.errors import DataError
from glassgate.tasks.language_model import LanguageModel, LanguageModelOptions
from glassgate.tasks.language_model.music import read_rolls
from tests.tasks.data.test_files_as_they_are import Notes

CHORDS = [[60, 64, 67], [], [21, 108]]


def roll() -> np.ndarray:
    steps = np.zeros((3, 88))
    for step, notes in enumerate(CHORDS):
        steps[step, [note - 21 for note in notes]] = 1
    return steps


def test_formats_agree(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"train": [CHORDS], "valid": [CHORDS], "test": [CHORDS]}))
    np.savez(tmp_path / "a.npz", train_0=roll(), valid=roll()[None], test_0=roll())
    scipy_io = pytest.importorskip("scipy.io")
    cells = np.empty((1, 1), object)
    cells[0, 0] = roll()
    scipy_io.savemat(tmp_path / "a.mat", {"traindata": cells, "validdata": cells, "testdata": cells})
    for suffix in ("json", "npz", "mat"):
        parts = read_rolls(tmp_path / f"a.{suffix}")
        assert parts.keys() == {"train", "dev", "test"}
        for pieces in parts.values():
            assert [piece.steps.tolist() for piece in pieces] == [roll().tolist()], suffix
        notes = Notes()
        LanguageModel(LanguageModelOptions()).read(tmp_path / f"a.{suffix}", progress=notes)
        said = "piano rolls, 1 in train, 1 in dev, 1 in test; the test part is used"
        assert notes.said == [f"{tmp_path}/a.{suffix}: {said}"]
    np.save(tmp_path / "a.npy", roll())
    assert len(read_rolls(tmp_path / "a.npy")["train"]) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.mid", b"", r"a\.mid: expected piano rolls in one of \.json, \.npz, \.npy, \.mat, got \.mid"),
        (
            "a.json",
            b"[[[60], [20]]]",
            r"a\.json: train\[0\]: expected lists of MIDI numbers from 21 to 108, got 20 in step 1",
        ),
        (
            "a.json",
            b"[[[60]]]",
            r"a\.json: train\[0\]: expected at least 2 steps, one to hear and one to predict, got 1",
        ),
        ("a.json", b"[[[60]", r"a\.json:1: expected JSON, but it does not parse"),
        ("a.json", b"[]", r"a\.json: the file holds no piece of music"),
        ("a.npz", b"nonsense", r"a\.npz: expected arrays of numbers, but it does not load \(not without pickle\)"),
    ],
)
def test_faults(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_rolls(tmp_path / name)


def test_arrays_of_another_form(tmp_path: Path) -> None:
    np.save(tmp_path / "wide.npy", np.zeros((5, 128)))
    with pytest.raises(
        DataError, match=r"wide\.npy: train: expected an array of numbers \(steps, 88\), got float64 \(5, 128\)"
    ):
        read_rolls(tmp_path / "wide.npy")
    np.save(tmp_path / "loud.npy", roll() * 90)
    with pytest.raises(
        DataError, match=r"loud\.npy: train: expected 0 and 1, got 90\.0 in step 0; write 1 for any loudness"
    ):
        read_rolls(tmp_path / "loud.npy")
    with pytest.raises(DataError, match=r"none\.npy: no such file"):
        read_rolls(tmp_path / "none.npy")


def test_no_pickle_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([roll(), None], object), allow_pickle=True)
    with pytest.raises(DataError, match=r"but it does not load \(not without pickle\); save one array per piece"):
        read_rolls(tmp_path / "a.npy")
