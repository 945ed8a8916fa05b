"""An LSTM layer in four equivalent variants, from the equations gate by gate to the generated kernel.

Each function takes an input `x` (L, N, H_in), and `w`, a `torch.nn.LSTM` or `gg.LSTM` of one layer, whose weights it
reads. It returns the output (L, N, H).
"""

from typing import Any

import torch
from torch import Tensor, nn


def gate_by_gate(x: Tensor, w: Any) -> Tensor:
    """Compute eight matrix products per step: for each gate, one with the input and one with the state."""
    W_i, W_f, W_g, W_o = w.weight_ih_l0.chunk(4)
    U_i, U_f, U_g, U_o = w.weight_hh_l0.chunk(4)
    b_i, b_f, b_g, b_o = (w.bias_ih_l0 + w.bias_hh_l0).chunk(4)
    h = c = x.new_zeros(x.shape[1], w.hidden_size)
    outputs = []
    for x_t in x:
        i = torch.sigmoid(x_t @ W_i.T + h @ U_i.T + b_i)
        f = torch.sigmoid(x_t @ W_f.T + h @ U_f.T + b_f)
        g = torch.tanh(x_t @ W_g.T + h @ U_g.T + b_g)
        o = torch.sigmoid(x_t @ W_o.T + h @ U_o.T + b_o)
        c = f * c + i * g
        h = o * torch.tanh(c)
        outputs.append(h)
    return torch.stack(outputs)


def fused_gates(x: Tensor, w: Any) -> Tensor:
    """Compute two matrix products per step. The weights of all gates form one matrix."""
    h = c = x.new_zeros(x.shape[1], w.hidden_size)
    outputs = []
    for x_t in x:
        gates = x_t @ w.weight_ih_l0.T + w.bias_ih_l0 + h @ w.weight_hh_l0.T + w.bias_hh_l0
        i, f, g, o = gates.chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return torch.stack(outputs)


def input_first(x: Tensor, w: Any) -> Tensor:
    """Compute one matrix product per step. The product with the inputs of all steps precedes the loop."""
    input_gates = nn.functional.linear(x, w.weight_ih_l0, w.bias_ih_l0 + w.bias_hh_l0)
    h = c = x.new_zeros(x.shape[1], w.hidden_size)
    outputs = []
    for gates_t in input_gates:
        i, f, g, o = (gates_t + h @ w.weight_hh_l0.T).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return torch.stack(outputs)


def printed_kernel(x: Tensor, w: Any) -> Tensor:
    """Run the layer itself. The kernel of a `gg.LSTM` is the one that `gg.source` prints."""
    output, _ = w(x)
    return output
