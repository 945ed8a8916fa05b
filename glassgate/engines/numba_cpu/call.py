"""One direction's call of a kernel: matrices packed, addresses written down, what is left to do after the loop."""

from collections.abc import Mapping

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.numba_cpu import dense, threads
from glassgate.engines.numba_cpu.buffers import Gradients, Inputs, Kept, even_timetable, tensors, timetable
from glassgate.engines.numba_cpu.compile import Function
from glassgate.engines.numba_cpu.layout import ALIGN, Sizes, layout, times
from glassgate.engines.numba_cpu.printer import Kernel
from glassgate.engines.numba_cpu.processor import host
from glassgate.engines.numba_cpu.stages import Product


class Call:
    """One direction: everything that its jobs have in common."""

    def __init__(
        self,
        kernel: Kernel,
        function: Function,
        inputs: Inputs,
        kept: Kept,
        gradients: Gradients | None,
        save: bool,
    ) -> None:
        self.kernel, self.function = kernel, function
        self.inputs, self.kept, self.gradients = inputs, kept, gradients
        (self.N, P), S, sizes = inputs.initial[0].shape, kept.ih.shape[0], inputs.batch_sizes
        steps = S // max(self.N, 1) if sizes is None else len(sizes)
        self.bytes = kept.ih.element_size()
        self.lanes = host().lanes(self.bytes * 8)
        self.width = {"H": inputs.hidden_size, "P": P}
        self.layout = layout(
            kernel,
            inputs.cell,
            inputs.trace,
            Sizes(
                self.N,
                steps,
                inputs.hidden_size,
                P,
                self.bytes,
                self.lanes,
                inputs.reverse,
                save,
                sizes is not None,
                tuple([state is None for state in kept.states]),
                tuple([d is None for d in gradients.d_states]) if gradients is not None else (),
            ),
        )
        self.time = even_timetable(steps, self.N) if sizes is None else timetable(sizes)
        self.barrier: Tensor | None = None
        """Where threads meet that share the units of a row: how many came, and how often one waited long."""
        self.panels = [self._panels(product) for product in kernel.products]
        self.states = [
            initial.new_empty(2 * self.N, initial.shape[1]) if state is None else state
            for state, initial in zip(kept.states, inputs.initial, strict=True)
        ]
        self.words = self.layout.words[:]
        self.alive: list[Tensor] = []
        """What must outlive the jobs, and no caller holds."""
        self._write_addresses()

    @property
    def work(self) -> int:
        """About how many multiplications the loop does."""
        return self.time.rows * self.layout.work

    def job(self, first: int, last: int, **own: int) -> threads.Job:
        """The kernel on the rows `first` to `last`, ready to be run any number of times.

        Args:
            own: words in which the job differs from the others.
        """
        words, slots = self.words[:], self.layout.slots
        scratch = torch.empty(self.layout.scratch, dtype=torch.uint8)
        start = scratch.data_ptr()
        start += -start % ALIGN
        for name, place in self.layout.places.items():
            words[slots[name]] = start + place
        words[slots["first"]], words[slots["last"]] = first, last
        for name, value in own.items():
            if name in slots:
                words[slots[name]] = value
        return threads.Job(self.function, words, (self, scratch))

    def keep(self, tensor: Tensor) -> Tensor:
        """Let a tensor live as long as the call."""
        self.alive.append(tensor)
        return tensor

    def _write_addresses(self) -> None:
        """Tell the kernel where everything is."""
        inputs, words, slots = self.inputs, self.words, self.layout.slots
        found = tensors(inputs, self.kept, self.gradients, self.states, [panels.memory for panels in self.panels])
        for k, slot in self.layout.addresses:
            tensor = found[k]
            if tensor is not None:
                words[slot] = tensor.data_ptr()
        for k, panels in enumerate(self.panels):
            words[slots[f"panel_{k}"]] = panels.pitch
        recorded = self.kept.recorded if self.gradients is None else self.gradients.recorded
        if self.layout.time is None or inputs.noise or recorded:
            self._write_the_rest(recorded)

    def _write_the_rest(self, recorded: Mapping[str, Tensor]) -> None:
        """Tell it what few calls have: steps that differ in their rows, noise, recordings."""
        inputs, words, slots = self.inputs, self.words, self.layout.slots
        named: dict[str, int] = {}
        if self.layout.time is None:
            named |= times(self.time, inputs.cell, [state is None for state in self.kept.states])
        named |= {f"{name}_noise": factors.data_ptr() for name, factors in inputs.noise.items()}
        named |= {f"{name}_rows": buffer.data_ptr() for name, buffer in recorded.items()}
        for name, value in named.items():
            if name in slots:
                words[slots[name]] = value

    def _panels(self, product: Product) -> dense.Panels:
        """What a product multiplies by."""
        inputs, cell = self.inputs, self.inputs.cell
        turned = product.op.endswith("_t")
        if product.op in ("hr", "hr_t"):
            assert inputs.weight_hr is not None
            return dense.panels(inputs.weight_hr, 1, (0,), 1, turned)
        assert inputs.weight_hh is not None
        return dense.panels(inputs.weight_hh, len(cell.gates), _indices(cell, product.gates), cell.heads, turned)

    def input_panels(self, turned: bool) -> dense.Panels:
        """The input weights of the gates whose input half is used."""
        cell = self.inputs.cell
        chosen = _indices(cell, self.inputs.trace.ih)
        return dense.panels(self.inputs.weight_ih, len(cell.gates), chosen, 1, turned)

    def final(self) -> list[Tensor]:
        """The final states, (N, W) each, in memory of their own."""
        ways = zip(self.kept.states, self.states, self.inputs.initial, strict=True)
        last = [(kept, self._last(state, kept is None, initial)) for kept, state, initial in ways]
        return [state if kept is None and self.time.steps else state.clone() for kept, state in last]

    def _last(self, state: Tensor, in_turns: bool, initial: Tensor) -> Tensor:
        """A state after the last step of each sequence."""
        steps, N, reverse, sizes = self.time.steps, self.N, self.inputs.reverse, self.inputs.batch_sizes
        if sizes is None:
            if steps == 0:
                return initial
            first = 0 if reverse or in_turns else (steps - 1) * N
            return state.narrow(0, first, N)
        starts = self.layout.turns if in_turns else self.time.starts
        lengths = (sizes[:, None] > torch.arange(N)).sum(0)
        rows = starts[torch.ones_like(lengths) if reverse else lengths] + torch.arange(N)
        return torch.where((lengths > 0)[:, None], state[rows.clamp(max=len(state) - 1)], initial)

    def clear_padding(self) -> None:
        """Put zeros where no step was."""
        if self.inputs.batch_sizes is None:
            return
        if self.gradients is None:
            outputs = [*self.kept.states, *self.kept.recorded.values()]
        else:
            outputs = [getattr(self.gradients, name) for name in ("d_pre", "left", "raw", "d_hr")]
            outputs += self.gradients.recorded.values()
        for output in outputs:
            if output is not None and output.shape[0] > self.time.rows:
                output[self.time.rows :].zero_()


def _indices(cell: Cell, gates: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(cell.gates.index(gate) for gate in gates)
