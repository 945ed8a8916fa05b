"""A cell's kernels and their calls: matrices packed, addresses written down, rows shared out among threads."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.numba_cpu import threads
from glassgate.engines.numba_cpu.compile import compiled
from glassgate.engines.numba_cpu.panels import MOST_PANELS, MOST_ROWS, pack
from glassgate.engines.numba_cpu.printer import Kernel, print_kernel
from glassgate.engines.numba_cpu.processor import host
from glassgate.engines.numba_cpu.stages import Product, Stages
from glassgate.engines.trace import Trace

ALIGN = 64
FEW_OPERATIONS = 2_000_000
"""Below so many multiplications a second thread costs more than it brings."""


class Inputs(NamedTuple):
    """One direction of a layer, all tensors contiguous and of one dtype. W is H, or P for a projected output."""

    cell: Cell
    trace: Trace
    hidden_size: int
    reverse: bool
    batch_sizes: Tensor | None
    """(L,) int64, or None where each step has all N rows."""
    resets: Tensor | None
    """(S,) bool."""
    weight_hh: Tensor | None
    weight_hr: Tensor | None
    bias_hh: Tensor | None
    """(n * H,) for the products `trace.hh_only`."""
    parameters: Sequence[Tensor]
    """(H,) each, in the order of `trace.parameters`."""
    noise: dict[str, Tensor]
    """(S, W), or (N, W) for a factor that is one a sequence."""
    initial: Sequence[Tensor]
    """(N, W) a state."""


class Kept(NamedTuple):
    """The buffers of a forward pass."""

    ih: Tensor
    """(S, n * H): the input half of each gate; in training its shared columns become whole pre-activations."""
    states: Sequence[Tensor | None]
    """(S, W) a state, the output first; None for one that nobody asks for."""
    final: Sequence[Tensor]
    """(N, W) a state."""
    hh: Tensor | None
    """(S, n * H) products of `trace.hh_only`; None, as the following, in inference or where there are none."""
    row: Tensor | None
    hr: Tensor | None


class Gradients(NamedTuple):
    """The buffers of a backward pass: what reaches the states, and what comes out."""

    d_states: Sequence[Tensor | None]
    """(S, W) a state; None for zero."""
    d_next: Sequence[Tensor]
    """(N, W) a state: comes in as the gradient of the final state, goes out as that of the first state."""
    d_initial: Sequence[Tensor]
    """(N, W) a state, zero at first: what resets hand to the initial state."""
    d_pre: Tensor
    d_parameter: Tensor | None
    """(N, n * H), zero at first."""
    left: Tensor | None
    raw: Tensor | None
    d_hr: Tensor | None


def forward(calls: Sequence[tuple[Inputs, Kept]], save: bool) -> None:
    """Run every direction forward through its time."""
    _run([_Call(inputs, kept, None, save) for inputs, kept in calls])


def backward(calls: Sequence[tuple[Inputs, Kept, Gradients]]) -> None:
    """Run every direction back through its time."""
    _run([_Call(inputs, kept, gradients, True) for inputs, kept, gradients in calls])


class Compiled(NamedTuple):
    """A printed kernel and its machine code."""

    kernel: Kernel
    function: Callable[[int], None]


_compiled: dict[Any, Compiled] = {}


def kernel_of(cell: Cell, trace: Trace, bits: int, is_backward: bool) -> Compiled:
    """The kernel of a cell, compiled when it is first asked for."""
    processor = host()
    key = trace, bits, is_backward, cell.heads, processor
    if key not in _compiled:
        name = "backward" if is_backward else "forward"
        title = f"{type(cell).__name__}, {name} through time: one direction of a layer, the rows `first` to `last`."
        kernel = print_kernel(Stages(trace, is_backward, cell.heads), title, cell.state)
        _compiled[key] = Compiled(kernel, compiled(kernel.text, name, bits, processor))
    return _compiled[key]


def _run(calls: list["_Call"]) -> None:
    threads_allowed = torch.get_num_threads()
    work = sum(call.work for call in calls)
    parts = 1 if work < FEW_OPERATIONS else max(1, threads_allowed // len(calls))
    jobs = [job for call in calls for job in call.jobs(parts)]
    at_once = 1 if work < FEW_OPERATIONS else threads_allowed
    for k in range(0, len(jobs), at_once):
        threads.run(jobs[k : k + at_once])
    for call in calls:
        call.finish()


class Timetable(NamedTuple):
    """Which rows each step has."""

    sizes: Tensor
    """(L + 2,) int64: rows of each step, with a zero before and behind."""
    starts: Tensor
    """(L + 2,) int64: the first row of each step."""
    rows: int

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return len(self.sizes) - 2


@cache
def _even(steps: int, N: int) -> Timetable:
    return _timetable(torch.full((steps,), N))


def _timetable(batch_sizes: Tensor) -> Timetable:
    zero = batch_sizes.new_zeros(1)
    sizes = torch.cat([zero, batch_sizes, zero])
    ends = sizes.cumsum(0)
    return Timetable(sizes, ends - sizes, int(ends[-1]))


class _Call:
    """One direction: everything that its jobs have in common."""

    def __init__(self, inputs: Inputs, kept: Kept, gradients: Gradients | None, save: bool) -> None:
        self.inputs, self.kept, self.gradients, self.save = inputs, kept, gradients, save
        self.N = inputs.initial[0].shape[0]
        self.bytes = kept.ih.element_size()
        self.kernel, self.function = kernel_of(inputs.cell, inputs.trace, self.bytes * 8, gradients is not None)
        self.lanes = host().lanes(self.bytes * 8)
        self.width = {"H": inputs.hidden_size, "P": inputs.initial[0].shape[1]}
        S = kept.ih.shape[0]
        self.time = _even(S // max(self.N, 1), self.N) if inputs.batch_sizes is None else _timetable(inputs.batch_sizes)
        self.words: dict[str, int] = {}
        self.alive: list[Tensor] = []
        """What must outlive the jobs, and no caller holds."""
        self._write_inputs()
        self._write_buffers()
        if gradients is not None:
            self._write_gradients(gradients)
        self._pack()

    @property
    def work(self) -> int:
        """About how many multiplications the loop does."""
        H, P = self.width["H"], self.width["P"]
        a_row = sum(len(product.gates) * P * H if product.gates else P * H for product in self.kernel.products)
        return self.time.rows * (a_row // self.inputs.cell.heads + 50 * H)

    def jobs(self, parts: int) -> list[threads.Job]:
        """The rows shared out so that each job has about as many steps."""
        return [partial(self._job, first, last) for first, last in self._shares(parts)]

    def _shares(self, parts: int) -> list[tuple[int, int]]:
        if parts == 1 or self.N < 2:
            return [(0, self.N)]
        if self.inputs.batch_sizes is None:
            bounds = [self.N * k // parts for k in range(parts + 1)]
        else:
            steps_before = self.time.sizes[1:-1, None].clamp(max=torch.arange(self.N + 1)).sum(0)
            goals = torch.arange(parts + 1) * self.time.rows // parts
            bounds = torch.searchsorted(steps_before, goals).tolist()
            bounds[-1] = self.N
        return [(a, b) for a, b in pairwise(bounds) if a < b]

    def _job(self, first: int, last: int) -> None:
        """Run the kernel on some rows."""
        self.prepared(first, last)()

    def prepared(self, first: int, last: int) -> threads.Job:
        """The kernel on some rows, ready to be run any number of times."""
        words = self.words | {"first": first, "last": last, "barrier": 0, "parties": 1}
        scratch = self._scratch(words, last)
        job = torch.tensor([words[name] for name in self.kernel.words])
        function, address, alive = self.function, job.data_ptr(), (self, scratch, job)

        def run(alive: object = alive) -> None:
            function(address)

        return run

    def _scratch(self, words: dict[str, int], rows: int) -> Tensor:
        """Memory of one job alone: the sums of a tile, addresses of rows, temporaries."""
        vector = self.lanes * self.bytes
        sizes = {name: 8 * rows for name in self.kernel.words if name.endswith("_prev_rows")}
        for k, product in enumerate(self.kernel.products):
            sizes[f"sums_{k}"] = MOST_ROWS * MOST_PANELS * len(product.results) * vector
            sizes[f"left_{k}"] = 8 * rows
        for name, axis in self.kernel.temporaries.items():
            sizes[f"{name}_ranks"] = rows * self.width[axis] * self.bytes
        for k in range(self.kernel.row_sums):
            sizes[f"sum_{k}"] = rows * vector
            sizes[f"total_{k}"] = rows * self.bytes
        scratch = torch.empty(sum(size + ALIGN for size in sizes.values()) + ALIGN, dtype=torch.uint8)
        at = scratch.data_ptr()
        for name, size in sizes.items():
            at += -at % ALIGN
            words[name] = at
            at += size
        return scratch

    def _keep(self, tensor: Tensor) -> Tensor:
        self.alive.append(tensor)
        return tensor

    def _write(self, **words: int | Tensor | None) -> None:
        for name, value in words.items():
            self.words[name] = value.data_ptr() if isinstance(value, Tensor) else value or 0

    def _write_rows(self, name: str, buffer: Tensor | None) -> None:
        self.words[f"{name}_rows"] = 0 if buffer is None else buffer.data_ptr()
        self.words[f"{name}_pitch"] = self._pitch(buffer)

    def _pitch(self, tensor: Tensor | None) -> int:
        """The bytes from one row to the next."""
        return 0 if tensor is None else tensor.stride(0) * self.bytes

    def _write_inputs(self) -> None:
        inputs, H, P = self.inputs, self.width["H"], self.width["P"]
        sizes, starts = self.time.sizes[1:], self.time.starts[1:]
        last, turn = (0, -1) if inputs.reverse else (self.time.steps - 1, 1)
        first = self.time.steps - 1 - last
        is_backward = self.gradients is not None
        self._write(H=H, P=P, H_pitch=H * self.bytes, P_pitch=P * self.bytes, unit_0=0, unit_1=H, out_0=0, out_1=P)
        self._write(steps=self.time.steps, origin=last if is_backward else first, turn=-turn if is_backward else turn)
        self._write(sizes=sizes, starts=starts, resets=inputs.resets)
        bias = inputs.bias_hh
        if bias is None:
            bias = self._keep(self.kept.ih.new_zeros(len(inputs.trace.hh_only) * H))
        self._write(bias_hh=bias)
        head = H // inputs.cell.heads
        self._write(head_size=head, head_blocks=-(-head // self.lanes), block_0=0)
        self._write(block_1=inputs.cell.heads * self.words["head_blocks"])
        for (name, gate), values in zip(inputs.trace.parameters, inputs.parameters, strict=True):
            self.words[f"{name}_{gate}_values" if gate else f"{name}_values"] = values.data_ptr()
        for name, factors in inputs.noise.items():
            per_step = inputs.cell.noise[name].per_step
            start = starts if per_step else self._keep(torch.zeros_like(starts))
            self.words |= {
                f"{name}_noise": factors.data_ptr(),
                f"{name}_noise_pitch": self._pitch(factors),
                f"{name}_noise_starts": start.data_ptr(),
            }

    def _write_buffers(self) -> None:
        inputs, kept = self.inputs, self.kept
        self._write(save=self.save, ih_rows=kept.ih, ih_pitch=self._pitch(kept.ih))
        for name in ("hh", "row", "hr"):
            buffer = getattr(kept, name)
            self._write_rows(name, buffer)
        self.states, self.state_starts = [], []
        for name, state, initial in zip(inputs.cell.state, kept.states, inputs.initial, strict=True):
            starts = self.time.starts
            if state is None:
                state = self._keep(initial.new_empty(2 * self.N, initial.shape[1]))
                starts = self._keep(torch.arange(len(starts)) % 2 * self.N)
            self.states.append(state)
            self.state_starts.append(starts)
            pitch = initial.shape[1] * self.bytes
            self.words |= {
                f"{name}_rows": state.data_ptr(),
                f"{name}_pitch": pitch,
                f"{name}_starts": starts[1:].data_ptr(),
                f"{name}_0": initial.data_ptr(),
            }

    def _write_gradients(self, gradients: Gradients) -> None:
        for k, name in enumerate(self.inputs.cell.state):
            given = gradients.d_states[k]
            pitch = self._pitch(given)
            if given is None:
                given = self._keep(torch.zeros_like(gradients.d_next[k][:1]))
            self.words |= {
                f"d_{name}_rows": given.data_ptr(),
                f"d_{name}_pitch": pitch,
                f"d_{name}_next_ranks": gradients.d_next[k].data_ptr(),
                f"d_{name}_0_ranks": gradients.d_initial[k].data_ptr(),
            }
        for name in ("d_pre", "left", "raw", "d_hr"):
            buffer = getattr(gradients, name)
            self._write_rows(name, buffer)
        buffer = gradients.d_parameter
        self._write(d_parameter_ranks=buffer, d_parameter_pitch=self._pitch(buffer))

    def _pack(self) -> None:
        for k, product in enumerate(self.kernel.products):
            panels = self._keep(pack(self._matrix(product), self.lanes))
            self.words |= {f"weights_{k}": panels.data_ptr(), f"panel_{k}": panels.shape[1]}

    def _matrix(self, product: Product) -> Tensor:
        """What a product multiplies by, `(heads, depth, sums, units)`."""
        inputs, cell = self.inputs, self.inputs.cell
        if product.op in ("hr", "hr_t"):
            assert inputs.weight_hr is not None
            matrix = inputs.weight_hr if product.op == "hr_t" else inputs.weight_hr.t()
            return matrix[None, :, None]
        assert inputs.weight_hh is not None
        of_gate = inputs.weight_hh.unflatten(0, (len(cell.gates), cell.heads, -1))
        chosen = of_gate[[cell.gates.index(gate) for gate in product.gates]]
        if product.op == "hh":
            return chosen.permute(1, 3, 0, 2)
        return chosen.permute(1, 0, 2, 3).flatten(1, 2).unsqueeze(2)

    def finish(self) -> None:
        """What is left to do when all steps are done: the final states, and zeros where no step was."""
        rows = self.time.rows
        if self.gradients is None:
            for state, starts, initial, final in zip(
                self.states, self.state_starts, self.inputs.initial, self.kept.final, strict=True
            ):
                final.copy_(self._last(state, starts, initial))
            outputs = self.kept.states
        else:
            outputs = [getattr(self.gradients, name) for name in ("d_pre", "left", "raw", "d_hr")]
        for output in outputs:
            if output is not None:
                output[rows:].zero_()

    def _last(self, state: Tensor, starts: Tensor, initial: Tensor) -> Tensor:
        """A state after the last step of each sequence."""
        if self.inputs.batch_sizes is None:
            if self.time.steps == 0:
                return initial
            start = int(starts[1 if self.inputs.reverse else -2])
            return state[start : start + self.N]
        lengths = (self.time.sizes[1:-1, None] > torch.arange(self.N)).sum(0)
        rows = starts[torch.ones_like(lengths) if self.inputs.reverse else lengths] + torch.arange(self.N)
        return torch.where((lengths > 0)[:, None], state[rows.clamp(max=len(state) - 1)], initial)
