"""Initialisation schemes for recurrent parameters.

A scheme takes a module and fills the parameters of every recurrent layer and cell in it. Pass one scheme or several as
`init=`, or call a scheme on a module.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor, as_tensor, nn, no_grad, rand

from glassgate.cell import Cell, Weights

Scheme = Callable[[nn.Module], None]
"""A function that initialises the recurrent parameters of a module."""


@no_grad()
def torch(module: nn.Module) -> None:
    """Draw parameters uniformly from [-1 / sqrt(hidden_size), 1 / sqrt(hidden_size)], as in `torch.nn`.

    The same seed gives the same weights as in `torch.nn`. Extra parameters of a cell are set to their initial values.

    Example:
        >>> import torch, glassgate as gg
        >>> _ = torch.manual_seed(0); ours = gg.LSTM(3, 4)
        >>> _ = torch.manual_seed(0); theirs = torch.nn.LSTM(3, 4)
        >>> torch.equal(ours.weight_hh_l0, theirs.weight_hh_l0)
        True
    """
    for cell, weights in _cells(module):
        bound = 1.0 / math.sqrt(_hidden_size(cell, weights))
        for name, weight in weights.items():
            if name in cell.parameters:
                weight.fill_(cell.parameters[name].start)
            else:
                weight.uniform_(-bound, bound)


def initialise(module: nn.Module, init: Scheme | Sequence[Scheme]) -> None:
    """Apply torch's initialisation, and then one scheme or several in order.

    Raises:
        TypeError: `init` is neither a scheme nor a sequence of schemes.
    """
    torch(module)
    for scheme in (init,) if callable(init) or isinstance(init, str) else init:
        if not callable(scheme):
            raise TypeError(
                f"{type(module).__name__}: init must be a scheme of glassgate.init, or several, got {scheme!r}"
            )
        scheme(module)


@no_grad()
def xavier_orthogonal(module: nn.Module) -> None:
    """Set Xavier-uniform input weights, an orthogonal recurrent matrix per gate, and zero biases.

    The projection `weight_hr` is Xavier-uniform too. If the cell has a gate f, its bias `bias_ih` + `bias_hh` is 1.

    Sources: Glorot and Bengio 2010; Saxe et al. 2013, arXiv:1312.6120; Jozefowicz et al. 2015 for the forget bias.
    """
    for cell, weights in _cells(module):
        for name, weight in weights.items():
            if name in ("weight_ih", "weight_hr"):
                nn.init.xavier_uniform_(weight)
            elif name == "weight_hh":
                for block in weight.chunk(len(cell.gates) * cell.heads):
                    nn.init.orthogonal_(block)
            elif name.startswith("bias"):
                weight.zero_()
        if "f" in cell.gates and "bias_ih" in weights:
            _set_bias(cell, weights, "f", 1.0)


@dataclass(frozen=True)
class chrono:
    """Sets the biases of gates for dependencies of up to T_max steps (Tallec and Ollivier 2018, arXiv:1804.11188).

    b_f = log u and b_i = -log u, with u uniform in [1, T_max - 1] for each unit. The biases of other gates are 0. In a
    cell without a gate f, the gate z gets the bias log u, because z keeps the state in `torch.nn.GRU`.

    Args:
        T_max: the longest dependency, in steps; above 2.

    Example:
        >>> import glassgate as gg
        >>> layer = gg.LSTM(3, 4, init=gg.init.chrono(100))
    """

    T_max: float

    def __post_init__(self) -> None:
        if not hasattr(self.T_max, "__float__"):
            got = type(self.T_max).__name__
            raise TypeError(f"chrono: T_max must be a number of steps, such as in init=chrono(100), got {got}")
        if not self.T_max > 2:
            raise ValueError(f"chrono: T_max must be above 2 steps, got {self.T_max!r}")

    @no_grad()
    def __call__(self, module: nn.Module) -> None:
        """Fill the biases of every recurrent layer and cell in `module`."""
        cells = list(_cells(module))
        for cell, weights in cells:
            _require_bias(weights, "chrono")
            if not {"f", "z"} & set(cell.gates):
                raise ValueError(f"chrono: the cell must have a gate f or z, got {cell.gates}")
        for cell, weights in cells:
            u = 1 + (self.T_max - 2) * rand(_hidden_size(cell, weights), device=weights["bias_ih"].device)
            keep_gate = "f" if "f" in cell.gates else "z"
            for gate in cell.gates:
                _set_bias(cell, weights, gate, u.log() if gate == keep_gate else -u.log() if gate == "i" else 0.0)


@dataclass(frozen=True)
class long_memory:
    """A recipe for long dependencies: `xavier_orthogonal`, then `chrono(steps)`.

    `chrono` is left out if any cell has no biases, or has neither a gate f nor a gate z.

    With Adam and a learning rate that falls from 0.01 to zero, cells with this initialisation solve the adding problem
    of Hochreiter and Schmidhuber (1997) at lags up to 1,000 steps. `glassgate compare` measures this.

    Args:
        steps: the longest dependency, in steps; above 2.

    Example:
        >>> import glassgate as gg
        >>> layer = gg.LSTM(2, 24, init=gg.init.long_memory(1000))
    """

    steps: float

    def __post_init__(self) -> None:
        if not self.steps > 2:
            raise ValueError(f"long_memory: steps must be above 2, got {self.steps!r}")

    def __call__(self, module: nn.Module) -> None:
        """Fill the parameters of every recurrent layer and cell in `module`."""
        xavier_orthogonal(module)
        if all({"f", "z"} & set(cell.gates) and "bias_ih" in weights for cell, weights in _cells(module)):
            chrono(self.steps)(module)


class gate_bias:
    """Sets the total bias of gates by name. All other parameters keep their values.

    The total bias is `bias_ih` + `bias_hh`. The value is stored in `bias_ih`, and `bias_hh` is set to zero.

    Args:
        gates: keyword arguments `gate=value`. A value is one number, or one number per unit.

    Example:
        >>> import glassgate as gg
        >>> bias = gg.init.gate_bias(f=3.0, i=[-3.0, -4.0, -5.0, -6.0])
        >>> layer = gg.LSTM(2, 4, init=[gg.init.xavier_orthogonal, bias])
        >>> layer.bias_ih_l0[:4].tolist()
        [-3.0, -4.0, -5.0, -6.0]
    """

    def __init__(self, **gates: float | Sequence[float] | Tensor) -> None:
        self.gates = gates

    @no_grad()
    def __call__(self, module: nn.Module) -> None:
        """Set the biases of every recurrent layer and cell in `module`."""
        cells = list(_cells(module))
        for cell, weights in cells:
            _require_bias(weights, "gate_bias")
            for gate, value in self.gates.items():
                if gate not in cell.gates:
                    raise ValueError(f"gate_bias: the cell has the gates {', '.join(cell.gates)}, got {gate!r}")
                units, values = _hidden_size(cell, weights), as_tensor(value)
                if values.dim() > 1 or values.numel() not in (1, units):
                    raise ValueError(
                        f"gate_bias: {gate} must be a number or one per unit, ({units},), got {tuple(values.shape)}"
                    )
        for cell, weights in cells:
            for gate, value in self.gates.items():
                _set_bias(cell, weights, gate, value)


def _cells(module: nn.Module) -> Iterator[tuple[Cell, Weights]]:
    """Yield, for each direction of each layer in a module, the cell and the parameters by name."""
    has_cell = False
    for child in module.modules():
        weights = getattr(child, "weights", None)
        if callable(weights):
            has_cell = True
            yield from weights()
    if not has_cell:
        raise TypeError(f"init: the module must be or hold a recurrent layer of glassgate, got {type(module).__name__}")


def _hidden_size(cell: Cell, weights: Weights) -> int:
    return weights["weight_ih"].shape[0] // len(cell.gates)


def _require_bias(weights: Weights, scheme: str) -> None:
    if "bias_ih" not in weights:
        raise ValueError(f"{scheme}: the layer must have biases, got bias=False")


def _set_bias(cell: Cell, weights: Weights, gate: str, value: float | Sequence[float] | Tensor) -> None:
    """Set `bias_ih` of one gate to a value, and its `bias_hh` to zero."""
    k = cell.gates.index(gate)
    weights["bias_ih"].chunk(len(cell.gates))[k].copy_(as_tensor(value))
    if "bias_hh" in weights:
        weights["bias_hh"].chunk(len(cell.gates))[k].zero_()
