"""Initialisation schemes for recurrent parameters.

A scheme takes a module and fills the parameters of every recurrent layer and cell in it. Pass one scheme or several as
`init=`, or call a scheme on a module.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, as_tensor, nn, no_grad, rand, tensor

from glassgate.cell import Cell, Weights
from glassgate.cell_shapes import blocks_by_gate, hidden_size_of
from glassgate.engines.retention import Memory, NotDerivable, Unreachable, magnitudes, memory_of

Scheme = Callable[[nn.Module], None]
"""A function that initialises the recurrent parameters of a module."""
_Cells = Sequence[tuple[Cell, Weights, Memory]]
"""The cell, the parameters and the memory of each direction of each layer."""


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
        hidden_size = _hidden_size(cell, weights)
        bound = 1.0 / math.sqrt(hidden_size) if hidden_size else 0.0  # a cell may have no units
        for name, weight in weights.items():
            if name in cell.parameters:
                cell.parameters[name].fill(weight)
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


class KeepingGate(NamedTuple):
    """A gate that keeps a state of a cell.

    Attributes:
        name: the name of the gate.
        sign: 1 if a step keeps more of the state when the bias of the gate rises, -1 if it keeps more when it falls.
        parameters: the parameters that add a number to the gate's pre-activation: `bias_ih` and `bias_hh`, or shifts
            behind a layer normalisation.
    """

    name: str
    sign: int
    parameters: tuple[str, ...]


def keeping_gates(cell: Cell, hidden_size: int | None = None) -> tuple[KeepingGate, ...]:
    """Derive the gates that keep a state from the step of a cell. The names of gates have no meaning.

    Args:
        cell: the cell.
        hidden_size: the number of units, for a cell whose step runs only with this number.

    Raises:
        ValueError: the step cannot be differentiated twice.

    Example:
        >>> import glassgate as gg
        >>> [(gate.name, gate.sign) for gate in keeping_gates(gg.cells.LSTM())]
        [('f', 1)]
        >>> [(gate.name, gate.sign) for gate in keeping_gates(gg.cells.MGU())]
        [('f', -1)]
        >>> keeping_gates(gg.cells.RNN())
        ()
    """
    memory = _derive_memory("keeping_gates", cell, hidden_size)
    return tuple(KeepingGate(name, sign, memory.offsets) for name, sign in memory.keeping.items())


@no_grad()
def xavier_orthogonal(module: nn.Module) -> None:
    """Set Xavier-uniform input weights, an orthogonal recurrent matrix per gate, and zero biases.

    The projection `weight_hr` is Xavier-uniform too. A gate that only keeps a state, such as f of an LSTM,
    gets a bias `bias_ih` + `bias_hh` of 1, or of -1 if it keeps less when its bias rises. A gate that also scales the
    update of this state, such as z of a GRU, has no bias.

    Raises:
        ValueError: the gates that keep the state cannot be derived from the step of a cell.

    Sources: Glorot and Bengio 2010; Saxe et al. 2013, arXiv:1312.6120; Jozefowicz et al. 2015 for the forget bias.
    """
    _draw_xavier_orthogonal(_with_memory("xavier_orthogonal", module))


def _draw_xavier_orthogonal(cells: _Cells) -> None:
    for cell, weights, memory in cells:
        for name, weight in weights.items():
            if name in ("weight_ih", "weight_hr"):
                nn.init.xavier_uniform_(weight)
            elif name == "weight_hh":
                for gate in blocks_by_gate(cell, weights, name).values():
                    for block in gate.chunk(cell.heads):
                        nn.init.orthogonal_(block)
            elif name.startswith("bias"):
                weight.zero_()
        if offset := _offset(weights, memory):
            other = memory.coupled | memory.opposed
            forget = {gate: float(sign) for gate, sign in memory.keeping.items() if gate not in other}
            _set_offsets(cell, weights, memory, offset, forget)


@dataclass(frozen=True)
class chrono:
    """Sets the biases of gates for dependencies of up to T_max steps (Tallec and Ollivier 2018, arXiv:1804.11188).

    With u uniform in [1, T_max - 1] for each unit, a step keeps the fraction u / (u + 1) of a state at zero input. In
    an LSTM, b_f = log u and b_i = -log u. The biases of other gates are 0.

    The gates are derived from the step of the cell, not from their names (see `keeping_gates`). If a gate keeps a state
    and also scales its update, such as z of a GRU, only this gate gets a bias. Behind a layer
    normalisation, the values are those of the shifts of the normalisation.

    Args:
        T_max: the longest dependency, in steps; above 2.

    Example:
        >>> import glassgate as gg
        >>> layer = gg.LSTM(3, 4, init=gg.init.chrono(100))
    """

    T_max: float

    def __post_init__(self) -> None:
        _check_steps("chrono", "T_max", self.T_max)

    @no_grad()
    def __call__(self, module: nn.Module) -> None:
        """Fill the biases of every recurrent layer and cell in `module`.

        Raises:
            ValueError: no gate of a cell keeps a state, or its bias cannot have the required effect.
        """
        cells = _with_memory("chrono", module)
        _check_chrono("chrono", self.T_max, cells)
        _draw_chrono(self.T_max, cells)


@dataclass(frozen=True)
class long_memory:
    """A recipe for long dependencies: `xavier_orthogonal`, then `chrono(steps)`.

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
        _check_steps("long_memory", "steps", self.steps)

    @no_grad()
    def __call__(self, module: nn.Module) -> None:
        """Fill the parameters of every recurrent layer and cell in `module`.

        Raises:
            ValueError: no gate of a cell keeps a state, or its bias cannot have the required effect.
        """
        cells = _with_memory("long_memory", module)
        _check_chrono("long_memory", self.steps, cells)
        _draw_xavier_orthogonal(cells)
        _draw_chrono(self.steps, cells)


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
                values = as_tensor(value)
                units = max(_bias_of(cell, weights, name, gate).numel() for name in ("bias_ih", "bias_hh"))
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
    return hidden_size_of(cell, weights)


