"""One direction's call of a kernel plan: every argument that its launches ask for, and the launches."""

from collections.abc import Sequence

from torch import Tensor

from glassgate.engines.lowering import batch
from glassgate.engines.lowering.batch import BatchLayout
from glassgate.engines.lowering.buffers import Buffer
from glassgate.engines.numba_cpu import arguments as given
from glassgate.engines.numba_cpu.launch import Launch
from glassgate.engines.numba_cpu.plan import KernelPlan, Memory
from glassgate.engines.numba_cpu.tasks import Bindings
from glassgate.engines.numba_cpu.workspace import Workspace


class Call:
    """One direction's pass through time.

    Args:
        plan: what is to be done.
        time: which rows each step has.
        workspace: memory to work in.
        tensors: contiguous, as `plan.tensors` names them.
        resets: (rows,) bool.
    """

    def __init__(
        self,
        plan: KernelPlan,
        time: BatchLayout,
        workspace: Workspace,
        tensors: Sequence[Tensor],
        resets: Tensor | None = None,
    ) -> None:
        self.plan, self.time, self._workspace = plan, time, workspace
        self._alive: list[object] = [resets]
        self.bindings = plan.bindings.copy()
        self.bind(plan.tensors, tensors)
        self._alive.append(bind_time(plan, time, self.bindings))
        if resets is not None:
            if resets.numel() < time.rows:
                raise AssertionError(f"resets have {resets.numel()} of {time.rows} rows")
            self.bindings[given.RESETS] = resets.data_ptr()
        for argument, size in plan.fixed.items():
            self.bindings[argument] = workspace.take(size)
        for argument, size in plan.by_row.items():
            self.bindings[argument] = workspace.take(size * time.rows)

    @property
    def work(self) -> int:
        """About how many multiplications the loop does."""
        return self.time.rows * self.plan.work

    def bind(self, memory: Memory, tensors: Sequence[Tensor]) -> None:
        """Say where buffers are whose memory the caller gives, which must be large enough."""
        self._alive.append(tensors)
        found, expected = list(map(Tensor.numel, tensors)), memory.least(self.time.rows)
        if found != expected and any([n < least for n, least in zip(found, expected, strict=True)]):
            faults = zip(memory.addresses, found, expected, strict=True)
            raise AssertionError([f"{a.label}: {e} numbers expected, got {n}" for a, n, e in faults if n < e])
        self.bindings.update(zip(memory.addresses, map(Tensor.data_ptr, tensors), strict=True))

    def bind_rows(self, buffer: Buffer, tensor: Tensor | None) -> None:
        """Say where rows are, at any distance; without any, each is the same zeros."""
        if tensor is None:
            tensor = self.plan.nothing
        elif tensor.shape[0] < self.time.rows or tensor.shape[1] != buffer.width(self.plan.sizes):
            raise AssertionError(f"{buffer.label}: rows of {buffer.width(self.plan.sizes)}, got {tensor.shape}")
        self._alive.append(tensor)
        self.bindings[given.address(buffer)] = tensor.data_ptr()
        self.bindings[given.pitch(buffer)] = tensor.stride(0) * tensor.element_size()

    def whole(self) -> Launch:
        """All that is to be done, by one thread."""
        return self.plan.whole.all(self._with_scratch(self.bindings))

    def loop(self, first: int, last: int, own: Bindings | None = None) -> Launch:
        """The kernel on the rows `first` to `last`, with scratch memory of its own.

        Args:
            own: bindings in which the launch differs from the others.
        """
        return self.plan.loop.between(self.for_one(own or {}), first, last)

    def for_one(self, own: Bindings) -> Bindings:
        """What one launch knows, which has scratch memory of its own where it does not say otherwise."""
        return self._with_scratch(self.bindings | own) | own

    def _with_scratch(self, bindings: Bindings) -> Bindings:
        """These bindings, and memory of a launch's own."""
        at = self._workspace.take(self.plan.scratch_bytes)
        for argument, size in self.plan.scratch.items():
            bindings[argument] = at
            at += size
        return bindings

    def shared(self) -> Bindings:
        """Temporaries of which threads that share the units of a row have one."""
        return {argument: self._workspace.take(self.plan.scratch[argument]) for argument in self.plan.shared}


def bind_time(plan: KernelPlan, time: BatchLayout, bindings: Bindings) -> Tensor | None:
    """Say which rows each step has; what is returned must be kept."""
    bindings[given.STEPS], bindings[given.ROWS] = time.steps, time.rows
    bindings[given.ORIGIN] = max(time.steps - 1, 0) if plan.backwards else 0
    bindings[given.SIZES] = time.sizes.data_ptr() + 8
    bindings.update(dict.fromkeys(plan.every_step, time.starts.data_ptr() + 8))
    if not plan.in_turns:
        return None
    turns = batch.two_turns(time.steps, time.N, plan.plan.reverse)
    bindings.update(dict.fromkeys(plan.in_turns, turns.data_ptr() + 8))
    return turns
