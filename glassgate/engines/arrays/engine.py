"""The engine of cells whose states are arrays. The recurrence has kernels of its own."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import linear

from glassgate.cell import Cell, Weights
from glassgate.cell_shapes import proj_size_of, shapes_from_weights
from glassgate.engines.arrays.compiled import CompiledArrays
from glassgate.engines.arrays.parameters import parameters_of
from glassgate.engines.arrays.passes import ArrayPasses, noise_rows
from glassgate.engines.arrays.prepared import ArrayPlan, PreparedArrays
from glassgate.engines.arrays.program import ArrayProgram
from glassgate.engines.arrays.recorder import Recorder
from glassgate.engines.arrays.rows import Rows, layout_of
from glassgate.engines.backend import InputProduct, RunPasses, Signature
from glassgate.engines.contract import (
    Direction,
    Reason,
    Recording,
    Result,
    Steps,
    is_intercepted,
    is_transformed,
    result_type,
    results_of,
)
from glassgate.engines.guards import add_guards
from glassgate.engines.memory import COMPUTE_DTYPE
from glassgate.engines.plan import MARKS, PARSED_MARKS, format_layer
from glassgate.engines.symbolic.arrays.cell import Sizes
from glassgate.engines.symbolic.arrays.step import ArrayStep
from glassgate.engines.symbolic.arrays.text import format_step, parse_step
from glassgate.engines.symbolic.step import refusal
from glassgate.engines.symbolic.values import NotTraceable
from glassgate.engines.traced_cells import assume_constant, traced_array_step
from glassgate.shapes import ShapeError


class ArrayEngine(ABC):
    """`backend.ArrayKernels` of a backend.

    Args:
        name: the name of the backend.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def compiled(self, program: ArrayProgram, dtype: torch.dtype) -> CompiledArrays:
        """The kernels of the passes of a cell."""

    @abstractmethod
    def multiplies_faster(self, rows: int, products: int) -> bool:
        """See `ArrayKernels.multiplies_faster`."""

    def why_not(self, steps: Steps, directions: Sequence[Direction], all_states: bool) -> Reason | None:
        """See `ArrayKernels.why_not`."""
        for direction in directions:
            if direction.cell.recurrent and direction.cell.heads > 1:
                return Reason(
                    "kernels of array states have no blocks in weight_hh, which the attribute heads of the cell makes; "
                    "for a whole weight_hh, give this axis another name"
                )
            if is_intercepted() and steps.batch_sizes is not None and _has_noise_per_sequence(direction):
                return Reason(
                    "kernels of array states expand noise of sequences of equal length only under torch.compile"
                )
            fault, is_general = _fault(direction.cell, sizes_of(direction), all_states)
            if fault is not None:
                return Reason(fault, is_general)
        return None

    def run(
        self,
        steps: Steps,
        directions: Sequence[Direction],
        all_states: bool,
        product: InputProduct,
        run_passes: RunPasses | None = None,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Result]:
        """See `ArrayKernels.run`."""
        if is_intercepted() and not is_transformed():
            return [self._run_in_graph(steps, direction, all_states) for direction in directions]
        recorders = [None] * len(directions) if recordings is None else [*map(Recorder, recordings, directions)]
        pairs = zip(directions, recorders, strict=True)
        return [self._run(steps, direction, all_states, product, run_passes, recorder) for direction, recorder in pairs]

    def prepare(
        self,
        steps: Steps,
        directions: Sequence[Direction],
        signature: Signature,
        products: Sequence[InputProduct],
        run_passes: RunPasses | None = None,
    ) -> PreparedArrays | None:
        """See `ArrayKernels.prepare`."""
        data, N, plans = steps.data, len(directions[0].initial[0]), list[ArrayPlan]()
        dtype = result_type(data.dtype, data.device.type)
        if not COMPUTE_DTYPE.get(data.dtype) is data.dtype is dtype:
            return None
        for direction in directions:
            weights, sizes = direction.weights, sizes_of(direction)
            program = program_of(direction, signature.all_states, signature.record)
            rows = layout_of(len(data), N, None)._replace(shape=signature.leading_shape)
            kernels, restarts = self.compiled(program, dtype), bool(direction.restart)
            passes = ArrayPasses(kernels, rows, direction.reverse, restarts, signature.save)
            plans.append(ArrayPlan(direction.cell, sizes, tuple(weights), tuple(direction.noise), passes))
        return PreparedArrays(tuple(plans), products, run_passes)

    def parse(
        self, text: str, dtype: torch.dtype, all_states: bool, save: bool
    ) -> tuple[ArrayPasses, Callable[[Sequence[Tensor]], list[Tensor]]]:
        """See `ArrayKernels.parse`."""
        mark, names, step = text.split("\t")
        program, (reverse, restarts) = ArrayProgram(parse_step(step), all_states), PARSED_MARKS[mark]
        passes = ArrayPasses(self.compiled(program, dtype), None, reverse, restarts, save)

        def kernel_tensors(tensors: Sequence[Tensor]) -> list[Tensor]:
            (gates, *others), weights = tensors, names.split(",")
            parameters = parameters_of(program, dict(zip(weights, others, strict=False)))
            return [gates, *[_of_type(v, gates.dtype) for v in parameters], *others[len(weights) :]]

        return passes, kernel_tensors

    def _run_in_graph(self, steps: Steps, direction: Direction, all_states: bool) -> Result:
        """Run a direction by the operator `layer`, which torch.compile and torch.export trace."""
        weights, data, N = direction.weights, steps.data, direction.initial[0].shape[0]
        dtype, result_dtype = COMPUTE_DTYPE[data.dtype], result_type(data.dtype, data.device.type)
        kind = direction.reverse, bool(direction.restart), tuple(weights)
        text, reads_input, widths = _format(direction.cell, add_guards(direction.cell), sizes_of(direction), *kind)
        gates = linear(*_factors(data, weights, dtype))
        tensors = [gates, *weights.values(), *direction.initial, *direction.restart]
        tensors += [data] if reads_input else []
        tensors += [noise_rows(widths, direction.cell, direction.noise, data, N)] if widths else []
        layer = format_layer(self.name, "arrays", all_states, text)
        flat = torch.ops.glassgate.layer([v.to(dtype) for v in tensors], steps.batch_sizes, steps.resets, layer, dtype)
        (result,) = results_of([direction], [v.to(result_dtype) for v in flat], all_states, all_states)
        return result

    def _run(
        self,
        steps: Steps,
        direction: Direction,
        all_states: bool,
        product: InputProduct,
        run_passes: RunPasses | None,
        recorder: Recorder | None,
    ) -> Result:
        program = program_of(direction, all_states, recorder is not None)
        weights, data, N = direction.weights, steps.data, len(direction.initial[0])
        dtype, transformed = COMPUTE_DTYPE[data.dtype], is_transformed()

        def ready(v: Tensor) -> Tensor:
            return _of_type(v, dtype).contiguous()

        def of_rows(v: Tensor) -> Tensor:
            return ready(v.unflatten(0, (-1, N)) if transformed else v)

        gates = of_rows(product(*_factors(data, weights, dtype)))
        tensors = [gates, *[ready(v) for v in parameters_of(program, weights)]]
        tensors += map(ready, (*direction.initial, *direction.restart))
        tensors += [of_rows(data)] if program.inputs else []
        resets = steps.resets
        if program.noise:
            sequences = N if steps.batch_sizes is None else rows_of(steps, N)
            noise = noise_rows(program.noise_widths, direction.cell, direction.noise, data, sequences)
            tensors.append(of_rows(noise))
        if resets is not None:
            resets = resets.unflatten(0, (-1, N))[..., None] if transformed else resets.contiguous()
        needs_grad = torch.is_grad_enabled() and any([v.requires_grad for v in tensors])
        save, kernels = transformed or needs_grad, self.compiled(program, dtype)
        passes = ArrayPasses(
            kernels, None, direction.reverse, bool(direction.restart), save, by_step=transformed, recorder=recorder
        )
        results: Sequence[Tensor]
        if run_passes is not None and save:
            results = run_passes(passes, steps.batch_sizes, None, None if transformed else [], resets, *tensors)
        else:
            results, _ = passes.forward(tensors, resets, steps.batch_sizes)
        count = len(program.outputs)
        states, final = results[:count], results[count : count + len(program.states)]
        states = tuple([v.flatten(0, 1) for v in states]) if transformed else states
        result = result_type(data.dtype, data.device.type)
        return Result(tuple([_of_type(v, result) for v in states]), tuple([_of_type(v, result) for v in final]))