def _require_bias(weights: Weights, scheme: str) -> None:
    if "bias_ih" not in weights:
        raise ValueError(f"{scheme}: the layer must have biases, got bias=False")


def _check_steps(scheme: str, name: str, value: object) -> None:
    if not hasattr(value, "__float__"):
        got = type(value).__name__
        raise TypeError(f"{scheme}: {name} must be a number of steps, such as in init={scheme}(100), got {got}")
    if not 2 < float(value) < math.inf:
        raise ValueError(f"{scheme}: {name} must be a finite number above 2, got {value!r}")


def _derive_memory(scheme: str, cell: Cell, hidden_size: int | None) -> Memory:
    if cell.declaration is not None:
        raise ValueError(
            f"{scheme}: the gates that keep a state are derived for cells with one number per unit, and "
            f"{type(cell).__name__} declares axes; use gg.init.torch, and set biases by the names of gates with "
            "gg.init.gate_bias"
        )
    try:
        return memory_of(cell, hidden_size)
    except NotDerivable as error:
        raise ValueError(
            f"{scheme}: the gates that keep a state cannot be derived from cell {type(cell).__name__}, because its "
            f"step or the second derivative of it raises {error}; use gg.init.torch, and set biases by the names of "
            "gates with gg.init.gate_bias"
        ) from error


def _with_memory(scheme: str, module: nn.Module) -> _Cells:
    result, memories = [], dict[int, Memory]()
    for cell, weights in _cells(module):
        if id(cell) not in memories:
            memories[id(cell)] = _derive_memory(scheme, cell, _hidden_size(cell, weights))
        result.append((cell, weights, memories[id(cell)]))
    return result


