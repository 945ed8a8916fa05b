"""Memory with an inaccessible page at its end or in front: a kernel that reads or writes beyond ends the process.

`python -m tests.engines.numba_cpu.guard few|all THREADS` runs layers whose kernels have only such memory.
"""

import ctypes
import sys
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

import glassgate as gg
from glassgate.engines.numba_cpu import arguments as given
from glassgate.engines.numba_cpu import bind, partition, prepared, run, workspace
from glassgate.layers.repeated import Repeated
from tests.compare import noise

PAGE = 4096
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_size_t]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Guarded:
    """Blocks of memory; right behind each one, or with `behind=False` right in front of it, is an inaccessible page."""

    def __init__(self, behind: bool) -> None:
        self.behind, self.blocks = behind, list[tuple[int, int]]()

    def take(self, size: int) -> int:
        """The address of as many bytes, filled with what is NaN as a number."""
        pages = -(-max(size, 1) // PAGE)
        start = _libc.mmap(None, (pages + 2) * PAGE, 0, 0x22, -1, 0)
        assert start is not None
        assert _libc.mprotect(start + PAGE, pages * PAGE, 3) == 0
        self.blocks.append((start, (pages + 2) * PAGE))
        at = start + PAGE + (pages * PAGE - size if self.behind else 0)
        ctypes.memset(at, 0xFF, size)
        return at

    def free(self) -> None:
        """Give all blocks back."""
        for block in self.blocks:
            _libc.munmap(*block)
        self.blocks.clear()


class Guard:
    """Puts every buffer of the calls of kernels into guarded memory, and results back where they belong."""

    def __init__(self, behind: bool) -> None:
        self.memory = Guarded(behind)
        self.moved: list[tuple[int, Tensor]] = []
        self.passes = 0
        """How many were prepared ones."""

    def move(self, tensor: Tensor) -> int:
        """A copy's address; the tensor has that copy's numbers when the kernel is done."""
        size = tensor.numel() * tensor.element_size()
        at = self.memory.take(size)
        ctypes.memmove(at, tensor.data_ptr(), size)
        self.moved.append((at, tensor))
        return at

    def __enter__(self) -> "Guard":
        self._before = (
            bind.Call.bind,
            bind.Call.bind_rows,
            bind.Call._with_scratch,
            workspace.Workspace.take,
            partition.run,
            prepared.Pass.run,
        )
        bind_memory, bind_rows, _, _, run_calls, _ = self._before

        def guarded_bind(call: bind.Call, memory: object, tensors: Sequence[Tensor]) -> None:
            bind_memory(call, memory, tensors)  # type: ignore[arg-type]
            for address, tensor in zip(memory.addresses, tensors, strict=True):  # type: ignore[attr-defined]
                found = [at for at, other in self.moved if other is tensor]
                call.bindings[address] = found[0] if found else self.move(tensor)

        def guarded_rows(call: bind.Call, buffer: object, tensor: Tensor | None) -> None:
            tensor = tensor.contiguous() if tensor is not None else None
            bind_rows(call, buffer, tensor)  # type: ignore[arg-type]
            if tensor is not None:
                call.bindings[given.address(buffer)] = self.move(tensor)  # type: ignore[arg-type]

        def guarded_scratch(call: bind.Call, bindings: dict[given.Argument, int]) -> dict[given.Argument, int]:
            return bindings | {a: self.memory.take(size) for a, size in call.plan.scratch.items()}

        def guarded_run(calls: Sequence[bind.Call]) -> None:
            run_calls(calls)
            put_back()

        def guarded_pass(own: prepared.Pass, tensors: Sequence[Tensor], rest: Sequence[int] = ()) -> None:
            placed = {id(v): v for v in tensors}
            at = {key: self.move(v) for key, v in placed.items()}
            numbers = [*(at[id(v)] for v in tensors), *rest, self.memory.take(own._room)]
            for launches in own._rounds:
                prepared.threads.run([launch.filled(numbers) for launch in launches])
            self.passes += 1
            put_back()

        def put_back() -> None:
            for at, tensor in self.moved:
                ctypes.memmove(tensor.data_ptr(), at, tensor.numel() * tensor.element_size())
            self.moved.clear()
            self.memory.free()

        prepared.Pass.run = guarded_pass  # type: ignore[method-assign]
        bind.Call.bind, bind.Call.bind_rows = guarded_bind, guarded_rows  # type: ignore[method-assign,assignment]
        bind.Call._with_scratch = guarded_scratch  # type: ignore[method-assign]
        workspace.Workspace.take = lambda _, size: self.memory.take(size)  # type: ignore[method-assign]
        run.partition.run = guarded_run  # type: ignore[attr-defined]
        return self

    def __exit__(self, *_: object) -> None:
        call, memory = bind.Call, workspace.Workspace
        call.bind, call.bind_rows, call._with_scratch, memory.take, partition.run, prepared.Pass.run = self._before  # type: ignore[method-assign,assignment]


def results(layer: gg.Recurrent, train: bool, seed: int, **more: object) -> list[Tensor]:
    """Of one call, with its gradients if it trains."""
    x = noise(seed, 7, 5, layer.input_size).to(layer.weight_ih_l0.dtype).requires_grad_(train)
    with gg.engine("cpu"), torch.set_grad_enabled(train):
        output, state = layer(x, **more)
        found = [output, *(state if isinstance(state, tuple) else (state,))]
        if train:
            loss = sum(v.sin().sum() for v in found)
            leaves = [x, *layer.parameters()]
            found += torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    return [v.detach() for v in found]


def check(make: Callable[[], gg.Recurrent]) -> None:
    """The layer computes the same in guarded memory, on one thread and two, inference and training."""
    torch.manual_seed(0)
    layer = make()
    lengths = torch.tensor([7, 0, 3, 7, 1])
    calls = [
        (train, more) for train in (False, True) for more in ({}, {"lengths": lengths}, {"resets": noise(2, 7, 5) > 0})
    ]
    for train, more in calls:
        wanted = results(layer, train, 1, **more)
        for behind in (True, False):
            layer._repeated = Repeated()
            for again in range(1 if more or len(layer._parts) > 1 else 2):
                with Guard(behind) as guard:
                    found = results(layer, train, 1, **more)
                assert guard.passes == again * (1 + train)
                for ours, other in zip(found, wanted, strict=True):
                    torch.testing.assert_close(ours, other, rtol=0, atol=0)


def layers(which: str) -> dict[str, Callable[[], gg.Recurrent]]:
    """Layers by name: a few, or each cell that ships, with a projection where it takes one."""
    f32, f64 = torch.float32, torch.float64
    if which == "few":
        return {
            "LSTM": lambda: gg.LSTM(3, 19, bidirectional=True),
            "plain": lambda: gg.LSTM(3, 19),
            "GRU": lambda: gg.GRU(3, 33, num_layers=2),
            "projected": lambda: gg.Recurrent(gg.cells.SLSTM(heads=2), 5, 38, proj_size=4, dtype=f64),
            "normalised": lambda: gg.Recurrent(gg.cells.LayerNormLSTM(), 5, 17, proj_size=7, dtype=f64),
        }
    found = {}
    for name in gg.cells.__all__:
        for dtype in (f32, f64):
            for size, proj in ((1, 0), (16, 0), (37, 0), (21, 11)):
                cell = getattr(gg.cells, name)()
                for both in (False, True):
                    key = f"{name} {dtype} {size} {proj} {both}"
                    found[key] = lambda cell=cell, dtype=dtype, size=size, proj=proj, both=both: gg.Recurrent(
                        cell, 5, size, proj_size=proj, dtype=dtype, bidirectional=both
                    )
    return found


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[2]))
    for name, make in layers(sys.argv[1]).items():
        print(name, flush=True)
        try:
            make()
        except ValueError:
            continue  # a cell that takes no projection
        check(make)
