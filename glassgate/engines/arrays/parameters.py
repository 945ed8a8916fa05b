"""The parameters that the kernels of a cell read, from the parameters of its layer."""

from collections.abc import Mapping

import torch
from torch import Tensor

from glassgate.engines.arrays.program import ArrayProgram
from glassgate.engines.symbolic.arrays.evaluate import Evaluation
from glassgate.engines.symbolic.arrays.matrices import BIAS, WEIGHT
from glassgate.engines.symbolic.ops import Leaf, Parameter


def parameters_of(program: ArrayProgram, weights: Mapping[str, Tensor]) -> list[Tensor]:
    """The parameters that the kernels read, with their axes.

    Args:
        program: the passes.
        weights: the parameters of the layer by name. Those that the step does not read may be missing.
    """
    own = {key: _own(program, weights, key) for key in program.own_parameters}
    if not program.invariants:
        return [*own.values()]
    leaves: dict[Leaf, Tensor] = {key: own[key].view(1, *shape) for key, shape in program.invariant_leaves.items()}
    # Without parameters, the dtype of the values is that of any tensor.
    like = None if leaves else torch.zeros(1, dtype=torch.float64, device=next(iter(weights.values())).device)
    evaluation = Evaluation(program.sizes, leaves, like=like)
    evaluation.compute(program.invariant_order)
    for name, value in program.invariants.items():
        own[Parameter(name)] = evaluation.over(value, value.axes)[0]
    return [own[key] for key in program.parameter_axes]


def _own(program: ArrayProgram, weights: Mapping[str, Tensor], parameter: Parameter) -> Tensor:
    """A parameter of the cell, or its rows of one gate."""
    name, gate = parameter.name, parameter.gate
    if gate is None:
        return weights[name]
    step, half = program.step, "h" if name in (WEIGHT, BIAS) else ""
    gates = [g for g in step.gates if half in step.reads[g]]
    counts = [program.width(step.gates[g]) for g in gates]
    if name not in weights:
        return weights[WEIGHT].new_zeros(program.width(step.gates[gate]))  # a layer without biases
    return weights[name].split(counts)[gates.index(gate)]
