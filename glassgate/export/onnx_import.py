"""`gg.from_onnx` reads the recurrent nodes of an ONNX model as layers, with their weights."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from glassgate import cells
from glassgate.cell import Cell
from glassgate.export.errors import ExportError, optional
from glassgate.layers.drop_in import GRU, LSTM, RNN
from glassgate.layers.stack import Recurrent

_GATES = {"RNN": ("h",), "GRU": ("z", "r", "n"), "LSTM": ("i", "o", "f", "g")}
"""The gates of the operators in their order, by our names."""
_DEFAULT_ACTIVATIONS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
_ACTIVATIONS = {name: name.lower() for name in ("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus")}


def from_onnx(path: str | os.PathLike[str]) -> dict[str, Recurrent]:
    """Reads the RNN, GRU and LSTM nodes of an ONNX model as layers, for example to inspect a trained model.

    A forward and a reverse node with the same input become one layer with two directions. A single reverse node becomes
    a layer that takes its input in reverse order.

    Args:
        path: the path of the model.

    Returns:
        the layers in eval mode, by the names of their nodes.

    Raises:
        ExportError: the file is not an ONNX model, has no such node, or has a node that no cell can represent.
        ImportError: a package of the extra `export` is missing.

    Example:
        >>> import tempfile, glassgate as gg
        >>> path = gg.to_onnx(gg.LSTM(3, 4), f"{tempfile.mkdtemp()}/lstm.onnx")
        >>> list(gg.from_onnx(path).values())
        [LSTM(3, 4)]
    """
    optional("onnx", "from_onnx")
    ir, optimizer = optional("onnx_ir", "from_onnx"), optional("onnxscript.optimizer", "from_onnx")
    try:
        model = ir.load(path)
        optimizer.fold_constants_ir(model)
    except OSError as error:
        raise ExportError(f"from_onnx: cannot read {path}: {error.strerror}") from error
    except Exception as error:  # protobuf raises different errors in different versions
        raise ExportError(f"from_onnx: {path} is not an ONNX model ({type(error).__name__}: {error})") from error
    nodes = [_Node(node, k) for k, node in enumerate(model.graph.all_nodes()) if node.op_type in _GATES]
    if not nodes:
        raise ExportError(f"from_onnx: {path} has no RNN, GRU or LSTM node, only {_operators(model)}")
    return {name: layer for name, layer in _layers(nodes)}


def _operators(model: Any) -> str:
    return ", ".join(sorted({node.op_type for node in model.graph.all_nodes()})[:8]) or "nothing"


class _Node:
    """The cell and the parameters of a recurrent node."""

    def __init__(self, node: Any, number: int) -> None:
        self.kind, self.name = node.op_type, node.name or f"{node.op_type.lower()}{number}"
        self.x = node.inputs[0]
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        self.direction = attributes.get("direction", "forward")
        self.batch_first = bool(attributes.get("layout", 0))
        self.attributes = attributes
        self.weights = [self._constant(node, 1, "W"), self._constant(node, 2, "R")]
        self.bias = self._constant(node, 3, "B", required=False)
        self.peepholes = self._constant(node, 7, "P", required=False) if self.kind == "LSTM" else None
        self.cell = self._cell()

    def _constant(self, node: Any, index: int, letter: str, required: bool = True) -> np.ndarray | None:
        value = node.inputs[index] if len(node.inputs) > index else None
        if value is None and not required:
            return None
        if value is None or value.const_value is None:
            raise ExportError(
                f"from_onnx: node {self.name} ({self.kind}) must have fixed weights, but its input {letter} is computed"
            )
        array: np.ndarray = np.array(value.const_value.numpy())
        return array

    def _cell(self) -> Cell:
        attributes, kind = self.attributes, self.kind
        if "clip" in attributes:
            raise ExportError(f"from_onnx: node {self.name} ({kind}) has clip={attributes['clip']}, which no cell has")
        count = len(_DEFAULT_ACTIVATIONS[kind])
        names = tuple(attributes.get("activations") or _DEFAULT_ACTIVATIONS[kind])
        if names[:count] * (len(names) // count) != names or not set(names) <= _ACTIVATIONS.keys():
            known = ", ".join(_ACTIVATIONS)
            raise ExportError(f"from_onnx: node {self.name} ({kind}) has activations {names}; supported are {known}")
        default = names[:count] == _DEFAULT_ACTIVATIONS[kind]
        activations = [_ACTIVATIONS[name] for name in names[:count]]
        before = not attributes.get("linear_before_reset", 0)
        special = (kind == "GRU" and before) or self.peepholes is not None or attributes.get("input_forget")
        if kind == "RNN" and activations[0] in ("tanh", "relu"):
            return cells.RNN(activations[0])
        if not default and (special or kind == "RNN"):
            raise ExportError(f"from_onnx: node {self.name} ({kind}) has activations {names}, which this cell lacks")
        if kind == "GRU":
            if default:
                return cells.GRUv1() if before else cells.GRU()
            return cells.ActivatedGRU(*activations)
        if attributes.get("input_forget"):
            if self.peepholes is not None and self.peepholes.any():
                raise ExportError(f"from_onnx: node {self.name} has peepholes and coupled gates, which no cell has")
            return cells.CIFG()
        if self.peepholes is not None:
            return cells.PeepholeLSTM()
        return cells.LSTM() if default else cells.ActivatedLSTM(*activations)

    @property
    def directions(self) -> Iterator[dict[str, torch.Tensor]]:
        """The parameters of each direction, by the names of `Cell.shapes`."""
        onnx_gates = _GATES[self.kind]

        def by_gate(rows: np.ndarray) -> np.ndarray:
            blocks = dict(zip(onnx_gates, np.split(rows, len(onnx_gates)), strict=True))
            if isinstance(self.cell, cells.CIFG):  # runtimes compute the forget gate from the input gate
                blocks["f"] = -blocks["i"]
            return np.concatenate([blocks[gate] for gate in self.cell.gates])

        W, R = self.weights
        assert W is not None
        assert R is not None
        for d in range(W.shape[0]):
            parameters = {"weight_ih": by_gate(W[d]), "weight_hh": by_gate(R[d])}
            if self.bias is not None:
                halves = np.split(self.bias[d], 2)
                parameters |= {"bias_ih": by_gate(halves[0]), "bias_hh": by_gate(halves[1])}
            if isinstance(self.cell, cells.PeepholeLSTM) and self.peepholes is not None:
                i, o, f = np.split(self.peepholes[d], 3)
                parameters |= {"peep_i": i, "peep_o": o, "peep_f": f}
            yield {name: torch.from_numpy(value) for name, value in parameters.items()}


def _layers(nodes: list[_Node]) -> Iterator[tuple[str, Recurrent]]:
    """The layer of each node. A reverse node is part of the layer of its forward node."""
    taken: set[int] = set()
    for node in nodes:
        if id(node) in taken:
            continue
        both = [node]
        if node.direction == "forward":
            alike = (
                other
                for other in nodes
                if other.direction == "reverse" and other.x is node.x and type(other.cell) is type(node.cell)
            )
            both += [other for other in alike if id(other) not in taken][:1]
        taken |= {id(each) for each in both}
        yield node.name, _layer(both)


@torch.no_grad()
def _layer(nodes: list[_Node]) -> Recurrent:
    node = nodes[0]
    directions = [direction for each in nodes for direction in each.directions]
    sizes = [direction["weight_ih"].shape[0] // len(node.cell.gates) for direction in directions]
    width = directions[0]["weight_ih"].shape[1]
    options: dict[str, Any] = {
        "bias": "bias_ih" in directions[0],
        "batch_first": node.batch_first,
        "bidirectional": len(directions) == 2,
        "dtype": directions[0]["weight_ih"].dtype,
    }
    hidden: Any = sizes[0] if len(set(sizes)) == 1 else tuple(sizes)
    plain: dict[type[Cell], Any] = {cells.RNN: RNN, cells.GRU: GRU, cells.LSTM: LSTM}
    kind = plain.get(type(node.cell))
    if kind is None:
        layer = Recurrent(node.cell, width, hidden, **options)
    else:
        layer = kind(width, hidden, cell=node.cell, **options)
    for (_, weights), parameters in zip(layer.weights(), directions, strict=True):
        for name, value in parameters.items():
            weights[name].copy_(value)
    return layer.eval()
