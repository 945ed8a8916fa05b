"""OpenVINO on the CPU, in float32."""

import os
from typing import Any

import numpy as np
import openvino

from experiments.speed.peers import onnx_model
from experiments.speed.workload import Workload


class Request:
    """A compiled model with fixed sizes, and its inference request."""

    def __init__(self, workload: Workload) -> None:
        self.names = onnx_model.outputs(workload)
        core = openvino.Core()
        model = core.read_model(onnx_model.model(workload))
        settings = {
            "INFERENCE_NUM_THREADS": int(os.environ["OMP_NUM_THREADS"]),
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        }
        self.request = core.compile_model(model, "CPU", settings).create_infer_request()
        for name, value in onnx_model.inputs(workload).items():
            self.request.set_tensor(name, openvino.Tensor(value))

    def run(self) -> Any:
        """Compute one forward pass."""
        return self.request.infer()

    def results(self) -> dict[str, np.ndarray]:
        """Return the outputs by name."""
        self.run()
        return {name: self.request.get_tensor(name).data.copy() for name in self.names}


def prepare(workload: Workload) -> Request:
    """Return the workload for OpenVINO."""
    return Request(workload)
