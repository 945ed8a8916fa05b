"""Python runs printed kernels on NumPy vectors. This takes milliseconds, and the compiler takes seconds."""

import ctypes
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from glassgate.engines.llvm_cpu import compile as compiling
from glassgate.engines.llvm_cpu import kernel, namespace
from glassgate.engines.llvm_cpu.arrays import kernel as array_kernel
from glassgate.engines.llvm_cpu.processor import Processor, pretend

SMALL = Processor(32, 16)
"""Its vectors are short, so that small layers have several vectors, both full and partial ones."""
LANES, BYTES = SMALL.lanes(64), 8
Vector = Any
_alive: list[Any] = []
"""Functions whose address may still be in use."""


class words:
    """The 64-bit integers at an address. Negative indices read those before it."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __getitem__(self, k: int) -> int:
        return ctypes.c_int64.from_address(self._address + 8 * k).value

    def __setitem__(self, k: int, value: int) -> None:
        ctypes.c_int64.from_address(self._address + 8 * k).value = value


def _numbers(address: int, at: int, count: int) -> Any:
    assert address > 2**16, "the address was not set"
    return np.frombuffer((ctypes.c_double * count).from_address(address + at * BYTES))


def load(address: int, at: int, live: int) -> Vector:
    vector, count = np.zeros(LANES), min(live, LANES)
    if count > 0:
        vector[:count] = _numbers(address, at, count)
    return vector


def store(address: int, at: int, live: int, vector: Vector) -> None:
    count = min(live, LANES)
    if count > 0:
        _numbers(address, at, count)[:] = np.broadcast_to(vector, LANES)[:count]


def keep(vector: Vector, live: int) -> Vector:
    return np.where(np.arange(LANES) < live, vector, 0.0)


def put_total(address: int, vector: Vector) -> None:
    _numbers(address, 0, 1)[0] = np.broadcast_to(vector, LANES).sum()


def add_total(address: int, vector: Vector) -> None:
    _numbers(address, 0, 1)[0] += np.broadcast_to(vector, LANES).sum()


def total(vector: Vector) -> Vector:
    return np.full(LANES, np.broadcast_to(vector, LANES).sum())


def gather(address: int, at: int, stride: int, live: int) -> Vector:
    return np.array([_numbers(address, at + k * stride, 1)[0] if k < live else 0.0 for k in range(LANES)])


def is_reset(resets: int, row: int) -> bool:
    return resets != 0 and ctypes.c_uint8.from_address(resets + row).value != 0


def write_row_addresses(pointers: Any, first: int, last: int, base: int, pitch: int) -> None:
    for rank in range(first, last):
        pointers[rank] = base + rank * pitch


def write_state_addresses(pointers, first, last, row, resets, rows, pitch, start, size, initial, restart) -> None:
    for rank in range(first, last):
        if is_reset(resets, row + rank):
            pointers[rank] = restart + rank * pitch
        elif rank >= size:
            pointers[rank] = initial + rank * pitch
        else:
            pointers[rank] = rows + (start + rank) * pitch


def microkernel(sums: int) -> Callable[..., None]:
    """Return the product of rows with blocks of `sums` vectors. The weights are packed, or have a row per unit."""

    def product(left, rank, first, weights, pitch, gates, live, depth, out, rows, blocks) -> None:
        for row in range(rows):
            x = _numbers(left[rank + row], first, depth)
            for block in range(blocks):
                if gates:
                    starts = [weights + block * pitch * BYTES + words(gates)[gate] for gate in range(sums)]
                    places = [pitch // LANES * min(unit, live - block * LANES - 1) for unit in range(LANES)]
                    units = [_numbers(start, place, depth) for start in starts for place in places]
                    matrix = np.stack(units, axis=1)
                else:
                    matrix = _numbers(weights, block * pitch, depth * sums * LANES).reshape(depth, sums * LANES)
                at = (row * blocks + block) * sums * LANES
                _numbers(out, at, sums * LANES)[:] = x @ matrix

    return product


def transposed_microkernel(sums: int) -> Callable[..., None]:
    """Return the product of rows with blocks of columns of the weights, which may be packed."""
    multiply_packed = microkernel(sums)

    def product(left, rank, first, weights, pitch, row_pitch, live, depth, out, rows, blocks) -> None:
        if not row_pitch:
            multiply_packed(left, rank, first, weights, pitch, 0, live, depth, out, rows, blocks)
            return
        for row in range(rows):
            x = _numbers(left[rank + row], first, depth)
            for block in range(blocks):
                count = min(LANES, live - block * LANES)
                matrix = np.zeros((depth, LANES))
                for k in range(depth):
                    matrix[k, :count] = _numbers(weights + k * row_pitch, block * LANES, count)
                _numbers(out, (row * blocks + block) * LANES, LANES)[:] = x @ matrix

    return product


def _each(function: Callable[..., float]) -> Callable[..., Vector]:
    return np.vectorize(function, otypes=[np.float64])


def _sigmoid(x: Vector) -> Vector:
    return 1.0 / (1.0 + np.exp(-x))


MATHEMATICS: dict[str, Any] = {
    **{name: getattr(np, name) for name in ("exp", "expm1", "log", "log1p", "sin", "cos", "tan", "sqrt", "tanh")},
    **{name: getattr(np, name) for name in ("absolute", "sign", "floor", "ceil", "trunc", "minimum", "maximum")},
    **{"where": np.where, "power": np.power, "atan": np.arctan, "round_even": np.rint, "erf": _each(math.erf)},
    **{"sigmoid": _sigmoid, "rsqrt": lambda x: 1.0 / np.sqrt(x)},
}


def memory_of(size: int) -> Callable[[], int]:
    """Return the function that reserves memory on the stack of a kernel."""
    memory = ctypes.create_string_buffer(size + 64)
    _alive.append(memory)
    return lambda: -(-ctypes.addressof(memory) // 64) * 64


def _namespace(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {
        "LANES": LANES,
        "BYTES": BYTES,
        **{
            f.__name__: f
            for f in (words, load, store, keep, put_total, is_reset, write_row_addresses, write_state_addresses)
        },
        **{f.__name__: f for f in (add_total, total, gather)},
        **{f"memory_{size}": memory_of(int(size)) for size in {*re.findall(r"\bmemory_(\d+)\(", text)}},
        "shape_of_tiles": namespace.runtime.shape_of_tiles,
        "fill": lambda number: np.full(LANES, float(number)),
        "number": lambda address: _numbers(address, 0, 1)[0],
        "prefetch": lambda *_: None,
        "wait": lambda barrier, parties, waits: waits,
    }
    for sums in {int(n) for n in re.findall(r"microkernel_(\d+)\(", text)}:
        names |= {
            f"microkernel_{sums}": microkernel(sums),
            f"transposed_microkernel_{sums}": transposed_microkernel(sums),
        }
        names[f"MAX_ROWS_{sums}"], names[f"MAX_AREA_{sums}"] = namespace.blocking(sums, SMALL)
    return {f"_{name}": value for name, value in names.items()} | names | MATHEMATICS


class Interpreter:
    """Replaces the compiler of kernels.

    Args:
        change: a text in the kernels and its replacement, to test that errors are detected.
    """

    def __init__(self, change: tuple[str, str] | None) -> None:
        self._change = change
        self.texts: list[str] = []
        """The texts of all requested kernels."""
        self.faults: list[BaseException] = []

    def compile_kernel(self, text: str, name: str, bits: int, processor: Any) -> compiling.Function:
        """Return a function whose address calls Python."""
        assert (bits, processor) == (64, SMALL)
        if self._change:
            assert self._change[0] in text
            text = text.replace(*self._change)
        self.texts.append(text)
        namespace = _namespace(text)
        exec(compile(text, f"<interpreted {name}>", "exec"), namespace)

        def run(address: int) -> None:
            try:
                with np.errstate(all="ignore"):
                    namespace[name](address)
            except BaseException as fault:  # an exception cannot pass through machine code
                self.faults.append(fault)

        callback = compiling.KERNEL_TYPE(run)
        _alive.append(callback)
        return compiling.Function(ctypes.cast(callback, ctypes.c_void_p).value or 0, name)


@contextmanager
def interpreted(change: tuple[str, str] | None = None) -> Iterator[Interpreter]:
    """Return a context in which Python runs the text of kernels instead of compiling it.

    Args:
        change: as in `Interpreter`.
    """
    interpreter = Interpreter(change)
    with pytest.MonkeyPatch.context() as patch, pretend(SMALL):
        patch.setattr(kernel, "_compiled", {})
        for module in (kernel, array_kernel):
            patch.setattr(module, "compile_kernel", interpreter.compile_kernel)
        try:
            yield interpreter
        finally:
            if interpreter.faults:  # the results of a faulty kernel are undefined
                raise interpreter.faults[0]
