"""Per-sample gradients: the gradients of parameters for each group of sequences.

The backward pass of the kernels records the factors of these gradients. The weight gradient GEMMs run here, in torch.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from torch import Tensor

from glassgate.cell import Weights
from glassgate.engines.contract import Direction, Recording, Steps
from glassgate.engines.lowering.backward import backward_pass
from glassgate.engines.lowering.evaluate import Evaluator
from glassgate.engines.lowering.forward import Form
from glassgate.engines.lowering.ir import Pass, Port, Role, Value, operands
from glassgate.engines.plan import Plan, by_direction, needed_weights, weight_tensors
from glassgate.engines.torch_op.vmap_batch import flatten_steps

if TYPE_CHECKING:
    from glassgate.engines.torch_op.calls import SingleCall


def sum_by_group(
    passes: "SingleCall",
    tensors: Sequence[Tensor],
    saved: Sequence[Tensor],
    resets: Tensor | None,
    d_results: Sequence[Tensor | None],
    needed: Sequence[bool],
    groups: int,
) -> list[Tensor | None]:
    """Do the same as `passes.backward`, but sum the gradients of parameters over each group of sequences."""
    plans, is_weight = passes.plans, weight_tensors(passes.plans)
    others, recordings = (
        [need and not weight for need, weight in zip(needed, is_weight, strict=True)],
        [Recording() for _ in plans],
    )
    gradients = passes.backward(tensors, saved, resets, d_results, others, None, recordings)
    data, *operands = map(flatten_steps, tensors)
    steps = Steps(data, None, None if resets is None else resets.flatten())
    at, remaining = 1, map(flatten_steps, saved)
    triples = zip(by_direction(plans, operands), recordings, needed_weights(plans, needed[1:]), strict=True)
    for (plan, own), recording, names in triples:
        states = dict(zip(plan.equations.state, remaining, strict=False))
        d_weights = _weight_gradients(plan, steps, plan.direction(own), states, recording.grad, groups, names)
        for k, name in enumerate(plan.weights):
            gradients[at + k] = d_weights.get(name)
        at += plan.operand_count
    return gradients


def _weight_gradients(
    plan: Plan,
    steps: Steps,
    direction: Direction,
    states: Mapping[str, Tensor],
    factors: Mapping[str, Tensor],
    groups: int,
    names: Sequence[str],
) -> Weights:
    """The gradients of some parameters by name, (groups, *shape).

    Args:
        plan: the plan of the direction.
        steps, direction: the arguments of the call. All sequences have the same length.
        states: the states after each step, (L * N, width of the state), by name.
        factors: the factors that the backward pass has recorded, by name; see `Trace.records_factors`.
        groups: the number of groups. The sequences of a group are adjacent.
        names: the names of the parameters.
    """
    program, N = _backward_pass(plan, steps.resets is not None), len(direction.initial[0])
    sizes = {"T": len(steps.data) // N, "B": groups, "M": N // groups, "D": steps.data.shape[1]}
    evaluator = _LazyEvaluator(program, sizes | {"H": states[plan.equations.state[0]].shape[1]}, steps.data)
    tensors = {Port(Role.DATA): steps.data} | {Port(Role.STATES, name): v for name, v in states.items()}
    tensors |= {Port(Role.INITIAL, name): v for name, v in zip(states, direction.initial, strict=True)}
    tensors |= {Port(Role.RESTART, name): v for name, v in zip(states, direction.restart, strict=False)}
    if steps.resets is not None:
        tensors[Port(Role.RESETS)] = steps.resets
    for port in tensors.keys() & program.inputs.keys():
        evaluator.set(program.inputs[port], tensors[port])
    for write in program.loop.writes:
        if write.port is not None and write.port.role is Role.D_PRE:
            evaluator.set(write.sequence, factors["d_pre"][:, : prod(evaluator.shape_of(write.sequence.type)[2:])])
        elif write.port is not None:
            evaluator.set(write.sequence, factors[f"left{write.port.number}"])
    sums = program.loop.carries[len(program.loop.carries) - len(plan.trace.backward.d_parameters) :]
    for k, column in enumerate(plan.trace.parameter_numbers):
        evaluator.set(sums[column].final, factors[f"own{k}"].unflatten(0, (-1, N)).sum(0))
    shapes = {name: (groups, *direction.weights[name].shape) for name in names}
    return {name: evaluator.value(program.outputs[Port(Role.D_WEIGHT, name)]).reshape(shapes[name]) for name in names}


@lru_cache(256)
def _backward_pass(plan: Plan, resets: bool) -> Pass:
    form = Form(plan.reverse, "bias_ih" in plan.weights, False, resets, resets and plan.restarts, groups=True)
    return backward_pass(plan.equations, plan.trace, form)


class _LazyEvaluator(Evaluator):
    """Computes values of a pass from its inputs and the results of its loop. Only the necessary lines run."""

    def __init__(self, program: Pass, sizes: Mapping[str, int], like: Tensor) -> None:
        super().__init__(program, sizes)
        self.scalar = like.new_zeros(())
        self._operations = {line.result: line.operation for line in (*program.before, *program.after)}

    def set(self, value: Value, rows: Tensor) -> None:
        """Set the value of an input or of a result of the loop."""
        self.values[value] = rows.reshape(self.shape_of(value.type))

    def value(self, value: Value) -> Tensor:
        """The tensor of a value, computed if necessary."""
        if value not in self.values:
            operation = self._operations[value]
            for operand in operands(operation):
                self.value(operand)
            self.values[value] = self.compute(operation, value.type)
        return self.values[value]
