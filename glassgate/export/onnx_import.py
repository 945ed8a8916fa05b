"""`gg.from_onnx` reads the recurrent nodes of an ONNX model as layers, with their weights."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from glassgate import cells
from glassgate.cell import Cell
from glassgate.export.errors import ExportError
from glassgate.layers.drop_in import GRU, LSTM, RNN
from glassgate.layers.stack import Recurrent

_GATES = {"RNN": ("h",), "GRU": ("z", "r", "n"), "LSTM": ("i", "o", "f", "g")}
"""The gates of each ONNX operator in the order of its weights, by the names of glassgate's gates."""
_DEFAULT_ACTIVATIONS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
_ACTIVATIONS = ("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus")
_DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
"""The number of directions by ONNX's attribute `direction`."""


def from_onnx(path: str | os.PathLike[str]) -> dict[str, Recurrent]:
    """Reads the RNN, GRU and LSTM nodes of an ONNX model as layers, for example to inspect a trained model.

    A forward and a reverse node become one layer with two directions if they have the same input and differ only in
    their weights and sizes. A single reverse node becomes a layer in one direction, whose input must be passed in
    reverse order. Initial states and lengths of a node are not part of a layer. Pass them to calls of the layer.

    Args:
        path: the path of the model.

    Returns:
        the layers in eval mode, by the names of their nodes.

    Raises:
        ExportError: the file cannot be read, is not an ONNX model, has no such node, or has a node that no cell can
            represent.
        ImportError: a package of the extra `export` is missing.

    Example:
        >>> import tempfile, glassgate as gg
        >>> path = gg.to_onnx(gg.LSTM(3, 4), f"{tempfile.mkdtemp()}/lstm.onnx")
        >>> list(gg.from_onnx(path).values())
        [LSTM(3, 4)]
    """
    import onnx_ir as ir
    from onnxscript import optimizer

    from glassgate.export.onnx_weights import Weights

    try:
        model = ir.load(path)
        optimizer.inline(model)
    except OSError as error:
        raise ExportError(f"from_onnx: cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # protobuf raises different errors in different versions
        raise ExportError(f"from_onnx: {path} is not an ONNX model ({type(error).__name__}: {error})") from error
    read = Weights(model).read
    nodes = [_Node(node, k, read) for k, node in enumerate(model.graph.all_nodes()) if _is_recurrent(node)]
    if not nodes:
        raise ExportError(
            f"from_onnx: {path} has no RNN, GRU or LSTM node, only {_operators(model)}; an exporter may have unrolled "
            "or quantised the layers, so export the model again with glassgate.to_onnx or torch.onnx.export(..., "
            "dynamo=False)"
        )
    layers: dict[str, Recurrent] = {}
    for name, layer in _layers(nodes):
        layers[name if name not in layers else f"{name}_{len(layers)}"] = layer
    return layers


def _is_recurrent(node: Any) -> bool:
    return node.op_type in _GATES and node.domain in ("", "ai.onnx")


def _operators(model: Any) -> str:
    return ", ".join(sorted({node.op_type for node in model.graph.all_nodes()})[:8]) or "nothing"


class _Node:
    """A recurrent node, with the equivalent cell and the parameters."""

    def __init__(self, node: Any, number: int, read: Callable[[Any, str], np.ndarray | None]) -> None:
        self.kind, self.name = node.op_type, node.name or f"{node.op_type.lower()}{number}"
        self._inputs, self._read = node.inputs, read
        self.x = self._input(0)
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        self.direction = attributes.get("direction", "forward")
        self.batch_first = bool(attributes.get("layout", 0))
        self._attributes = attributes
        self.weights = self._array(1, "W"), self._array(2, "R")
        self.bias = self._array(3, "B", required=False)
        self.peepholes = self._array(7, "P", required=False) if self.kind == "LSTM" else None
        self._check_shapes()
        self.cell = self._cell()

    def _input(self, index: int) -> Any:
        return self._inputs[index] if len(self._inputs) > index else None

    def _array(self, index: int, name: str, required: bool = True) -> torch.Tensor | None:
        value = self._input(index)
        if value is None and not required:
            return None
        if value is None:
            raise ExportError(f"from_onnx: {self} must have fixed weights, but it has no input {name}")
        array = self._read(value, f"input {name} of {self}")
        if array is None:
            raise ExportError(
                f"from_onnx: {self} must have fixed weights, but its input {name} is computed from inputs of the model"
            )
        if array.dtype.name == "bfloat16":  # which NumPy lacks
            return torch.from_numpy(array.astype(np.float32)).bfloat16()
        if array.dtype.name not in ("float16", "float32", "float64"):
            raise ExportError(f"from_onnx: {self} must have floating-point weights, got {array.dtype} for input {name}")
        return torch.from_numpy(np.array(array))

    def _check_shapes(self) -> None:
        """Raise an error unless the arrays have the shapes that ONNX defines."""
        W, R = self.weights
        assert W is not None
        assert R is not None
        D, gates = _DIRECTIONS.get(self.direction), len(_GATES[self.kind])
        if D is None:
            raise ExportError(f"from_onnx: {self} has direction {self.direction!r}; expected {', '.join(_DIRECTIONS)}")
        H = self._attributes.get("hidden_size") or R.shape[-1]
        expected: dict[str, tuple[Any, tuple[int, ...]]] = {
            "W": (W, (D, gates * H, W.shape[-1])),
            "R": (R, (D, gates * H, H)),
            "B": (self.bias, (D, 2 * gates * H)),
            "P": (self.peepholes, (D, 3 * H)),
        }
        for name, (array, shape) in expected.items():
            if array is not None and array.shape != shape:
                raise ExportError(
                    f"from_onnx: input {name} of {self} must have shape {shape}, got {tuple(array.shape)}"
                )

    def _cell(self) -> Cell:
        attributes, kind = self._attributes, self.kind
        if "clip" in attributes:
            raise ExportError(f"from_onnx: {self} has clip={attributes['clip']}, which no cell has")
        default = _DEFAULT_ACTIVATIONS[kind]
        names = tuple([name.capitalize() for name in attributes.get("activations") or default])
        activations_per_direction = names[: len(default)]
        if not set(names) <= set(_ACTIVATIONS):
            raise ExportError(f"from_onnx: {self} has activations {names}; supported are {', '.join(_ACTIVATIONS)}")
        if names not in (activations_per_direction, activations_per_direction * 2):
            raise ExportError(
                f"from_onnx: {self} has activations {names}; expected {len(default)}, the same in both directions"
            )
        activations = [name.lower() for name in activations_per_direction]
        resets_before_product = kind == "GRU" and not attributes.get("linear_before_reset", 0)
        couples_gates = bool(attributes.get("input_forget"))
        if kind == "RNN" and activations[0] in ("tanh", "relu"):
            return cells.RNN(activations[0])
        if activations_per_direction == default:
            if kind == "GRU":
                return cells.GRUv3() if resets_before_product else cells.GRU()
            if couples_gates and self.peepholes is not None and self.peepholes.any():
                raise ExportError(f"from_onnx: {self} has peepholes and coupled gates, which no cell has")
            if couples_gates:
                return cells.CIFG()
            return cells.LSTM() if self.peepholes is None else cells.PeepholeLSTM()
        if kind == "GRU" and not resets_before_product:
            return cells.ActivatedGRU(*activations)
        if kind == "LSTM" and self.peepholes is None and not couples_gates:
            return cells.ActivatedLSTM(*activations)
        raise ExportError(f"from_onnx: {self} has activations {names}, which no cell with its other attributes has")

    def __str__(self) -> str:
        return f"node {self.name} ({self.kind})"

    def is_other_direction_of(self, other: "_Node") -> bool:
        """Whether this node and the other one are the two directions of one layer."""
        return (
            {self.direction, other.direction} == {"forward", "reverse"}
            and self.x is other.x
            and repr(self.cell) == repr(other.cell)
            and (self.bias is None) == (other.bias is None)
            and self.batch_first == other.batch_first
        )

    @property
    def parameters(self) -> Iterator[dict[str, torch.Tensor]]:
        """The parameters of each direction, by the names of `Cell.shapes`."""
        onnx_gates = _GATES[self.kind]

        def reorder(rows: torch.Tensor) -> torch.Tensor:
            blocks = dict(zip(onnx_gates, rows.chunk(len(onnx_gates)), strict=True))
            if isinstance(self.cell, cells.CIFG):  # ONNX couples f = 1 - sigmoid(i), which is sigmoid(-i)
                blocks["f"] = -blocks["i"]
            return torch.cat([blocks[gate] for gate in self.cell.gates])

        W, R = self.weights
        assert W is not None
        assert R is not None
        for d in range(W.shape[0]):
            parameters = {"weight_ih": reorder(W[d]), "weight_hh": reorder(R[d])}
            if self.bias is not None:
                halves = self.bias[d].chunk(2)
                parameters |= {"bias_ih": reorder(halves[0]), "bias_hh": reorder(halves[1])}
            if isinstance(self.cell, cells.PeepholeLSTM) and self.peepholes is not None:
                i, o, f = self.peepholes[d].chunk(3)
                parameters |= {"peep_i": i, "peep_o": o, "peep_f": f}
            yield parameters


def _layers(nodes: list[_Node]) -> Iterator[tuple[str, Recurrent]]:
    """Yield each layer with the name of its first node. A layer with two directions may have two nodes."""
    remaining = [*nodes]
    while remaining:
        node = remaining.pop(0)
        other = next((other for other in remaining if node.is_other_direction_of(other)), None)
        if other is None:
            yield node.name, _layer([node])
        else:
            remaining.remove(other)
            yield node.name, _layer([node, other] if node.direction == "forward" else [other, node])


@torch.no_grad()
def _layer(nodes: list[_Node]) -> Recurrent:
    """The layer of a node, or of a forward and a reverse node."""
    node = nodes[0]
    directions = [parameters for node in nodes for parameters in node.parameters]
    sizes = [direction["weight_ih"].shape[0] // len(node.cell.gates) for direction in directions]
    input_size = directions[0]["weight_ih"].shape[1]
    options: dict[str, Any] = {
        "bias": "bias_ih" in directions[0],
        "batch_first": node.batch_first,
        "bidirectional": len(directions) == 2,
        "dtype": directions[0]["weight_ih"].dtype,
    }
    hidden_size: Any = sizes[0] if len(set(sizes)) == 1 else tuple(sizes)
    layer_classes: dict[type[Cell], Any] = {cells.RNN: RNN, cells.GRU: GRU, cells.LSTM: LSTM}
    layer_class = layer_classes.get(type(node.cell))
    if layer_class is None:
        layer = Recurrent(node.cell, input_size, hidden_size, **options)
    else:
        layer = layer_class(input_size, hidden_size, cell=node.cell, **options)
    for (_, weights), parameters in zip(layer.weights(), directions, strict=True):
        for name, value in parameters.items():
            weights[name].copy_(value)
    return layer.eval()
