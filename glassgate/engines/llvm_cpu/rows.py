"""Small tasks around the loop: tables of the addresses of rows, final states, sums of biases."""

from glassgate.engines.llvm_cpu import arguments as args
from glassgate.engines.llvm_cpu.arguments import Argument
from glassgate.engines.llvm_cpu.gemm.products import RowVectors
from glassgate.engines.llvm_cpu.native import native
from glassgate.engines.llvm_cpu.tasks import Operand, ParallelTask

ROWS = '''
def rows(table: words, start, pitch, first, last):
    """Write the addresses of the rows of a buffer to a table."""
    write_row_addresses(table, first, last, start, pitch)
'''

BEFORE = '''
def before(table, turn, sizes: words, starts: words, resets, state, pitch, initial, restart, first, last):
    """Write the addresses of the state before each row of the steps from `first` to `last` to a table."""
    for t in range(first, last):
        to, start, size, previous = words(table + starts[t] * 8), starts[t], sizes[t], t + turn
        before, count = starts[previous], sizes[previous]
        write_state_addresses(to, 0, size, start, resets, state, pitch, before, count, initial, restart)
'''

LAST = '''
def last(out, pitch, width, state, initial, sizes: words, starts: words, steps, reverse, first, end):
    """Copy the last state of each sequence from `first` to `end`, or the initial state of an empty sequence."""
    t = steps - 1
    for rank in range(first, end):
        while t >= 0 and sizes[t] <= rank:
            t -= 1
        row = initial + rank * pitch
        if t >= 0:
            row = state + (starts[0 if reverse else t] + rank) * pitch
        for unit in range(0, width, LANES):
            store(out + rank * pitch, unit, width - unit, load(row, unit, width - unit))
'''

ADD = '''
def add(C, A, B, first, last):
    """C = A + B for the numbers from `first` to `last`."""
    for unit in range(first, last, LANES):
        live = last - unit
        store(C, unit, live, load(A, unit, live) + load(B, unit, live))
'''


def rows_of(to: Argument, buffer: RowVectors, rows: Operand) -> ParallelTask:
    """The task that fills a table with the addresses of rows."""
    return ParallelTask(native(ROWS), (to, buffer.start, buffer.pitch), rows, is_light=True)


def rows_before(to: Argument, state: RowVectors, initial: Operand, restart: Operand, reverse: bool) -> ParallelTask:
    """The task that fills a table with the addresses of the state before each row of all steps."""
    turn = 1 if reverse else -1
    operands = (to, turn, args.SIZES, args.STARTS, args.RESETS, state.start, state.pitch, initial, restart)
    return ParallelTask(native(BEFORE), operands, args.STEPS, is_light=True)


def last(
    out: Operand, state: RowVectors, initial: Operand, starts: Operand, N: int, reverse: bool, bits: int
) -> ParallelTask:
    """The task that fills `out` with the state after the last step of each of N sequences."""
    where = (out, state.pitch, state.width, state.start, initial)
    return ParallelTask(native(LAST, bits), (*where, args.SIZES, starts, args.STEPS, int(reverse)), N, is_light=True)


def add(out: Operand, a: Operand, b: Operand, width: int, bits: int) -> ParallelTask:
    """The task that adds two vectors."""
    return ParallelTask(native(ADD, bits), (out, a, b), width, is_light=True)
