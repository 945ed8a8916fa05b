"""Emits a layer as JavaScript without dependencies: the weights, and one function per direction that computes a step.

`javascript.js` runs whole sequences with these functions. Every gate and state can be edited, as with `gg.edit`.
"""

import base64
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

import numpy as np

from glassgate.cell import Cell
from glassgate.engines.lowering.expressions import SUM, Expression
from glassgate.engines.lowering.nests import Axes, Nest
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.step import ArrayStep
from glassgate.engines.symbolic.arrays.units import step_of_units
from glassgate.engines.symbolic.arrays.value import Value, leaf, make
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.operations import MASKS
from glassgate.engines.symbolic.rewrite import rewrite_graph
from glassgate.export.javascript_dialect import JAVASCRIPT, decomposed_functions
from glassgate.export.loops import Loops, NestPrinter, Statements
from glassgate.export.network import DirectionSpec, levels_of
from glassgate.export.places import Place, Position, strides_of
from glassgate.export.weighted_step import WeightedStep, input_places, weighted_step
from glassgate.layers.edits import NO_REPLACEMENT, REPLACEMENT, SCALE, edited_equations
from glassgate.layers.stack import Recurrent

STATEMENTS = Statements(
    loop="for (let {0} = 0; {0} < {1}; {0}++) {{",
    number="const {} = {};",
    mask="const {} = {};",
    variable="let {} = {};",
    array="const {} = new Float64Array({});",
    quotient="Math.trunc({} / {})",
    indent="  ",
)


def runtime() -> str:
    """The text of `javascript.js`, whose functions call the emitted functions, and the elementary functions."""
    text = files("glassgate.export").joinpath("javascript.js").read_text(encoding="utf-8").strip()
    functions = (f for name, f in decomposed_functions().items() if f"const {name} = " not in text)
    return "\n".join([text, "", *functions])


@dataclass
class Weights:
    """The weight arrays of all layers of an HTML page, stored as a single array.

    Attributes:
        half: whether to store float16 numbers instead of float32 numbers.
        arrays: the arrays, flattened.
    """

    half: bool = False
    arrays: list[np.ndarray] = field(default_factory=list)

    def add(self, values: Any) -> dict[str, Any]:
        """Add an array. Returns its offset and its shape for JavaScript."""
        array = np.asarray(values, np.float32)
        start = sum(each.size for each in self.arrays)
        self.arrays.append(array.reshape(-1))
        return {"at": start, "shape": list(array.shape)}

    @property
    def flat(self) -> np.ndarray:
        """All numbers in one array."""
        return np.concatenate(self.arrays) if self.arrays else np.zeros(0, np.float32)

    @property
    def error(self) -> float:
        """The largest absolute difference between a number and its stored value."""
        flat = self.flat
        return float(np.abs(flat - flat.astype(np.float16)).max(initial=0.0)) if self.half else 0.0

    def packed(self) -> dict[str, Any]:
        """All numbers in base64, and the number of bits of each."""
        stored = self.flat.astype("<f2" if self.half else "<f4")
        return {"bits": 16 if self.half else 32, "base64": base64.b64encode(stored.tobytes()).decode()}


@dataclass(frozen=True)
class Script:
    """A layer as JavaScript.

    Attributes:
        steps: the functions, one for each direction, as entries of an object literal.
        layer: the description that `runLayer` of `javascript.js` reads, as JSON values.
    """

    steps: str
    layer: dict[str, Any]


def emit(
    layer: Recurrent,
    weights: Weights,
    name: str = "",
    operation: str = "live",
    rewrite: Callable[[Equations], Equations] = lambda equations: equations,
) -> Script:
    """Generate the JavaScript of a layer in eval mode.

    Args:
        layer: a layer of any cell, depth and number of directions.
        weights: the arrays of the page, to which the arrays of the layer are added.
        name: the name of the layer in its model. It is the prefix of direction labels, as in `gg.edit`.
        operation: the first word of error messages.
        rewrite: a function that changes the equations, for example to name further values that steps store.

    Raises:
        ExportError: the layer is being recorded or edited, or the step of its cell cannot be traced.
    """
    functions, levels = [], []
    for level in levels_of(layer, operation):
        directions = []
        for spec in level.directions:
            label = f"{name}.{spec.label}" if name else spec.label
            emitted = _Emitter(editable(spec, rewrite), label)
            functions.append(emitted.text)
            directions.append(_description(emitted, layer.cell, weights))
        merge, residual = level.structure.merge, list(level.structure.residual)
        levels.append({"merge": merge, "residual": residual, "directions": directions})
    return Script(",\n\n".join(functions), {"levels": levels})