def _check_chrono(scheme: str, steps: float, cells: _Cells) -> None:
    """Raise ValueError unless the gates of all cells can keep states for this number of steps."""
    for cell, weights, memory in cells:
        name, gates = type(cell).__name__, ", ".join(memory.keeping)
        if not memory.keeping:
            raise ValueError(
                f"{scheme}: the cell must have a gate whose bias sets the fraction of a state that a step keeps, got "
                f"{name} with the gates {', '.join(cell.gates)}; use a cell such as LSTM or GRU, or the scheme "
                "xavier_orthogonal"
            )
        if memory.opposed:
            raise ValueError(
                f"{scheme}: a bias of gate {', '.join(sorted(memory.opposed))} of {name} keeps one state longer and "
                "another one less long; set the biases with gg.init.gate_bias"
            )
        if not memory.offsets:
            raise ValueError(
                f"{scheme}: the biases of the gates {gates} of {name} also change other units, for example through a "
                "layer normalisation; declare a parameter per gate that is added to the pre-activation"
            )
        offset = _offset(weights, memory)
        if offset is None:
            _require_bias(weights, scheme)
        else:
            _check_reach(scheme, steps, cell, memory, offset)


def _check_reach(scheme: str, steps: float, cell: Cell, memory: Memory, offset: str) -> None:
    try:
        magnitudes(cell, memory, offset, tensor([1.0, steps - 1.0], device="cpu"))
    except Unreachable as error:
        raise ValueError(
            f"{scheme}: {steps:g} steps need a gate that can keep 0.5 to {1 - 1 / steps:.3g} of a state per step, and "
            f"{', '.join(memory.keeping)} of {type(cell).__name__} can keep {error.low:.3g} to {error.high:.3g}; use "
            "fewer steps, or set the biases with gg.init.gate_bias"
        ) from error


def _draw_chrono(steps: float, cells: _Cells) -> None:
    for cell, weights, memory in cells:
        offset = _offset(weights, memory)
        assert offset is not None
        u = 1 + (steps - 2) * rand(_hidden_size(cell, weights), device=weights[offset].device)
        keep, write = magnitudes(cell, memory, offset, u)
        values = {gate: sign * keep for gate, sign in memory.keeping.items()}
        values |= {gate: -sign * write for gate, sign in memory.writing.items()}
        _set_offsets(cell, weights, memory, offset, values)


def _offset(weights: Weights, memory: Memory) -> str | None:
    """The parameter that contains the numbers to add to pre-activations; None if the layer has no such parameter."""
    return next((name for name in memory.offsets if name in weights), None)


def _set_offsets(
    cell: Cell, weights: Weights, memory: Memory, offset: str, values: Mapping[str, float | Tensor]
) -> None:
    """Set the numbers that `offset` adds to the pre-activations of gates. Those of other gates, and biases, are 0."""
    for name in dict.fromkeys(["bias_ih", "bias_hh", *memory.offsets]):
        if name in weights:
            if name in cell.parameters:
                cell.parameters[name].fill(weights[name])
            else:
                weights[name].zero_()
    for gate, value in values.items():
        blocks_by_gate(cell, weights, offset)[gate].copy_(as_tensor(value))


def _set_bias(cell: Cell, weights: Weights, gate: str, value: float | Sequence[float] | Tensor) -> None:
    """Set `bias_ih` of one gate to a value, and its `bias_hh` to zero."""
    filled = False
    for name in ("bias_ih", "bias_hh"):
        bias = _bias_of(cell, weights, name, gate)
        bias.copy_(as_tensor(0.0 if filled else value)) if bias.numel() else None
        filled |= bool(bias.numel())


def _bias_of(cell: Cell, weights: Weights, name: str, gate: str) -> Tensor:
    """The numbers of one gate in a bias; empty if the gate has none there."""
    return blocks_by_gate(cell, weights, name).get(gate, tensor([])) if name in weights else tensor([])
