"""The passes of one step of a cell whose states are arrays, as lists of results that are stored in memory.

Training saves the states before every `chunk`-th step. The backward pass of a chunk first replays its steps from these
states. The replay keeps the states of each step, and the sums over several axes that the backward pass reads.

Names of memories, each followed by the name of a gate, a block of the input, a state or a parameter:
    a_, g_: a pre-activation, and its gradient.
    x_, y_: a block of the input, and its gradient.
    z_: random numbers.
    s_, n_, d_: a state before and after the step, and its gradient.
    p_, q_: a parameter, and its gradient, to which each step adds.
    o_, u_: a state in the results of each step, and its gradient.
    t_: the gradient of a state after a step: from the results, and from later steps; if local variables are stored,
        from the same step too.
    l_, m_: a local variable, and its gradient.
    k_0, k_1, ...: the kept sums.
    f_0, f_1, ...: the factors of gradients of parameters.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod

from glassgate.engines.arrays.nests import is_sum, memory_of, read, with_number_masks
from glassgate.engines.lowering.nests import Memory, Store
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.differentiate import gradient
from glassgate.engines.symbolic.arrays.matrices import with_sums
from glassgate.engines.symbolic.arrays.step import ArrayStep
from glassgate.engines.symbolic.arrays.value import Value, constant, leaf
from glassgate.engines.symbolic.operations import MASKS
from glassgate.engines.symbolic.ops import Index
from glassgate.engines.symbolic.rewrite import in_primitives, rewrite_graph
from glassgate.engines.symbolic.values import topological_order

Axes = tuple[str, ...]
PREFIXES: dict[type[ops.Op], str] = {
    ops.InputHalf: "a_", ops.Input: "x_", ops.Noise: "z_", ops.State: "s_", ops.Gradient: "d_",
}  # fmt: skip
"""The first letters of the names of memories, by the operation of the leaf that reads them."""
Factors = tuple[tuple[int, int], ...]
"""Pairs of indices of factors. The gradient of a parameter is the sum of the products of the factors of each pair."""


class ArrayProgram:
    """The passes of one step.

    Args:
        step: the step.
        all_states: whether every state at every step is a result, or only the output.
        records: whether the passes store the local variables, and their gradients and those of the states.

    Attributes:
        traced, records: the arguments `step` and `records`.
        head: the axis whose indices are independent of each other, so that each is a job; empty without such an axis.
        heads: the number of jobs per sequence.
        gates, inputs, noise: the axes of each pre-activation, block of the input and random number, by name. Those of
            a kind are in one row per step and sequence.
        states: the axes of each state in a job.
        outputs: the axes of each state that is a result of each step.
        shared: the pre-activations and blocks of the input that all jobs of a sequence read, by the name of the memory
            of their gradient. Each job has its own gradients of them.
        parameter_axes, parameters: the axes of each parameter, and those in a job.
        invariants: the parameters that are computed from the cell's own once per call, by name.
        invariant_order: the values of `invariants` and all that they depend on, each after its inputs.
        invariant_leaves: the shape of each of the cell's own parameters that `invariants` read.
        own_parameters: the keys of the cell's own parameters that the kernels or `invariants` read.
        order: the axes of values in a job, in the order of loops, outermost first.
        stores_locals: whether the passes store the local variables. If not, torch has to compute their values.
        locals: the axes of each local variable that the passes store.
        in_rows: the axes of each state and of `locals`, with `head`.
        kept_states: the states that the backward pass reads.
        kept_sums: the axes of each sum that the replay keeps.
        factors: the axes of each factor of gradients of parameters, which the backward pass stores at each step.
        products: the factors of the gradients of some parameters. The other gradients are sums over the steps.
        forward: stores the results and the new states. A new state replaces the old one.
        replay: stores the new states and the sums that are kept.
        backward: stores the gradients.

    Raises:
        NotTraceable: the kernels cannot run the step.
    """

    def __init__(self, step: ArrayStep, all_states: bool = False, records: bool = False) -> None:
        self.traced, self.records = step, records
        self.step, self.invariants = self._prepared(step)
        step, self.sizes = self.step, self.step.sizes
        self.invariant_order = topological_order([*self.invariants.values()])
        self.invariant_leaves = {
            key: tuple([self.sizes[axis] for axis in axes]) for key, axes in _parameters(self.invariant_order).items()
        }
        self.parameter_axes = _parameters(step.values)
        own = [key for key in self.parameter_axes if key.name not in self.invariants]
        self.own_parameters = tuple(dict.fromkeys([*own, *self.invariant_leaves]))
        self.gates = {name: axes for name, axes in step.gates.items() if "x" in step.reads[name]}
        self.inputs = step.inputs
        self.noise = {v.op.name: v.axes for v in step.values if isinstance(v.op, ops.Noise)}
        self.noise_widths = tuple((name, self.width(axes)) for name, axes in self.noise.items())
        self.head = self._independent_axis()
        self.heads = step.sizes[self.head] if self.head else 1
        self.states = {name: self._in_job(axes) for name, axes in step.state.items()}
        self.outputs = {name: self.states[name] for name in list(self.states)[: None if all_states else 1]}
        rows = {f"g_{name}": axes for name, axes in self.gates.items()}
        rows |= {f"y_{name}": axes for name, axes in self.inputs.items()}
        self.shared = {name: axes for name, axes in rows.items() if self.head and self.head not in axes}
        self.parameters = {key: self._in_job(axes) for key, axes in self.parameter_axes.items()}
        self.order = self._order_of_axes()
        local = self._locals() if records else None
        self.stores_locals, self.locals = local is not None, local or {}
        self.in_rows = {**step.state, **self.locals}
        derived = gradient(step)
        d = derived.leaves
        keys = [*map(ops.InputHalf, self.gates), *map(ops.Input, self.inputs), *map(ops.State, step.state)]
        zero = constant(0.0)
        d_new = [leaf(ops.Gradient(s), axes) for s, axes in step.state.items()] if records else []
        named = [step.locals[name].value for name in self.locals]
        if self.stores_locals:
            d_new = [zero if _is_noise(v) else derived.values.get(v, zero) for v in (*step.states, *named)]
        self._build([*step.states, *named], [*(d.get(key, zero) for key in (*keys, *self.parameters)), *d_new])

    def _prepared(self, step: ArrayStep) -> tuple[ArrayStep, dict[str, Value]]:
        """The step of the kernels, and `invariants`."""
        return _without_invariants(with_sums(step))

    def size(self, axes: Sequence[str]) -> int:
        """The number of elements in a job of a value with these axes."""
        return prod(self.sizes[axis] for axis in self._in_job(axes))

    def width(self, axes: Sequence[str]) -> int:
        """The number of elements of a value with these axes."""
        return prod(self.sizes[axis] for axis in axes)

    @property
    def forward_arguments(self) -> list[str]:
        """The names of the tensors of the forward pass besides the rows: `r_` is a state after a reset."""
        names = [("o", s) for s in self.outputs] + [("l", name) for name in self.locals]
        names += [(prefix, s) for prefix in ("s", "r") for s in self.states]
        names += [("p", parameter_name(key)) for key in self.parameter_axes]
        return [f"{prefix}_{name}" for prefix, name in names]

    @property
    def backward_arguments(self) -> list[str]:
        """The names of the tensors of the backward pass: `e_` is the gradient of `r_`.

        The first three are the gradients of the rows. States may have any name, so these have no prefix of one letter.
        """
        names = [("u", s) for s in self.outputs] + [(prefix, s) for prefix in ("d", "r", "e") for s in self.states]
        names += [("p", parameter_name(key)) for key in self.parameter_axes] + [("q", name) for name in self.summed]
        names += [("t", s) for s in self.states] if self.records else []
        names += [("m", name) for name in self.locals]
        return [
            "gate_rows",
            "input_rows",
            "shared_rows",
            *(f"{prefix}_{name}" for prefix, name in names),
            *self.factors,
        ]

    @property
    def summed(self) -> dict[str, Axes]:
        """The axes of the parameters whose gradients are sums over the steps."""
        axes = self.parameter_axes
        return {parameter_name(key): own for key, own in axes.items() if key not in self.products}

    def _in_job(self, axes: Iterable[str]) -> Axes:
        return tuple(axis for axis in axes if axis != self.head)

    def _independent_axis(self) -> str:
        """The first axis of all states, if no value depends on two of its indices; otherwise empty.

        Without states of several axes it is empty too, because a job then has enough numbers only with this axis.
        """
        states = [*self.step.state.values()]
        axis = states[0][0] if states[0] else ""
        shared = [*self.gates.values(), *self.inputs.values(), *self.noise.values(), *self.parameter_axes.values()]
        if not axis or any(axes[:1] != (axis,) for axes in [*states, *(axes for axes in shared if axis in axes)]):
            return ""
        is_vector = all(len(axes) < 2 for axes in states)
        return "" if is_vector or any(_depends_on_others(value, axis) for value in self.step.values) else axis

    def _locals(self) -> dict[str, Axes] | None:
        """The axes of each local variable; None if the jobs do not compute the elements of all variables once."""
        values, found = {*self.step.values}, dict[str, Axes]()
        for name, (value, dims) in self.step.locals.items():
            axes = found[name] = tuple([axis for axis in dims if axis is not None])
            if value not in values or {*value.axes} != {*axes} or (self.head and axes[:1] != (self.head,)):
                return None
        pairs = zip(self.step.states, self.step.state.values(), strict=True)
        is_whole = all({*value.axes} == {*axes} for value, axes in pairs)
        return found if is_whole and not self.step.unread else None

    def _order_of_axes(self) -> Axes:
        rows = map(self._in_job, (*self.gates.values(), *self.inputs.values(), *self.noise.values()))
        blocks = [*self.states.values(), *self.parameters.values(), *rows]
        axes = [axis for axes in sorted(blocks, key=len, reverse=True) for axis in axes]
        return tuple(dict.fromkeys([*axes, *self._in_job(self.sizes)]))

    def _sorted(self, axes: Axes) -> Axes:
        return tuple(sorted(axes, key=self.order.index))

    def _build(self, new: list[Value], d_leaves: list[Value]) -> None:
        """Set the stores of all passes.

        Args:
            new: the new states, then the local variables that are stored.
            d_leaves: the gradients of gates, blocks of the input, old states and parameters. With `records`, those of
                `new` follow.
        """
        in_memory = rewrite_graph([*new, *d_leaves], self._read)
        primitive = in_primitives([in_memory[value] for value in (*new, *d_leaves)])
        values = [primitive[in_memory[value]] for value in (*new, *d_leaves)]
        new, d, count = values[: len(new)], values[len(new) :], len(self.states)
        by_name = dict(zip(self.states, new, strict=False))
        local = {name: self._in_job(axes) for name, axes in self.locals.items()}
        results = _stores("o_", self.outputs, [by_name[name] for name in self.outputs])
        results += _stores("l_", local, new[count:])
        self.forward = with_number_masks([*results, *_stores("s_", self.states, new)])

        self.kept_states = _states_read(d, by_name)
        kept = {name: self.states[name] for name in self.kept_states}
        after = {by_name[name]: read(Memory(f"n_{name}", axes)) for name, axes in kept.items()}
        d = _substitute(d, {value: n for value, n in after.items() if value.inputs})
        replayed = set(topological_order([by_name[name] for name in kept]))
        sums = [s for s in topological_order(d) if is_sum(s) and s in replayed and len(s.inputs[0].axes) > 1]
        self.kept_sums = {f"k_{k}": self._sorted(s.axes) for k, s in enumerate(sums)}
        leaves = [read(Memory(name, axes)) for name, axes in self.kept_sums.items()]
        d = _substitute(d, dict(zip(sums, leaves, strict=True)))
        replay = _stores("n_", kept, [by_name[name] for name in kept]) + _stores("", self.kept_sums, sums)
        self.replay = with_number_masks(replay)
        blocks = {f"g_{name}": self._in_job(axes) for name, axes in self.gates.items()}
        blocks |= {f"y_{name}": self._in_job(axes) for name, axes in self.inputs.items()}
        blocks |= {f"d_{name}": axes for name, axes in self.states.items()}
        first, end = len(blocks), len(blocks) + len(self.parameters)
        backward = _stores("", blocks, d) + self._stores_of_parameters(d[first:end])
        if self.records:
            backward += _stores("t_", self.states, d[end:]) + _stores("m_", local, d[end + count :])
        self.backward = with_number_masks(backward)

    def _stores_of_parameters(self, d: Sequence[Value]) -> list[Store]:
        """The stores of the gradients of parameters, or of their factors."""
        self.factors: dict[str, Axes] = {}
        self.products: dict[ops.Parameter, Factors] = {}
        stores, indices = list[Store](), dict[Value, int]()
        for (key, axes), value in zip(self.parameters.items(), d, strict=True):
            pairs = _factors(value, axes)
            if pairs is None:
                stores.append(Store(Memory(f"q_{parameter_name(key)}", axes), value, adds=True))
                continue
            for factor in (factor for pair in pairs for factor in pair):
                if factor not in indices:
                    indices[factor] = len(indices)
                    name = f"f_{indices[factor]}"
                    self.factors[name] = self._sorted(factor.axes)
                    stores.append(Store(Memory(name, self.factors[name]), factor))
            self.products[key] = tuple((indices[a], indices[b]) for a, b in pairs)
        return stores

    def _read(self, value: Value, copy: Value) -> Value | None:
        """A rule for `rewrite_graph`: leaves become reads from memory, and the axis `head` is removed."""
        axes, args = self._in_job(value.axes), copy.args
        match value.op:
            case ops.Gather(indices):
                if isinstance(number := copy.inputs[0].op, ops.Constant):
                    return constant(number.number, axes)
                return Value(ops.Gather(self._indices_in_job(indices, value.inputs[0].axes)), args, axes)
            case ops.Scatter(indices, all_axes):
                own = self._in_job(all_axes)
                return Value(ops.Scatter(self._indices_in_job(indices, all_axes), own), args, axes)
            case ops.Sum(summed) if self.head in summed:  # in a gradient: the caller adds the gradients of the heads
                if own := self._in_job(summed):
                    return Value(ops.Sum(own), args, axes)
                return copy.inputs[0]
            case ops.Parameter():
                return read(Memory("p_" + parameter_name(value.op), axes))
            case ops.Leaf(name):
                result: Value = read(Memory(PREFIXES[type(value.op)] + name, axes))
                if isinstance(value.op, ops.Gradient) and name in self.outputs:
                    result = result + read(Memory(f"u_{name}", axes))
                return result
        return Value(value.op, args, axes)

    def _indices_in_job(self, indices: Sequence[Index], axes: Axes) -> tuple[Index, ...]:
        return tuple(index for axis, index in zip(axes, indices, strict=True) if axis != self.head)


def _parameters(values: Iterable[Value]) -> dict[ops.Parameter, Axes]:
    """The axes of the parameters among some values."""
    return {value.op: value.axes for value in values if isinstance(value.op, ops.Parameter)}


def _depends_on_others(value: Value, axis: str) -> bool:
    """Whether elements of a value depend on elements of its arguments at other indices of an axis."""
    match value.op:
        case ops.Sum(axes) | ops.Max(axes):
            return axis in axes
        case ops.Gather(indices):
            whole = Index(((axis, 1),))
            return any(
                (own == axis) != (index == whole) or (index != whole and _reads(index, axis))
                for own, index in zip(value.inputs[0].axes, indices, strict=True)
            )
        case ops.CumulativeSum(own, _):
            return axis == own
        case ops.Merge(axes, into):
            return axis == into or axis in axes
        case ops.Concatenate(own, parts):
            return axis == own or axis in parts
    return False


def _is_noise(value: Value) -> bool:
    """Whether a value depends on random numbers only, of which nothing is differentiated."""
    return all(isinstance(v.op, ops.Noise | ops.Constant) for v in topological_order([value]) if not v.inputs)


def _reads(index: Index, axis: str) -> bool:
    return any(own == axis for own, _ in index.terms)


def _factors(d: Value, axes: Axes) -> list[tuple[Value, Value]] | None:
    """The pairs of values without common axes whose products have the sum `d`; None if `d` is not such a sum."""
    if d.op == "add":
        a, b = (_factors(term, axes) if isinstance(term, Value) else None for term in d.args)
        return None if a is None or b is None else a + b
    groups: list[Value] = []
    pending, scalars = list[Value | float]([d]), list[Value | float]()
    while pending:
        factor = pending.pop()
        if isinstance(factor, Value) and factor.op == "mul":
            pending += factor.args
        elif not isinstance(factor, Value) or not factor.axes:
            scalars.append(factor)
        else:
            apart = [group for group in groups if not {*group.axes} & {*factor.axes}]
            for group in groups:
                factor = group * factor if {*group.axes} & {*factor.axes} else factor
            groups = [*apart, factor]
    if len(groups) != 2 or not {*groups[0].axes, *groups[1].axes} <= {*axes}:
        return None
    for scalar in scalars:
        groups[0] = groups[0] * scalar
    if missing := tuple(axis for axis in axes if axis not in groups[0].axes + groups[1].axes):
        groups[0] = Value("mul", (groups[0], constant(1.0, missing)), (*groups[0].axes, *missing))
    return [(groups[0], groups[1])]


def _without_invariants(step: ArrayStep) -> tuple[ArrayStep, dict[str, Value]]:
    """The step with new parameters in place of all that it computes from parameters only, and the values of these."""
    fixed: set[Value] = set()
    for value in step.values:
        is_leaf = isinstance(value.op, ops.Parameter | ops.Constant)
        if is_leaf or (value.inputs and value.op not in MASKS and fixed.issuperset(value.inputs)):
            fixed.add(value)
    read = {arg for value in step.values if value not in fixed for arg in value.inputs} | set(step.states)
    taken = {parameter.name for parameter in _parameters(step.values)}
    invariants: dict[str, Value] = {}
    new: dict[Value, Value] = {}
    for value in step.values:
        if value in fixed and value in read and value.inputs:
            name = f"invariant{len(invariants)}"
            while name in taken:
                name += "_"
            invariants[name] = value
            new[value] = leaf(ops.Parameter(name), value.axes)
    count = len(step.states)
    values = _substitute([*step.states, *(local.value for local in step.locals.values())], new)
    local = {name: each._replace(value=v) for (name, each), v in zip(step.locals.items(), values[count:], strict=True)}
    return replace(step, states=tuple(values[:count]), locals=local), invariants


def parameter_name(parameter: ops.Parameter) -> str:
    """The name of a parameter, or of the part of a parameter that belongs to a gate."""
    return parameter.name if parameter.gate is None else f"{parameter.name}_{parameter.gate}"


def _stores(prefix: str, blocks: Mapping[str, Axes], values: Iterable[Value], adds: bool = False) -> list[Store]:
    pairs = zip(blocks.items(), values, strict=False)
    return [Store(Memory(f"{prefix}{name}", axes), value, adds) for (name, axes), value in pairs]


def _substitute(results: Sequence[Value], replaced: Mapping[Value, Value]) -> list[Value]:
    """The results, computed from other values instead of some of their own."""
    new = rewrite_graph(results, lambda value, _: replaced.get(value, None if value.inputs else value))
    return [new[result] for result in results]


def _states_read(results: Sequence[Value], new: Mapping[str, Value]) -> tuple[str, ...]:
    """The states that the results read, directly or through the states of earlier steps."""
    read: set[str] = set()
    pending = [*results]
    while pending:
        names = {memory.name for value in topological_order(pending) if (memory := memory_of(value))}
        found = {name for name in new if f"s_{name}" in names} - read
        read |= found
        pending = [new[name] for name in found]
    return tuple(name for name in new if name in read)
