"""The pass back through time: its loop, and what is summed after it, the gradients of the weights and of the input."""

from functools import cached_property, lru_cache
from itertools import groupby
from typing import NamedTuple

from glassgate.engines.numba_cpu import dense, rows
from glassgate.engines.numba_cpu.dense import Rows
from glassgate.engines.numba_cpu.processor import Processor
from glassgate.engines.numba_cpu.program import Program, runs
from glassgate.engines.numba_cpu.work import Word
from glassgate.engines.plan import Plan, Sizes
from glassgate.engines.products import written_whole


class Wanted(NamedTuple):
    """Which gradients: they go to memory that the caller gives, zero at first or unwritten."""

    weights: tuple[str, ...]
    data: bool
    added: bool
    """To what another direction has written to that of the input."""


class Backward(Program):
    """The loop back through time, then the sums.

    Attributes:
        wanted: which.
        written: parameters of whose gradient no number is left unwritten.
    """

    def __init__(self, plan: Plan, sizes: Sizes, wanted: Wanted) -> None:
        super().__init__(plan, sizes, True, True, True)
        self.wanted = wanted
        self.written = written_whole(plan.cell, plan.trace, wanted.weights)
        columns = self.trace.gradients
        self.by_row |= {
            f"{name}_rows": self._constants[f"{name}_pitch"]
            for name in ("d_pre", "left", "raw", "d_hr")
            if columns[name]
        }
        self._sum_weights()
        if wanted.data:
            weights = self.input_panels(turned=True)
            data, bits = Rows("d_data", sizes.D * sizes.bytes, sizes.D), sizes.bits
            self.after[0].append(dense.multiply(self._d_ih, weights, 1, data, "rows", bits, wanted.added))

    @property
    def _d_ih(self) -> Rows:
        """The gradients of the input's product, side by side."""
        H, trace = self.sizes.H, self.trace
        return self.rows("d_pre", len(trace.hh_only) * H, len(trace.ih) * H)

    def _sum_weights(self) -> None:
        weights, trace, (_, D, H, P, bits) = self.wanted.weights, self.trace, self.sizes
        if "weight_ih" in weights or "bias_ih" in weights:
            data = Rows("data", D * self.sizes.bytes, D)
            rights = self._rows_of("data", data) if "weight_ih" in weights else ""
            self._outer(trace.ih, len(trace.hh_only), (rights, 0), "ih", D, 1)
        products, at = (*trace.hh_only, *trace.shared), 0
        for _, group in groupby(products, key=lambda product: id(product.args[1])):
            same = list(group)
            if "weight_hh" in weights or "bias_hh" in weights:
                gates, heads = tuple(product.args[0] for product in same), self.cell.heads
                self._outer(gates, at, self._left_of(same[0].args[1]), "hh", P // heads, heads)
            at += len(same)
        if "weight_hr" in weights:
            raw = self._rows_of("raw", self.rows("raw"))
            out = Rows("d_weight_hr_values", H * self.sizes.bytes, H)
            self.after[0].append(dense.outer(self.rows("d_hr"), "rows", (raw, 0), out, 0, bits))

    def _rows_of(self, name: str, buffer: Rows) -> Word:
        table = f"{name}_table"
        self.by_row[table] = 8
        self.before[0].append(rows.rows_of(table, buffer, "rows"))
        return table

    def _left_of(self, u: object) -> tuple[Word, int]:
        """The addresses of the rows that a recurrent product has multiplied, and from which byte on."""
        if "weight_hh" not in self.wanted.weights:
            return "", 0
        for k, node in enumerate(self.trace.left):
            if node is u:
                return self._left_rows, k * self.sizes.P * self.sizes.bytes
        return self._previous_rows, 0

    @cached_property
    def _left_rows(self) -> Word:
        return self._rows_of("left", self.rows("left"))

    @cached_property
    def _previous_rows(self) -> Word:
        """Where the output before each row lies."""
        name, table = self.cell.state[0], "before_table"
        self.by_row[table] = 8
        initial, restart = f"{name}_0", f"{name}_{self.restart}"
        self.before[0].append(rows.rows_before(table, self.rows(name), initial, restart, self.plan.reverse))
        return table

    def _outer(
        self, gates: tuple[str, ...], start: int, rights: tuple[Word, int], half: str, width: int, heads: int
    ) -> None:
        """The gradients of one half's weights and biases: a block for all gates if they lie side by side."""
        H, size, wanted = self.sizes.H, self.sizes.bytes, self.wanted.weights
        weight, bias, (table, shift) = f"weight_{half}", f"bias_{half}", rights
        width = width if weight in wanted else 0
        chosen = [self.cell.gates.index(gate) for gate in gates]
        seen: set[int] = set()
        for column, gate, count in runs(chosen, alone=heads > 1 or len(set(chosen)) < len(chosen)):
            units = count * H // heads
            for head in range(heads):
                d = self.rows("d_pre", (start + column) * H + head * units, units)
                to = gate * H + head * units
                out = Rows((f"d_{weight}_values", to * width * size) if width else 0, width * size, width)
                total: Word = (f"d_{bias}_values", to * size) if bias in wanted else 0
                right = (table, shift + head * width * size)
                self.after[0].append(dense.outer(d, "rows", right, out, total, self.sizes.bits, gate in seen))
            seen.add(gate)


@lru_cache(1024)
def backward_program(plan: Plan, sizes: Sizes, wanted: Wanted, processor: Processor) -> Backward:
    """The program of such calls."""
    return Backward(plan, sizes, wanted)
