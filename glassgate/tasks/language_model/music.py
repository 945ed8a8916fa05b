"""Reads piano rolls, the keys of a piano that sound at each time step, from .npz, .npy, .json and .mat files."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassgate.extras import install_command
from glassgate.tasks.data.detect import detect_kind
from glassgate.tasks.data.files import archive_members, loading, readable_file, regular_file, suffix_of
from glassgate.tasks.data.lines import open_text
from glassgate.tasks.data.records import load_arrays, load_json
from glassgate.tasks.errors import DataError, OptionError

NUM_KEYS = 88
"""The number of keys of a piano."""
LOWEST_KEY = 21
"""The MIDI number of the lowest key. The highest key has the number 108."""
_HIGHEST_KEY = LOWEST_KEY + NUM_KEYS - 1

_SPLIT_OF_PREFIX = {"train": "train", "valid": "dev", "dev": "dev", "test": "test"}
_NESTED_LISTS = re.compile(r'\s*(\{\s*"\w+"\s*:\s*)?\[\s*\[\s*\[\s*[\d\]]')


@dataclass(frozen=True, slots=True)
class Roll:
    """One piece of music.

    Attributes:
        steps: `(L, 88)`, 1 where a key sounds and 0 elsewhere, uint8
        source: the path of the file and the name of the array that contains the piece
    """

    steps: np.ndarray
    source: str = ""


def read_rolls(path: str | Path) -> dict[str, list[Roll]]:
    """Read the pieces of a file, grouped into "train", "dev" and "test".

    - .json: a list of pieces, or an object with such a list under "train", "valid" and "test". A piece is a list of
      steps. A step is a list of MIDI numbers from 21 to 108.
    - .npz: arrays `(L, 88)` or `(N, L, 88)` of 0 and 1. An array whose name begins with "train", "valid", "dev" or
      "test" belongs to that split, where "valid" means "dev". Any other array belongs to "train".
    - .npy: one such array.
    - .mat: cell arrays `traindata`, `validdata` and `testdata` of arrays `(L, 88)`. Requires SciPy.

    """
    kind = detect_kind(path)
    if kind not in _READERS:
        suffixes = ", ".join(f".{kind}" for kind in _READERS)
        raise DataError(path, None, f"expected piano rolls in one of {suffixes}, got {suffix_of(path) or 'no suffix'}")
    splits: dict[str, list[Roll]] = {"train": [], "dev": [], "test": []}
    for name, piece in _READERS[kind](path):
        source = f"{path}: {name}"
        split = next((split for prefix, split in _SPLIT_OF_PREFIX.items() if name.startswith(prefix)), "train")
        splits[split].append(Roll(_check_piece(source, piece), source))
    if not any(splits.values()):
        raise DataError(path, None, "the file holds no piece of music")
    return splits


def parse_roll(text: str) -> Roll:
    """Return the piece of music in a text. Each line is a step: MIDI numbers, or "-" for silence.

    Example:
        >>> parse_roll("60 64 67\\n-").steps.sum(1).tolist()
        [3, 0]
    """
    lines = {number: line.split() for number, line in enumerate(text.splitlines(), 1) if line.strip()}
    steps = [[int(word) if word.isdecimal() else word for word in words if word != "-"] for words in lines.values()]

    def note_error(note: object, step: int) -> OptionError:
        return OptionError(
            f"text: expected lines of MIDI numbers from {LOWEST_KEY} to {_HIGHEST_KEY}, or - for silence, got "
            f"{str(note)!r} in line {[*lines][step]}"
        )

    return Roll(_roll_from_notes(steps, note_error))


def is_music(path: str | Path) -> bool:
    """Whether a file probably contains piano rolls, judged by its kind, its first bytes or the names of its arrays."""
    kind = detect_kind(path)
    if kind in ("json", "npz") and regular_file(path).is_file():
        if kind == "json":
            with open_text(path) as file:
                return _NESTED_LISTS.match(file.read(2**10)) is not None
        return not {"x.npy", "y.npy"} & {*archive_members(path)}  # the arrays of labelled series
    if kind == "npy":
        return load_arrays(path, "save it again")["train"].shape[-1:] == (NUM_KEYS,)
    return kind == "mat"


def _check_piece(source: str, piece: np.ndarray) -> np.ndarray:
    """Check that a piece is `(L, 88)` of 0 and 1, and return it as uint8."""
    if piece.ndim != 2 or piece.shape[1] != NUM_KEYS or piece.dtype.kind not in "biuf":
        expected = f"expected an array of numbers (steps, {NUM_KEYS})"
        raise DataError(source, None, f"{expected}, got {piece.dtype} {piece.shape}")
    if len(piece) < 2:
        raise DataError(source, None, f"expected at least 2 steps, one to hear and one to predict, got {len(piece)}")
    if not np.isin(piece, (0, 1)).all():
        step, key = np.argwhere(~np.isin(piece, (0, 1)))[0]
        got = f"got {piece[step, key]} in step {step}"
        raise DataError(source, None, f"expected 0 and 1, {got}; write 1 for any loudness")
    return piece.astype(np.uint8)


def _read_json(path: str | Path) -> Iterable[tuple[str, np.ndarray]]:
    content = load_json(path)

    def note_error(note: object, step: int) -> DataError:
        expected = f"lists of MIDI numbers from {LOWEST_KEY} to {_HIGHEST_KEY}"
        return DataError(f"{path}: {piece_name}", None, f"expected {expected}, got {note!r} in step {step}")

    for name, pieces in content.items() if isinstance(content, dict) else [("train", content)]:
        for index, piece in enumerate(pieces):
            piece_name = f"{name}[{index}]"
            yield piece_name, _roll_from_notes(piece, note_error)


def _roll_from_notes(steps: Sequence[Any], note_error: Callable[[object, int], Exception]) -> np.ndarray:
    """Convert the MIDI numbers of L steps to an array `(L, 88)`. `note_error` gets an invalid note and its step."""
    roll = np.zeros((len(steps), NUM_KEYS), np.uint8)
    for step, notes in enumerate(steps):
        for note in notes if isinstance(notes, list) else [notes]:
            if not isinstance(note, int) or not LOWEST_KEY <= note <= _HIGHEST_KEY:
                raise note_error(note, step)
            roll[step, note - LOWEST_KEY] = 1
    return roll


def _read_numpy(path: str | Path) -> Iterable[tuple[str, np.ndarray]]:
    for name, array in load_arrays(path, "save one array per piece").items():
        if array.ndim == 3:
            yield from ((f"{name}[{index}]", piece) for index, piece in enumerate(array))
        else:
            yield name, array


def _read_matlab(path: str | Path) -> Iterable[tuple[str, np.ndarray]]:
    try:
        from scipy.io import loadmat
    except ImportError:
        remedy = f"{install_command('scipy')}, or save the pieces as .npz"
        raise DataError(path, None, f"reading .mat needs SciPy; {remedy}") from None
    with loading(path, "a MATLAB file", "save it again, as version 7 or older, or as .npz"):
        content = loadmat(readable_file(path))
    for name, cells in content.items():
        if not name.startswith("__"):
            for index, piece in enumerate(np.ravel(cells)):
                yield f"{name}[{index}]", np.asarray(piece)


_READERS: dict[str, Callable[[str | Path], Iterable[tuple[str, np.ndarray]]]] = {
    "json": _read_json,
    "npz": _read_numpy,
    "npy": _read_numpy,
    "mat": _read_matlab,
}
"""The functions that yield the name and the array of each piece of a file, by its kind."""
