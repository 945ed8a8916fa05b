"""Long short-term memory (Hochreiter and Schmidhuber 1997; forget gate: Gers et al. 2000) and its variants.

In the equations, `...` is the pre-activation of the gate, W_ih x + b_ih + W_hh h_prev + b_hh.
"""

from typing import Any

import torch
from torch import sigmoid, tanh

from glassgate.cell import Cell, Parameter
from glassgate.cells.activations import activation


class LSTM(Cell):
    """The LSTM with a forget gate (Gers, Schmidhuber and Cummins 2000), as in `torch.nn.LSTM`.

    i, f, o = sigmoid(...),  g = tanh(...),  c = f c_prev + i g,  h = o tanh(c)
    """

    gates = ("i", "f", "g", "o")
    state = ("h", "c")

    def step(self, a, s):
        i, f, g, o = sigmoid(a.i), sigmoid(a.f), tanh(a.g), sigmoid(a.o)
        c = f * s.c + i * a.update(g)
        return o * tanh(c), c


class PeepholeLSTM(Cell):
    """An LSTM with peepholes: each gate also reads the cell state of its unit (Gers et al. 2002).

    i = sigmoid(... + peep_i c_prev),  f = sigmoid(... + peep_f c_prev),  g = tanh(...),  c = f c_prev + i g,
    o = sigmoid(... + peep_o c),  h = o tanh(c)
    """

    gates = ("i", "f", "g", "o")
    state = ("h", "c")
    parameters = {"peep_i": Parameter(), "peep_f": Parameter(), "peep_o": Parameter()}

    def step(self, a, s, p):
        i, f, g = sigmoid(a.i + p.peep_i * s.c), sigmoid(a.f + p.peep_f * s.c), tanh(a.g)
        c = f * s.c + i * a.update(g)
        o = sigmoid(a.o + p.peep_o * c)
        return o * tanh(c), c


class CIFG(Cell):
    """An LSTM with a coupled input and forget gate (Greff et al. 2017, arXiv:1503.04069): the input gate is 1 - f.

    f, o = sigmoid(...),  g = tanh(...),  c = f c_prev + (1 - f) g,  h = o tanh(c)
    """

    gates = ("f", "g", "o")
    state = ("h", "c")

    def step(self, a, s):
        f, g, o = sigmoid(a.f), tanh(a.g), sigmoid(a.o)
        c = f * s.c + (1 - f) * a.update(g)
        return o * tanh(c), c


class ClippedLSTM(Cell):
    """An LSTM whose cell state and projected output are clipped (Sak et al. 2014, arXiv:1402.1128; ELMo 2018).

    c = clip(f c_prev + i g),  h = clip(W_hr (o tanh(c))), or h = o tanh(c) without a projection

    Args:
        cell_clip: the largest absolute value of a cell state.
        proj_clip: the largest absolute value of a projected output.
    """

    gates = ("i", "f", "g", "o")
    state = ("h", "c")

    def __init__(self, cell_clip: float = 3.0, proj_clip: float = 3.0) -> None:
        for name, value in (("cell_clip", cell_clip), ("proj_clip", proj_clip)):
            if not value > 0:
                raise ValueError(f"ClippedLSTM: {name} must be positive, got {value!r}")
        self.cell_clip, self.proj_clip = cell_clip, proj_clip

    def step(self, a, s):
        i, f, g, o = sigmoid(a.i), sigmoid(a.f), tanh(a.g), sigmoid(a.o)
        c = torch.clamp(f * s.c + i * a.update(g), -self.cell_clip, self.cell_clip)
        return o * tanh(c), c

    def project(self, h: Any) -> Any:
        """Clip the projected output."""
        return torch.clamp(h, -self.proj_clip, self.proj_clip)


class ActivatedLSTM(Cell):
    """An LSTM with activations other than sigmoid and tanh, given by their names in `torch.nn.functional`.

    i, f, o = gate(...),  g = new(...),  c = f c_prev + i g,  h = o output(c)

    Args:
        gate: the activation of i, f and o.
        new: the activation of the candidate g.
        output: the activation of c in the output.
    """

    gates = ("i", "f", "g", "o")
    state = ("h", "c")

    def __init__(self, gate: str = "hardsigmoid", new: str = "tanh", output: str = "tanh") -> None:
        self.gate, self.new, self.output = gate, new, output
        for name in (gate, new, output):
            activation("ActivatedLSTM", name)

    def step(self, a, s):
        gate, new, output = (activation("ActivatedLSTM", name) for name in (self.gate, self.new, self.output))
        i, f, g, o = gate(a.i), gate(a.f), new(a.g), gate(a.o)
        c = f * s.c + i * a.update(g)
        return o * output(c), c
