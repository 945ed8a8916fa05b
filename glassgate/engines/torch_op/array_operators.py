"""The implementation of the torch operators `glassgate::arrays` and `glassgate::arrays_backward`.

Arguments of both: `rows`, the pre-activations, the inputs and the random numbers of all rows; `operands`, the initial
states, the states after a reset and the parameters; `step`, the name of the backend, and the step as text; `weights`,
the names of the parameters, with spaces between them. The results are those of `CompiledArrays`, and with `save` the
saved states.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import torch
from torch import Tensor

from glassgate.engines.arrays.compiled import CompiledArrays
from glassgate.engines.arrays.engine import ArrayEngine, rows_of
from glassgate.engines.arrays.parameters import parameters_of
from glassgate.engines.arrays.program import ArrayProgram
from glassgate.engines.arrays.rows import Operands, Rows
from glassgate.engines.contract import Steps
from glassgate.engines.registry import BACKENDS
from glassgate.engines.symbolic.arrays.text import parse_step
from glassgate.engines.symbolic.step import run_in_new_thread


def split_step(step: str) -> tuple[str, str]:
    """The backend's name and the text of the step in the argument `step`. The first backend has texts without names."""
    name, _, text = step.rpartition("\n")
    return name or next(iter(BACKENDS)), text


@lru_cache(256)
def _program(step: str, all_states: bool) -> ArrayProgram:
    return ArrayProgram(parse_step(split_step(step)[1]), all_states)


def _compiled(step: str, all_states: bool, dtype: torch.dtype) -> CompiledArrays:
    arrays = getattr(BACKENDS[split_step(step)[0]], "array_kernels", None)
    assert isinstance(arrays, ArrayEngine)
    return arrays.compiled(_program(step, all_states), dtype)


def _prepare(
    rows: Sequence[Tensor],
    operands: Sequence[Tensor],
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    program: ArrayProgram,
    weights: str,
    reverse: bool,
) -> tuple[Rows, Operands, dict[str, Tensor]]:
    """The rows and operands of a call, and its parameters by name."""
    count, contiguous = len(program.states), [v.contiguous() for v in operands]
    initial, restart = contiguous[:count], contiguous[count : 2 * count]
    by_name = dict(zip(weights.split(), contiguous[2 * count :], strict=True))
    gates, inputs, noise = (v.contiguous() for v in rows)
    parameters = [v.to(gates.dtype).contiguous() for v in parameters_of(program, by_name)]
    layout = rows_of(Steps(gates, batch_sizes, None), len(initial[0]))
    layout = layout._replace(reverse=reverse, resets=None if resets is None else resets.contiguous())
    return layout, Operands(gates, inputs, noise, initial, restart, parameters), by_name


def forward(
    rows: Sequence[Tensor],
    operands: Sequence[Tensor],
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    step: str,
    weights: str,
    reverse: bool,
    all_states: bool,
    save: bool,
) -> list[Tensor]:
    """Run the forward pass."""
    compiled = _compiled(step, all_states, rows[0].dtype)
    layout, prepared, _ = _prepare(rows, operands, batch_sizes, resets, compiled.program, weights, reverse)
    results, saved, _ = compiled.forward(layout, prepared, save)
    return [*results, *([saved.flatten()] if save else [])]


def backward(
    rows: Sequence[Tensor],
    operands: Sequence[Tensor],
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    saved: Tensor,
    d_results: Sequence[Tensor],
    step: str,
    weights: str,
    reverse: bool,
    all_states: bool,
) -> list[Tensor]:
    """Run the backward pass. Return the gradients of the pre-activations, of the inputs and of `operands`."""
    compiled = _compiled(step, all_states, rows[0].dtype)
    program = compiled.program
    layout, prepared, by_name = _prepare(rows, operands, batch_sizes, resets, program, weights, reverse)
    d, _ = compiled.backward(layout, prepared, saved, [v.contiguous() for v in d_results])
    d_inputs = d.inputs if program.inputs else torch.zeros_like(rows[1])

    def of_weights() -> list[Tensor]:
        leaves = {name: v.detach().requires_grad_() for name, v in by_name.items()}
        pairs = [(v, g) for v, g in zip(parameters_of(program, leaves), d.parameters, strict=True) if v.requires_grad]
        if not pairs:
            return [torch.zeros_like(v) for v in leaves.values()]
        parameters, gradients = zip(*pairs, strict=True)
        return [*torch.autograd.grad(parameters, [*leaves.values()], gradients, materialize_grads=True)]

    # Operators run without autograd, except in another thread.
    return [d.gates, d_inputs, *d.initial, *d.restart, *run_in_new_thread(of_weights)]


def fake_forward(
    rows: Sequence[Tensor],
    operands: Sequence[Tensor],
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    step: str,
    weights: str,
    reverse: bool,
    all_states: bool,
    save: bool,
) -> list[Tensor]:
    """Empty results of the shapes of `forward`."""
    gates, program = rows[0], _program(step, all_states)
    initial = operands[: len(program.states)]
    results = [gates.new_empty(gates.shape[0], v.shape[1]) for v in initial[: len(program.outputs)]]
    results += [torch.empty_like(v) for v in initial]
    if save:
        compiled = _compiled(step, all_states, gates.dtype)
        N = initial[0].shape[0]
        steps = gates.shape[0] // N if batch_sizes is None else batch_sizes.shape[0]
        results.append(gates.new_empty(prod(compiled.saved_shape(steps, N))))  # one axis, so that no size is fixed
    return results


def fake_backward(rows: Sequence[Tensor], operands: Sequence[Tensor], *_: Any) -> list[Tensor]:
    """Empty results of the shapes of `backward`."""
    return [torch.empty_like(v) for v in (*rows[:2], *operands)]


def save(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    """Save what `gradient` reads."""
    rows, operands, batch_sizes, resets, step, weights, reverse, all_states, saves = inputs
    assert saves, "a call without saved states has no backward pass"
    ctx.options, ctx.counts = (step, weights, reverse, all_states), (len(rows), len(operands))
    ctx.save_for_backward(*rows, *operands, batch_sizes, resets, output[-1])


def gradient(ctx: Any, d_results: Sequence[Tensor]) -> tuple[Any, ...]:
    """The gradients of the arguments of `glassgate::arrays`."""
    count, others = ctx.counts
    tensors = ctx.saved_tensors
    rows, operands = [*tensors[:count]], [*tensors[count : count + others]]
    batch_sizes, resets, saved = tensors[count + others :]
    d = torch.ops.glassgate.arrays_backward(rows, operands, batch_sizes, resets, saved, [*d_results[:-1]], *ctx.options)
    return [d[0], d[1], None], d[2:], None, None, None, None, None, None, None
