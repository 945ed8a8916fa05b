"""Atomic memory operations for kernels, with which threads pass work to each other and synchronise."""

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
    """Add one to a counter. Threads that read the counter then see everything written before (release)."""

    def code(context, builder, sig, args):
        builder.atomic_rmw("add", _pointer(builder, args[0]), INT64(1), "acq_rel")
        return context.get_dummy_value()

    return types.void(types.int64), code


@intrinsic
def look(context: Any, address: Any) -> Any:
    """Read a word that another thread writes. Everything that this thread wrote before is then visible (acquire)."""
    return types.int64(types.int64), lambda c, b, s, a: b.load_atomic(_pointer(b, a[0]), "acquire", 8)


@intrinsic
def swap(context: Any, address: Any, old: Any, new: Any) -> Any:
    """Replace the word by `new` if it is `old`. Return whether it was."""

    def code(context, builder, sig, args):
        address, old, new = args
        exchanged = builder.cmpxchg(_pointer(builder, address), old, new, "acq_rel", "acquire")
        return builder.extract_value(exchanged, 1)

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
    """Call a kernel at an address with its only argument."""

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
    """Call `omp_get_num_threads` of OpenMP, which is at the address `function`."""

    def code(context, builder, sig, args):
        kind = ir.FunctionType(ir.IntType(32), [])
        return builder.sext(builder.call(builder.inttoptr(args[0], kind.as_pointer()), []), INT64)

    return types.int64(types.int64), code


@intrinsic
def in_parallel(context: Any, parallel: Any, table: Any, threads: Any) -> Any:
    """Start a team of OpenMP threads. Each one calls a kernel with the address of a table.

    Args:
        parallel: the address of `GOMP_parallel`.
        table: the address of the table. Its first word is the address of the kernel.
        threads: the number of threads.
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
"""The number of polls before a thread yields its core, about 0.2 ms. Threads that each have a core wait for less."""


@inline
def wait(barrier, parties, times):
    """Wait until all threads have arrived for the `times`-th time. The second word of the barrier counts long waits."""
    if parties > 1:
        arrive(barrier)
        polls = 0
        while look(barrier) < parties * times:
            polls += 1
            if polls == PATIENCE:
                arrive(barrier + 8)
            if polls >= PATIENCE:
                yield_core()
    return times + 1


FUNCTIONS: dict[str, Any] = {
    f.__name__: f for f in (arrive, take, look, swap, yield_core, perform, team_size, in_parallel, wait)
}
"""The names that a kernel imports."""
