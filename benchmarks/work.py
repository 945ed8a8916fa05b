"""What is computed: one layer's sizes, cell and task, the same for every contender; and its numbers, drawn by name."""

import zlib
from dataclasses import dataclass, replace

import numpy as np

LONG = 20_000
"""Steps from which a work is checked by its end alone."""

CHECKED_FLOPS = 3e11
"""Above this a work is checked on its first steps: float64 would take minutes."""

SQUARE = 2048
"""Rows and columns of the processor's own large matrix product."""

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@dataclass(frozen=True)
class Work:
    """One thing to compute, and who computes it."""

    L: int
    N: int
    H: int
    D: int = 0
    """Features of the input; 0 is H."""
    peer: str = "ours"
    """A module of benchmarks.peers."""
    do: str = "training"
    """"training" (forward and backward, to the input too), "model" (a training step of a language model around it),
    "inference", or "step" (one step of a stream)."""
    cell: str = "LSTM"
    dtype: str = "float32"
    autocast: bool = False
    """To bfloat16."""
    layers: int = 1
    bidirectional: bool = False
    proj: int = 0
    ragged: bool = False
    """Packed, lengths uniform in [L/10, L]."""
    resets: float = 0.0
    """Probability of a reset at each step and row."""
    options: tuple[tuple[str, float | str], ...] = ()
    """More keyword arguments of our layer."""
    record: bool = False
    engine: str = "cpu"
    """Which of our engines, where the peer is ours."""
    precision: str = ""
    """Of a session of ours, or of ONNX Runtime's; empty for the layer itself and for a runtime's own."""
    scale: float = 1.0
    """The figure compares the time of one run times this factor."""

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
        """Of the matrix products of a plain cell, by the textbook."""
        gates, out = GATES.get(self.cell, 4), self.proj or self.H
        total, wide = 0.0, self.inputs
        for _ in range(self.layers):
            total += self.directions * 2.0 * self.L * self.N * (gates * self.H * (wide + out) + self.proj * self.H)
            wide = self.directions * out
        return total * (3 if self.do in ("training", "model") else 1)

    def checked(self) -> "Work":
        """The work that the check uses: this one, or as many of its first steps as float64 can compute in time."""
        if self.flops <= CHECKED_FLOPS or self.L > LONG:
            return self
        return replace(self, L=max(4, int(self.L * CHECKED_FLOPS / self.flops)))

    def problem(self) -> "Work":
        """The same for all contenders that must give the same numbers."""
        return replace(self, peer="ours", engine="reference", dtype="float64", record=False, precision="", scale=1.0)


def draw(name: str, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Standard normal numbers times `scale`, the same for every contender: name and shape alone decide them."""
    numbers = _generator(name).standard_normal(shape, np.float32)
    return numbers if scale == 1.0 else (numbers * np.float32(scale))


def weight(name: str, H: int, *shape: int) -> np.ndarray:
    """A weight or bias: of scale 1 / sqrt(H)."""
    return draw(name, *shape, scale=H**-0.5)


def lengths(work: Work) -> np.ndarray:
    """(N,): uniform in [L/10, L]."""
    return _generator("lengths").integers(max(1, work.L // 10), work.L + 1, work.N)


def resets(work: Work) -> np.ndarray:
    """(L, N) bool."""
    return _generator("resets").random((work.L, work.N)) < work.resets


def _generator(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))
