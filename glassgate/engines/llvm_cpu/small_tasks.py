"""Small tasks before and after the loop: tables of row addresses, final states, and sums of biases."""

from glassgate.engines.llvm_cpu import arguments as args
from glassgate.engines.llvm_cpu.arguments import Argument
from glassgate.engines.llvm_cpu.gemm.products import RowVectors
from glassgate.engines.llvm_cpu.native import compile_native
from glassgate.engines.llvm_cpu.tasks import Operand, ParallelTask

ROW_ADDRESSES_KERNEL = '''
def fill_row_addresses(table: words, start, pitch, first, last):
    """Write the addresses of the rows `first` to `last` - 1 of a buffer to a table."""
    write_row_addresses(table, first, last, start, pitch)
'''

STATE_ADDRESSES_KERNEL = '''
def fill_state_addresses(table, dt, sizes: words, starts: words, resets, state, pitch, initial, restart, first, last):
    """Write to a table, for each row of the steps `first` to `last` - 1, the address of its previous state."""
    for t in range(first, last):
        to, start, size, previous = words(table + starts[t] * 8), starts[t], sizes[t], t + dt
        before, count = starts[previous], sizes[previous]
        write_state_addresses(to, 0, size, start, resets, state, pitch, before, count, initial, restart)
'''

FINAL_STATES_KERNEL = '''
def copy_final_states(out, pitch, width, state, initial, sizes: words, starts: words, steps, reverse, first, last):
    """Copy the final state of the sequences `first` to `last` - 1, or the initial state of an empty sequence."""
    t = steps - 1
    for rank in range(first, last):
        while t >= 0 and sizes[t] <= rank:
            t -= 1
        row = initial + rank * pitch
        if t >= 0:
            row = state + (starts[0 if reverse else t] + rank) * pitch
        for unit in range(0, width, LANES):
            store(out + rank * pitch, unit, width - unit, load(row, unit, width - unit))
'''

ADD_KERNEL = '''
def add(C, A, B, first, last):
    """C = A + B for the numbers `first` to `last` - 1."""
    for unit in range(first, last, LANES):
        live = last - unit
        store(C, unit, live, load(A, unit, live) + load(B, unit, live))
'''


def fill_row_addresses(table: Argument, buffer: RowVectors, rows: Operand) -> ParallelTask:
    """Return the task that fills a table with the addresses of the rows of a buffer."""
    return ParallelTask(compile_native(ROW_ADDRESSES_KERNEL), (table, buffer.start, buffer.pitch), rows, is_light=True)


def fill_state_addresses(
    table: Argument, state: RowVectors, initial: Operand, restart: Operand, reverse: bool
) -> ParallelTask:
    """Return the task that fills a table with the address of the previous state of each row, for all steps.

    Args:
        table: the address of the table.
        state: the states after each step.
        initial, restart: the addresses of the initial states and of the states after a reset.
        reverse: whether the loop runs from the last step to the first.
    """
    dt = 1 if reverse else -1
    operands = (table, dt, args.SIZES, args.STARTS, args.RESETS, state.start, state.pitch, initial, restart)
    return ParallelTask(compile_native(STATE_ADDRESSES_KERNEL), operands, args.STEPS, is_light=True)


def copy_final_states(
    out: Operand, state: RowVectors, initial: Operand, starts: Operand, reverse: bool, bits: int
) -> ParallelTask:
    """Return the task that copies the state after the last step of each sequence.

    Args:
        out: the address of the final states.
        state: the states after each step.
        initial: the address of the initial states.
        starts: the table with the index of the first row of each step in `state`.
        reverse: whether the loop runs from the last step to the first.
        bits: the size of a number.
    """
    operands = (out, state.pitch, state.width, state.start, initial, args.SIZES, starts, args.STEPS, int(reverse))
    return ParallelTask(compile_native(FINAL_STATES_KERNEL, bits), operands, args.SEQUENCES, is_light=True)


def add(out: Operand, a: Operand, b: Operand, width: int, bits: int) -> ParallelTask:
    """Return the task that adds two vectors."""
    return ParallelTask(compile_native(ADD_KERNEL, bits), (out, a, b), width, is_light=True)