def editable(spec: DirectionSpec, rewrite: Callable[[Equations], Equations]) -> DirectionSpec:
    """The direction with a factor and a replacement value for each gate and state, for edits by scripts.

    A cell that declares axes has them for states only, and other values of the same step read the edited states.
    """
    if spec.equations is None:
        return replace(spec, step=_editable_step(spec.step))
    equations = rewrite(spec.equations)
    edits = dict.fromkeys((*equations.gate_values, *equations.state), ((SCALE, REPLACEMENT), True))
    equations = edited_equations(equations, edits)
    return replace(spec, equations=equations, step=step_of_units(equations, spec.hidden_size, spec.output_size))


def _editable_step(step: ArrayStep) -> ArrayStep:
    owners: dict[Value, str] = {}
    for (name, axes), value in zip(step.state.items(), step.states, strict=True):
        if value.inputs and {*value.axes} == {*axes}:
            owners.setdefault(value, name)

    def edited(name: str, value: Value) -> Value:
        scale, replacement = (leaf(ops.Noise(f"{kind}_{name}"), step.state[name]) for kind in (SCALE, REPLACEMENT))
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


def _description(emitted: "_Emitter", cell: Cell, weights: Weights) -> dict[str, Any]:
    """Add the arrays to the weights of the page, and return the description of the direction as JSON values."""
    spec = emitted.spec
    return {
        "label": emitted.label,
        "cell": type(cell).__name__,
        "reverse": spec.reverse,
        "inputs": spec.input_size,
        "units": spec.hidden_size,
        "states": dict(spec.widths),
        "gates": emitted.gates,
        "values": emitted.values,
        "weights": {name: weights.add(values) for name, values in emitted.arrays.items()},
        "products": emitted.products_of,
        "initial": {name: weights.add(values) for name, values in spec.initial.items()},
    }


