"""Emits the JavaScript function that computes one step of a direction whose cell declares axes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.step import ArrayStep
from glassgate.engines.symbolic.arrays.value import Value, make
from glassgate.engines.symbolic.rewrite import rewrite_graph
from glassgate.export.array_graph import ArrayGraph, array_graph, input_places
from glassgate.export.array_loops import Loops, Statements
from glassgate.export.array_places import Place, strides_of
from glassgate.export.javascript_dialect import JAVASCRIPT
from glassgate.export.network import ArraySpec
from glassgate.layers.edits import NO_REPLACEMENT, REPLACEMENT, SCALE

STATEMENTS = Statements(
    loop="for (let {0} = 0; {0} < {1}; {0}++) {{",
    number="const {} = {};",
    mask="const {} = {};",
    variable="let {} = {};",
    array="const {} = new Float64Array({});",
    quotient="Math.trunc({} / {})",
)


@dataclass(frozen=True, slots=True)
class Edit(ops.Leaf):
    """Numbers of an edit, which a script sets before a step."""

    symbol = "edit"


class ArrayEmitter:
    """Emits the function of a step, in which every state can be edited.

    Args:
        spec: the direction.
        label: the name of the direction in scripts.

    Attributes:
        text: the function as an entry of an object literal.
        gates, products: empty, because the pre-activations of all gates are one product.
    """

    def __init__(self, spec: ArraySpec, label: str) -> None:
        self.spec, self.label = spec, label
        self.gates: list[str] = []
        self.products: dict[str, list[dict[str, Any]]] = {}
        self.graph = _with_named_values(array_graph(replace(spec, step=editable(spec.step))))
        self.arrays: dict[str, np.ndarray] = {}
        self.text = "\n".join(self._lines())

    @property
    def values(self) -> dict[str, int]:
        """The number of elements of each value that a step stores, by name."""
        sizes = self.graph.sizes
        return {name: int(np.prod([sizes[axis] for axis in axes])) for name, axes in self.graph.state.items()}

    def _lines(self) -> Iterator[str]:
        spec, graph, names = self.spec, self.graph, JAVASCRIPT.names()
        gates, weight, bias, constants = map(names.new, ("gates", "weight", "bias", "constants"))
        before = {name: names.new(f"{name}_prev") for name in spec.widths}
        now = {name: names.new(f"now_{name}") for name in graph.state}
        starts = {name: names.new(f"at_{name}") for name in graph.state}
        row = names.new("at_x")
        edits = {leaf.op.name: names.new(leaf.op.name) for leaf in graph.values if isinstance(leaf.op, Edit)}
        places = input_places(spec, graph, gates, "x", row)
        for leaf in graph.values:
            if isinstance(leaf.op, ops.State | Edit):
                array = (before if isinstance(leaf.op, ops.State) else edits)[leaf.op.name]
                places[leaf] = Place(array, strides_of(leaf.axes, graph.sizes))
        targets = {
            name: Place(now[name], strides_of(axes, graph.sizes), starts[name]) for name, axes in graph.state.items()
        }
        loops = Loops(graph, JAVASCRIPT, STATEMENTS, places, targets, constants, names)
        body = [*loops.lines()]
        if loops.arrays:
            self.arrays[constants] = np.concatenate(loops.arrays)
        rows, features = sum(spec.inputs.rows("x")), spec.inputs.features
        product = []
        if rows:
            self.arrays[weight] = spec.weights["weight_ih"].numpy()
            product = [
                STATEMENTS.array.format(gates, rows),
                f"multiply({gates}, 0, {rows}, {weight}, {features}, x, {row});",
            ]
            if "bias_ih" in spec.weights:
                self.arrays[bias] = spec.weights["bias_ih"].numpy()
                product.append(f"for (let k = 0; k < {rows}; k++) {gates}[k] += {bias}[k];")
        yield f"// {self.label}: step t, {spec.input_size} inputs, {spec.hidden_size} units."
        yield f'"{self.label}": (w, products, before, edit, values, t, scratch, x) => {{'
        yield f"  const {{ {', '.join(f'{name}: {array}' for name, array in before.items())} }} = before;"
        yield f"  const {{ {', '.join(f'{name}: {array}' for name, array in edits.items())} }} = edit;"
        yield f"  const {{ {', '.join(f'{name}: {array}' for name, array in now.items())} }} = values;"
        if self.arrays:
            yield f"  const {{ {', '.join(self.arrays)} }} = w;"
        yield f"  const {row} = t * {spec.input_size};"
        yield from (f"  const {starts[name]} = t * {size};" for name, size in self.values.items())
        yield from (f"  {line}" for line in (*product, *body))
        yield "}"


def editable(step: ArrayStep) -> ArrayStep:
    """The step with a factor and a replacement for each element of each state, for edits by scripts."""
    owners: dict[Value, str] = {}
    for (name, axes), value in zip(step.state.items(), step.states, strict=True):
        if value.inputs and {*value.axes} == {*axes}:
            owners.setdefault(value, name)

    def edited(name: str, value: Value) -> Value:
        scale, replacement = (Value(Edit(f"{kind}_{name}"), (), step.state[name]) for kind in (SCALE, REPLACEMENT))
        result: Value = make("where", make("lt", replacement, NO_REPLACEMENT), replacement, make("mul", value, scale))
        return result

    def rule(value: Value, copy: Value) -> Value | None:
        copy.name, name = value.name, owners.get(value)
        return None if name is None else edited(name, copy)

    new = rewrite_graph(step.states, rule)
    states = [
        new[value] if owners.get(value) == name else edited(name, new[value])
        for name, value in zip(step.state, step.states, strict=True)
    ]
    return replace(step, states=tuple(states))


def _with_named_values(graph: ArrayGraph) -> ArrayGraph:
    """The graph that also stores the values which the author has named, as recordings do."""
    states, axes = {**graph.states}, {**graph.state}
    known = {*states.values()}
    for value in graph.values:
        if value.name is not None and value.inputs and value not in known and value.name not in states:
            states[value.name], axes[value.name] = value, value.axes
    return replace(graph, states=states, state=axes)
