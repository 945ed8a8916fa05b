"""The parameters that the kernels of a cell read, from the parameters of its layer."""

from collections.abc import Mapping

import torch
from torch import Tensor

from glassgate.engines.llvm_cpu.arrays.program import ArrayProgram
from glassgate.engines.symbolic.arrays.evaluate import evaluate
from glassgate.engines.symbolic.arrays.matrices import BIAS, WEIGHT
from glassgate.engines.symbolic.ops import Leaf, Parameter


def parameters_of(program: ArrayProgram, weights: Mapping[str, Tensor]) -> list[Tensor]:
    """The parameters that the kernels read, with their axes.

    Args:
        program: the passes.
        weights: the parameters of the layer by name. Those that the step does not read may be missing.
    """
    step = program.step
    halves = {name: "h" if name in (WEIGHT, BIAS) else "" for name in (WEIGHT, BIAS, *weights)}

    def own(parameter: Parameter) -> Tensor:
        name, gate = parameter.name, parameter.gate
        if gate is None:
            return weights[name]
        gates = [g for g in step.gates if halves[name] in step.reads[g]]
        counts = [program.width(step.gates[g]) for g in gates]
        if name not in weights:
            return weights[WEIGHT].new_zeros(program.width(step.gates[gate]))  # a layer without biases
        return weights[name].split(counts)[gates.index(gate)]

    if not program.invariants:
        return [*map(own, program.parameter_axes)]
    leaves: dict[Leaf, Tensor] = {key: own(key).view(1, *shape) for key, shape in program.invariant_leaves.items()}
    like = next(iter(leaves.values()), torch.zeros(1, dtype=torch.float64))
    computed = evaluate(program.sizes, program.invariants.values(), leaves, like)
    invariants = dict(zip(program.invariants, [v[0] for v in computed], strict=True))
    return [invariants[key.name] if key.name in invariants else own(key) for key in program.parameter_axes]