class _Emitter(Loops):
    """Emits the JavaScript function that computes one step of a direction.

    Attributes:
        label: for example "layer0.forward".
        text: the function as an entry of an object literal.
        gates: the names of the gates; empty for a cell that declares axes.
        arrays: the weights by name.
        products_of: the descriptions of the matrix products of each sum, by its name.
    """

    def __init__(self, spec: DirectionSpec, label: str) -> None:
        self.spec, self.label = spec, label
        gates = {} if spec.equations is None else {gate: local.value for gate, local in spec.step.locals.items()}
        self.gates = [*gates]
        super().__init__(_with_named_values(weighted_step(spec, gates)), JAVASCRIPT, STATEMENTS)
        self.arrays: dict[str, np.ndarray] = {}
        self.products_of: dict[str, list[dict[str, Any]]] = {}
        self.terms: dict[Value, list[Place]] = {}
        """The terms of each sum of matrix products."""
        self.text = "\n".join(self._lines())

    @property
    def values(self) -> dict[str, int]:
        """The number of elements of each value that a step stores, by name."""
        return {name: self.step.count(axes) for name, axes in self.step.state.items()}

    def _lines(self) -> Iterator[str]:
        spec, step, names = self.spec, self.step, self.names
        before = {name: names.new(f"{name}_prev") for name in spec.widths}
        now = {name: names.new(f"now_{name}") for name in step.state}
        edits = {leaf.op.name: names.new(leaf.op.name) for leaf in step.values if isinstance(leaf.op, ops.Noise)}
        rows = [step.count(value.axes) for value in step.values if value in step.sums]
        sizes = dict.fromkeys([*self.values.values(), *rows])
        self.starts = {size: f"at_{size}" if k else "at" for k, size in enumerate(sizes)}
        self.places |= input_places(spec, step, "x", "at_x")
        for value in step.values:
            if isinstance(value.op, ops.State | ops.Noise):
                array = (before if isinstance(value.op, ops.State) else edits)[value.op.name]
                self.places[value] = Place(array, strides_of(value.axes, step.sizes))
        for name, axes in step.state.items():
            self.targets[name] = Place(now[name], strides_of(axes, step.sizes), self.starts[step.count(axes)])
        body = [*self.lines()]
        products = [product for group in self.products_of.values() for product in group]
        is_hoisted = {product["weight"]: product["hoisted"] for product in products}
        sources = {
            "before": before,
            "edit": edits,
            "w": {name: name for name in self.arrays if name not in is_hoisted},
            "products": {name: name for name, hoisted in is_hoisted.items() if hoisted},
            "scratch": {name: name for name, hoisted in is_hoisted.items() if not hoisted},
            "values": now,
        }
        yield f"// {self.label}: step t, {spec.input_size} inputs, {spec.hidden_size} units."
        yield f'"{self.label}": (w, products, before, edit, values, t, scratch, x) => {{'
        for source, variables in sources.items():
            if variables:
                pairs = (name if name == variable else f"{name}: {variable}" for name, variable in variables.items())
                yield f"  const {{ {', '.join(pairs)} }} = {source};"
        for start, size in (("at_x", spec.input_size), *((start, size) for size, start in self.starts.items())):
            if any(re.search(rf"\b{start}\b", line) for line in body):
                yield f"  const {start} = t * {size};"
        yield from (f"  {line}" for line in body)
        yield "}"

    def printer(self, nest: Nest) -> NestPrinter:
        """The printer of a nest."""
        return _RoundingPrinter(self, nest)

    def products(self, values: Sequence[Value]) -> Iterator[str]:
        """Lines that compute matrix products, except those with the input, which `javascript.js` hoists."""
        for value in values:
            variable, terms, descriptions = self.name_of(value), list[Place](), list[dict[str, Any]]()
            variable += "_" * (variable in self.products_of)
            strides, rows = strides_of(value.axes, self.step.sizes), self.step.count(value.axes)
            products, bias, _ = self.step.sums[value]
            if bias is not None:
                terms.append(Place(self._new_array(f"{variable}_bias", bias), strides))
            for vector, (_, matrix) in zip(value.inputs, products, strict=True):
                place, columns = self.places[vector], matrix.shape[-1]
                heads = matrix.shape[0] if matrix.ndim == 3 else 1
                is_hoisted = isinstance(vector.op, ops.Input) and columns == self.spec.input_size
                stored = [name for name, result in self.step.states.items() if result is vector]
                key = place.array if isinstance(vector.op, ops.Leaf) else stored[0]
                name = self._new_array(f"{variable}_{key}", matrix.reshape(-1, columns))
                if not is_hoisted:
                    rest = f", {place.base or 0}, {heads}" if heads > 1 else f", {place.base}" if place.base else ""
                    yield f"multiply({name}, 0, {rows}, w.{name}, {columns}, {place.array}{rest});"
                terms.append(Place(name, strides, self.starts[rows] if is_hoisted else ""))
                descriptions.append(
                    {"weight": name, "vector": key, "heads": heads, "units": rows, "hoisted": is_hoisted}
                )
            self.terms[value], self.products_of[variable] = terms, descriptions

    def sum_at(self, value: Value, at: Position) -> Expression:
        """The expression of an element of a sum of matrix products."""
        return Expression(" + ".join(place.element(at).text for place in self.terms[value]), SUM)

    def store_constant(self, value: Value, axes: Axes, numbers: np.ndarray) -> Place:
        """Add a constant to the weights, and return its place."""
        return Place(self._new_array(self.name_of(value), numbers), strides_of(axes, self.step.sizes))

    def _new_array(self, name: str, numbers: np.ndarray) -> str:
        """Add an array of weights, and return its variable, which is also its name in the description."""
        name = self.names.new(name)
        self.arrays[name] = numbers
        return name


class _RoundingPrinter(NestPrinter):
    """Rounds a number that later loops read from a Float32Array. Differences, as in a variance, lack the rounding."""

    def definition(self, value: Value, name: str, expression: Expression) -> str:
        """The definition of a variable."""
        if value in self.written and value in {*self.nest.kept} and value.op not in MASKS:
            expression = Expression(f"Math.fround({expression.text})")
        return super().definition(value, name, expression)


def _with_named_values(step: WeightedStep) -> WeightedStep:
    """The step that also stores the values with a name, as recordings do, and the vectors of products."""
    states, axes, vectors = {**step.states}, {**step.state}, step.vectors
    known = {*states.values()}
    for k, value in enumerate(step.values):
        name = value.name or (f"v{k}" if value in vectors else "")
        while value in vectors and name in states:
            name += "_"
        if name and value.axes and value.inputs and value not in known and name not in states:
            states[name], axes[name] = value, value.axes
    return replace(step, states=states, state=axes)
