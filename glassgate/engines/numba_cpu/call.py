"""One direction's call of a program: every fact its jobs ask for, and the jobs."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from glassgate.engines.numba_cpu import timetable
from glassgate.engines.numba_cpu.jobs import Job
from glassgate.engines.numba_cpu.program import Program
from glassgate.engines.numba_cpu.timetable import Timetable
from glassgate.engines.numba_cpu.work import Facts
from glassgate.engines.numba_cpu.workspace import Memory, aligned


class Call:
    """One direction's pass through time.

    Args:
        program: what is to be done.
        time: which rows each step has.
        memory: to work in.
        data: (rows, D), contiguous, as every tensor is.
        given: weights, states and noise in the order of the program's plan.
        resets: (rows,) bool.
    """

    def __init__(
        self,
        program: Program,
        time: Timetable,
        memory: Memory,
        data: Tensor,
        given: Sequence[Tensor],
        resets: Tensor | None = None,
    ) -> None:
        self.program, self.time, self._memory = program, time, memory
        self._alive: list[object] = [data, given, resets]
        facts = self.facts = program.facts.copy()
        facts.update(zip(program.given, map(Tensor.data_ptr, given), strict=True))
        facts["data"] = data.data_ptr()
        if resets is not None:
            facts["resets"] = resets.data_ptr()
        self._tell_time()
        for name, size in program.fixed.items():
            facts[name] = memory.take(size)
        for name, size in program.by_row.items():
            facts[name] = memory.take(size * time.rows)

    @property
    def work(self) -> int:
        """About how many multiplications the loop does."""
        return self.time.rows * self.program.work

    def point(self, buffers: Mapping[str, Tensor]) -> None:
        """Say where memory is that the caller gives, by name."""
        self._alive.append(buffers)
        self.facts.update(zip(buffers, map(Tensor.data_ptr, buffers.values()), strict=True))

    def read(self, name: str, rows: Tensor | None) -> None:
        """Say where rows lie, at any distance; without any, each is the same zeros."""
        rows = self.program.nothing if rows is None else rows
        self._alive.append(rows)
        self.facts[f"{name}_rows"] = rows.data_ptr()
        self.facts[f"{name}_pitch"] = rows.stride(0) * rows.element_size()

    def _tell_time(self) -> None:
        facts, time, program = self.facts, self.time, self.program
        facts["steps"], facts["rows"] = time.steps, time.rows
        facts["origin"] = max(time.steps - 1, 0) if program.backwards else 0
        facts["sizes"] = time.sizes.data_ptr() + 8
        facts.update(dict.fromkeys(program.every_step, time.starts.data_ptr() + 8))
        if program.in_turns:
            turns = timetable.two_turns(time.steps, time.N, program.plan.reverse)
            self._alive.append(turns)
            facts.update(dict.fromkeys(program.in_turns, turns.data_ptr() + 8))
        if program.always_first:
            first = timetable.always_first(time.steps)
            self._alive.append(first)
            facts.update(dict.fromkeys(program.always_first, first.data_ptr() + 8))

    def whole(self) -> Job:
        """All that is to be done, by one thread."""
        return self.program.whole.part(self._with_scratch({}))

    def loop(self, first: int, last: int, **own: int) -> Job:
        """The kernel on the rows `first` to `last`, with scratch memory of its own.

        Args:
            own: facts in which the job differs from the others.
        """
        return self.program.loop.between(self._with_scratch(own), first, last)

    def _with_scratch(self, own: dict[str, int]) -> Facts:
        facts, at = self.facts | own, self._memory.take(sum(map(aligned, self.program.scratch.values())))
        for name, size in self.program.scratch.items():
            if name not in own:
                facts[name] = at
            at += aligned(size)
        return facts

    def shared(self) -> dict[str, int]:
        """Temporaries of which threads that share the units of a row have one."""
        names = [f"{name}_ranks" for name in self.program.kernel.temporaries]
        return {name: self._memory.take(self.program.scratch[name]) for name in names}
