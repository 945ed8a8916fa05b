"""The engine of cells whose states are arrays: the input product by torch, the recurrence by kernels."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import linear

from glassgate.cell_shapes import shapes_from_weights
from glassgate.engines.backend import SingleStepper
from glassgate.engines.contract import Direction, Reason, Result, Steps, is_intercepted, result_type
from glassgate.engines.llvm_cpu.arrays.program import ArrayProgram
from glassgate.engines.llvm_cpu.arrays.run import CompiledArrays, Operands, Rows
from glassgate.engines.llvm_cpu.processor import Processor, host
from glassgate.engines.reference_step import Step
from glassgate.engines.symbolic.arrays.evaluate import evaluate
from glassgate.engines.symbolic.arrays.step import ArrayStep
from glassgate.engines.symbolic.arrays.value import topological_order
from glassgate.engines.symbolic.graph import NotTraceable
from glassgate.engines.symbolic.step import refusal
from glassgate.engines.traced_cells import missing_in_array_kernels, traced_array_step
from glassgate.shapes import ShapeError


def why_not(steps: Steps, directions: Sequence[Direction], all_states: bool) -> Reason | None:
    """See `ArrayKernels.why_not`."""
    if steps.data.dtype not in (torch.float32, torch.float64):
        return Reason(f"kernels of array states need float32 or float64, got {steps.data.dtype}")
    if is_intercepted():
        return Reason("kernels of array states run eagerly, without torch.compile and transforms of torch.func")
    if all_states:
        return Reason("kernels of array states return only the output and the final states")
    for direction in directions:
        if direction.noise:
            return Reason("kernels of array states have no noise")
        try:
            if (fault := _missing(direction)) is not None:
                return Reason(fault)
            program = _program(direction)
        except ShapeError:
            return Reason("the shapes in its step do not fit")  # the reference engine raises an error about them
        if isinstance(program, str):
            return Reason(program, is_general=True)
    return None


def run(steps: Steps, directions: Sequence[Direction]) -> list[Result]:
    """See `ArrayKernels.run`."""
    return [_run(steps, direction) for direction in directions]


def _run(steps: Steps, direction: Direction) -> Result:
    program, weights, data = _program(direction), direction.weights, steps.data
    assert isinstance(program, ArrayProgram)
    dtype = torch.float64 if data.dtype == torch.float64 else torch.float32

    def ready(v: Tensor) -> Tensor:
        return v.to(dtype).contiguous()

    initial = [*map(ready, direction.initial)]
    operands = Operands(
        ready(linear(data, weights["weight_ih"], weights.get("bias_ih"))),
        initial,
        [*map(ready, direction.restart)] or initial,
        [ready(v) for v in _parameters(program, direction)],
    )
    rows = _rows(steps, len(initial[0]))._replace(reverse=direction.reverse)
    output, *final = _compiled(program, dtype, host().full_precision)(rows, operands)
    result = result_type(data.dtype)
    return Result((output.to(result),), tuple([v.to(result) for v in final]))


def stepper(direction: Direction) -> SingleStepper:
    """See `ArrayKernels.stepper`."""
    return _Stepper(direction)


class _Stepper:
    """Runs one direction one step at a time.

    Args:
        direction: the cell, the weights and the states before the first step.

    Attributes:
        states: the states after the last step. Writing to them changes the next step.
    """

    def __init__(self, direction: Direction) -> None:
        weights = {name: w.detach().clone() for name, w in direction.weights.items()}
        program, N = _program(direction), len(direction.initial[0])
        assert isinstance(program, ArrayProgram)
        self.states: Sequence[Tensor] = [
            v.detach().clone(memory_format=torch.contiguous_format) for v in direction.initial
        ]
        self._weight, self._bias = weights["weight_ih"].t(), weights.get("bias_ih")
        self._output = torch.empty_like(self.states[0])
        self._rows = _layout(N, N, None)
        parameters = [v.contiguous() for v in _parameters(program, direction._replace(weights=weights))]
        gates = self._output.new_empty(N, self._weight.shape[1])
        self._operands = Operands(gates, self.states, self.states, parameters)
        compiled = _compiled(program, self._output.dtype, host().full_precision)
        self._launch = compiled.stepper(self._rows, self._operands, self._output)

    def __call__(self, x: Tensor) -> Tensor:
        """Run one step: from the input (N, H_in) to the output (N, H_out), which the next step overwrites."""
        if self._bias is None:
            torch.mm(x, self._weight, out=self._operands.gates)
        else:
            torch.addmm(self._bias, x, self._weight, out=self._operands.gates)
        self._launch()
        return self._output


def _rows(steps: Steps, N: int) -> Rows:
    batch_sizes = None if steps.batch_sizes is None else tuple(steps.batch_sizes.tolist())
    resets = None if steps.resets is None else steps.resets.contiguous()
    return _layout(len(steps.data), N, batch_sizes)._replace(resets=resets)


@lru_cache(256)
def _layout(row_count: int, N: int, batch_sizes: tuple[int, ...] | None) -> Rows:
    """The rows of a call with these batch sizes, or with N rows in each step."""
    with torch.inference_mode(False):  # later calls may differentiate
        sizes = torch.tensor([N] * (row_count // max(N, 1)) if batch_sizes is None else batch_sizes, dtype=torch.int64)
        lengths = (sizes[:, None] > torch.arange(N)).sum(0)
        return Rows(sizes.cumsum(0) - sizes, lengths, False, None, int(sizes.sum()) == row_count)


def _sizes(direction: Direction) -> tuple[int, int]:
    """The input size and the hidden size of a direction."""
    cell, columns, hidden_size = direction.cell, direction.weights["weight_ih"].shape[1], direction.initial[0].shape[1]
    if not cell.inputs:
        return columns, hidden_size
    return shapes_from_weights(cell, direction.weights, hidden_size).input_size, hidden_size


def _missing(direction: Direction) -> str | None:
    """What the kernels lack for the direction's cell. Its author cannot write the step in another way."""
    step = traced_array_step(direction.cell, *_sizes(direction))
    fault = None if isinstance(step, str) else missing_in_array_kernels(step)
    if fault is None:
        return None
    return f"cell {direction.cell._class_name}: step {fault}, which kernels of cells with declared axes do not support"


