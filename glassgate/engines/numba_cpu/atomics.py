"""Atomic operations on memory, callable from kernels, with which threads hand over work and wait for each other."""

from typing import Any

import numba
import numba.extending
from llvmlite import ir
from numba import types
from numba.core import cgutils

from glassgate.engines.numba_cpu.simd.vector import INT64

intrinsic: Any = numba.extending.intrinsic
inline: Any = numba.njit(forceinline=True, error_model="numpy")


def _pointer(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.inttoptr(address, INT64.as_pointer())


@intrinsic
def arrive(context: Any, counter: Any) -> Any:
    """Add one, and publish everything written before to readers of the counter."""

    def code(context, builder, sig, args):
        builder.atomic_rmw("add", _pointer(builder, args[0]), INT64(1), "acq_rel")
        return context.get_dummy_value()

    return types.void(types.int64), code


@intrinsic
def look(context: Any, address: Any) -> Any:
    """The word at an address as another thread left it, and with it everything that thread wrote before."""
    return types.int64(types.int64), lambda c, b, s, a: b.load_atomic(_pointer(b, a[0]), "acquire", 8)


@intrinsic
def swap(context: Any, address: Any, old: Any, new: Any) -> Any:
    """Replace `old` by `new`; whether the word was `old`."""

    def code(context, builder, sig, args):
        address, old, new = args
        found = builder.cmpxchg(_pointer(builder, address), old, new, "acq_rel", "acquire")
        return builder.extract_value(found, 1)

    return types.boolean(types.int64, types.int64, types.int64), code


@intrinsic
def yield_core(context: Any) -> Any:
    """Yield the core to another thread."""

    def code(context, builder, sig, args):
        kind = ir.FunctionType(ir.IntType(32), [])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), code


def _call(builder: ir.IRBuilder, function: ir.Value, argument: ir.Value) -> None:
    nothing = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.IntType(32), [nothing.as_pointer(), nothing.as_pointer(), INT64])
    unused = cgutils.alloca_once(builder, nothing)
    builder.call(builder.inttoptr(function, kind.as_pointer()), [unused, unused, argument])


@intrinsic
def perform(context: Any, function: Any, argument: Any) -> Any:
    """Call the machine code at an address, a kernel, with its one argument."""

    def code(context, builder, sig, args):
        _call(builder, *args)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), code


@intrinsic
def take(context: Any, counter: Any) -> Any:
    """Add one and return the previous value."""

    def code(context, builder, sig, args):
        return builder.atomic_rmw("add", _pointer(builder, args[0]), INT64(1), "acq_rel")

    return types.int64(types.int64), code


@intrinsic
def team_size(context: Any, function: Any) -> Any:
    """The result of OpenMP's `omp_get_num_threads`, which is at an address."""

    def code(context, builder, sig, args):
        kind = ir.FunctionType(ir.IntType(32), [])
        return builder.sext(builder.call(builder.inttoptr(args[0], kind.as_pointer()), []), INT64)

    return types.int64(types.int64), code


@intrinsic
def in_parallel(context: Any, parallel: Any, table: Any, threads: Any) -> Any:
    """Let each thread of a team of OpenMP's call the machine code whose address a table begins with, with the table.

    Args:
        parallel: the address of `GOMP_parallel`.
        table: an address.
        threads: how many.
    """

    def code(context, builder, sig, args):
        pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        member = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), [pointer]), "glassgate.member")
        member.linkage = "internal"
        inside = ir.IRBuilder(member.append_basic_block())
        table = inside.ptrtoint(member.args[0], INT64)
        _call(inside, inside.load(inside.inttoptr(table, INT64.as_pointer())), table)
        inside.ret_void()
        kind = ir.FunctionType(ir.VoidType(), [member.type, pointer, flag, flag])
        parallel, table, threads = args
        table, threads = builder.inttoptr(table, pointer), builder.trunc(threads, flag)
        builder.call(builder.inttoptr(parallel, kind.as_pointer()), [member, table, threads, flag(0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), code


PATIENCE = 100_000
"""Polls before a thread yields: about 0.2 ms, longer than parts of a step differ while each has a core."""


@inline
def wait(barrier, parties, times):
    """Wait until all threads have come here for the `times`-th time; the barrier's second word counts long waits."""
    if parties > 1:
        arrive(barrier)
        turns = 0
        while look(barrier) < parties * times:
            turns += 1
            if turns == PATIENCE:
                arrive(barrier + 8)
            if turns >= PATIENCE:
                yield_core()
    return times + 1


FUNCTIONS: dict[str, Any] = {
    f.__name__: f for f in (arrive, take, look, swap, yield_core, perform, team_size, in_parallel, wait)
}
"""The names that a kernel imports."""
