"""The parts of a `KernelPlan`: its memory, its tasks, the tensors of a call, and its work. `plan.py` fills them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from glassgate.engines.llvm_cpu.arguments import Argument
from glassgate.engines.llvm_cpu.tasks import ParallelTask

Rounds = list[list[ParallelTask]]
"""Tasks in rounds. A round reads results of earlier rounds."""


@dataclass
class PassMemory:
    """The memory of a pass: sizes in bytes, by the argument for the address.

    Attributes:
        weights: each packed matrix and each sum of biases.
        per_row: the size per row of each buffer that grows with the number of rows of a call.
        buffers: each other buffer of a call.
        scratch: each buffer of a launch. Every launch has its own buffers.
        shared_scratch: the buffers of `scratch` that launches share if they divide the units.
    """

    weights: dict[Argument, int] = field(default_factory=dict)
    per_row: dict[Argument, int] = field(default_factory=dict)
    buffers: dict[Argument, int] = field(default_factory=dict)
    scratch: dict[Argument, int] = field(default_factory=dict)
    shared_scratch: Sequence[Argument] = ()


@dataclass
class PassTasks:
    """The tasks of a pass.

    Attributes:
        packing: the tasks that fill the memory of `PassMemory.weights`.
        before: the tasks before the loop. The first round does not read packed weights.
        after: the tasks after the loop.
    """

    packing: list[ParallelTask] = field(default_factory=list)
    before: Rounds = field(default_factory=lambda: [[]])
    after: Rounds = field(default_factory=lambda: [[]])


@dataclass
class CallTensors:
    """The arguments for the tensors of a call.

    Attributes:
        inputs: the input of the layer and the operands, in the order of the plan.
        states, initial: the states at every step, and the initial states.
        kept: the values that the forward pass keeps for the backward pass.
        recorded: the recorded gates, or in a backward pass the recorded gradients.
        results: the results, which the caller allocates.
    """

    inputs: Sequence[Argument]
    states: tuple[Argument, ...]
    initial: tuple[Argument, ...]
    kept: tuple[Argument, ...]
    recorded: list[Argument]
    results: Sequence[Argument] = ()


class StepTables(NamedTuple):
    """The arguments for tables with the first row of each step.

    Attributes:
        all_steps: the tables of buffers that hold all steps.
        double_buffers: the tables of double buffers of states, which hold two steps.
    """

    all_steps: list[Argument]
    double_buffers: list[Argument]


class PassWork(NamedTuple):
    """The work of a loop, which decides how threads divide it.

    Attributes:
        packed_bytes: the size of the matrices that the loop reads.
        per_row: the approximate number of multiplications per row.
        can_divide_units: whether threads can divide the units of a row.
        has_barriers: whether threads that divide the units wait for each other at every step.
    """

    packed_bytes: int
    per_row: int
    can_divide_units: bool
    has_barriers: bool
