"""Heat maps as PNG, and the order of their rows. Zero is transparent, for light and dark pages."""

import base64
import struct
import zlib
from typing import Literal

import numpy as np

Scale = Literal["gate", "signed"]

HIGH, LOW, GATE = (230, 116, 24), (58, 134, 214), (14, 150, 136)
_MAX_COLUMNS, _MAX_ROWS = 1000, 256
_LEVELS = 63


def heat_map(values: np.ndarray, scale: Scale) -> str:
    """Draw values (rows, columns) as a PNG in a data URI.

    Args:
        values: from 0 to 1, or from -1 to 1 with the scale "signed". Adjacent rows or columns are averaged if there are
            more than a page can show
        scale: the colour scale
    """
    values = _shrink(_shrink(np.nan_to_num(values), 0, _MAX_ROWS), 1, _MAX_COLUMNS)
    if scale == "gate":
        levels = np.clip(np.rint(values * _LEVELS), 0, _LEVELS)
        colours = [(*GATE, level / _LEVELS) for level in range(_LEVELS + 1)]
    else:
        half = _LEVELS // 2
        levels = half + np.clip(np.rint(values * half), -half, half)
        colours = [(*(HIGH if k > 0 else LOW), abs(k) / half) for k in range(-half, half + 1)]
    return "data:image/png;base64," + base64.b64encode(_png(levels.astype(np.uint8), colours)).decode()


def _shrink(values: np.ndarray, axis: int, most: int) -> np.ndarray:
    """Average adjacent entries of an axis, so that at most `most` remain."""
    count = values.shape[axis]
    if count <= most:
        return values
    edges = np.linspace(0, count, most + 1).astype(int)[:-1]
    sizes = np.diff(np.append(edges, count))
    shape = (-1, 1) if axis == 0 else (1, -1)
    return np.add.reduceat(values, edges, axis) / sizes.reshape(shape)


def _png(levels: np.ndarray, colours: list[tuple[int, int, int, float]]) -> bytes:
    height, width = levels.shape
    palette = b"".join(bytes(colour[:3]) for colour in colours)
    # An exponent below one makes small values more visible.
    alpha = bytes(round(255 * colour[3] ** 0.75) for colour in colours)
    rows = b"".join(b"\0" + row.tobytes() for row in levels)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = (b"IHDR", header), (b"PLTE", palette), (b"tRNS", alpha), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )


def similarity_order(values: np.ndarray) -> list[int]:
    """The order of units by angle in the first two principal components of states (S, H); similar units are adjacent.

    Example:
        >>> wave = np.sin(np.arange(20.0))
        >>> order = similarity_order(np.stack([wave, -wave, wave + 1e-3, -wave], 1))
        >>> order in ([0, 2, 1, 3], [1, 3, 0, 2], [2, 0, 1, 3])
        True
    """
    if values.shape[1] < 3 or len(values) < 2:
        return list(range(values.shape[1]))
    values = np.nan_to_num(values, posinf=0.0, neginf=0.0)
    centred = values - values.mean(0)
    scaled = (centred / np.maximum(np.linalg.norm(centred, axis=0), 1e-9)).T.astype(np.float64)
    left, sizes, _ = np.linalg.svd(scaled, full_matrices=False)
    plane = left[:, :2] * sizes[:2]
    plane *= np.sign(plane[np.abs(plane).argmax(0), [0, 1]])
    angle = np.round(np.arctan2(plane[:, 1], plane[:, 0]), 6)
    order = np.argsort(angle, kind="stable")
    gaps = np.diff(np.append(angle[order], angle[order[0]] + 2 * np.pi))
    return np.roll(order, -1 - int(gaps.argmax())).tolist()
