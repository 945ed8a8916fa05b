"""An LSTM cell with one module per gate, for teaching. Each gate is a linear layer of [x, h] with an activation."""

import torch
from torch import Tensor, nn

from glassgate.layers import cells


class Gate(nn.Module):
    """The base class of gates: sigmoid(W [x, h] + b), a number between 0 (closed) and 1 (open) for each unit.

    Args:
        input_size: H_in.
        hidden_size: H.
        bias: whether the gate has a bias b.

    Shapes:
        x: (N, H_in) or (H_in).
        h_prev: (N, H) or (H).
        output: like h_prev.
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(input_size + hidden_size, hidden_size, bias)

    def forward(self, x: Tensor, h_prev: Tensor) -> Tensor:
        """Return the activation of the gate, (N, H)."""
        return torch.sigmoid(self.linear(torch.cat([x, h_prev], -1)))


class InputGate(Gate):
    """i = sigmoid(W_i [x, h] + b_i): the fraction of the candidate that is written to the cell state."""


class ForgetGate(Gate):
    """f = sigmoid(W_f [x, h] + b_f): the fraction of the cell state that is kept (Gers et al. 2000)."""


class OutputGate(Gate):
    """o = sigmoid(W_o [x, h] + b_o): the fraction of tanh(c) that becomes the output h."""


class CellStateUpdater(nn.Module):
    """Updates the cell state: c = f c_prev + i g, with the candidate g = tanh(W_g [x, h] + b_g).

    Args:
        input_size: H_in.
        hidden_size: H.
        bias: whether the candidate has a bias b_g.
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(input_size + hidden_size, hidden_size, bias)

    def candidate(self, x: Tensor, h_prev: Tensor) -> Tensor:
        """Return the candidate g, (N, H), between -1 and 1."""
        return torch.tanh(self.linear(torch.cat([x, h_prev], -1)))

    def forward(self, x: Tensor, h_prev: Tensor, c_prev: Tensor, i: Tensor, f: Tensor) -> Tensor:
        """Return the new cell state, (N, H), from the gates i and f, each (N, H)."""
        return f * c_prev + i * self.candidate(x, h_prev)


class LSTMCell(nn.Module):
    """An LSTM cell that consists of its gates. It computes the same as `gg.LSTMCell` and `torch.nn.LSTMCell`.

    Args:
        input_size: H_in.
        hidden_size: H.
        bias: whether the gates have biases.

    Example:
        >>> import torch, glassgate as gg
        >>> cell = gg.gates.LSTMCell(3, 4)
        >>> x, h, c = torch.randn(2, 3), torch.zeros(2, 4), torch.zeros(2, 4)
        >>> h, c = cell(x, h, c)
        >>> torch.allclose(h, cell.to_fused()(x, (torch.zeros(2, 4), torch.zeros(2, 4)))[0], atol=1e-6)
        True
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self.input_gate = InputGate(input_size, hidden_size, bias)
        self.forget_gate = ForgetGate(input_size, hidden_size, bias)
        self.cell_state = CellStateUpdater(input_size, hidden_size, bias)
        self.output_gate = OutputGate(input_size, hidden_size, bias)

    def forward(self, x: Tensor, h_prev: Tensor, c_prev: Tensor) -> tuple[Tensor, Tensor]:
        """Compute one step.

        Args:
            x: (N, H_in).
            h_prev: (N, H).
            c_prev: (N, H).

        Returns:
            h and c, (N, H) each.
        """
        i = self.input_gate(x, h_prev)
        f = self.forget_gate(x, h_prev)
        o = self.output_gate(x, h_prev)
        c = self.cell_state(x, h_prev, c_prev, i, f)
        return o * torch.tanh(c), c

    def _linears(self) -> list[nn.Linear]:
        """Return the linear layers in the order of the fused cell's rows: i, f, g, o."""
        return [self.input_gate.linear, self.forget_gate.linear, self.cell_state.linear, self.output_gate.linear]

    @torch.no_grad()
    def to_fused(self) -> cells.LSTMCell:
        """Return an equal `gg.LSTMCell`. `bias_ih` contains the biases of the gates, and `bias_hh` is zero."""
        weight = self.input_gate.linear.weight
        fused = cells.LSTMCell(self.input_size, self.hidden_size, self.bias, device=weight.device, dtype=weight.dtype)
        rows = torch.cat([linear.weight for linear in self._linears()])
        fused.weight_ih.copy_(rows[:, : self.input_size])
        fused.weight_hh.copy_(rows[:, self.input_size :])
        if self.bias:
            fused.bias_ih.copy_(torch.cat([linear.bias for linear in self._linears()]))
            fused.bias_hh.zero_()
        return fused

    @classmethod
    @torch.no_grad()
    def from_fused(cls, fused: cells.LSTMCell | nn.LSTMCell) -> "LSTMCell":
        """Return an equal cell with one module per gate.

        The bias of a gate is the sum of its rows of `bias_ih` and `bias_hh`.

        Raises:
            TypeError: `fused` is not an LSTMCell of this library or of `torch.nn`.
        """
        if not isinstance(fused, cells.LSTMCell | nn.LSTMCell):
            raise TypeError(f"from_fused: expected an LSTMCell of glassgate or torch.nn, got {type(fused).__name__}")
        cell = cls(fused.input_size, fused.hidden_size, bool(fused.bias)).to(fused.weight_ih)
        rows = torch.cat([fused.weight_ih, fused.weight_hh], 1).chunk(4)
        for k, linear in enumerate(cell._linears()):
            linear.weight.copy_(rows[k])
            if fused.bias:
                linear.bias.copy_((fused.bias_ih + fused.bias_hh).chunk(4)[k])
        return cell
