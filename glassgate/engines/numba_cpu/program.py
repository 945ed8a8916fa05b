"""What all calls of a kernel at the same sizes have in common: its words, its memory, what is to be done before it."""

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import chain

import torch

from glassgate.engines.numba_cpu import dense, rows
from glassgate.engines.numba_cpu.dense import Matrix, Panels, Rows
from glassgate.engines.numba_cpu.kernel import kernel_of
from glassgate.engines.numba_cpu.layout import constants, scratch, widths
from glassgate.engines.numba_cpu.processor import Processor
from glassgate.engines.numba_cpu.stages import Product
from glassgate.engines.numba_cpu.work import Facts, Series, Word, Work
from glassgate.engines.plan import Plan, Sizes


class Program:
    """One direction's pass at some sizes, never changed once it is made.

    Attributes:
        facts: what a call knows unless it says otherwise.
        fixed: memory of a call, in bytes, by name.
        by_row: memory of which each row has so many bytes.
        scratch: memory that each job has for itself.
        loop: the kernel, to be shared by sequences.
        before: what threads share before the loop, one list after the other.
        after: what they share after it.
        given: names of the tensors that a call is given, in the order of its plan.
        restart: "restart" or "0": what resets fall back to.
        every_step: names of the tables of first rows of buffers that have every step,
        in_turns: of states of which two steps take turns,
        always_first: and of noise that is one a sequence.
        backwards: whether the loop runs from the last step to the first.
        packed: the bytes of the matrices that it reads.
        work: about how many multiplications a row takes at each step.
        splits_units: whether threads can share the units of a row.
        meets: whether they then wait for each other at every step.
        nothing: rows of zeros, in one place, for what a call does without.
    """

    def __init__(self, plan: Plan, sizes: Sizes, backward: bool, every_state: bool, save: bool) -> None:
        self.plan, self.sizes, self.backward = plan, sizes, backward
        self.cell, self.trace = cell, trace = plan.cell, plan.trace
        self.kernel, self._function = kernel_of(cell, trace, sizes.bits, backward)
        widest = max(len(trace.ih), len(trace.hh_only), 1) * sizes.H
        self.nothing = torch.zeros(widest, dtype=torch.float64)[None].expand(2, -1)
        self.fixed: dict[str, int] = {}
        self.by_row: dict[str, int] = {}
        self.scratch = scratch(self.kernel, sizes)
        self.before: list[list[Work]] = [[]]
        self.after: list[list[Work]] = [[]]
        self.restart = "restart" if plan.restarts else "0"
        self.states = {f"{name}_rows": width for name, width in plan.of_states(sizes).items()}
        self.kept = {f"{name}_rows": width for name, width in plan.kept(sizes).items()}
        self.given = [f"{name}_values" for name in plan.weights]
        self.given += [f"{name}_{what}" for what in dict.fromkeys(("0", self.restart)) for name in cell.state]
        self.given += [f"{name}_noise" for name in plan.noise]
        self.in_turns = [] if every_state else [f"{name}_starts" for name in cell.state[1:]]
        self.every_step = ["starts", *(f"{name}_starts" for name in cell.state[: None if every_state else 1])]
        self.every_step += [f"{name}_noise_starts" for name, noise in cell.noise.items() if noise.per_step]
        self.always_first = [f"{name}_noise_starts" for name, noise in cell.noise.items() if not noise.per_step]
        panels = [self._packed(f"weights_{k}", *self._matrix_of(p)) for k, p in enumerate(self.kernel.products)]
        self.backwards = plan.reverse != backward
        self._constants = constants(plan, sizes) | {"save": int(save), "turn": -1 if self.backwards else 1}
        self._constants |= {f"panel_{k}": p.pitch for k, p in enumerate(panels)}
        self.loop, self.facts = self._loop()
        self.packed = sum(p.size for p in panels)
        a_row = sum(max(len(product.gates), 1) * sizes.P * sizes.H for product in self.kernel.products)
        self.work = a_row // cell.heads + 50 * sizes.H
        self.splits_units = self.kernel.split_units and cell.heads == 1
        self.meets = "barrier" in self.kernel.words

    @cached_property
    def rounds_before(self) -> list[Work]:
        """What is done before the loop, each round as one."""
        return [Series(works) for works in self.before]

    @cached_property
    def rounds_after(self) -> list[Work]:
        """What is done after it, each round as one."""
        return [Series(works) for works in self.after]

    @cached_property
    def whole(self) -> Work:
        """All that is to be done, for one thread."""
        return Series([*chain(*self.before), self.loop, *chain(*self.after)])

    def _loop(self) -> tuple[Work, Facts]:
        """The kernel, and what its calls know unless they say otherwise."""
        sizes, known = self.sizes, self._constants
        facts = {"unit_0": 0, "unit_1": sizes.H, "out_0": 0, "out_1": sizes.P, "parties": 1, "barrier": 0, "resets": 0}
        facts |= dict.fromkeys(("bias_ih", "bias_hh"), self.nothing.data_ptr())
        facts |= {f"d_{name}_pitch": known.pop(f"d_{name}_pitch") for name in self.cell.state}
        unsaid = [word for word in self.kernel.words[:-2] if word not in known]
        facts |= {word: 0 for word in unsaid if word not in facts}
        elsewhere = {f"{name}_restart": f"{name}_{self.restart}" for name in self.cell.state} | self._of_gates()
        words = [known.get(word, elsewhere.get(word, word)) for word in self.kernel.words[:-2]]
        return Work(self._function, words, sizes.N), facts

    def _of_gates(self) -> dict[str, Word]:
        """Where the cell's own parameters of one gate lie."""
        a_gate, places = self.sizes.H * self.sizes.bytes, self.cell.gates.index
        return {
            f"{name}_{gate}_values": (f"{name}_values", places(gate) * a_gate)
            for name, gate in self.trace.parameters
            if gate
        }

    def rows(self, name: str, column: int = 0, width: int | None = None) -> Rows:
        """The rows of a buffer, or some columns of them."""
        whole = widths(self.plan, self.sizes)[name]
        shift = column * self.sizes.bytes
        return Rows((f"{name}_rows", shift), whole * self.sizes.bytes, whole if width is None else width)

    def input_panels(self, turned: bool) -> Panels:
        """The input weights of the gates whose input half is used."""
        chosen, sizes = _indices(self.cell.gates, self.trace.ih), self.sizes
        n = len(self.cell.gates)
        matrix = Matrix("weight_ih_values", n, n * sizes.H, sizes.D, sizes.bits)
        return self._packed("weights_ih", matrix, chosen, 1, turned)

    def _matrix_of(self, product: Product) -> tuple[Matrix, Sequence[int], int, bool]:
        cell, (_, _, H, P, bits) = self.cell, self.sizes
        turned = product.op.endswith("_t")
        if product.op in ("hr", "hr_t"):
            return Matrix("weight_hr_values", 1, P, H, bits), (0,), 1, turned
        n = len(cell.gates)
        matrix = Matrix("weight_hh_values", n, n * H, P // cell.heads, bits)
        return matrix, _indices(cell.gates, product.gates), cell.heads, turned

    def _packed(self, name: str, matrix: Matrix, chosen: Sequence[int], heads: int, turned: bool) -> Panels:
        panels = dense.panels(name, matrix, chosen, heads, turned)
        self.fixed[name] = panels.size
        self.before[0] += panels.work
        return panels


class Forward(Program):
    """The input's product, then the loop, then the final states.

    Args:
        save: whether what the backward pass reads is kept, in memory that the caller gives.
        every_state: whether there is memory for every state at every step, and not of the output alone.
    """

    def __init__(self, plan: Plan, sizes: Sizes, save: bool, every_state: bool) -> None:
        super().__init__(plan, sizes, False, every_state, save)
        cell, trace = self.cell, self.trace
        self._sum_biases()
        weights = self.input_panels(turned=False)
        data = Rows("data", sizes.D * sizes.bytes, sizes.D)
        product = dense.multiply(data, weights, len(trace.ih), self.rows("ih", width=sizes.H), "rows", sizes.bits)
        self.before.append([product])
        if not save:
            self.by_row["ih_rows"] = self._constants["ih_pitch"]
        every = plan.of_states(sizes)
        self.final = {f"final_{name}": width for name, width in every.items()}
        if not every_state:
            turns = {f"{name}_rows": 2 * sizes.N * every[name] * sizes.bytes for name in cell.state[1:]}
            self.fixed |= turns
        self.after = [
            [
                rows.last(f"final_{s}", self.rows(s), f"{s}_0", f"{s}_starts", sizes.N, plan.reverse, sizes.bits)
                for s in cell.state
            ]
        ]

    def _sum_biases(self) -> None:
        """What the kernel adds: `b_ih`, with `b_hh` where both halves are one; `b_hh` where they stay apart."""
        if "bias_ih" not in self.plan.weights:
            return
        trace, shared = self.trace, len(self.trace.shared)
        self._add("bias_ih", 0, trace.ih[:shared], "bias_ih_values", "bias_hh_values")
        self._add("bias_ih", shared, trace.ih[shared:], "bias_ih_values")
        self._add("bias_hh", 0, tuple(product.args[0] for product in trace.hh_only), "bias_hh_values")

    def _add(self, out: str, column: int, gates: tuple[str, ...], bias: str, other: str = "") -> None:
        """Sums of some gates' biases, side by side from a column on."""
        H, size = self.sizes.H, self.sizes.bytes
        for at, gate, count in runs(_indices(self.cell.gates, gates)):
            second = (other, gate * H * size) if other else self.nothing.data_ptr()
            place = (out, (column + at) * H * size)
            self.before[0].append(rows.add(place, (bias, gate * H * size), second, count * H, self.sizes.bits))
        self.fixed |= {out: (column + len(gates)) * H * size} if gates else {}


def runs(chosen: Sequence[int], alone: bool = False) -> Iterator[tuple[int, int, int]]:
    """Gates that are neighbours in both orders: the first one's place, its number, and how many they are."""
    start = 0
    for k in range(1, len(chosen) + 1):
        if k == len(chosen) or alone or chosen[k] != chosen[k - 1] + 1:
            yield start, chosen[start], k - start
            start = k


@lru_cache(1024)
def forward_program(plan: Plan, sizes: Sizes, save: bool, every_state: bool, processor: Processor) -> Forward:
    """The program of such calls."""
    return Forward(plan, sizes, save, every_state)


def _indices(gates: tuple[str, ...], chosen: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(gates.index(gate) for gate in chosen)
