"""Several steps as one step, for cells whose largest state is an affine function of the previous one.

The sums over a state after some steps are expanded into sums over the state before these steps, and into products of
the values of single steps. Kernels then read and write the state once for all steps. This is the chunked form of linear
attention (Yang et al. 2023, arXiv:2312.06635, section 4) and of the delta rule (Yang et al. 2024, arXiv:2406.06484,
section 3), derived from the equations of the step.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial, reduce

from glassgate.engines.arrays.program import ArrayProgram
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.step import ArrayStep
from glassgate.engines.symbolic.arrays.value import Value, leaf, make, reduce_axes
from glassgate.engines.symbolic.rewrite import rewrite_graph
from glassgate.engines.symbolic.values import topological_order

SMALLEST_STATE = 256
"""The smallest number of elements of the largest state for which several steps at once are faster."""
Factors = Mapping[frozenset[str], Value]
"""The factors of a product, by their axes."""


class NotAffine(Exception):
    """A step is not an affine function of its largest state."""


def of_step(k: int, name: str = "") -> str:
    """The name of a gate or of an output of step k of several steps. It differs from all names of a cell."""
    return f"{k}_{name}"


def several_steps(step: ArrayStep, count: int) -> ArrayStep:
    """`count` steps as one, with the gates of each step, and the outputs of all steps but the last as further states.

    Raises:
        NotAffine: see there.
    """
    output = next(iter(step.state))
    new: dict[str, Value] = {v.op.name: v for v in step.values if isinstance(v.op, ops.State)}
    outputs: dict[str, Value] = {}
    for k in range(count):
        copies = rewrite_graph(step.states, partial(_leaf_of_step, k, dict(new)))
        new |= {name: copies[state] for name, state in zip(step.state, step.states, strict=True)}
        if k < count - 1:
            outputs[of_step(k, output)] = new[output]
    largest = max(step.state.values(), key=len)
    results = _Expansion(step.sizes, largest).results([*(new[name] for name in step.state), *outputs.values()])
    merged = rewrite_graph(results)
    return replace(
        step,
        gates={of_step(k, name): axes for k in range(count) for name, axes in step.gates.items()},
        state={**step.state, **dict.fromkeys(outputs, step.state[output])},
        states=tuple([merged[value] for value in results]),
        reads={of_step(k, name): reads for k in range(count) for name, reads in step.reads.items()},
        named={},
        locals={},
    )


def _leaf_of_step(k: int, states: Mapping[str, Value], value: Value, copy: Value) -> Value | None:
    """A rule for `rewrite_graph`: the leaves of step k of several steps, with the states before this step."""
    match value.op:
        case ops.State(name):
            return states[name]
        case ops.InputHalf(name):
            return leaf(ops.InputHalf(of_step(k, name)), value.axes)
    return None


class BlockProgram(ArrayProgram):
    """The passes of several steps without resets, for kernels of the passes of one step.

    The memories have the names of `ArrayProgram`. Those of gates and of outputs also have the number of the step, see
    `of_step`. The output of the last step is the state.

    Args:
        program: the passes of one step.
        count: the number of steps.

    Raises:
        NotAffine: see there.
    """

    def __init__(self, program: ArrayProgram, count: int) -> None:
        super().__init__(several_steps(program.step, count))
        self.count = count
        outputs = {f"d_{name}" for name in self.step.state if name not in program.step.state}
        self.backward = [store for store in self.backward if store.memory.name not in outputs]

    def _prepared(self, step: ArrayStep) -> tuple[ArrayStep, dict[str, Value]]:
        return step, {}


def block_of(program: ArrayProgram, count: int) -> BlockProgram | None:
    """The passes of `count` steps; None if kernels cannot run them, or not in less time than single steps."""
    is_plain = not (program.records or program.noise or program.inputs or program.products)
    if not is_plain or len(program.outputs) > 1 or max(map(program.size, program.states.values())) < SMALLEST_STATE:
        return None
    try:
        block = BlockProgram(program, count)
    except NotAffine:
        return None
    return None if block.products or block.kept_states != program.kept_states else block


class _Expansion:
    """Expands values over all axes of the largest state into sums of products.

    Args:
        sizes: the size of each axis.
        axes: the axes of the state.
    """

    def __init__(self, sizes: Mapping[str, int], axes: Iterable[str]) -> None:
        self._sizes, self._axes = sizes, frozenset(axes)
        self._terms: dict[Value, list[Factors]] = {}
        self._new: dict[Value, Value] = {}

    def results(self, results: Iterable[Value]) -> list[Value]:
        """The results, expanded."""
        results = [*results]
        for value in topological_order(results):
            if self._is_large(value):
                self._terms[value] = self._terms_of(value)
            elif isinstance(value.op, ops.Sum) and self._is_large(value.inputs[0]):
                self._new[value] = self._sum(value.op.axes, self._terms[value.inputs[0]])
            elif any(map(self._is_large, value.inputs)):
                raise NotAffine
            else:
                args = [self._new[arg] if isinstance(arg, Value) else arg for arg in value.args]
                self._new[value] = value.with_args(tuple(args))
        return [self._total(self._terms[v]) if self._is_large(v) else self._new[v] for v in results]

    def _is_large(self, value: Value) -> bool:
        return frozenset(value.axes) >= self._axes

    def _terms_of(self, value: Value) -> list[Factors]:
        """The products whose sum is a large value."""
        terms = [self._terms.get(arg) if isinstance(arg, Value) else None for arg in value.args]
        match value.op, terms:
            case ops.State(), _:
                return [{frozenset(value.axes): value}]
            case "add", [list() as a, list() as b]:
                return a + b
            case "sub", [list() as a, list() as b]:
                return a + [_product(term, -1.0) for term in b]
            case "neg", [list() as a]:
                return [_product(term, -1.0) for term in a]
            case "mul", [list() as a, None]:
                return [_product(term, self._small(value.args[1])) for term in a]
            case "mul", [None, list() as b]:
                return [_product(term, self._small(value.args[0])) for term in b]
            case "mul", [None, None]:
                return [_product(_product({}, self._small(value.args[0])), self._small(value.args[1]))]
        raise NotAffine

    def _small(self, arg: Value | float) -> Value | float:
        return self._new[arg] if isinstance(arg, Value) else arg

    def _sum(self, axes: tuple[str, ...], terms: list[Factors]) -> Value:
        """The sum of products over axes. Factors without these axes are multiplied afterwards."""
        results: list[Value] = []
        for term in terms:
            inside = [factor for own, factor in term.items() if own & {*axes}]
            outside = [factor for own, factor in term.items() if not own & {*axes}]
            small = [factor for factor in inside if not self._is_large(factor)]
            if small and len(small) < len(inside):
                # Its gradient is then a sum over the small factor instead of a further sum over the state.
                scalars = [factor for factor in outside if {*factor.axes} <= {*small[0].axes}]
                outside = [factor for factor in outside if factor not in scalars]
                inside += scalars
            total = reduce_axes(ops.Sum, _joined(inside), axes, self._sizes)
            results.append(reduce(_times, outside, total))
        return reduce(_plus, results)

    def _total(self, terms: list[Factors]) -> Value:
        return reduce(_plus, [_joined([*term.values()]) for term in terms])


def _product(term: Factors, factor: Value | float) -> Factors:
    """A product times another factor. A number is multiplied with the smallest factor."""
    if not isinstance(factor, Value):
        smallest = min(term, key=len)
        return {**term, smallest: _times(term[smallest], factor)}
    axes = frozenset(factor.axes)
    return {**term, axes: _times(term[axes], factor) if axes in term else factor}


def _joined(factors: list[Value]) -> Value:
    """The product of factors, those with few axes first."""
    return reduce(_times, sorted(factors, key=lambda factor: len(factor.axes)))


def _times(a: Value, b: Value | float) -> Value:
    result: Value = make("mul", a, b)
    return result


def _plus(a: Value, b: Value) -> Value:
    result: Value = make("add", a, b)
    return result
