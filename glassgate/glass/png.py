"""Heat maps as PNG. Zero is transparent, so that the same picture suits light and dark pages."""

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
    """Values (rows, columns) as a data URI.

    Args:
        values: from 0 to 1, or from -1 to 1 with the scale "signed"; if there are more rows or columns than a page can
            show, adjacent ones are averaged
        scale: the colour scale
    """
    values = _shrunk(_shrunk(np.nan_to_num(values), 0, _MAX_ROWS), 1, _MAX_COLUMNS)
    if scale == "gate":
        numbers = np.clip(np.rint(values * _LEVELS), 0, _LEVELS)
        colours = [(*GATE, level / _LEVELS) for level in range(_LEVELS + 1)]
    else:
        half = _LEVELS // 2
        numbers = half + np.clip(np.rint(values * half), -half, half)
        colours = [(*(HIGH if k > 0 else LOW), abs(k) / half) for k in range(-half, half + 1)]
    return "data:image/png;base64," + base64.b64encode(_png(numbers.astype(np.uint8), colours)).decode()


def _shrunk(values: np.ndarray, axis: int, most: int) -> np.ndarray:
    """Average adjacent entries of an axis, so that at most `most` remain."""
    count = values.shape[axis]
    if count <= most:
        return values
    edges = np.linspace(0, count, most + 1).astype(int)[:-1]
    sizes = np.diff(np.append(edges, count))
    shape = (-1, 1) if axis == 0 else (1, -1)
    return np.add.reduceat(values, edges, axis) / sizes.reshape(shape)


def _png(numbers: np.ndarray, colours: list[tuple[int, int, int, float]]) -> bytes:
    height, width = numbers.shape
    palette = b"".join(bytes(colour[:3]) for colour in colours)
    # The exponent below one keeps small values visible.
    alpha = bytes(round(255 * colour[3] ** 0.75) for colour in colours)
    rows = b"".join(b"\0" + row.tobytes() for row in numbers)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = (b"IHDR", header), (b"PLTE", palette), (b"tRNS", alpha), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )
