"""Memory next to an inaccessible page: a kernel that reads or writes beyond its buffer ends the process.

`python -m tests.engines.llvm_cpu.guard few|all plain|bfloat16|emulated|tiles|three` runs layers on one thread and on
two: in their own dtype, or with products in bfloat16 by this processor's instructions, by several others (emulated),
on tile registers by the interpreter of AMX, or there as three products for one of float32.
"""

import ctypes
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress

import pytest
import torch
from torch import Tensor

import glassgate as gg
from glassgate.engines import processors
from glassgate.engines.llvm_cpu import executable, gradients, packed, partition, passes, ragged
from glassgate.engines.llvm_cpu.loops.batch import BatchLayout
from glassgate.engines.llvm_cpu.pool import threads
from glassgate.engines.llvm_cpu.processor import Processor, host, pretend
from glassgate.engines.llvm_cpu.tasks import Launch
from glassgate.engines.memory import Matrices
from glassgate.layers.repeated import PreparedCalls
from tests.compare import noise
from tests.engines.llvm_cpu.test_bfloat16 import TILES, Own

PROCESSORS = {
    "plain": host(),
    "bfloat16": Processor(64, 32, "avx512bf16"),
    "emulated": Processor(32, 16, "emulated"),
    "tiles": TILES,
    "three": TILES,
}
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
        """The address of as many bytes, filled with NaN."""
        pages = -(-max(size, 1) // PAGE)
        start = _libc.mmap(None, (pages + 2) * PAGE, 0, 0x22, -1, 0)
        assert start is not None
        assert _libc.mprotect(start + PAGE, pages * PAGE, 3) == 0
        self.blocks.append((start, (pages + 2) * PAGE))
        at = start + PAGE + (pages * PAGE - size if self.behind else 0)
        ctypes.memset(at, 0xFF, size)
        return at

    def tensor(self, like: Tensor) -> Tensor:
        """A copy in such memory."""
        if not like.numel():
            return torch.empty_like(like)
        size = like.numel() * like.element_size()
        memory = (ctypes.c_char * size).from_address(self.take(size))
        return torch.frombuffer(memory, dtype=like.dtype).view(like.shape).copy_(like)

    def free(self) -> None:
        """Give all blocks back."""
        for block in self.blocks:
            _libc.munmap(*block)
        self.blocks.clear()


class Guard:
    """Puts the workspace and every tensor of a pass into guarded memory, and results back where they belong."""

    def __init__(self, behind: bool) -> None:
        self.memory = Guarded(behind)
        self.passes = 0
        """How many have run."""
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> "Guard":
        run, rows_of = passes.LayerPass.run, gradients.OperandGradients.rows
        d_rows: dict[tuple[int, int], Tensor] = {}
        """The guarded gradients of states, which are arguments of a pass by their address."""
        recorded: list[tuple[Tensor, Tensor]] = []
        """Recorded matrices and their guarded memory, which are arguments of a pass by their address too."""

        def guarded(
            own: passes.LayerPass,
            layout: BatchLayout,
            resets: Tensor | None,
            tensors: Sequence[Tensor],
            numbers: Sequence[int] = (),
            packed: Sequence[Tensor] | None = None,
            executable: executable.Executable | None = None,
            copies: ragged.Copies | None = None,
        ) -> None:
            every = {(v.data_ptr(), v.nbytes): v for v in (*tensors, *(copies.tensors if copies else ())) if v.numel()}
            inside = {key: d_rows[key] if key in d_rows else self.copy(v) for key, v in every.items()}

            def there(given: Sequence[Tensor]) -> list[Tensor]:
                return [inside.get((v.data_ptr(), v.nbytes), v) for v in given]

            moved = copies and copies._replace(tensors=there(copies.tensors))
            guarded_resets = None if resets is None else self.copy(resets)
            run(own, layout, guarded_resets, there(tensors), numbers, packed, executable, moved)
            self.passes += 1
            for key, tensor in every.items():  # without a new version, which autograd would notice
                ctypes.memmove(tensor.data_ptr(), inside[key].data_ptr(), tensor.nbytes)
            for matrix, own_copy in recorded:
                ctypes.memmove(matrix.data_ptr(), own_copy.data_ptr(), matrix.nbytes)
            recorded.clear()
            d_rows.clear()
            self.memory.free()

        def guarded_rows(own: gradients.OperandGradients, d_states: Sequence[Tensor | None], rows: int) -> list[int]:
            given = [d if d is None else d.contiguous() for d in d_states]
            d_rows.update({(d.data_ptr(), d.nbytes): self.copy(d) for d in given if d is not None})
            return rows_of(own, [d if d is None else d_rows[d.data_ptr(), d.nbytes] for d in given], rows)

        def guarded_addresses(own: Matrices) -> list[int]:
            every = [(v, self.copy(v)) for v in own.values()]
            recorded.extend(every)
            return [own_copy.data_ptr() for _, own_copy in every]

        self._patch.setattr(passes.LayerPass, "run", guarded)
        self._patch.setattr(Matrices, "addresses", guarded_addresses)
        self._patch.setattr(gradients.OperandGradients, "rows", guarded_rows)
        self._patch.setattr(executable, "borrow", lambda size: (self.memory.take(size), None))
        for module in (executable, packed):
            self._patch.setattr(module, "empty", lambda form, dtype: self.memory.tensor(torch.empty(form, dtype=dtype)))
        return self

    def copy(self, tensor: Tensor) -> Tensor:
        """A copy in guarded memory."""
        return self.memory.tensor(tensor) if tensor.numel() else tensor

    def __exit__(self, *_: object) -> None:
        self._patch.undo()


def flat(values: object) -> list[Tensor]:
    return [values] if isinstance(values, Tensor) else [v for value in values for v in flat(value)]  # type: ignore[attr-defined]


def results(layer: gg.Recurrent, N: int, train: bool, record: bool, **more: object) -> list[Tensor]:
    """The results of one call, with its gradients if it trains, and the recorded values if it is recorded."""
    x = noise(1, 7, N, layer.input_size).to(layer.weight_ih_l0.dtype).requires_grad_(train)
    shown = gg.record(layer) if record else nullcontext()
    with gg.engine("cpu"), torch.set_grad_enabled(train), shown as tape:
        results = flat(layer(x, **more))
        if train:
            loss = sum(v.sin().sum() for v in results)
            leaves = [x, *layer.parameters()]
            results += torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    if record:
        results += [*tape.values(), *tape.grad.values()]
    return [v.detach() for v in results]


def stream(layer: gg.Recurrent, memory: Guarded) -> list[Tensor]:
    """Step by step, every tensor that a kernel sees in that memory."""
    with gg.engine("cpu"):
        stream = layer.stream(3)
        x = noise(1, 4, 3, layer.input_size).to(layer.weight_ih_l0.dtype)
        return [stream.step(memory.tensor(x_t)).clone() for x_t in x]


CALLS = [
    {},
    {"lengths": torch.tensor([7, 0, 3, 7, 1])},
    {"resets": noise(2, 7, 5) > 0},
    {"lengths": [2, 7], "resets": noise(2, 7, 2) > 0},
]
"""Of five rows, of which threads take some each, and of two, whose units they share."""


def check(layer: gg.Recurrent, recorded: bool) -> None:
    """The layer computes the same in guarded memory: trained, in inference, step by step, and recorded if asked for."""
    for record in {False, recorded}:
        for train, more in ((train, more) for train in (False, True) for more in CALLS):
            N = len(more.get("lengths", CALLS[1]["lengths"]))  # type: ignore[arg-type]
            expected = results(layer, N, train, record, **more)
            for behind in (True, False):
                layer.glassgate.prepared_calls = PreparedCalls()
                for _ in range(2):
                    with Guard(behind) as guard:
                        same(results(layer, N, train, record, **more), expected)
                    assert guard.passes
    if not layer.bidirectional:
        expected = stream(layer, Guarded(True))
        for behind in (True, False):
            with Guard(behind) as guard:
                same(stream(layer, guard.memory), expected)
                guard.memory.free()


def same(results: list[Tensor], expected: list[Tensor]) -> None:
    for ours, other in zip(results, expected, strict=True):
        torch.testing.assert_close(ours, other, rtol=0, atol=0)


def layers(which: str, products: str) -> Iterator[gg.Recurrent]:
    """A few, or each cell that ships, with a projection where it takes one."""
    f32, f64, bf16 = torch.float32, torch.float64, torch.bfloat16
    if which == "few" and products in ("tiles", "three"):
        # Sums of 37 numbers: one row of a register, and a remainder.
        yield gg.LSTM(3, 37)
        return
    if which == "few" and products != "plain":
        yield gg.LSTM(3, 19, bidirectional=True)
        yield gg.Recurrent(Own(), 7, 33)
        return
    # With nine rows, the weights of 80 units are read without packing.
    yield gg.LSTM(3, 80)
    if which == "few":
        yield gg.LSTM(3, 19, bidirectional=True)
        yield gg.GRU(3, 33, num_layers=2, dtype=f64)
        yield gg.Recurrent(gg.cells.SLSTM(heads=2), 5, 38, proj_size=4, dtype=f64)
        yield gg.Recurrent(gg.cells.LayerNormLSTM(), 5, 17, proj_size=7)
        return
    yield gg.Recurrent(Own(), 7, 99)
    for name in gg.cells.__all__:
        dtypes = (f64, f32, *([bf16] if name in ("LSTM", "GRU") else []))
        for dtype in dtypes if products == "plain" else (f32,):
            for size, proj, both in ((1, 0, True), (16, 0, True), (37, 0, False), (21, 11, True)):
                with suppress(ValueError):  # a cell that takes no projection
                    cell = getattr(gg.cells, name)()
                    yield gg.Recurrent(cell, 5, size, proj_size=proj, dtype=dtype, bidirectional=both)


def shared_among_threads() -> list[int]:
    """However small a call is, threads share it; returns a list that grows by how many launches run at once."""
    counts, run_launches = list[int](), threads.run

    def counted(launches: Sequence[Launch]) -> None:
        counts.append(len(launches))
        run_launches(launches)

    threads.run = counted
    processors.available = lambda: 2
    partition.MIN_WORK_PER_STEP = 1
    processors.contention.note = lambda waited: None  # type: ignore[method-assign]
    return counts


def main(which: str, products: str) -> None:
    """Run the layers."""
    torch.manual_seed(0)
    counts = shared_among_threads()
    if products != "plain":
        torch.set_float32_matmul_precision("high" if products == "three" else "medium")
        assert host() == PROCESSORS[products]
    for layer in layers(which, products):
        print(layer, layer.weight_ih_l0.dtype, flush=True)
        recorded = layer.weight_ih_l0.dtype == torch.float64
        for at_once in (1, 2):
            torch.set_num_threads(at_once)
            counts.clear()
            few = 1 if at_once > 1 else 2**60
            partition.MIN_WORK_PER_THREAD = few
            check(layer, recorded)
            assert max(counts, default=1) == at_once, counts
            if products not in ("plain", "three"):
                with torch.autocast("cpu", torch.bfloat16):
                    check(layer, recorded)


if __name__ == "__main__":
    with pretend(PROCESSORS[sys.argv[2]]):
        main(*sys.argv[1:])
