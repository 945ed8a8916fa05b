"""A workload is a computation of a layer that a peer runs. Its random numbers depend only on their names.

A peer is a program that the benchmarks compare. Each peer is a module of `experiments.speed.peers`.
"""

import zlib
from dataclasses import dataclass, replace

import numpy as np

LONG = 20_000
"""Workloads with more steps are checked only at their last steps."""

CHECKED_FLOPS = 3e11
"""Workloads with more operations are checked only on their first steps, because float64 would take minutes."""

SQUARE = 2048
"""The number of rows and columns of the large matrix product."""

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""The number of gates of each cell; 4 for other cells."""


@dataclass(frozen=True)
class Workload:
    """A computation and the peer that runs it. L is the number of steps, N of sequences, and H of units."""

    L: int
    N: int
    H: int
    D: int = 0
    """The number of input features; 0 means H."""
    peer: str = "ours"
    """A module of experiments.speed.peers."""
    do: str = "training"
    """The kind of computation: "training" (forward and backward, with the gradient of the input), "model" (a training
    step of a language model with the layer), "inference", or "step" (one step of a stream)."""
    cell: str = "LSTM"
    dtype: str = "float32"
    autocast: bool = False
    """Whether the layer runs under autocast to bfloat16."""
    layers: int = 1
    bidirectional: bool = False
    proj: int = 0
    ragged: bool = False
    """Whether sequences are packed, with lengths uniform in [L/10, L]."""
    padded: bool = False
    """Whether sequences are padded, with the lengths of `ragged`. Only Glassgate gets these lengths, by `lengths=`."""
    resets: float = 0.0
    """The probability of a reset at each step of each sequence."""
    options: tuple[tuple[str, float | str], ...] = ()
    """Further keyword arguments of the layer of Glassgate."""
    record: bool = False
    """Whether the layer is called inside `gg.record`."""
    engine: str = "cpu"
    """The engine, if the peer is "ours"."""
    precision: str = ""
    """The precision of a session or of ONNX Runtime; empty for a layer or the default of a runtime."""
    scale: float = 1.0
    """The factor by which the time of one run is multiplied."""

    @property
    def inputs(self) -> int:
        """The number of input features, H_in."""
        return self.D or self.H

    @property
    def directions(self) -> int:
        """The number of directions."""
        return 2 if self.bidirectional else 1

    @property
    def flops(self) -> float:
        """The number of operations in the matrix products."""
        gates, out = GATES.get(self.cell, 4), self.proj or self.H
        total, width = 0.0, self.inputs
        for _ in range(self.layers):
            total += self.directions * 2.0 * self.L * self.N * (gates * self.H * (width + out) + self.proj * self.H)
            width = self.directions * out
        return total * (3 if self.do in ("training", "model") else 1)

    def checked(self) -> "Workload":
        """Return the workload for the check: this one, or its first steps if it has too many operations."""
        if self.flops <= CHECKED_FLOPS or self.L > LONG:
            return self
        return replace(self, L=max(4, int(self.L * CHECKED_FLOPS / self.flops)))

    def problem(self) -> "Workload":
        """Return the workload of the reference. It is equal for all contenders that must return the same numbers."""
        return replace(self, peer="ours", engine="reference", dtype="float64", record=False, precision="", scale=1.0)


def draw(name: str, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Draw standard normal numbers times `scale`. They depend only on the name and the shape."""
    numbers = _generator(name).standard_normal(shape, np.float32)
    return numbers if scale == 1.0 else (numbers * np.float32(scale))


def weight(name: str, H: int, *shape: int) -> np.ndarray:
    """Draw a weight or bias of scale 1 / sqrt(H)."""
    return draw(name, *shape, scale=H**-0.5)


def lengths(workload: Workload) -> np.ndarray:
    """Draw the lengths of sequences, (N,), uniform in [L/10, L]."""
    return _generator("lengths").integers(max(1, workload.L // 10), workload.L + 1, workload.N)


def resets(workload: Workload) -> np.ndarray:
    """Draw the mask of resets, (L, N) bool."""
    return _generator("resets").random((workload.L, workload.N)) < workload.resets


def _generator(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))
