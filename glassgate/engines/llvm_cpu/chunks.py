"""A loop whose input GEMM is computed for a few steps at a time, so that the loop reads the result from the cache."""

from collections.abc import Mapping, Sequence

from glassgate.engines.llvm_cpu import arguments as args
from glassgate.engines.llvm_cpu.arguments import Argument
from glassgate.engines.llvm_cpu.native import compile_native
from glassgate.engines.llvm_cpu.tasks import Launch, Operand, ParallelTask

CHUNKS = '''
def chunks(steps, origin, starts: words, sizes: words, dt, max_rows, loop_steps, loop_origin, tasks, moving, *parts):
    """Run chunks of steps: first the tasks for all rows of a chunk, then the loop over its steps.

    `loop_steps` and `loop_origin` are the offsets of the loop's arguments `steps` and `origin`. Offsets are in bytes.
    `parts` has three items for each of the `tasks` tasks: the address of its function, the offset of its arguments, and
    the offset of its last argument. The same three items for the loop follow. Then `parts` has two items for each of
    the `moving` addresses, which change from chunk to chunk: the offset of the address, and the bytes per row.
    """
    loop, done, before = 3 * tasks, 0, 0
    while done < steps:
        t = origin + done * dt
        count, rows = 1, sizes[t]
        while done + count < steps and rows + sizes[t + count * dt] <= max_rows:
            rows += sizes[t + count * dt]
            count += 1
        first = starts[min(t, t + (count - 1) * dt)]
        for k in range(loop + 3, loop + 3 + 2 * moving, 2):
            words(address + parts[k])[0] -= (first - before) * parts[k + 1]
        before = first
        for k in range(0, loop, 3):
            end = words(address + parts[k + 2])
            end[-1], end[0] = first, first + rows
            perform(parts[k], address + parts[k + 1])
        words(address + loop_steps)[0], words(address + loop_origin)[0] = count, t
        perform(parts[loop], address + parts[loop + 1])
        done += count
'''

MAX_CHUNK_BYTES = 2**19
"""The largest size in bytes of the result of a chunk's input GEMM: about half of a core's private cache.

If the weights are larger, the result may be as large as the weights.
"""


class Chunks(ParallelTask):
    """A task for one thread. For each chunk of adjacent steps, it runs `tasks` on the rows, then the loop over time.

    Args:
        tasks: the tasks for the rows of a chunk, in order.
        loop: the task of the loop over time.
        dt: the change of the time index per step, 1 or -1.
        max_rows: the largest number of rows of a chunk. A chunk has at least one step, even if it has more rows.
        moving: the addresses of the buffers that hold only the rows of one chunk, each with the size of a row in bytes.
    """

    def __init__(
        self,
        tasks: Sequence[ParallelTask],
        loop: ParallelTask,
        dt: int,
        max_rows: int,
        moving: Mapping[Argument, int],
    ) -> None:
        parts = [*tasks, loop]
        row_sizes = [(k, slot, moving[a]) for k, part in enumerate(parts) for slot, a in part.slots if a in moving]
        operands: list[Operand] = [args.STEPS, args.ORIGIN, args.STARTS, args.SIZES]
        operands += [dt, max_rows, 0, 0, len(tasks), len(row_sizes)]
        starts = [len(operands) + 3 * len(parts) + 2 * len(row_sizes)]
        for part in parts:
            starts.append(starts[-1] + len(part.launch.arguments))
        loop_start = starts[-2]
        loop_slots = {argument: loop_start + slot for slot, argument in loop.slots}
        operands[6:8] = 8 * loop_slots[args.STEPS], 8 * loop_slots[args.ORIGIN]
        for start, end, part in zip(starts, starts[1:], parts, strict=False):
            operands += [part.launch.function.address, 8 * start, 8 * (end - 1)]
        for k, slot, row_size in row_sizes:
            operands += [8 * (starts[k] + slot), row_size]
        super().__init__(compile_native(CHUNKS), operands, 0)
        header = self.launch.arguments[:-2]  # without bounds: only the loop has them
        self.launch = Launch(self.launch.function, sum((part.launch.arguments for part in parts), header))
        for start, part in zip(starts, parts, strict=False):
            self.slots += [(start + slot, argument) for slot, argument in part.slots]
        self.bounds_slot, self.size = loop_start + loop.bounds_slot, loop.size
