"""One direction's call of a kernel: matrices packed, addresses written down, what is left to do after the loop."""

from array import array
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from glassgate.engines.numba_cpu import threads
from glassgate.engines.numba_cpu.buffers import Gradients, Inputs, Kept, even_timetable, timetable, two_turns
from glassgate.engines.numba_cpu.panels import MOST_PANELS, MOST_ROWS, pack
from glassgate.engines.numba_cpu.printer import Kernel
from glassgate.engines.numba_cpu.processor import host
from glassgate.engines.numba_cpu.stages import Product

ALIGN = 64


class Call:
    """One direction: everything that its jobs have in common."""

    def __init__(
        self,
        kernel: Kernel,
        function: Callable[[int], None],
        inputs: Inputs,
        kept: Kept,
        gradients: Gradients | None,
        save: bool,
    ) -> None:
        self.kernel, self.function = kernel, function
        self.inputs, self.kept, self.gradients, self.save = inputs, kept, gradients, save
        self.N = inputs.initial[0].shape[0]
        self.bytes = kept.ih.element_size()
        self.lanes = host().lanes(self.bytes * 8)
        self.width = {"H": inputs.hidden_size, "P": inputs.initial[0].shape[1]}
        S = kept.ih.shape[0]
        self.time = (
            even_timetable(S // max(self.N, 1), self.N) if inputs.batch_sizes is None else timetable(inputs.batch_sizes)
        )
        self.words: dict[str, int] = {}
        self.barrier: Tensor | None = None
        """Where threads meet that share the units of a row: how many came, and how often one waited long."""
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

    def job(self, first: int, last: int, **own: int) -> threads.Job:
        """The kernel on the rows `first` to `last`, ready to be run any number of times.

        Args:
            own: words in which the job differs from the others.
        """
        words = self.words | own | {"first": first, "last": last}
        scratch = self._scratch(words, last, own)
        job = array("q", [words[name] for name in self.kernel.words])
        return partial(_run, self.function, job, (self, scratch))

    def _scratch(self, words: dict[str, int], rows: int, own: dict[str, int]) -> Tensor:
        """Memory of one job alone: the sums of a tile, addresses of rows, temporaries."""
        vector = self.lanes * self.bytes
        sizes = {name: 8 * rows for name in self.kernel.words if name.endswith("_prev_rows")}
        for k, product in enumerate(self.kernel.products):
            sizes[f"sums_{k}"] = MOST_ROWS * MOST_PANELS * len(product.results) * vector
            sizes[f"left_{k}"] = 8 * rows
        for name, axis in self.kernel.temporaries.items():
            if f"{name}_ranks" not in own:
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

    def keep(self, tensor: Tensor) -> Tensor:
        """Let a tensor live as long as the call."""
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
        self._write(
            barrier=0,
            parties=1,
            steps=self.time.steps,
            origin=last if is_backward else first,
            turn=-turn if is_backward else turn,
        )
        self._write(sizes=sizes, starts=starts, resets=inputs.resets)
        for name, bias, columns in (
            ("bias_ih", inputs.bias_ih, len(inputs.trace.ih)),
            ("bias_hh", inputs.bias_hh, len(inputs.trace.hh_only)),
        ):
            self.words[name] = (bias if bias is not None else self.keep(self.kept.ih.new_zeros(columns * H))).data_ptr()
        head = H // inputs.cell.heads
        self._write(head_size=head, head_blocks=-(-head // self.lanes), block_0=0)
        self._write(block_1=inputs.cell.heads * self.words["head_blocks"])
        for (name, gate), values in zip(inputs.trace.parameters, inputs.parameters, strict=True):
            self.words[f"{name}_{gate}_values" if gate else f"{name}_values"] = values.data_ptr()
        for name, factors in inputs.noise.items():
            per_step = inputs.cell.noise[name].per_step
            start = starts if per_step else self.keep(torch.zeros_like(starts))
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
        for name, buffer in kept.recorded.items():
            self._write_rows(name, buffer)
        self.states, self.state_starts = [], []
        restart = inputs.restart or inputs.initial
        for name, state, initial, anew in zip(inputs.cell.state, kept.states, inputs.initial, restart, strict=True):
            starts = self.time.starts
            if state is None:
                state = self.keep(initial.new_empty(2 * self.N, initial.shape[1]))
                starts = two_turns(self.time.steps, self.N)
            self.states.append(state)
            self.state_starts.append(starts)
            pitch = initial.shape[1] * self.bytes
            self.words |= {
                f"{name}_rows": state.data_ptr(),
                f"{name}_pitch": pitch,
                f"{name}_starts": starts[1:].data_ptr(),
                f"{name}_0": initial.data_ptr(),
                f"{name}_restart": anew.data_ptr(),
            }

    def _write_gradients(self, gradients: Gradients) -> None:
        for k, name in enumerate(self.inputs.cell.state):
            given = gradients.d_states[k]
            pitch = self._pitch(given)
            if given is None:
                given = self.keep(torch.zeros_like(gradients.d_next[k][:1]))
            self.words |= {
                f"d_{name}_rows": given.data_ptr(),
                f"d_{name}_pitch": pitch,
                f"d_{name}_next_ranks": gradients.d_next[k].data_ptr(),
                f"d_{name}_0_ranks": gradients.d_initial[k].data_ptr(),
            }
        for name in ("d_pre", "left", "raw", "d_hr"):
            buffer = getattr(gradients, name)
            self._write_rows(name, buffer)
        for name, buffer in gradients.recorded.items():
            self._write_rows(name, buffer)
        buffer = gradients.d_parameter
        self._write(d_parameter_ranks=buffer, d_parameter_pitch=self._pitch(buffer))

    def _pack(self) -> None:
        self.panels = [pack(self._matrix(product), self.lanes) for product in self.kernel.products]
        for k, panels in enumerate(self.panels):
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
        chosen = of_gate
        if product.gates != cell.gates:
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
            outputs = [*self.kept.states, *self.kept.recorded.values()]
        else:
            outputs = [getattr(self.gradients, name) for name in ("d_pre", "left", "raw", "d_hr")]
            outputs += self.gradients.recorded.values()
        for output in outputs:
            if output is not None and output.shape[0] > rows:
                output[rows:].zero_()

    def _last(self, state: Tensor, starts: Tensor, initial: Tensor) -> Tensor:
        """A state after the last step of each sequence."""
        if self.inputs.batch_sizes is None:
            if self.time.steps == 0:
                return initial
            if state.shape[0] > 2 * self.N:
                return state[: self.N] if self.inputs.reverse else state[-self.N :]
            start = int(starts[1 if self.inputs.reverse else -2])
            return state[start : start + self.N]
        lengths = (self.time.sizes[1:-1, None] > torch.arange(self.N)).sum(0)
        rows = starts[torch.ones_like(lengths) if self.inputs.reverse else lengths] + torch.arange(self.N)
        return torch.where((lengths > 0)[:, None], state[rows.clamp(max=len(state) - 1)], initial)


def _run(function: Callable[[int], None], job: "array[int]", alive: object) -> None:
    """`alive` is what the addresses in `job` point to."""
    function(job.buffer_info()[0])
