"""The passes of one step of a cell whose states are arrays, as lists of results that are stored in memory.

Training saves the states before every `chunk`-th step. The backward pass of a chunk first replays its steps from these
states. The replay keeps the states of each step, and the sums over several axes that the backward pass reads.

Names of memories, each followed by the name of a gate, a state or a parameter:
    a_, g_: a pre-activation, and its gradient.
    s_, n_, d_: a state before and after the step, and its gradient.
    p_, q_: a parameter, and its gradient, to which each step adds.
    out, d_out: the output, and its gradient.
    k_0, k_1, ...: the kept sums.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from glassgate.engines.llvm_cpu.arrays.nests import Memory, Store, is_sum, leaf, memory_of
from glassgate.engines.symbolic.arrays.differentiate import gradient
from glassgate.engines.symbolic.arrays.rewrite import in_primitives, rewrite
from glassgate.engines.symbolic.arrays.step import ArrayStep
from glassgate.engines.symbolic.arrays.value import Value, topological_order
from glassgate.engines.symbolic.graph import NotTraceable
from glassgate.engines.symbolic.operations import MASKS, PRIMITIVES

Axes = tuple[str, ...]
MOST_AXES = 2
"""The maximum number of axes of a value per job."""
PREFIXES = {"ih": "a_", "state": "s_", "parameter": "p_", "grad": "d_"}
"""The first letters of the names of memories, by the operation of the leaf that reads them."""
_UNSUPPORTED = {
    "max": "a maximum over an axis",
    "cumsum": "a cumulative sum",
    "index": "a part or another order of an axis",
    "scatter": "a part or another order of an axis",
    "merge": "two axes merged into one",
    "cat": "a concatenation",
}


class ArrayProgram:
    """The passes of one step.

    Args:
        step: the step.

    Attributes:
        head: the axis whose indices are independent of each other, so that each is a job; empty without such an axis.
        heads: the number of jobs per sequence.
        gates, states: the axes of each gate and state in a job.
        shared_gates: the gates that all jobs of a sequence read. Each job has its own gradients of them.
        parameters: the axes of each parameter in a job. The key is the parameter's name and its gate or None.
        invariants: the parameters that are computed from the cell's own once per call, by name.
        order: the axes of values in a job, in the order of loops, outermost first.
        kept_states: the states that the backward pass reads.
        kept_sums: the axes of each sum that the replay keeps.
        forward: stores the output and the new states. A new state replaces the old one.
        replay: stores the new states and the sums that are kept.
        backward: stores the gradients.

    Raises:
        NotTraceable: the kernels cannot run the step.
    """

    def __init__(self, step: ArrayStep) -> None:
        self.step, self.invariants = _without_invariants(step)
        step, self.sizes = self.step, step.sizes
        self.parameter_axes: dict[tuple[str, str | None], Axes] = {
            value.args: value.axes for value in step.values if value.op == "parameter"
        }
        self.head = self._independent_axis()
        self.heads = step.sizes[self.head] if self.head else 1
        self.gates = {name: self._in_job(axes) for name, axes in step.gates.items()}
        self.states = {name: self._in_job(axes) for name, axes in step.state.items()}
        self.shared_gates = {name: axes for name, axes in step.gates.items() if self.head and self.head not in axes}
        self.parameters = {key: self._in_job(axes) for key, axes in self.parameter_axes.items()}
        self.order = self._order_of_axes()
        d = gradient(step).leaves
        keys = [("ih", g) for g in step.gates], [("state", s) for s in step.state]
        d_leaves = [d.get(key) for key in [*keys[0], *keys[1], *(("parameter", *p) for p in self.parameters)]]
        zero = Value("constant", (0.0,), ())
        self._build([*step.states], [zero if value is None else value for value in d_leaves])

    def size(self, axes: Sequence[str]) -> int:
        """The number of elements in a job of a value with these axes."""
        return prod(self.sizes[axis] for axis in self._in_job(axes))

    def _in_job(self, axes: Iterable[str]) -> Axes:
        return tuple(axis for axis in axes if axis != self.head)

    def _independent_axis(self) -> str:
        """The first axis of all states, if no value depends on two of its indices; otherwise empty."""
        states = [*self.step.state.values()]
        axis = states[0][0] if states[0] else ""
        shared = [*self.step.gates.values(), *self.parameter_axes.values()]
        if not axis or any(axes[:1] != (axis,) for axes in [*states, *(axes for axes in shared if axis in axes)]):
            return ""
        is_summed = any(is_sum(value) and axis in value.args[1] for value in self.step.values)
        return "" if is_summed else axis

    def _order_of_axes(self) -> Axes:
        blocks = [*self.states.values(), *self.gates.values(), *self.parameters.values()]
        order = tuple(dict.fromkeys(axis for axes in sorted(blocks, key=len, reverse=True) for axis in axes))
        for axes in blocks:
            if [*axes] != sorted(axes, key=order.index):
                raise NotTraceable(f"the axes ({', '.join(axes)}) in an order other than {', '.join(order)}")
        return order

    def _build(self, new: list[Value], d_leaves: list[Value]) -> None:
        """Set the stores of all passes.

        Args:
            new: the new states.
            d_leaves: the gradients of gates, old states and parameters.
        """
        read = rewrite([*new, *d_leaves], self._read)
        primitive = in_primitives([read[value] for value in (*new, *d_leaves)])
        values = [primitive[read[value]] for value in (*new, *d_leaves)]
        _check_supported(values)
        new, d = values[: len(new)], values[len(new) :]
        output = Store(Memory("out", next(iter(self.states.values()))), new[0])
        self.forward = _with_number_masks([output, *_stores("s_", self.states, new)])

        by_name = dict(zip(self.states, new, strict=True))
        self.kept_states = _states_read(d, by_name)
        kept = {name: self.states[name] for name in self.kept_states}
        after = {by_name[name]: leaf(Memory(f"n_{name}", axes)) for name, axes in kept.items()}
        d = _substitute(d, {value: n for value, n in after.items() if value.inputs})
        replayed = set(topological_order([by_name[name] for name in kept]))
        sums = [s for s in topological_order(d) if is_sum(s) and s in replayed and len(s.inputs[0].axes) > 1]
        self.kept_sums = {f"k_{k}": tuple(sorted(s.axes, key=self.order.index)) for k, s in enumerate(sums)}
        leaves = [leaf(Memory(name, axes)) for name, axes in self.kept_sums.items()]
        d = _substitute(d, dict(zip(sums, leaves, strict=True)))
        replay = _stores("n_", kept, [by_name[name] for name in kept]) + _stores("", self.kept_sums, sums)
        self.replay = _with_number_masks(replay)
        parameters = {parameter_name(key): axes for key, axes in self.parameters.items()}
        blocks = {f"g_{name}": axes for name, axes in self.gates.items()}
        blocks |= {f"d_{name}": axes for name, axes in self.states.items()}
        count = len(blocks)
        backward = _stores("", blocks, d[:count]) + _stores("q_", parameters, d[count:], adds=True)
        self.backward = _with_number_masks(backward)

    def _read(self, value: Value, args: tuple[Any, ...]) -> Value | None:
        """A rule for `rewrite`: leaves become reads from memory, and the axis `head` is removed."""
        axes = self._in_job(value.axes)
        if value.op not in PREFIXES:
            return Value(value.op, args, axes)
        name = parameter_name(args) if value.op == "parameter" else args[0]
        read = leaf(Memory(PREFIXES[value.op] + name, axes))
        is_output = value.op == "grad" and name == next(iter(self.states))
        result: Value = read + leaf(Memory("d_out", axes)) if is_output else read
        return result


def _without_invariants(step: ArrayStep) -> tuple[ArrayStep, dict[str, Value]]:
    """The step with new parameters in place of all that it computes from parameters only, and the values of these."""
    fixed: set[Value] = set()
    for value in step.values:
        if value.op in ("parameter", "constant") or (value.inputs and fixed.issuperset(value.inputs)):
            fixed.add(value)
    read = {arg for value in step.values if value not in fixed for arg in value.inputs} | set(step.states)
    taken = {value.args[0] for value in step.values if value.op == "parameter"}
    invariants: dict[str, Value] = {}
    new: dict[Value, Value] = {}
    for value in step.values:
        if value in fixed and value in read and value.inputs:
            name = f"invariant{len(invariants)}"
            while name in taken:
                name += "_"
            invariants[name] = value
            new[value] = Value("parameter", (name, None), value.axes)
    states = _substitute(step.states, new)
    return replace(step, states=tuple(states)), invariants


def parameter_name(key: tuple[Any, ...]) -> str:
    """The name of a parameter, or of the part of a parameter that belongs to a gate."""
    return "_".join(part for part in key if part is not None)


def _check_supported(values: Sequence[Value]) -> None:
    for value in topological_order(values):
        if value.op not in PRIMITIVES and value.op not in ("memory", "constant", "sum"):
            raise NotTraceable(_UNSUPPORTED.get(value.op, value.op))
        if len(value.axes) > MOST_AXES:
            raise NotTraceable(f"a value with more than {MOST_AXES} axes, ({', '.join(value.axes)}), besides heads")


def _stores(prefix: str, blocks: Mapping[str, Axes], values: Iterable[Value], adds: bool = False) -> list[Store]:
    pairs = zip(blocks.items(), values, strict=False)
    return [Store(Memory(f"{prefix}{name}", axes), value, adds) for (name, axes), value in pairs]


def _substitute(results: Sequence[Value], replaced: Mapping[Value, Value]) -> list[Value]:
    """The results, computed from other values instead of some of their own."""
    new = rewrite(results, lambda value, args: replaced.get(value, None if value.inputs else value))
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


def _with_number_masks(stores: Sequence[Store]) -> list[Store]:
    """The stores, with ones and zeros instead of masks in values that nests with other axes read."""
    new: dict[Value, Value] = {}

    def argument(arg: object, user: Value) -> object:
        if not isinstance(arg, Value):
            return arg
        if arg.op not in MASKS or {*arg.axes} == {*user.axes}:
            return new[arg]
        number = Value("where", (new[arg], 1.0, 0.0), arg.axes)
        return Value("ne", (number, 0.0), user.axes)

    for value in topological_order([store.value for store in stores]):
        args = tuple([argument(arg, value) for arg in value.args])
        changed = any(a is not b for a, b in zip(args, value.args, strict=True))
        new[value] = Value(value.op, args, value.axes) if changed else value
    return [store._replace(value=new[store.value]) for store in stores]
