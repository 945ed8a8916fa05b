"""Emits a layer as JavaScript without dependencies: the weights, and one function per direction that computes a step.

`javascript.js` runs whole sequences with these functions. Every gate and state can be edited, as with `gg.edit`.
"""

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

import numpy as np

from glassgate.cell import Cell
from glassgate.engines.axes import FEATURES, PROJECTED, UNITS, Axis
from glassgate.engines.lowering.expressions import Expression
from glassgate.engines.lowering.ir import Elementwise, Value
from glassgate.engines.lowering.step import Key
from glassgate.engines.symbolic.equations import Equations
from glassgate.export.javascript_arrays import ArrayEmitter
from glassgate.export.javascript_dialect import JAVASCRIPT, decomposed_functions
from glassgate.export.network import ArraySpec, DirectionSpec, levels_of
from glassgate.export.unit_loops import UnitLoop, UnitLoops
from glassgate.export.weighted_graph import WeightedGraph
from glassgate.layers.edits import REPLACEMENT, SCALE, edited_equations
from glassgate.layers.stack import Recurrent


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
            emitted: ArrayEmitter | _Emitter
            if isinstance(spec, ArraySpec):
                emitted = ArrayEmitter(spec, label)
            else:
                emitted = _Emitter(replace(spec, equations=editable(rewrite(spec.equations))), label)
            functions.append(emitted.text)
            directions.append(_description(emitted, layer.cell, weights))
        merge, residual = level.structure.merge, list(level.structure.residual)
        levels.append({"merge": merge, "residual": residual, "directions": directions})
    return Script(",\n\n".join(functions), {"levels": levels})


def editable(equations: Equations) -> Equations:
    """The equations with a factor and a replacement value for each gate and state, for edits by scripts."""
    return edited_equations(
        equations, dict.fromkeys((*equations.gate_values, *equations.state), ((SCALE, REPLACEMENT), True))
    )


def _description(emitted: "ArrayEmitter | _Emitter", cell: Cell, weights: Weights) -> dict[str, Any]:
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
        "products": emitted.products,
        "initial": {name: weights.add(values) for name, values in spec.initial.items()},
    }


