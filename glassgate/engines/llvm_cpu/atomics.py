"""Functions with which the threads of kernels pass work to each other and synchronise."""

from typing import Any

from llvmlite import ir

from glassgate.engines.llvm_cpu.simd.instructions import INT8, INT32, INT64, call, instruction, pointer_at

POINTER = INT8.as_pointer()
YIELD = "glassgate_yield"
"""The name in machine code of the function that yields the core. It is the same for all operating systems."""


@instruction(INT64)
def increment(builder, counter):
    """Add one to a counter. A thread that reads the new value also sees all earlier writes of the caller (release)."""
    builder.atomic_rmw("add", pointer_at(builder, counter, INT64), INT64(1), "acq_rel")


@instruction(INT64)
def fetch_increment(builder, counter):
    """Do the same as `increment`, and return the previous value of the counter."""
    return builder.atomic_rmw("add", pointer_at(builder, counter, INT64), INT64(1), "acq_rel")


@instruction(INT64)
def load_acquire(builder, address):
    """Read a word that another thread has written. All earlier writes of that thread are then visible."""
    return builder.load_atomic(pointer_at(builder, address, INT64), "acquire", 8)


@instruction(INT64, INT64, INT64)
def compare_and_swap(builder, address, old, new):
    """Replace the word at an address by `new` if it is `old`. Return whether the word was replaced."""
    exchanged = builder.cmpxchg(pointer_at(builder, address, INT64), old, new, "acq_rel", "acquire")
    return builder.extract_value(exchanged, 1)


@instruction()
def yield_core(builder):
    """Yield the core to another thread. The loader replaces `YIELD` by the function of the operating system."""
    call(builder, YIELD, INT32)


@instruction(INT64, INT64)
def perform(builder, function, argument):
    """Call the kernel at the address `function` with its only argument."""
    builder.call(pointer_at(builder, function, ir.FunctionType(ir.VoidType(), [INT64])), [argument])


@instruction(INT64)
def team_size(builder, function):
    """Call `omp_get_num_threads` of OpenMP, which is at the address `function`."""
    return builder.sext(builder.call(pointer_at(builder, function, ir.FunctionType(INT32, [])), []), INT64)


@instruction(INT64, INT64, INT64)
def in_parallel(builder, parallel, table, threads):
    """Start a team of OpenMP threads, each of which calls a kernel with the address of a table. Wait for all.

    Args:
        builder: appends the code.
        parallel: the address of `GOMP_parallel`.
        table: the address of the table. Its first word is the address of the kernel.
        threads: the number of threads.
    """
    member = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), [POINTER]), "glassgate.member")
    member.linkage = "internal"
    member_builder = ir.IRBuilder(member.append_basic_block())
    address = member_builder.ptrtoint(member.args[0], INT64)
    perform.code(member_builder, member_builder.load(pointer_at(member_builder, address, INT64)), address)
    member_builder.ret_void()
    kind = ir.FunctionType(ir.VoidType(), [member.type, POINTER, INT32, INT32])
    team = [member, pointer_at(builder, table, INT8), builder.trunc(threads, INT32), INT32(0)]
    builder.call(pointer_at(builder, parallel, kind), team)


MAX_POLLS = 100_000
"""The number of polls, about 0.2 ms, after which a waiting thread yields its core. If each thread has a core, waits are
shorter."""


def wait(barrier, parties, times):
    """Wait until all `parties` threads have arrived at the barrier for the `times`-th time. Return `times + 1`.

    The first word of the barrier counts arrivals. The second word counts the waits in which a thread yielded its core.
    """
    if parties > 1:
        increment(barrier)
        polls = 0
        while load_acquire(barrier) < parties * times:
            polls += 1
            if polls == MAX_POLLS:
                increment(barrier + 8)
            if polls >= MAX_POLLS:
                yield_core()
    return times + 1


FUNCTIONS: dict[str, Any] = {
    f.__name__: f
    for f in (
        increment,
        fetch_increment,
        load_acquire,
        compare_and_swap,
        yield_core,
        perform,
        team_size,
        in_parallel,
        wait,
    )
}
"""The functions by their names in kernels."""
