"""An LSTM as an ONNX graph, for the runtimes that read one."""

import numpy as np
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

from benchmarks.work import Work, draw, weight


def model(work: Work) -> bytes:
    """One layer, one direction: input, h_0, c_0 to output, h_n, c_n."""
    H, D = work.H, work.inputs

    def stored(name: str, value: np.ndarray) -> TensorProto:
        return numpy_helper.from_array(value[None], name)

    def port(name: str, *shape: int) -> ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    def gates(name: str, *shape: int) -> np.ndarray:
        i, f, g, o = np.split(weight(name, H, 4 * H, *shape), 4)
        return np.concatenate([i, o, f, g])

    state, axis = (1, work.N, H), numpy_helper.from_array(np.array([1]), "axis")
    weights = [stored("W", gates("weight_ih_l0", D)), stored("R", gates("weight_hh_l0", H)), axis]
    weights.append(stored("B", np.concatenate([gates("bias_ih_l0"), gates("bias_hh_l0")])))
    names = ["input", "W", "R", "B", "", "h_0", "c_0"]
    nodes = [
        helper.make_node("LSTM", names, ["by_direction", "h_n", "c_n"], hidden_size=H),
        helper.make_node("Squeeze", ["by_direction", "axis"], ["output"]),
    ]
    graph = helper.make_graph(
        nodes,
        "lstm",
        [port("input", work.L, work.N, D), port("h_0", *state), port("c_0", *state)],
        [port("output", work.L, work.N, H), port("h_n", *state), port("c_n", *state)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def inputs(work: Work) -> dict[str, np.ndarray]:
    """The graph's inputs by name."""
    state = (1, work.N, work.H)
    return {
        "input": draw("input", work.L, work.N, work.inputs),
        "h_0": draw("h_0", *state),
        "c_0": draw("c_0", *state),
    }
