"""Threads that divide the units of a row wait for each other wherever a matrix product reads all units."""

import pytest

import glassgate as gg
from glassgate.engines.llvm_cpu.costs import COSTS
from glassgate.engines.llvm_cpu.loops.buffers import Kind, RowPer
from glassgate.engines.llvm_cpu.loops.memory import StateBefore
from glassgate.engines.llvm_cpu.loops.phases import Step
from glassgate.engines.symbolic.step import equations_of
from glassgate.engines.symbolic.trace import build_trace
from tests.engines.llvm_cpu.test_unusual_steps import Merged, NoInput, Unchanged

CELLS = {name: getattr(gg.cells, name)() for name in gg.cells.__all__}
CELLS |= {cell.__name__: cell() for cell in (Merged, NoInput, Unchanged)}
WITHOUT_PROJECTION = {"GRU", "JANET", "MGU", "ActivatedGRU", "GRUv3", "IndRNN", "LayerNormGRU", "MinGRU", "MinLSTM"}
"""The cells whose step reads the units of h. A projected GRU is another cell."""
CASES = [(name, False) for name in CELLS]
CASES += [(name, True) for name in CELLS if name not in {*WITHOUT_PROJECTION, "Merged", "Unchanged"}]


def conflicts(step: Step) -> list[str]:
    """The products and the writes to their operands, in two successive steps, that no barrier separates."""
    # An event is a barrier, or the access to some columns of a buffer in a step.
    events: list[tuple[str, object, set[int], int]] = []
    for number in range(2):
        for phase in step.phases.values():
            for product in phase.products:
                rows, _, count = step.left_operand(product)
                if isinstance(rows, StateBefore):  # the row that the previous step has written
                    events.append(("read", step.buffers.of_state(Kind.STATE, rows.state), {0}, number - 1))
                else:
                    events.append(("read", rows.buffer, {*range(rows.number, rows.number + count)}, number))
            events += [("write", write.to.buffer, {write.to.number}, number) for write in phase.writes]
            if phase in step.barriers:
                events.append(("barrier", None, set(), number))
    found = []
    for k, (kind, buffer, columns, number) in enumerate(events):
        for other, same, others, later in events[k + 1 :]:
            if other == "barrier":
                break
            # Each step has rows of its own in a buffer with a row per step. It overwrites other buffers.
            is_same_row = buffer is same and (number == later or buffer.kind.row_per is not RowPer.STEP)
            if {kind, other} == {"read", "write"} and is_same_row and columns & others:
                found.append(
                    f"{kind} in step {number} and {other} in step {later}: {buffer}, columns {columns & others}"
                )
    return found


@pytest.mark.parametrize(("name", "projected"), CASES)
def test_a_barrier_separates_each_product_from_the_writes_to_its_operand(name: str, projected: bool) -> None:
    equations = equations_of(CELLS[name], projected)
    trace = build_trace(equations, COSTS)
    for backward in (False, True):
        assert not conflicts(Step(equations, trace, backward))
