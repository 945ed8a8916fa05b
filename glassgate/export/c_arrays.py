"""The C function that computes one step of a direction whose cell declares axes."""

from collections.abc import Iterator

import torch

from glassgate.engines.symbolic import ops
from glassgate.export.array_graph import array_graph, input_places
from glassgate.export.array_loops import Loops, Statements
from glassgate.export.array_places import Place, strides_of
from glassgate.export.c_dialect import lanes_dialect, scalar_dialect
from glassgate.export.c_step import PackedWeights
from glassgate.export.network import ArraySpec

C_STATEMENTS = Statements(
    loop="for (int {0} = 0; {0} < {1}; {0}++) {{",
    number="const real {} = {};",
    mask="const int {} = {};",
    variable="real {} = {};",
    array="real {}[{}];",
    quotient="{} / {}",
)


class ArrayFunction:
    """The C function of a step. The pre-activations of all gates are one matrix product before the loops of the step.

    Args:
        spec: the direction.
        name: the name of the function; dots become underscores.

    Attributes:
        name: the name of the function.
        state_sizes: the size of the array of each state, by name.
        packed: the weights and other constants.
        text: the function.
    """

    def __init__(self, spec: ArraySpec, name: str) -> None:
        self.spec, self.name = spec, name.replace(".", "_")
        self.double = spec.weights["weight_ih"].dtype == torch.float64
        self.lanes = lanes_dialect(self.double)
        self.state_sizes = spec.widths
        self.packed = PackedWeights(1)
        self.text = "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        spec, names, graph = self.spec, self.lanes.names(), array_graph(self.spec)
        sizes = graph.sizes
        arrays = {name: names.new(f"state_{name}") for name in spec.widths}
        new = {name: names.new(f"new_{name}") for name in spec.widths}
        gates, rows = names.new("gates"), sum(spec.inputs.rows("x"))
        places = input_places(spec, graph, gates, "x")
        states = {leaf: arrays[leaf.op.name] for leaf in graph.values if isinstance(leaf.op, ops.State)}
        places |= {leaf: Place(array, strides_of(leaf.axes, sizes)) for leaf, array in states.items()}
        targets = dict[str, Place]()
        matrix = self._matrix(gates, rows) if rows else []
        offset = self.packed.offset
        loops = Loops(graph, scalar_dialect(self.double), C_STATEMENTS, places, targets, "W", names, offset)
        buffered = [name for name in arrays if not loops.nests.can_replace(name)]
        for name, axes in graph.state.items():
            targets[name] = Place(new[name] if name in buffered else arrays[name], strides_of(axes, sizes))
        body = [*matrix, *loops.lines()]
        self.packed.parts += loops.arrays
        parameters = "".join(f", real *{array}" for array in arrays.values())
        yield f"/* {spec.label}: one step, {spec.input_size} -> {spec.output_size}. */"
        yield f"static void {self.name}(const real *W, const real *x{parameters}) {{"
        text = "\n".join(body)
        for name in ("W", "x", *arrays.values()):
            if f"{name}[" not in text and f"({name} " not in text and f"memcpy({name}" not in text:
                yield f"    (void){name};"
        yield from (f"    ALIGNED real {new[name]}[{spec.widths[name]}];" for name in buffered)
        yield from (f"    {line}" for line in body)
        yield from (f"    memcpy({arrays[name]}, {new[name]}, sizeof {new[name]});" for name in buffered)
        yield "}"

    def _matrix(self, gates: str, rows: int) -> list[str]:
        """The lines that compute the pre-activations of all gates. Adds their weights to `packed`."""
        weights, features = self.spec.weights, self.spec.inputs.features
        self.packed.parts.append(weights["weight_ih"].t().reshape(-1).numpy())
        lines = [f"real {gates}[{rows}]; /* W_ih x + b_ih */"]
        start = "0"
        if "bias_ih" in weights:
            start = f"W[{self.packed.offset} + row]"
            self.packed.parts.append(weights["bias_ih"].numpy())
        return [
            *lines,
            f"for (int row = 0; row < {rows}; row++) {gates}[row] = {start};",
            f"for (int k = 0; k < {features}; k++) {{",
            f"    for (int row = 0; row < {rows}; row++) {gates}[row] += W[k * {rows} + row] * x[k];",
            "}",
        ]
