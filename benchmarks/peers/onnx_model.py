"""An LSTM or a GRU as an ONNX graph, for the runtimes that read one."""

import numpy as np
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

from benchmarks.work import Work, draw, weight

ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}
"""PyTorch's gates i, f, g, o and r, z, n in the order of ONNX."""
STATES = {"LSTM": ("h", "c"), "GRU": ("h",)}


def model(work: Work) -> bytes:
    """One layer, one direction: input and initial states to output and final states."""
    H, D = work.H, work.inputs

    def stored(name: str, value: np.ndarray) -> TensorProto:
        return numpy_helper.from_array(value[None], name)

    def port(name: str, *shape: int) -> ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    def gates(name: str, *shape: int) -> np.ndarray:
        order = ORDER[work.cell]
        parts = np.split(weight(name, H, len(order) * H, *shape), len(order))
        return np.concatenate([parts[k] for k in order])

    state, axis = (1, work.N, H), numpy_helper.from_array(np.array([1]), "axis")
    weights = [stored("W", gates("weight_ih_l0", D)), stored("R", gates("weight_hh_l0", H)), axis]
    weights.append(stored("B", np.concatenate([gates("bias_ih_l0"), gates("bias_hh_l0")])))
    first, last = ([f"{name}_{end}" for name in STATES[work.cell]] for end in "0n")
    own = {"linear_before_reset": 1} if work.cell == "GRU" else {}
    names = ["input", "W", "R", "B", "", *first]
    nodes = [
        helper.make_node(work.cell, names, ["by_direction", *last], hidden_size=H, **own),
        helper.make_node("Squeeze", ["by_direction", "axis"], ["output"]),
    ]
    graph = helper.make_graph(
        nodes,
        work.cell.lower(),
        [port("input", work.L, work.N, D), *[port(name, *state) for name in first]],
        [port("output", work.L, work.N, H), *[port(name, *state) for name in last]],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def inputs(work: Work) -> dict[str, np.ndarray]:
    """The graph's inputs by name."""
    state = (1, work.N, work.H)
    states = {f"{name}_0": draw(f"{name}_0", *state) for name in STATES[work.cell]}
    return {"input": draw("input", work.L, work.N, work.inputs), **states}


def outputs(work: Work) -> list[str]:
    """The names of the graph's outputs."""
    return ["output", *[f"{name}_n" for name in STATES[work.cell]]]
