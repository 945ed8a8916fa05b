"""ONNX Runtime on the processor."""

import os

import numpy as np
import onnxruntime

from benchmarks.peers import onnx_model
from benchmarks.work import Work


class Session:
    """One session with fixed sizes."""

    def __init__(self, work: Work) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
        self.session = onnxruntime.InferenceSession(onnx_model.model(work), options, ["CPUExecutionProvider"])
        self.inputs, self.names = onnx_model.inputs(work), ["output", "h_n", "c_n"]

    def run(self) -> list[np.ndarray]:
        """One forward pass."""
        return self.session.run(self.names, self.inputs)

    def results(self) -> dict[str, np.ndarray]:
        """The outputs."""
        return dict(zip(self.names, self.run(), strict=True))


def prepare(work: Work) -> Session:
    """ONNX Runtime's subject."""
    return Session(work)
