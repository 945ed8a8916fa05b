"""ONNX Runtime on the processor: in float32, or with weights of int8 by its own dynamic quantisation."""

import os
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

from benchmarks.peers import onnx_model
from benchmarks.work import Work


class Session:
    """One session with fixed sizes."""

    def __init__(self, work: Work) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
        model = onnx_model.model(work)
        model = _quantised(model) if work.precision == "int8" else model
        self.session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
        self.inputs, self.names = onnx_model.inputs(work), onnx_model.outputs(work)

    def run(self) -> list[np.ndarray]:
        """One forward pass."""
        return self.session.run(self.names, self.inputs)

    def results(self) -> dict[str, np.ndarray]:
        """The outputs."""
        return dict(zip(self.names, self.run(), strict=True))


def _quantised(model: bytes) -> bytes:
    """One scale per matrix: with one per row, the results of ONNX Runtime 1.31 are off by a third."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "float32.onnx", Path(folder) / "int8.onnx"
        before.write_bytes(model)
        quantize_dynamic(before, after, weight_type=QuantType.QInt8)
        return after.read_bytes()


def prepare(work: Work) -> Session:
    """ONNX Runtime's subject."""
    return Session(work)
