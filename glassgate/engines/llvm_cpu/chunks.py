"""A loop whose input GEMM is computed for a few steps at a time, so that the loop reads its result from the cache."""

from collections.abc import Mapping, Sequence

from glassgate.engines.llvm_cpu import arguments as args
from glassgate.engines.llvm_cpu.arguments import Argument
from glassgate.engines.llvm_cpu.native import native
from glassgate.engines.llvm_cpu.tasks import Launch, Operand, ParallelTask

CHUNKS = '''
def chunks(steps, origin, starts: words, sizes: words, turn, max_rows, loop_steps, loop_origin, tasks, moving, *parts):
    """Run chunks of steps: first the tasks for all rows of a chunk, then the loop over its steps.

    `parts` has three items per task: the address of its function, the offset of its arguments, and the offset of its
    last argument. The same three items of the loop follow. After these, it has two items for each address that moves
    with the chunks: the offset of the address and the size of a row in bytes.
    """
    loop, done, before = 3 * tasks, 0, 0
    while done < steps:
        t = origin + done * turn
        count, rows = 1, sizes[t]
        while done + count < steps and rows + sizes[t + count * turn] <= max_rows:
            rows += sizes[t + count * turn]
            count += 1
        first = starts[min(t, t + (count - 1) * turn)]
        for k in range(loop + 3, loop + 3 + 2 * moving, 2):
            words(address + parts[k])[0] -= (first - before) * parts[k + 1]
        before = first
        for k in range(0, loop, 3):
            share = words(address + parts[k + 2])
            share[-1], share[0] = first, first + rows
            perform(parts[k], address + parts[k + 1])
        words(address + loop_steps)[0], words(address + loop_origin)[0] = count, t
        perform(parts[loop], address + parts[loop + 1])
        done += count
'''

ENOUGH_BYTES = 2**19
"""The largest size in bytes of a chunk's result of the input GEMM: about half of a core's private cache.

If the weights are larger, the result may be as large as they are."""


class Chunks(ParallelTask):
    """Tasks over the rows of some steps, and the loop that reads their results, on one thread.

    Args:
        tasks: the tasks for the rows of a chunk, in order.
        loop: the kernel of a cell.
        turn: the direction of time, 1 or -1.
        max_rows: the largest number of rows of a chunk. A chunk has at least one step.
        moving: the buffers that hold only the rows of one chunk, with the bytes of a row.
    """

    def __init__(
        self,
        tasks: Sequence[ParallelTask],
        loop: ParallelTask,
        turn: int,
        max_rows: int,
        moving: Mapping[Argument, int],
    ) -> None:
        every = [*tasks, loop]
        pitches = [(k, slot, moving[a]) for k, task in enumerate(every) for slot, a in task.bound if a in moving]
        own: list[Operand] = [args.STEPS, args.ORIGIN, args.STARTS, args.SIZES]
        own += [turn, max_rows, 0, 0, len(tasks), len(pitches)]
        starts = [len(own) + 3 * len(every) + 2 * len(pitches)]
        for task in every:
            starts.append(starts[-1] + len(task.launch.arguments))
        slots = {argument: starts[-2] + slot for slot, argument in loop.bound}
        own[6:8] = 8 * slots[args.STEPS], 8 * slots[args.ORIGIN]
        for at, after, task in zip(starts, starts[1:], every, strict=False):
            own += [task.launch.function.address, 8 * at, 8 * (after - 1)]
        for k, slot, pitch in pitches:
            own += [8 * (starts[k] + slot), pitch]
        super().__init__(native(CHUNKS), own, 0)
        head = self.launch.arguments[:-2]
        self.launch = Launch(self.launch.function, sum((task.launch.arguments for task in every), head))
        for at, task in zip(starts, every, strict=False):
            self.bound += [(at + slot, argument) for slot, argument in task.bound]
        slot, size, more = loop.share
        self.share = starts[-2] + slot, size, more