def _has_noise_per_sequence(direction: Direction) -> bool:
    return any([not direction.cell.noise[name].per_step for name in direction.noise])


@assume_constant
def _fault(cell: Cell, sizes: Sizes, all_states: bool) -> tuple[str | None, bool]:
    """Why kernels cannot run a cell, and whether this holds for each of its calls. None if they can."""
    try:
        program = program_of_cell(cell, sizes, all_states)
    except ShapeError:
        return "the shapes in its step do not fit", False  # the reference engine raises an error about them
    return (program, True) if isinstance(program, str) else (None, False)


@assume_constant
def _format(
    cell: Cell,
    _guards: object,
    sizes: Sizes,
    reverse: bool,
    restarts: bool,
    weights: tuple[str, ...],
) -> tuple[str, bool, tuple[tuple[str, int], ...]]:
    """A direction as text, whether the step reads the input, and the name and width of its random numbers.

    `_guards` makes torch.compile trace `add_guards`.
    """
    program = program_of_cell(cell, sizes, False)
    assert isinstance(program, ArrayProgram)
    text = "\t".join((MARKS[reverse, restarts], ",".join(weights), format_step(program.traced)))
    return text, bool(program.inputs), program.noise_widths


def _of_type(v: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor with this dtype. `to` takes a microsecond even if it changes nothing."""
    return v if v.dtype is dtype else v.to(dtype)


def _factors(data: Tensor, weights: Weights, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None]:
    """The input, weight and bias of the input product, whose dtype autocast and sessions may lower."""
    weight, bias = weights["weight_ih"], weights.get("bias_ih")
    features = data if data.shape[1] == weight.shape[1] else data[:, : weight.shape[1]]
    if weight.dtype in COMPUTE_DTYPE:
        weight, bias = _of_type(weight, dtype), None if bias is None else _of_type(bias, dtype)
    return _of_type(features, dtype), weight, bias


def rows_of(steps: Steps, N: int) -> Rows:
    """The rows of a call with N sequences, without resets."""
    batch_sizes = None if steps.batch_sizes is None else tuple(steps.batch_sizes.tolist())
    return layout_of(len(steps.data), N, batch_sizes)


def sizes_of(direction: Direction) -> Sizes:
    """The sizes of a direction."""
    cell, weights = direction.cell, direction.weights
    columns, width, proj_size = weights["weight_ih"].shape[1], direction.initial[0].shape[1], proj_size_of(weights)
    hidden_size = weights["weight_hr"].shape[1] if proj_size else width
    if cell.declaration is None or not cell.declaration.inputs:
        return columns, hidden_size, proj_size
    return shapes_from_weights(cell, weights, hidden_size).input_size, hidden_size, proj_size


def program_of(direction: Direction, all_states: bool = False, records: bool = False) -> ArrayProgram:
    """The passes of the cell of a direction that kernels can run, see `why_not`."""
    program = program_of_cell(direction.cell, sizes_of(direction), all_states, records)
    assert isinstance(program, ArrayProgram)
    return program


def program_of_cell(cell: Cell, sizes: Sizes, all_states: bool, records: bool = False) -> ArrayProgram | str:
    """The passes of a cell in a layer of these sizes, or the reason why kernels cannot run them."""
    step = traced_array_step(cell, *sizes)
    return step if isinstance(step, str) else _program_of(step, all_states, records, cell._class_name)


@lru_cache(1024)
def _program_of(step: ArrayStep, all_states: bool, records: bool, name: str) -> ArrayProgram | str:
    """The passes of a step of the cell with this name, or the reason why kernels cannot run it."""
    try:
        return ArrayProgram(step, all_states, records)
    except NotTraceable as error:
        return str(refusal(name, str(error)))
