"""An LSTM or a GRU as an ONNX model, for ONNX Runtime and OpenVINO."""

from typing import Any

import numpy as np
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

from experiments.speed.workload import Workload, draw, weight

ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}
"""The indices of PyTorch's gates (i, f, g, o and r, z, n) in the order of ONNX."""
STATES = {"LSTM": ("h", "c"), "GRU": ("h",)}


def model(workload: Workload) -> bytes:
    """Return a model of one layer in one direction, from input and initial states to output and final states."""
    H, D = workload.H, workload.inputs

    def stored(name: str, value: np.ndarray) -> TensorProto:
        return numpy_helper.from_array(value[None], name)

    def port(name: str, *shape: int) -> ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    def gates(name: str, *shape: int) -> np.ndarray:
        order = ORDER[workload.cell]
        parts = np.split(weight(name, H, len(order) * H, *shape), len(order))
        return np.concatenate([parts[k] for k in order])

    state, axis = (1, workload.N, H), numpy_helper.from_array(np.array([1]), "axis")
    weights = [stored("W", gates("weight_ih_l0", D)), stored("R", gates("weight_hh_l0", H)), axis]
    weights.append(stored("B", np.concatenate([gates("bias_ih_l0"), gates("bias_hh_l0")])))
    initial, final = ([f"{name}_{end}" for name in STATES[workload.cell]] for end in "0n")
    attributes: dict[str, Any] = {"linear_before_reset": 1} if workload.cell == "GRU" else {}
    names = ["input", "W", "R", "B", "", *initial]
    nodes = [
        helper.make_node(workload.cell, names, ["by_direction", *final], hidden_size=H, **attributes),
        helper.make_node("Squeeze", ["by_direction", "axis"], ["output"]),
    ]
    graph = helper.make_graph(
        nodes,
        workload.cell.lower(),
        [port("input", workload.L, workload.N, D), *[port(name, *state) for name in initial]],
        [port("output", workload.L, workload.N, H), *[port(name, *state) for name in final]],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def inputs(workload: Workload) -> dict[str, np.ndarray]:
    """Return the inputs of the model by name."""
    state = (1, workload.N, workload.H)
    states = {f"{name}_0": draw(f"{name}_0", *state) for name in STATES[workload.cell]}
    return {"input": draw("input", workload.L, workload.N, workload.inputs), **states}


def outputs(workload: Workload) -> list[str]:
    """Return the names of the outputs of the model."""
    return ["output", *[f"{name}_n" for name in STATES[workload.cell]]]
