"""Noise for any cell: zoneout, recurrent dropout, weight dropout, and dropout between layers.

This module draws all noise with torch's generator. Engines receive it as data, so every engine gives the same result.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import dropout

from glassgate.cell import Cell, Named, Noise, PreActivations, with_regularisers
from glassgate.cell_axes import Declaration
from glassgate.engines.contract import Direction, Steps, is_plain
from glassgate.engines.memory import move_to_device
from glassgate.shapes import check_rate


class Noisy(Cell):
    """A cell with zoneout and recurrent dropout. It has the gates, states and parameters of the cell that it wraps.

    Zoneout (Krueger et al. 2016, arXiv:1606.01305): in training, each unit of a state keeps its old value with a
    probability, the rate of the state. In eval mode, the state is the weighted average of its old value and its new
    value, and the rate is the weight of the old value.

    Recurrent dropout on "update" drops entries of the update of a state, with a new mask at each step (Semeniuta et al.
    2016, arXiv:1603.05118). On "state", it drops entries of h before its matrix product, with one mask per sequence
    (Gal and Ghahramani 2016, arXiv:1512.05287).

    Args:
        cell: the wrapped cell.
        zoneout: the rate of each state, by name.
        recurrent_dropout: the rate of recurrent dropout.
        on: "update" or "state", the value to which recurrent dropout is applied.
        training: whether this is the cell for training. If false, it has no noise.
    """

    def __init__(
        self, cell: Cell, zoneout: Mapping[str, float], recurrent_dropout: float, on: str, training: bool = True
    ) -> None:
        self.cell, self.recurrent_dropout, self.on, self.training = cell, recurrent_dropout, on, training
        self.zoneout = {state: rate for state, rate in zoneout.items() if rate}
        self.gates, self.state, self.parameters = cell.gates, cell.state, cell.parameters  # type: ignore[misc]
        self.recurrent, self.heads = cell.recurrent, cell.heads  # type: ignore[misc]
        self.noise = {}
        if training:
            self.noise = dict(cell.noise) | {
                f"keep_{state}": Noise(rate, True, True, state) for state, rate in self.zoneout.items()
            }
            if recurrent_dropout:
                self.noise[on] = Noise(
                    recurrent_dropout, False, on == "update", None if on == "update" else cell.state[0]
                )

    @property
    def _class_name(self) -> str:
        return self.cell._class_name

    @property
    def declaration(self) -> Declaration | None:
        """The declared axes of the wrapped cell."""
        return self.cell.declaration

    def axis_size(self, axis: str) -> int | None:
        """Return the size of an axis of the wrapped cell."""
        return self.cell.axis_size(axis)

    def step(self, *args: Any) -> Any:
        """Compute the step of the wrapped cell."""
        return self.cell.step(*args)

    def project(self, h: Any) -> Any:
        """Call `project` of the wrapped cell."""
        return self.cell.project(h)

    def new_state(self, a: PreActivations, s: Named, p: Named, projection: Any = None) -> tuple[Any, ...]:
        """Return the new states, with zoneout and recurrent dropout."""
        hh = a.hh if self.recurrent else None
        if hh is not None and "state" in self.noise:
            hh = hh * a.noise.state
        updates = []
        means = [noise.mean for noise in self.cell.noise.values()]
        cell_noise = a.noise if self.training else Named(self.cell.noise, means)

        def update(g: Any) -> Any:
            updates.append(g)
            return g * a.noise.update

        noisy = with_regularisers(a, hh, cell_noise, update if "update" in self.noise else None)
        new = self.cell.new_state(noisy, s, p, projection)
        if "update" in self.noise and not updates:
            raise ValueError(
                f"cell {type(self.cell).__name__}: recurrent dropout on the update needs a step that passes the "
                "update to a.update(...)"
            )
        return tuple(self._apply_zoneout(name, a, old, v) for name, old, v in zip(self.state, s, new, strict=True))

    def _apply_zoneout(self, state: str, a: PreActivations, old: Any, new: Any) -> Any:
        """Return a state after zoneout."""
        if state not in self.zoneout:
            return new
        keep = getattr(a.noise, f"keep_{state}") if self.training else self.zoneout[state]
        return keep * old + (1 - keep) * new


def add_regularisers(
    name: str,
    cell: Cell,
    zoneout: float | tuple[float, ...] | Mapping[str, float],
    recurrent_dropout: float,
    on: str,
    weight_dropout: float,
) -> Cell:
    """Return the cell that a layer runs in training. Without zoneout and recurrent dropout it is `cell` itself.

    Args:
        name: the name of the layer, for error messages.
        cell: the cell of the layer.
        zoneout: one rate for all states, or the rate of each state, in order or by name.
        recurrent_dropout, on: as in `Noisy`.
        weight_dropout: the rate of dropout on the recurrent weights. It is checked, but does not change the cell.

    Raises:
        ValueError: a rate outside [0, 1], a state that the cell lacks, or dropout on the state or on the recurrent
            weights of a cell without recurrent weights.
    """
    if isinstance(zoneout, Mapping):
        rates = dict(zoneout)
    else:
        per_state = zoneout if isinstance(zoneout, tuple | list) else (zoneout,) * len(cell.state)
        if len(per_state) != len(cell.state):
            raise ValueError(f"{name}: zoneout must be a rate, or one per state {cell.state}, got {zoneout!r}")
        rates = dict(zip(cell.state, per_state, strict=True))
    for state, rate in rates.items():
        if state not in cell.state:
            raise ValueError(f"{name}: zoneout must name states of the cell, {cell.state}, got {state!r}")
        check_rate(name, f"zoneout of {state}", rate)
        if rate and any(state in (delayed, source) for delayed, (source, _) in cell.delays.items()):
            raise ValueError(f"{name}: zoneout of {state!r} must be 0, because the cell reads its delayed value")
    check_rate(name, "recurrent_dropout", recurrent_dropout)
    check_rate(name, "weight_dropout", weight_dropout)
    if not cell.recurrent and (weight_dropout or (recurrent_dropout and on == "state")):
        option = "weight_dropout" if weight_dropout else "recurrent_dropout_on='state'"
        raise ValueError(f"{name}: {option} needs a matrix product with the state, which {cell!r} lacks")
    if not recurrent_dropout and not any(rates.values()):
        return cell
    return Noisy(cell, rates, recurrent_dropout, on)


def without_noise(cell: Cell) -> Cell:
    """Return the cell that a layer runs in eval mode, from the cell that it runs in training."""
    wrapped, zoneout, on = (cell.cell, cell.zoneout, cell.on) if isinstance(cell, Noisy) else (cell, {}, "update")
    return Noisy(wrapped, zoneout, 0.0, on, training=False) if zoneout or wrapped.noise else wrapped


def draw(cell: Cell, steps: Steps, initial: tuple[Tensor, ...], hidden_size: int) -> dict[str, Tensor]:
    """Draw the noise of one direction of a call, by name; `Noise` describes the numbers.

    Args:
        cell: the cell with its noise.
        steps: the input, which determines the number of rows, the dtype and the device of the noise.
        initial: the initial states, which determine the number of sequences and the widths.
        hidden_size: the number of units.
    """
    values = {}
    for name, noise in cell.noise.items():
        width = hidden_size if noise.state is None else initial[cell.state.index(noise.state)].shape[1]
        rows = steps.data.shape[0] if noise.per_step else initial[0].shape[0]
        if noise.deviation is not None:
            values[name] = noise.deviation * steps.data.new_empty(rows, width).normal_()
        elif noise.keeps:
            values[name] = _draw_two_values(steps.data, rows, width, noise.rate, selected=1.0, other=0.0)
        else:
            values[name] = _draw_dropout_factors(steps.data, rows, width, noise.rate)
    return values


def with_noise(direction: Direction, steps: Steps, hidden_size: int, weight_dropout: float) -> Direction:
    """Return a direction of a call with noise for its cell and with dropout on its recurrent weights.

    Args:
        direction: the direction without noise.
        steps: the input of the layer.
        hidden_size: the number of units.
        weight_dropout: the rate of dropout on `weight_hh`.
    """
    if weight_dropout:
        weight = _drop_entries(direction.weights["weight_hh"], weight_dropout)
        direction = direction._replace(weights={**direction.weights, "weight_hh": weight})
    if not direction.cell.noise:
        return direction
    return direction._replace(noise=draw(direction.cell, steps, direction.initial, hidden_size))


def dropout_between_layers(
    rate: float, variational: bool, sequences: int, batch_sizes: Tensor | None = None
) -> Callable[[Tensor], Tensor] | None:
    """Return a function that applies dropout to the input of a level; None if the rate is 0.

    The argument of the function is the rows of all steps, (S, H). For sequences of equal length, also (L, N, H).

    Args:
        rate: the rate of dropout.
        variational: whether all steps of a sequence have the same mask.
        sequences: the number of sequences, N.
        batch_sizes: the batch size of each step; None if the sequences have equal lengths.
    """
    if not rate:
        return None
    return partial(_drop_variationally, batch_sizes, sequences, rate) if variational else partial(dropout, p=rate)


def _drop_variationally(sizes: Tensor | None, sequences: int, rate: float, data: Tensor) -> Tensor:
    """Apply dropout with one mask for all steps of a sequence (Gal and Ghahramani 2016)."""
    factors = _draw_dropout_factors(data, sequences, data.shape[-1], rate)
    if sizes is None:
        return (data.view(-1, *factors.shape) * factors).view(data.shape)
    step_starts = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    sequence_of_row = move_to_device(torch.arange(len(step_starts)) - step_starts, data.device)
    padding = data.shape[0] - len(step_starts)
    return data * torch.cat([factors.index_select(0, sequence_of_row), factors.new_zeros(padding, data.shape[1])])


def _drop_entries(weight: Tensor, rate: float) -> Tensor:
    """Apply dropout to the entries of a matrix."""
    rows, columns = weight.shape
    return weight * _draw_dropout_factors(weight, rows, columns, rate)


def _draw_dropout_factors(like: Tensor, rows: int, width: int, rate: float) -> Tensor:
    """Draw a matrix of factors: 0 where dropped, else 1 / (1 - rate)."""
    return _draw_two_values(like, rows, width, rate, selected=0.0, other=1 / (1 - rate or 1.0))


def _draw_two_values(like: Tensor, rows: int, width: int, rate: float, selected: float, other: float) -> Tensor:
    """Draw a matrix whose entries are `selected` with probability `rate`, else `other`. One of the two must be zero.

    The rate is rounded up to a multiple of 1 / 65536. Each entry uses 16 random bits, which takes a fifth of the time
    of `bernoulli_`.
    """
    bits = torch.randint(-(2**63), 2**63 - 1, (-(-rows * width // 4),), device=like.device).view(torch.int16)
    bits, last_selected = bits[: rows * width].view(rows, width), math.ceil(rate * 2**16) - 2**15 - 1
    if is_plain(bits) and like.dtype in (torch.float32, torch.float64):
        # torch would start threads for these microseconds of work; NumPy does not.
        nonzero = bits.numpy() <= last_selected if selected else bits.numpy() > last_selected
        return torch.from_numpy(nonzero * like.new_tensor(selected or other).numpy())
    return torch.where(bits <= last_selected, selected, other).to(like.dtype)
