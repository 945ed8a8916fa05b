"""Runs layers in memory next to inaccessible pages, where an access outside of a buffer ends the process.

`python -m tests.engines.llvm_cpu.guard few|all PRODUCTS...` runs a few layers or layers of all cells, on one thread and
on two. PRODUCTS is the arithmetic of matrix products:

- `plain`: in the layer's dtype
- `bfloat16`: in bfloat16, by the instructions of this processor
- `emulated`: in bfloat16, by instructions that every processor has
- `tiles`: in bfloat16 on tile registers, by the interpreter of AMX
- `three`: the same, with three bfloat16 products in place of one float32 product
"""

import ctypes
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import glassgate as gg
from glassgate.engines import processors
from glassgate.engines.llvm_cpu import executable, packed, partition, passes, prepared, ragged
from glassgate.engines.llvm_cpu.loops.batch import BatchLayout
from glassgate.engines.llvm_cpu.pool import threads
from glassgate.engines.llvm_cpu.processor import Processor, host, pretend
from glassgate.engines.llvm_cpu.tasks import Launch
from glassgate.engines.memory import Matrices
from glassgate.layers.prepared_calls import PreparedCalls
from tests.compare import noise
from tests.engines.llvm_cpu.guarded_memory import GuardedMemory
from tests.engines.llvm_cpu.test_bfloat16 import TILES, Own

PROCESSORS = {
    "plain": host(),
    "bfloat16": Processor(64, 32, "avx512bf16"),
    "emulated": Processor(32, 16, "emulated"),
    "tiles": TILES,
    "three": TILES,
}


def copy_to(memory: GuardedMemory, tensor: Tensor) -> Tensor:
    """Copy a tensor to guarded memory."""
    if not tensor.numel():
        return torch.empty_like(tensor)
    size = tensor.numel() * tensor.element_size()
    block = (ctypes.c_char * size).from_address(memory.allocate(size))
    return torch.frombuffer(block, dtype=tensor.dtype).view(tensor.shape).copy_(tensor)


class Guard:
    """Context in which passes run with their workspace and copies of their tensors in guarded memory.

    After each pass, the copies are written back to the tensors.
    """

    def __init__(self, page_after: bool) -> None:
        self.memory = GuardedMemory(page_after)
        self.pass_count = 0
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> "Guard":
        run, compute_gradients = passes.LayerPass.run, passes.BackwardPass.gradients
        d_rows: dict[tuple[int, int], Tensor] = {}
        """The guarded copies of the gradients of states. A pass gets the addresses of these, not the tensors."""
        recorded: list[tuple[Tensor, Tensor]] = []
        """Recorded matrices and their guarded copies. A pass gets the addresses of these, too."""

        def run_guarded(
            own: passes.LayerPass,
            layout: BatchLayout,
            resets: Tensor | None,
            tensors: Sequence[Tensor],
            pointers: Sequence[int] = (),
            packed: Sequence[Tensor] | None = None,
            prepared: Any = None,
            copies: ragged.Copies | None = None,
        ) -> None:
            tensors_by_memory = {
                (v.data_ptr(), v.nbytes): v for v in (*tensors, *(copies.tensors if copies else ())) if v.numel()
            }
            guarded = {key: d_rows[key] if key in d_rows else self.copy(v) for key, v in tensors_by_memory.items()}

            def guarded_tensors(tensors: Sequence[Tensor]) -> list[Tensor]:
                return [guarded.get((v.data_ptr(), v.nbytes), v) for v in tensors]

            guarded_copies = copies and copies._replace(tensors=guarded_tensors(copies.tensors))
            guarded_resets = None if resets is None else self.copy(resets)
            run(own, layout, guarded_resets, guarded_tensors(tensors), pointers, packed, prepared, guarded_copies)
            self.pass_count += 1
            for key, tensor in tensors_by_memory.items():  # `copy_` would increase the version that autograd checks
                ctypes.memmove(tensor.data_ptr(), guarded[key].data_ptr(), tensor.nbytes)
            for matrix, guarded_matrix in recorded:
                ctypes.memmove(matrix.data_ptr(), guarded_matrix.data_ptr(), matrix.nbytes)
            recorded.clear()
            d_rows.clear()
            self.memory.free()

        def gradients_guarded(
            own: passes.BackwardPass,
            layout: BatchLayout,
            tensors: Sequence[Tensor],
            saved: Sequence[Tensor],
            resets: Tensor | None,
            d_states: Sequence[Tensor | None],
            *rest: Any,
        ) -> Any:
            contiguous = [d if d is None else d.contiguous() for d in d_states]
            d_rows.update({(d.data_ptr(), d.nbytes): self.copy(d) for d in contiguous if d is not None})
            d_guarded = [d if d is None else d_rows[d.data_ptr(), d.nbytes] for d in contiguous]
            return compute_gradients(own, layout, tensors, saved, resets, d_guarded, *rest)

        def guarded_addresses(own: Matrices) -> list[int]:
            pairs = [(v, self.copy(v)) for v in own.values()]
            recorded.extend(pairs)
            return [guarded_matrix.data_ptr() for _, guarded_matrix in pairs]

        self._patch.setattr(passes.LayerPass, "run", run_guarded)
        self._patch.setattr(prepared.PreparedPasses, "by_address", None)  # calls pass their tensors instead
        self._patch.setattr(Matrices, "addresses", guarded_addresses)
        self._patch.setattr(passes.BackwardPass, "gradients", gradients_guarded)
        self._patch.setattr(passes, "kept", SimpleNamespace(size=-1))
        for module in (executable, passes):
            self._patch.setattr(module, "borrow", lambda size: (self.memory.allocate(size), None))
        for module in (executable, packed):
            self._patch.setattr(module, "empty", lambda shape, dtype: self.copy(torch.empty(shape, dtype=dtype)))
        return self

    def copy(self, tensor: Tensor) -> Tensor:
        """Copy a tensor to guarded memory."""
        return copy_to(self.memory, tensor)

    def __exit__(self, *_: object) -> None:
        self._patch.undo()


