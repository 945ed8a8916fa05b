"""Reads piano rolls, which state for each step which of 88 keys sound, from .npz, .npy, .json and .mat files."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassgate.tasks.data.detect import kind_of
from glassgate.tasks.data.files import members, readable, regular_file, suffix_of
from glassgate.tasks.data.lines import opened_text
from glassgate.tasks.data.records import load_arrays, load_json
from glassgate.tasks.errors import DataError, OptionError

KEYS = 88
LOWEST = 21
"""The MIDI number of the lowest key; the highest is 108."""
_HIGHEST = LOWEST + KEYS - 1

_PARTS = {"train": "train", "valid": "dev", "dev": "dev", "test": "test"}


@dataclass(frozen=True, slots=True)
class Roll:
    """One piece of music.

    Attributes:
        steps: `(L, 88)`, 1 where a key sounds and 0 elsewhere, uint8
        source: the file it came from, and the array in it
    """

    steps: np.ndarray
    source: str = ""


def read_rolls(path: str | Path) -> dict[str, list[Roll]]:
    """Read the pieces of a file, grouped into "train", "dev" and "test".

    - .json: a list of pieces, or such a list under each of "train", "valid" and "test". A piece is a list of steps. A
      step is a list of MIDI numbers from 21 to 108.
    - .npz: arrays `(L, 88)` or `(N, L, 88)` of 0 and 1. The prefix of the name, "train", "valid", "dev" or "test",
      selects the part; "train" by default. .npy: one such array.
    - .mat: cells `traindata`, `validdata` and `testdata` of such arrays; requires SciPy.

    Raises:
        DataError: the file is missing, of another kind, or has other content
    """
    kind = kind_of(path)
    if kind not in _READERS:
        known = ", ".join(f".{each}" for each in _READERS)
        raise DataError(path, None, f"expected piano rolls in one of {known}, got {suffix_of(path) or 'no suffix'}")
    parts: dict[str, list[Roll]] = {"train": [], "dev": [], "test": []}
    for name, piece in _READERS[kind](path):
        where = f"{path}: {name}"
        part = next((part for start, part in _PARTS.items() if name.startswith(start)), "train")
        parts[part].append(Roll(_checked(where, piece), where))
    if not any(parts.values()):
        raise DataError(path, None, "the file holds no piece of music")
    return parts


def roll_of(text: str) -> Roll:
    """Return a piece of music with a step for each line of a text: MIDI numbers, or "-" for silence.

    Raises:
        OptionError: a word is not a MIDI number from 21 to 108

    Example:
        >>> roll_of("60 64 67\\n-").steps.sum(1).tolist()
        [3, 0]
    """
    lines = {number: line.split() for number, line in enumerate(text.splitlines(), 1) if line.strip()}
    steps = [[int(word) if word.isdecimal() else word for word in words if word != "-"] for words in lines.values()]

    def fault(note: object, step: int) -> OptionError:
        return OptionError(
            f"text: expected lines of MIDI numbers from {LOWEST} to {_HIGHEST}, or - for silence, got "
            f"{str(note)!r} in line {[*lines][step]}"
        )

    return Roll(_from_notes(steps, fault))


def is_music(path: str | Path) -> bool:
    """Whether a file contains piano rolls, by its name or its beginning."""
    kind = kind_of(path)
    if kind in ("json", "npz") and regular_file(path).is_file():
        if kind == "json":
            with opened_text(path) as file:
                return _NESTED.match(file.read(2**10)) is not None
        return not {"x.npy", "y.npy"} & {*members(path)}
    return kind in ("mat", "npy")


_NESTED = re.compile(r'\s*(\{\s*"\w+"\s*:\s*)?\[\s*\[\s*\[')


def _checked(where: str, piece: np.ndarray) -> np.ndarray:
    if piece.ndim != 2 or piece.shape[1] != KEYS or piece.dtype.kind not in "biuf":
        raise DataError(where, None, f"expected an array of numbers (steps, {KEYS}), got {piece.dtype} {piece.shape}")
    if len(piece) < 2:
        raise DataError(where, None, f"expected at least 2 steps, one to hear and one to predict, got {len(piece)}")
    if not np.isin(piece, (0, 1)).all():
        step, key = np.argwhere(~np.isin(piece, (0, 1)))[0]
        raise DataError(
            where, None, f"expected 0 and 1, got {piece[step, key]} in step {step}; write 1 for any loudness"
        )
    return piece.astype(np.uint8)


def _json(path: str | Path) -> Iterable[tuple[str, np.ndarray]]:
    content = load_json(path)

    def fault(note: object, step: int) -> DataError:
        known = f"lists of MIDI numbers from {LOWEST} to {_HIGHEST}"
        return DataError(f"{path}: {where}", None, f"expected {known}, got {note!r} in step {step}")

    for name, pieces in content.items() if isinstance(content, dict) else [("train", content)]:
        for number, piece in enumerate(pieces):
            where = f"{name}[{number}]"
            yield where, _from_notes(piece, fault)


def _from_notes(steps: Sequence[Any], fault: Callable[[object, int], Exception]) -> np.ndarray:
    """The roll of lists of MIDI numbers; `fault` returns the error for a note without a key and its step."""
    roll = np.zeros((len(steps), KEYS), np.uint8)
    for step, notes in enumerate(steps):
        for note in notes if isinstance(notes, list) else [notes]:
            if not isinstance(note, int) or not LOWEST <= note <= _HIGHEST:
                raise fault(note, step)
            roll[step, note - LOWEST] = 1
    return roll


def _numpy(path: str | Path) -> Iterable[tuple[str, np.ndarray]]:
    for name, array in load_arrays(path, "save one array per piece").items():
        if array.ndim == 3:
            yield from ((f"{name}[{number}]", piece) for number, piece in enumerate(array))
        else:
            yield name, array


def _matlab(path: str | Path) -> Iterable[tuple[str, np.ndarray]]:
    try:
        from scipy.io import loadmat
        from scipy.io.matlab import MatReadError
    except ImportError:
        raise DataError(path, None, "reading .mat needs SciPy; pip install scipy, or save the pieces as .npz") from None
    file = readable(path)
    try:
        content = loadmat(file)
    except (ValueError, TypeError, NotImplementedError, MatReadError) as error:
        raise DataError(path, None, f"expected a MATLAB file, but it does not load: {error}") from None
    for name, cells in content.items():
        if not name.startswith("__"):
            for number, piece in enumerate(np.ravel(cells)):
                yield f"{name}[{number}]", np.asarray(piece)


_READERS: dict[str, Callable[[str | Path], Iterable[tuple[str, np.ndarray]]]] = {
    "json": _json,
    "npz": _numpy,
    "npy": _numpy,
    "mat": _matlab,
}
