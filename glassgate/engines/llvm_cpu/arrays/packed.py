"""Layers with fixed weights whose cells declare axes: calls with whole sequences, and single steps of a stream.

The input weights are packed as a layer of their own, whose output is the pre-activations.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.cell import Weights
from glassgate.engines.arrays.engine import program_of
from glassgate.engines.arrays.parameters import parameters_of
from glassgate.engines.arrays.passes import noise_rows
from glassgate.engines.arrays.rows import Operands, layout_of
from glassgate.engines.backend import InputProduct, PreparedCalls, Signature
from glassgate.engines.contract import Direction, Recording, Result, Steps
from glassgate.engines.input_product import input_product
from glassgate.engines.llvm_cpu.arrays.engine import ENGINE
from glassgate.engines.llvm_cpu.arrays.kernel import HEADER
from glassgate.engines.llvm_cpu.native import compile_native
from glassgate.engines.llvm_cpu.packed import BoundSteps, NativeStepper, PackedLayer
from glassgate.engines.llvm_cpu.tasks import Launch, ParallelTask
from glassgate.engines.memory import allocator, empty

COPY_COLUMNS_KERNEL = '''
def copy_columns(out, x, width, pitch, first, last):
    """Copy the first `width` numbers of the rows `first` to `last` - 1, which have `pitch` numbers each."""
    for row in range(first, last):
        for unit in range(0, width, LANES):
            live = width - unit
            store(out + row * width * BYTES, unit, live, load(x + row * pitch * BYTES, unit, live))
'''


class PackedArrays:
    """One direction of a layer whose cell declares axes.

    Args:
        direction: the cell and its contiguous weights. Only `weight_ih` may be quantised.
        precision, scales: as in `PackedLayer.of`.
    """

    def __init__(self, direction: Direction, precision: str, scales: Weights) -> None:
        self.direction, weights = direction, direction.weights
        self._product = input_product(weights["weight_ih"], weights.get("bias_ih"))
        self._packed = PackedLayer.of([self._product], precision, [scales])

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the input, the output and the states."""
        return self._packed.directions[0].dtype

    def run(
        self,
        steps: Steps,
        initial: tuple[Tensor, ...],
        restart: tuple[Tensor, ...],
        all_states: bool,
        recording: Recording | None,
    ) -> Result:
        """Run whole sequences. The arguments are those of `FrozenDirections.run`."""
        direction = self.direction._replace(initial=initial, restart=restart)
        recordings = None if recording is None else [recording]
        return ENGINE.run(steps, [direction], all_states, self._multiply, recordings=recordings)[0]

    def _multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The pre-activations of rows, from the packed weights; `backend.InputProduct`."""
        return self._packed.run([Steps(x.contiguous(), None, None)], [self._product.initial])[0].states[0]

    def product(self, S: int) -> InputProduct:
        """A function that computes the pre-activations of S rows in less time than `_multiply`."""
        initial = self._product.initial[0]
        passes = self._packed.prepare(S, 1, Signature((S,), [tuple(initial.shape)], save=False))
        run_at, new_final = passes.by_address, allocator(initial.shape, self.dtype)
        weights = [v.data_ptr() for v in self._packed.directions[0].weights]

        def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            if len(x) != S or run_at is None:  # the number of packed rows differs between calls
                return self._multiply(x, weight, bias)
            final = new_final()
            return run_at(x.data_ptr(), (*weights, initial.data_ptr()), (final.data_ptr(),), 0, ())[0]

        return multiply if initial.numel() else self._multiply

    def bound_steps(self, steps: int, N: int, x: Tensor, states: Sequence[Tensor]) -> BoundSteps:
        """See `Steppable.bound_steps`."""
        direction, dtype, S = self.direction, self.dtype, steps * N
        program, weights = program_of(direction), direction.weights
        width = sum(map(program.width, program.inputs.values()))
        copy = _copy_columns(x, S, weights["weight_ih"].shape[1], width) if S > 1 and width else None
        launches, slots, features = ([copy[0]], [1], copy[1]) if copy else ([], [], x)
        product = self._packed.directions[0].bound_steps(S, 1, features, [v.clone() for v in self._product.initial])
        slots += [sum(len(launch.arguments) for launch in launches) + slot for slot in product.input_slots]
        launches += product.launches
        rows = layout_of(S, N, None)._replace(reverse=direction.reverse)
        noise = x.new_empty(0)
        if program.noise:
            like = x.new_empty(S, 0)
            noise = noise_rows(program.noise_widths, direction.cell, direction.noise, like, N).to(dtype).contiguous()
        parameters = [v.contiguous() for v in parameters_of(program, weights)]
        operands = Operands(product.output, x if program.inputs else x.new_empty(0), noise, states, states, parameters)
        output = empty((S, states[0].shape[1]), dtype)
        compiled = ENGINE.compiled(program, dtype)
        if program.inputs and not x.numel():
            slots.append(sum(len(launch.arguments) for launch in launches) + HEADER.index("inputs"))
        launches.append(compiled.launch(rows, operands, output))
        return BoundSteps(launches, slots, output, (product, features, rows, operands))


def _copy_columns(x: Tensor, S: int, width: int, pitch: int) -> tuple[Launch, Tensor] | None:
    """A launch that copies the first `width` columns of S rows, and the memory of the copy. None for all columns."""
    if width == pitch:
        return None
    out = empty((S, width), x.dtype)
    operands = out.data_ptr(), x.data_ptr(), width, pitch
    return ParallelTask(compile_native(COPY_COLUMNS_KERNEL, 8 * x.element_size()), operands, S).whole({}), out


class PackedArrayLayer(NamedTuple):
    """A layer of one or two directions whose cell declares axes. It implements `FrozenDirections` for the CPU."""

    directions: Sequence[PackedArrays]

    def run(
        self,
        steps: Sequence[Steps],
        initial: Sequence[tuple[Tensor, ...]],
        restart: Sequence[tuple[Tensor, ...]] | None = None,
        all_states: bool = False,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Result]:
        """See `FrozenDirections.run`."""
        with torch.autocast("cpu", enabled=False):
            return [
                direction.run(
                    steps[k],
                    initial[k],
                    restart[k] if restart else (),
                    all_states,
                    recordings[k] if recordings else None,
                )
                for k, direction in enumerate(self.directions)
            ]

    def prepare(self, steps: int, N: int, signature: Signature, has_restart: bool = False) -> PreparedCalls | None:
        """See `FrozenDirections.prepare`."""
        directions, products = [], [own.product(steps * N) for own in self.directions]
        for own in self.directions:
            widths = [v.shape[1] for v in own.direction.initial]
            initial = tuple([torch.empty(N, width, dtype=own.dtype, device="cpu") for width in widths])
            directions.append(own.direction._replace(initial=initial, restart=initial if has_restart else ()))
        data = directions[0].initial[0].new_empty(steps * N, 0)
        with torch.autocast("cpu", enabled=False):
            return ENGINE.prepare(Steps(data, None, None), directions, signature, products)

    def stepper(
        self, layers: "Sequence[PackedArrayLayer]", initial: Sequence[tuple[Tensor, ...]], residual: Sequence[bool]
    ) -> NativeStepper:
        """See `FrozenDirections.stepper`."""
        return NativeStepper([layer.directions[0] for layer in layers], initial, residual)
