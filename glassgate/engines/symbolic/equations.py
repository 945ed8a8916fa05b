"""The equations of one step of a cell as data. Cells with equal equations share graphs, programs and kernels."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from glassgate.cell import Noise, Parameter
from glassgate.engines.axes import PER_ROW, PROJECTED, UNITS, Axis
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.graph import Node
from glassgate.engines.symbolic.operations import ARITY, MASKS
from glassgate.engines.symbolic.rewrite import make_names_unique, rewrite_graph
from glassgate.engines.symbolic.values import topological_order

FORMAT = 1
"""The version of the text format. `parse` rejects other versions."""
_AXES = {axis.name: axis for axis in (UNITS, PROJECTED, PER_ROW)}


@dataclass(frozen=True, eq=False)
class Equations:
    """One step as a graph from named leaves to the new states (see `Node`).

    Attributes:
        gates, state, parameters, noise, recurrent, heads: see `Cell`.
        projected: whether the output goes through `weight_hr`.
        states: the nodes of the new states, in the order of `state`.
        gate_values: the value that a recording stores for each gate.
    """

    gates: tuple[str, ...]
    state: tuple[str, ...]
    parameters: Mapping[str, Parameter]
    noise: Mapping[str, Noise]
    recurrent: bool
    heads: int
    projected: bool
    states: tuple[Node, ...]
    gate_values: Mapping[str, Node]

    @cached_property
    def nodes(self) -> list[Node]:
        """All nodes that the new states depend on, each after its inputs."""
        return topological_order(self.states)

    @property
    def axes(self) -> dict[str, Axis]:
        """The axis of each state, by name."""
        return {name: node.axis for name, node in zip(self.state, self.states, strict=True)}

    @cached_property
    def named(self) -> dict[str, Node]:
        """All named values by name: leaves, and values that the author has named."""
        return {node.name: node for node in self.nodes if node.name is not None}

    @cached_property
    def text(self) -> str:
        """The equations as JSON. Equal equations have the same text in every process. Numbers are exact."""
        index = {node: k for k, node in enumerate(self.nodes)}
        content = {
            "format": FORMAT,
            "gates": self.gates,
            "state": self.state,
            "parameters": {name: [_start(p).hex(), bool(p.per_gate)] for name, p in self.parameters.items()},
            "noise": {
                name: [
                    float(n.rate).hex(),
                    bool(n.keeps),
                    bool(n.per_step),
                    n.state,
                    None if n.deviation is None else float(n.deviation).hex(),
                ]
                for name, n in self.noise.items()
            },
            "recurrent": bool(self.recurrent),
            "heads": int(self.heads),
            "projected": self.projected,
            "nodes": [
                [n.op if isinstance(n.op, str) else n.op.symbol, n.axis.name, n.name, *_contents(n, index)]
                for n in self.nodes
            ],
            "states": [index[node] for node in self.states],
            "shown": {gate: index[node] for gate, node in self.gate_values.items()},
        }
        return json.dumps(content, separators=(",", ":"))

    def replaced(
        self,
        changes: Mapping[str, Callable[[Node], Node]],
        parameters: Mapping[str, Parameter] | None = None,
        noise: Mapping[str, Noise] | None = None,
    ) -> "Equations":
        """The same equations with some named values replaced wherever they are read.

        Args:
            changes: for each value to replace, by name (see `named`), a function from the old value to the new one.
            parameters, noise: additional leaves that the new values read: `leaf(ops.Parameter(name), UNITS)` and
                `leaf(ops.Noise(name), UNITS)`.

        Raises:
            KeyError: no value has one of these names.
        """
        replacements = {self.named[name]: change for name, change in changes.items()}

        def rule(node: Node, copy: Node) -> Node | None:
            if node not in replacements:
                return None
            new = replacements[node](copy)
            new.name = node.name
            return new

        new = rewrite_graph(self.states, rule)
        states = tuple(new[node] for node in self.states)
        make_names_unique(states)
        alive = set(topological_order(states))
        gate_values = {gate: new[node] for gate, node in self.gate_values.items() if new[node] in alive}
        parameters, noise = {**self.parameters, **(parameters or {})}, {**self.noise, **(noise or {})}
        return replace(self, parameters=parameters, noise=noise, states=states, gate_values=gate_values)


def _contents(node: Node, index: Mapping[Node, int]) -> list[str | int | None]:
    """The fields of an operation and its arguments as JSON: nodes as indices, numbers as "=" and hexadecimal digits."""
    own = () if isinstance(node.op, str) else node.op.contents
    return [
        index[part] if isinstance(part, Node) else f"={part.hex()}" if isinstance(part, float) else part
        for part in (*own, *node.args)
    ]


class NotEquations(ValueError):
    """The text does not contain equations."""


def _start(parameter: Parameter) -> float:
    """The initial value of a parameter; 0 for a function, because the equations do not depend on initial values."""
    return 0.0 if callable(parameter.start) else float(parameter.start)


def parse(text: str) -> Equations:
    """Parse equations. The text is not executed.

    Raises:
        NotEquations: the text does not contain equations.
    """
    try:
        return _parse_content(json.loads(text))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise NotEquations(f"this program's equations cannot be read ({type(error).__name__}: {error})") from None


def _parse_content(content: Any) -> Equations:
    if content["format"] != FORMAT:
        raise ValueError(f"expected format {FORMAT}, got {content['format']!r}")
    gates, state = _expect_names(content["gates"]), _expect_names(content["state"])
    parameters = {
        name: Parameter(float.fromhex(start), _expect(bool, per_gate))
        for name, (start, per_gate) in content["parameters"].items()
    }
    noise = {
        name: Noise(
            float.fromhex(rate),
            _expect(bool, keeps),
            _expect(bool, per_step),
            noisy_state,
            None if deviation is None else float.fromhex(deviation),
        )
        for name, (rate, keeps, per_step, noisy_state, deviation) in content["noise"].items()
    }
    _expect_names(parameters)
    _expect_names(noise)
    if any(n.state not in (*state, None) for n in noise.values()):
        raise ValueError("noise for an unknown state")
    projected = _expect(bool, content["projected"])
    known = {
        ops.InputHalf: gates, ops.RecurrentHalf: gates, ops.State: state, ops.Noise: noise, ops.Parameter: parameters,
        ops.Size: (UNITS.name, PROJECTED.name),
    }  # fmt: skip
    nodes: list[Node] = []
    for entry in content["nodes"]:
        nodes.append(_parse_node(entry, nodes, known, gates))
        if not projected and (isinstance(nodes[-1].op, ops.Projection) or nodes[-1].axis == PROJECTED):
            raise ValueError("a projected value in equations without a projection")
    states = tuple(nodes[_expect(int, k)] for k in content["states"])
    axes = [PROJECTED if projected and k == 0 else UNITS for k in range(len(state))]
    if [node.axis for node in states] != axes:
        raise ValueError("new states that do not fit the states")
    gate_values = {gate: nodes[_expect(int, k)] for gate, k in content["shown"].items()}
    heads = _expect(int, content["heads"])
    if heads < 1 or not gates or not state or not gate_values.keys() <= set(gates):
        raise ValueError("gates, states or heads that do not fit")
    recurrent = _expect(bool, content["recurrent"])
    return Equations(gates, state, parameters, noise, recurrent, heads, projected, states, gate_values)


def _parse_node(
    entry: Any, earlier: list[Node], known: Mapping[type[ops.Op], Iterable[str]], gates: tuple[str, ...]
) -> Node:
    symbol, axis_name, name, *arguments = entry
    if axis_name not in _AXES or not (name is None or _expect(str, name).isidentifier()):
        raise ValueError(f"a value with the invalid name {name!r} or axis {axis_name!r}")
    axis = _AXES[axis_name]
    parts = [_parse_argument(arg, earlier) for arg in arguments]
    inputs = [part for part in parts if isinstance(part, Node)]
    if symbol in ARITY:
        fits = len(parts) == ARITY[symbol] and all(isinstance(part, Node | float) for part in parts)
        input_axes = {arg.axis for arg in inputs} - {PER_ROW} or {PER_ROW}
        fits = fits and bool(inputs) and axis == input_axes.pop()
        are_masks = [isinstance(part, Node) and part.op in MASKS for part in parts]
        mask_count = {"where": 1, "logical_not": 1, "logical_and": 2, "logical_or": 2}.get(symbol, 0)
        fits = fits and are_masks == [True] * mask_count + [False] * (len(parts) - mask_count)
        node = Node(symbol, tuple(parts), axis, name)
    else:
        own = [part for part in parts if not isinstance(part, Node)]
        node = Node(ops.BY_SYMBOL[symbol](*own), tuple(inputs), axis, name)
        fits = len(own) <= 2 and all(isinstance(part, Node) for part in parts[len(own) :]) and _fits(node, known, gates)
    if not fits:
        raise ValueError(f"the invalid value {entry!r}")
    return node


def _fits(node: Node, known: Mapping[type[ops.Op], Iterable[str]], gates: tuple[str, ...]) -> bool:
    """Whether the fields, the arguments and the axis of an operation fit each other."""
    axis, input_axes = node.axis, [arg.axis for arg in node.inputs]
    match node.op:
        case ops.RowSum():
            return axis == PER_ROW and len(input_axes) == 1 and input_axes != [PER_ROW]
        case ops.Projection():
            return axis == PROJECTED and input_axes == [UNITS]
        case ops.RecurrentHalf(gate):
            return gate in gates and len(input_axes) == 1 and axis == UNITS
        case ops.Constant(number):
            return isinstance(number, float) and not input_axes
        case ops.Size(name):
            return name in known[ops.Size] and axis == PER_ROW and not input_axes
        case ops.Parameter(name, gate):
            return name in known[ops.Parameter] and gate in (None, *gates) and axis == UNITS and not input_axes
        case ops.Leaf(name):
            return name in known.get(type(node.op), ()) and not input_axes
    return False


def _parse_argument(arg: Any, earlier: list[Node]) -> Any:
    if arg is None:
        return None
    if isinstance(arg, str):
        return float.fromhex(arg[1:]) if arg.startswith("=") else arg
    if not 0 <= _expect(int, arg) < len(earlier):
        raise ValueError("a value that is read before it is defined")
    return earlier[arg]


def _expect(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, got {value!r}")
    return value


def _expect_names(names: Any) -> tuple[str, ...]:
    if not all(isinstance(name, str) and name.isidentifier() for name in names):
        raise ValueError(f"expected names, got {names!r}")
    return tuple(names)