class _Emitter:
    """Emits the JavaScript function that computes one step of a direction.

    Attributes:
        label: for example "layer0.forward".
        text: the function as an entry of an object literal.
    """

    def __init__(self, spec: DirectionSpec, label: str) -> None:
        self.spec, self.label, self.graph = spec, label, WeightedGraph(spec, observed=True)
        self.gates = list(self.graph.gates)
        self.widths = {UNITS: spec.hidden_size, PROJECTED: spec.output_size, FEATURES: spec.input_size}
        self.arrays: dict[str, np.ndarray] = {}
        self.products: dict[str, list[dict[str, Any]]] = {}
        self.program = UnitLoops(self.graph)
        self.results = {value: name for name, value in self.graph.results.items()}
        self.names = JAVASCRIPT.names()
        self.variables = self._named_variables()
        self.stored = self._additional_values()
        self.now = {name: self.names.new(f"now_{name}") for name in self.values}
        """The variable with the array of each stored value, at all steps."""
        self.text = "\n".join(self._lines())

    @property
    def values(self) -> dict[str, int]:
        """The number of units of each value that a step stores (gates, states and others), by name."""
        widths = {name: self.spec.widths.get(name, self.spec.hidden_size) for name in self.results.values()}
        for value, name in self.stored.items():
            widths[name] = self.widths[self.graph.axis_of(value)]
        return widths

    def _named_variables(self) -> dict[Value, str]:
        """The variable of each value. Edited states get descriptive names."""
        graph = self.graph
        variables: dict[Value, str] = {graph.x: "x"}
        variables |= {state: self.names.new(f"{name}_prev") for name, state in graph.states.items()}
        variables |= {noise: self.names.new(name) for name, noise in graph.noise.items()}
        for value in self.program.values:
            name = graph.name_of(value)
            if value in self.results and not graph.is_named(value):
                name = f"new_{self.results[value]}"
            if value not in variables:
                variables[value] = self.names.new(name)
        return variables

    def _additional_values(self) -> dict[Value, str]:
        """The values that a step stores in addition to gates and states, with unique names.

        These are values with a name in the source of the cell, and values that a later phase or a product reads.
        """
        stored: dict[Value, str] = {}
        taken, needed = {*self.results.values()}, self.program.kept
        for value in self.program.values:
            if self.program.is_read(value) or self.graph.is_single(value) or value in self.results:
                continue
            name = self.variables[value]
            if value in needed or (self.graph.is_named(value) and name not in taken):
                while name in taken:
                    name += "_"
                taken.add(name)
                stored[value] = name
        return stored

    def _lines(self) -> Iterator[str]:
        spec, graph = self.spec, self.graph
        states = ", ".join(f"{name}: {self.variables[value]}" for name, value in graph.states.items())
        yield f"// {self.label}: step t, {spec.input_size} inputs, {spec.hidden_size} units."
        yield f'"{self.label}": (w, products, before, edit, values, t, scratch) => {{'
        yield f"  const {{ {states} }} = before;"
        if graph.noise:
            noise = ", ".join(f"{name}: {self.variables[value]}" for name, value in graph.noise.items())
            yield f"  const {{ {noise} }} = edit;"
        body = [line for loop in self.program.loops for line in self._unit_loop(loop)]
        products = [product for group in self.products.values() for product in group]
        names = {
            "w": [name for name in self.arrays if name not in {product["weight"] for product in products}],
            "products": [product["weight"] for product in products if product["hoisted"]],
            "scratch": [product["weight"] for product in products if not product["hoisted"]],
        }
        yield from (f"  const {{ {', '.join(arrays)} }} = {source};" for source, arrays in names.items() if arrays)
        yield f"  const {{ {', '.join(f'{name}: {now}' for name, now in self.now.items())} }} = values;"
        yield from (f"  const {self._offset(axis)} = t * {self.widths[axis]};" for axis in self._axes())
        yield from (f"  {line}" for line in body)
        yield "}"

    def _axes(self) -> list[Axis]:
        """The axes that need an offset variable: units, and projected units if the layer has a projection."""
        return [UNITS, PROJECTED] if self.spec.equations.projected else [UNITS]

    def _offset(self, axis: Axis) -> str:
        """The variable with the offset of the current step in an array with all steps."""
        return "at_out" if axis == PROJECTED else "at"

    def _current(self, name: str, axis: Axis) -> str:
        """The element of a stored value for the current step and unit."""
        return f"{self.now[name]}[{self._offset(axis)} + u]"

    def _unit_loop(self, loop: UnitLoop) -> Iterator[str]:
        phase, variables, program = loop.key, self.variables, self.program
        for scalar in loop.scalars:
            if not program.is_inlined(scalar):
                yield f"const {variables[scalar]} = {self._expression(scalar).text};"
        for total in loop.sums:
            yield f"let {variables[total]} = 0;"
        sums = {value: self._affine(value) for value in loop.computed if program.is_product(value)}
        for lines, _ in sums.values():
            yield from lines
        yield f"for (let u = 0; u < {self.widths[loop.axis]}; u++) {{"
        for value in loop.computed:
            if not program.is_inlined(value):
                text = sums[value][1] if value in sums else self._expression(value).text
                # Later loops read the rounded number. Differences, as in a variance, must not contain the rounding.
                text = f"Math.fround({text})" if value in program.kept else text
                yield f"  const {variables[value]} = {text};"
            if value in self.stored:
                yield f"  {self._current(self.stored[value], loop.axis)} = {self._read(value, phase).text};"
        for total in loop.sums:
            (term,) = program.operands(total)
            yield f"  {variables[total]} += {self._read(term, phase).text};"
        for name in loop.names:
            yield f"  {self._current(name, loop.axis)} = {self._read(program.outcome[name], phase).text};"
        yield "}"

    def _affine(self, value: Value) -> tuple[list[str], str]:
        """The lines that compute matrix products before the loop over units, and the expression of the sum for a unit.

        Products with the input are hoisted: `javascript.js` computes them for all steps in advance.
        """
        lines, terms, descriptions = [], [], []
        affine, axis, variable = self.graph.affine[value], self.graph.axis_of(value), self.variables[value]
        units = self.widths[axis]
        if affine.bias is not None:
            terms.append(f"{self._new_array(f'{variable}_bias', affine.bias)}[u]")
        for product in affine.products:
            matrix, vector = product.matrix, self.graph.origin(product.vector)
            heads = matrix.shape[0] if matrix.ndim == 3 else 1
            columns = matrix.shape[-1]
            name = self._new_array(f"{variable}_{self.variables[vector]}", matrix.reshape(-1, columns))
            is_hoisted = vector is self.graph.x and heads == 1
            key, array, start = self.variables[vector], self.variables[vector], "0"
            if vector not in self.graph.inputs:
                key = self._stored_name(vector)
                array, start = self.now[key], self._offset(self.graph.axis_of(vector))
            if not is_hoisted:
                rest = f", {start}, {heads}" if heads > 1 else f", {start}" if start != "0" else ""
                lines.append(f"multiply({name}, 0, {units}, w.{name}, {columns}, {array}{rest});")
            terms.append(f"{name}[{self._offset(axis)} + u]" if is_hoisted else f"{name}[u]")
            descriptions.append({"weight": name, "vector": key, "heads": heads, "units": units, "hoisted": is_hoisted})
        self.products[variable] = descriptions
        return lines, " + ".join(terms)

    def _new_array(self, name: str, numbers: np.ndarray) -> str:
        """Add an array of weights, and return its variable, which is also its name in the description."""
        name = self.names.new(name)
        self.arrays[name] = numbers
        return name

    def _stored_name(self, value: Value) -> str:
        """The name under which a value is stored."""
        return self.stored.get(value) or self.results[value]

    def _read(self, arg: Value | float, phase: Key) -> Expression:
        """The expression of a value in a phase."""
        graph, variables = self.graph, self.variables
        number = graph.number(arg) if isinstance(arg, Value) else arg
        if number is not None:
            return JAVASCRIPT.number(number)
        assert isinstance(arg, Value)
        if arg in graph.constants:
            self.arrays[variables[arg]] = graph.constants[arg].reshape(-1)
            return Expression(f"{variables[arg]}[u]")
        is_here = graph.is_single(arg) or self.program.key_of(arg) == phase
        if self.program.is_inlined(arg) and is_here:
            return self._expression(arg)
        if arg not in graph.inputs and not is_here:
            return Expression(self._current(self._stored_name(arg), graph.axis_of(arg)))
        return Expression(f"{variables[arg]}[u]" if arg in graph.inputs else variables[arg])

    def _expression(self, value: Value) -> Expression:
        operation, phase = self.graph.operations[value], self.program.key_of(value)
        assert isinstance(operation, Elementwise)
        args = [self.graph.origin(arg) if isinstance(arg, Value) else arg for arg in operation.args]
        return JAVASCRIPT.apply(operation.op, [self._read(arg, phase) for arg in args])