def flat(values: object) -> list[Tensor]:
    return [values] if isinstance(values, Tensor) else [v for value in values for v in flat(value)]  # type: ignore[attr-defined]


def results(layer: gg.Recurrent, N: int, train: bool, record: bool, **options: object) -> list[Tensor]:
    """Return the results of one call, the gradients of a training call, and the recorded values of a recorded call."""
    x = noise(1, 7, N, layer.input_size).to(layer.weight_ih_l0.dtype).requires_grad_(train)
    recorder = gg.record(layer) if record else nullcontext()
    with gg.engine("cpu"), torch.set_grad_enabled(train), recorder as tape:
        values = flat(layer(x, **options))
        if train:
            loss = sum(v.sin().sum() for v in values)
            leaves = [x, *layer.parameters()]
            values += torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    if record:
        values += [*tape.values(), *tape.grad.values()]
    return [v.detach() for v in values]


def stream_outputs(layer: gg.Recurrent, memory: GuardedMemory) -> list[Tensor]:
    """Return the outputs of a stream whose inputs are in guarded memory."""
    with gg.engine("cpu"):
        stream = layer.stream(3)
        x = noise(1, 4, 3, layer.input_size).to(layer.weight_ih_l0.dtype)
        return [stream.step(copy_to(memory, x_t)).clone() for x_t in x]


CALLS = [
    {},
    {"lengths": torch.tensor([7, 0, 3, 7, 1])},
    {"resets": noise(2, 7, 5) > 0},
    {"lengths": [2, 7], "resets": noise(2, 7, 2) > 0},
]
"""Two threads divide the sequences of calls with five sequences, and the units of calls with two."""


ALL_SIDES = (True, True), (False, False)
"""For a first call and the prepared call after it, whether the inaccessible page is after each buffer."""


def check(layer: gg.Recurrent, can_record: bool, sides: Sequence[tuple[bool, bool]] = ALL_SIDES) -> None:
    """Check that training, inference, recordings and streams of a layer have the same results in guarded memory."""
    for record in {False, can_record}:
        for train, options in ((train, options) for train in (False, True) for options in CALLS):
            N = len(options.get("lengths", CALLS[1]["lengths"]))  # type: ignore[arg-type]
            expected = results(layer, N, train, record, **options)
            for pair in sides:
                layer.glassgate.prepared_calls = PreparedCalls()
                for page_after in pair:
                    with Guard(page_after) as guard:
                        assert_equal(results(layer, N, train, record, **options), expected)
                    assert guard.pass_count
    if not layer.bidirectional:
        expected = stream_outputs(layer, GuardedMemory(page_after=True))
        for page_after in (True, False):
            with Guard(page_after) as guard:
                assert_equal(stream_outputs(layer, guard.memory), expected)
                guard.memory.free()


