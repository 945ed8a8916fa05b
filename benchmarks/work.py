"""A work: the layer, sizes and task that all contenders compute; and its random numbers, derived from their names."""

import zlib
from dataclasses import dataclass, replace

import numpy as np

LONG = 20_000
"""Works with more steps are checked only at their last steps."""

CHECKED_FLOPS = 3e11
"""Works with more operations are checked only on their first steps, because float64 would take minutes."""

SQUARE = 2048
"""Rows and columns of torch's large matrix product."""

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@dataclass(frozen=True)
class Work:
    """A computation and the peer that runs it."""

    L: int
    N: int
    H: int
    D: int = 0
    """Features of the input; 0 stands for H."""
    peer: str = "ours"
    """A module of benchmarks.peers."""
    do: str = "training"
    """"training" (forward and backward, to the input too), "model" (a training step of a language model around it),
    "inference", or "step" (one step of a stream)."""
    cell: str = "LSTM"
    dtype: str = "float32"
    autocast: bool = False
    """Whether it runs under autocast to bfloat16."""
    layers: int = 1
    bidirectional: bool = False
    proj: int = 0
    ragged: bool = False
    """Whether sequences are packed, with lengths uniform in [L/10, L]."""
    padded: bool = False
    """Whether the layer of Glassgate gets such lengths by `lengths=`; the sequences are padded."""
    resets: float = 0.0
    """Probability of a reset at each step and row."""
    options: tuple[tuple[str, float | str], ...] = ()
    """Further keyword arguments of the layer of Glassgate."""
    record: bool = False
    engine: str = "cpu"
    """The engine, if the peer is "ours"."""
    precision: str = ""
    """Precision of a session or of ONNX Runtime; empty for a layer, and for the default of a runtime."""
    scale: float = 1.0
    """A factor for the time of one run."""

    @property
    def inputs(self) -> int:
        """H_in."""
        return self.D or self.H

    @property
    def directions(self) -> int:
        """D: 2 if bidirectional, else 1."""
        return 2 if self.bidirectional else 1

    @property
    def flops(self) -> float:
        """Operations of the matrix products of a plain cell."""
        gates, out = GATES.get(self.cell, 4), self.proj or self.H
        total, wide = 0.0, self.inputs
        for _ in range(self.layers):
            total += self.directions * 2.0 * self.L * self.N * (gates * self.H * (wide + out) + self.proj * self.H)
            wide = self.directions * out
        return total * (3 if self.do in ("training", "model") else 1)

    def checked(self) -> "Work":
        """Return the work that the check uses: this one, or as many of its first steps as float64 computes in time."""
        if self.flops <= CHECKED_FLOPS or self.L > LONG:
            return self
        return replace(self, L=max(4, int(self.L * CHECKED_FLOPS / self.flops)))

    def problem(self) -> "Work":
        """Return the key of the expected results: equal for all contenders that must return the same numbers."""
        return replace(self, peer="ours", engine="reference", dtype="float64", record=False, precision="", scale=1.0)


def draw(name: str, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Return standard normal numbers times `scale`. They depend only on name and shape."""
    numbers = _generator(name).standard_normal(shape, np.float32)
    return numbers if scale == 1.0 else (numbers * np.float32(scale))


def weight(name: str, H: int, *shape: int) -> np.ndarray:
    """Return a weight or bias of scale 1 / sqrt(H)."""
    return draw(name, *shape, scale=H**-0.5)


def lengths(work: Work) -> np.ndarray:
    """(N,): uniform in [L/10, L]."""
    return _generator("lengths").integers(max(1, work.L // 10), work.L + 1, work.N)


def resets(work: Work) -> np.ndarray:
    """(L, N) bool."""
    return _generator("resets").random((work.L, work.N)) < work.resets


def _generator(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))
