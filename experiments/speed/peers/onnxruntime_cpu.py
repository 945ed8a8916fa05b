"""ONNX Runtime on the CPU, in float32 or with its own dynamic quantisation to int8."""

import os
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

from experiments.speed.peers import onnx_model
from experiments.speed.workload import Workload


class Session:
    """A session with fixed sizes."""

    def __init__(self, workload: Workload) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
        model = onnx_model.model(workload)
        model = _quantise(model) if workload.precision == "int8" else model
        self.session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
        self.inputs, self.names = onnx_model.inputs(workload), onnx_model.outputs(workload)

    def run(self) -> list[np.ndarray]:
        """Compute one forward pass."""
        return self.session.run(self.names, self.inputs)

    def results(self) -> dict[str, np.ndarray]:
        """Return the outputs by name."""
        return dict(zip(self.names, self.run(), strict=True))


def _quantise(model: bytes) -> bytes:
    """Quantise a model with one scale per matrix. With one per row, the error of ONNX Runtime 1.31 is a third."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "float32.onnx", Path(folder) / "int8.onnx"
        before.write_bytes(model)
        quantize_dynamic(before, after, weight_type=QuantType.QInt8)
        return after.read_bytes()


def prepare(workload: Workload) -> Session:
    """Return the workload for ONNX Runtime."""
    return Session(workload)
