"""What a printed kernel calls beside mathematics: addresses of rows, shapes of tiles, the meeting of threads."""

from typing import Any

import numba
import numba.extending
from llvmlite import ir
from numba import types
from numba.core import cgutils

from glassgate.engines.numba_cpu.vector import INT64

intrinsic: Any = numba.extending.intrinsic
inline: Any = numba.njit(forceinline=True, error_model="numpy")


@intrinsic
def words(context: Any, address: Any) -> Any:
    """The 64-bit integers at an address."""
    return types.CPointer(types.int64)(types.int64), lambda c, b, s, a: b.inttoptr(a[0], INT64.as_pointer())


@intrinsic
def flags(context: Any, address: Any) -> Any:
    """The bytes at an address."""
    return types.CPointer(types.uint8)(types.int64), lambda c, b, s, a: b.inttoptr(a[0], ir.IntType(8).as_pointer())


@inline
def shape_of_tiles(rows, most_rows, room):
    """The rows of a tile, shared out evenly, and how many panels it takes side by side."""
    tiles = max(1, (rows + most_rows - 1) // most_rows)
    high = max(1, (rows + tiles - 1) // tiles)
    wide = 8
    while wide > 1 and high * wide > room:
        wide //= 2
    return high, wide


@inline
def point(pointers, first, last, base, pitch):
    """The addresses of the rows `first` to `last` that lie `pitch` bytes apart."""
    for rank in range(first, last):
        pointers[rank] = base + rank * pitch


@inline
def is_reset(resets, row):
    """Whether the state falls back before this step."""
    return resets != 0 and flags(resets)[row] != 0


@inline
def locate(pointers, first, last, row, resets, rows, pitch, start, size, initial, restart):
    """The addresses of a state before a step: in the step before, or the initial state where there is none."""
    for rank in range(first, last):
        if is_reset(resets, row + rank):
            pointers[rank] = restart + rank * pitch
        elif rank >= size:
            pointers[rank] = initial + rank * pitch
        else:
            pointers[rank] = rows + (start + rank) * pitch


@intrinsic
def _prefetch(context: Any, address: Any) -> Any:
    """Ask for the line of memory at an address."""

    def code(context, builder, sig, args):
        pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [builder.inttoptr(args[0], pointer), flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.void(types.int64), code


@inline
def fetch(rows, pitch, count, columns, width, size):
    """Ask ahead for `size` bytes at the same place in each column of some rows; columns are `width` bytes apart."""
    for row in range(count):
        for column in range(columns):
            for byte in range(0, size, 64):
                _prefetch(rows + row * pitch + column * width + byte)


@intrinsic
def _arrive(context: Any, counter: Any) -> Any:
    """Add one, and let everything written before be seen by whom reads it."""

    def code(context, builder, sig, args):
        builder.atomic_rmw("add", builder.inttoptr(args[0], INT64.as_pointer()), INT64(1), "acq_rel")
        return context.get_dummy_value()

    return types.void(types.int64), code


@intrinsic
def _arrived(context: Any, counter: Any) -> Any:
    def code(context, builder, sig, args):
        return builder.load_atomic(builder.inttoptr(args[0], INT64.as_pointer()), "acquire", 8)

    return types.int64(types.int64), code


@intrinsic
def _give_way(context: Any) -> Any:
    """Let another thread have this core."""

    def code(context, builder, sig, args):
        kind = ir.FunctionType(ir.IntType(32), [])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), code


PATIENCE = 2000


@inline
def meet(barrier, parties, times):
    """Wait until every thread has come here for the `times`-th time; long waits count in the barrier's second word."""
    if parties > 1:
        _arrive(barrier)
        turns = 0
        while _arrived(barrier) < parties * times:
            turns += 1
            if turns == PATIENCE:
                _arrive(barrier + 8)
            if turns >= PATIENCE:
                _give_way()
    return times + 1


FUNCTIONS: dict[str, Any] = {
    f.__name__: f for f in (words, flags, shape_of_tiles, point, fetch, locate, is_reset, meet)
}
"""By name, what a kernel imports."""