def _program(direction: Direction) -> ArrayProgram | str:
    """The passes of the direction's cell, or the reason why kernels cannot run them."""
    step = traced_array_step(direction.cell, *_sizes(direction))
    return step if isinstance(step, str) else _program_of(step, direction.cell._class_name)


@lru_cache(1024)
def _program_of(step: ArrayStep, name: str) -> ArrayProgram | str:
    """The passes of a step of the cell with this name, or the reason why kernels cannot run it."""
    try:
        return ArrayProgram(step)
    except NotTraceable as error:
        return str(refusal(name, str(error)))


def _parameters(program: ArrayProgram, direction: Direction) -> list[Tensor]:
    """The parameters that the kernels read, with their axes."""
    named = Step(direction.cell, direction.weights, direction.initial[0].shape[1]).parameters

    def own(name: str, gate: str | None) -> Tensor:
        value = getattr(named, name)
        tensor: Tensor = value if gate is None else getattr(value, gate)
        return tensor

    read = [value.args for value in topological_order([*program.invariants.values()]) if value.op == "parameter"]
    leaves = {("parameter", *key): own(*key)[None] for key in read}
    computed = evaluate(program.sizes, program.invariants.values(), leaves) if leaves else []
    invariants = dict(zip(program.invariants, [v[0] for v in computed], strict=True))
    return [invariants[key[0]] if key[0] in invariants else own(*key) for key in program.parameter_axes]


@lru_cache(256)
def _compiled(program: ArrayProgram, dtype: torch.dtype, processor: Processor) -> CompiledArrays:
    return CompiledArrays(program, dtype, processor)