def assert_equal(results: list[Tensor], expected: list[Tensor]) -> None:
    for result, other in zip(results, expected, strict=True):
        torch.testing.assert_close(result, other, rtol=0, atol=0)


class HeadsAndMean(gg.Cell):
    """A cell with two heads, two states, and a mean over units."""

    gates, state = ("f", "n"), ("h", "c")
    heads = 2

    def step(self, a, s):  # type: ignore[no-untyped-def]
        c = torch.sigmoid(a.f) * s.c + torch.tanh(a.n)
        return c - c.mean(-1, keepdim=True), c


def layers(selection: str, products: str) -> Iterator[gg.Recurrent]:
    """Yield a few layers, or layers of every cell of the package, also with a projection if the cell supports it."""
    f32, f64, bf16 = torch.float32, torch.float64, torch.bfloat16
    if selection == "few" and products in ("tiles", "three"):
        # A sum of 37 products fills one row of a tile register, and leaves a remainder.
        yield gg.LSTM(3, 37)
        return
    if selection == "few" and products != "plain":
        yield gg.LSTM(3, 19, bidirectional=True)
        yield gg.Recurrent(Own(), 7, 33)
        return
    # The call with nine rows reads the weights of 80 units without packing them.
    yield gg.LSTM(3, 80)
    if selection == "few":
        yield gg.LSTM(3, 19, bidirectional=True)
        yield gg.GRU(3, 33, num_layers=2)
        yield gg.Recurrent(HeadsAndMean(), 5, 38, proj_size=4, dtype=f64)
        return
    yield gg.Recurrent(Own(), 7, 99)
    for name in gg.cells.__all__:
        dtypes = (f64, f32, *([bf16] if name in ("LSTM", "GRU") else []))
        for dtype in dtypes if products == "plain" else (f32,):
            for size, proj, both in ((1, 0, True), (16, 0, True), (37, 0, False), (21, 11, True)):
                with suppress(ValueError):  # the cell does not support a projection
                    cell = getattr(gg.cells, name)()
                    yield gg.Recurrent(cell, 5, size, proj_size=proj, dtype=dtype, bidirectional=both)


def divide_small_calls() -> list[int]:
    """Make two threads divide even small calls. Return a list, which receives the number of launches of each round."""
    counts, run_launches = list[int](), threads.run

    def run_counted(launches: Sequence[Launch]) -> None:
        counts.append(len(launches))
        run_launches(launches)

    threads.run = run_counted
    processors.available = lambda: 2
    partition.MIN_WORK_PER_STEP = 1
    processors.contention.note = lambda waited: None  # type: ignore[method-assign]
    return counts


PRECISIONS = {"plain": "highest", "three": "high"}
"""torch's precision of float32 matrix products. With other arithmetic it is "medium"."""


def run_layers(selection: str, products: str, counts: list[int]) -> None:
    """Check layers with one arithmetic of matrix products. `counts` is the list from `divide_small_calls`."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision(PRECISIONS.get(products, "medium"))
    assert host() == PROCESSORS[products]
    for layer in layers(selection, products):
        print(layer, layer.weight_ih_l0.dtype, flush=True)
        can_record = layer.weight_ih_l0.dtype == torch.float64
        for thread_count in (1, 2):
            torch.set_num_threads(thread_count)
            counts.clear()
            partition.MIN_WORK_PER_THREAD = 1 if thread_count > 1 else 2**60
            sides = ALL_SIDES if selection == "all" else [(thread_count == 1, thread_count == 2)]
            check(layer, can_record, sides)
            assert max(counts, default=1) == thread_count, counts
            if products not in ("plain", "three"):
                with torch.autocast("cpu", torch.bfloat16):
                    check(layer, can_record, sides)


if __name__ == "__main__":
    counts = divide_small_calls()
    for products in sys.argv[2:]:
        with pretend(PROCESSORS[products]):
            run_layers(sys.argv[1], products, counts)
