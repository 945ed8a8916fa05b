"""Reads the weights of nodes of ONNX models, also if other nodes compute them from fixed numbers.

Exporters reorder, join, convert or dequantise weights with nodes. ONNX Runtime computes these nodes.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
from onnx import helper

from glassgate.export.errors import ExportError

_RANDOM = frozenset({"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"})
_RANDOM |= {"Bernoulli", "Dropout"}


class Weights:
    """The fixed values of a model.

    Args:
        model: the model, without local functions.
    """

    def __init__(self, model: ir.Model) -> None:
        self._opsets, self._ir_version = model.opset_imports, model.ir_version

    def read(self, value: Any, where: str) -> np.ndarray | None:
        """Return a value as an array; None if it depends on inputs of the model or on random numbers.

        Args:
            value: an `onnx_ir.Value`.
            where: the part of the model, for errors.

        Raises:
            ExportError: the stored numbers cannot be read, or a node cannot be computed.
        """
        nodes = _ancestors(value)
        if nodes is None:
            return None
        try:
            array: np.ndarray = self._compute(value, nodes) if nodes else value.const_value.numpy()
            return array
        except Exception as error:  # files of weights and operators of any kind fail in different ways
            text = str(error).partition("\n")[0]
            raise ExportError(f"from_onnx: {where} cannot be read ({type(error).__name__}: {text})") from error

    def _compute(self, value: Any, nodes: list[Any]) -> np.ndarray:
        fixed = {v.name: v for node in nodes for v in node.inputs if v is not None and v.const_value is not None}
        # `ir.tensor` copies numbers that are stored in another file into the model.
        tensors = [
            ir.to_proto(ir.tensor(v.const_value.numpy(), dtype=v.const_value.dtype, name=name))
            for name, v in fixed.items()
        ]
        output = helper.make_empty_tensor_value_info(value.name)
        graph = helper.make_graph([ir.to_proto(node) for node in nodes], "weights", [], [output], tensors)
        opsets = [helper.make_opsetid(domain, version) for domain, version in self._opsets.items()]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=self._ir_version)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # errors become exceptions
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        return np.asarray(session.run(None, {})[0])


def _ancestors(value: Any) -> list[Any] | None:
    """The nodes that compute a value from fixed numbers, in order; None if it depends on anything else."""
    found: dict[Any, None] = {}
    pending: list[tuple[Any, bool]] = [(value, False)]
    while pending:
        v, is_done = pending.pop()
        node = v.producer()
        if is_done:
            found.setdefault(node)
            continue
        if v.const_value is not None or (node is not None and node in found):
            continue
        if node is None or node.op_type in _RANDOM or any(_graphs(node)):
            return None
        pending.append((v, True))
        pending += [(v, False) for v in node.inputs if v is not None]
    return [*found]


def _graphs(node: Any) -> Iterator[bool]:
    """Whether each attribute of a node is a graph, as in a loop."""
    return (attribute.type.name in ("GRAPH", "GRAPHS") for attribute in node.attributes.values())
