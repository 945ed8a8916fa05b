"""OpenVINO on the processor, in float32."""

import os
from typing import Any

import numpy as np
import openvino

from benchmarks.peers import onnx_model
from benchmarks.work import Work


class Request:
    """One compiled model with fixed sizes and one request to it."""

    def __init__(self, work: Work) -> None:
        self.names = onnx_model.outputs(work)
        core = openvino.Core()
        model = core.read_model(onnx_model.model(work))
        settings = {
            "INFERENCE_NUM_THREADS": int(os.environ["OMP_NUM_THREADS"]),
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        }
        self.request = core.compile_model(model, "CPU", settings).create_infer_request()
        for name, value in onnx_model.inputs(work).items():
            self.request.set_tensor(name, openvino.Tensor(value))

    def run(self) -> Any:
        """One forward pass."""
        return self.request.infer()

    def results(self) -> dict[str, np.ndarray]:
        """The outputs."""
        self.run()
        return {name: self.request.get_tensor(name).data.copy() for name in self.names}


def prepare(work: Work) -> Request:
    """OpenVINO's subject."""
    return Request(work)
