"""Functions that run one layer in one direction. The parameters are arguments, as in `torch.nn.functional`."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from glassgate import cells
from glassgate.cell import Cell, Weights
from glassgate.engines import choose
from glassgate.engines.contract import Direction
from glassgate.engines.memory import in_memory
from glassgate.engines.reference_step import advance
from glassgate.layout import Layout, arrange
from glassgate.shapes import ArgumentTypeError, ShapeError, check_dense, check_like, check_parameters, check_shape

Input = Tensor | PackedSequence


def rnn(
    input: Input,
    hx: Tensor | None,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None,
    weight_hr: Tensor | None = None,
    *,
    nonlinearity: str = "tanh",
    batch_first: bool = False,
    lengths: Tensor | Sequence[int] | None = None,
    resets: Tensor | None = None,
) -> tuple[Any, Any]:
    """Run a simple recurrent network (RNN) over whole sequences.

    The arguments and results are those of `lstm`, with hx = h_0. `nonlinearity` is "tanh" or "relu".

    Example:
        >>> import torch, glassgate as gg
        >>> x, w_ih, w_hh = torch.randn(5, 2, 3), torch.randn(4, 3), torch.randn(4, 4)
        >>> output, h_n = gg.functional.rnn(x, None, w_ih, w_hh, nonlinearity="relu")
        >>> output.shape, h_n.shape
        (torch.Size([5, 2, 4]), torch.Size([2, 4]))
    """
    weights = _weights_by_name(weight_ih, weight_hh, bias_ih, bias_hh, weight_hr)
    return recurrent(_cell(cells.RNN, nonlinearity), input, hx, weights, batch_first, lengths, resets)


def gru(
    input: Input,
    hx: Tensor | None,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None,
    weight_hr: Tensor | None = None,
    *,
    batch_first: bool = False,
    lengths: Tensor | Sequence[int] | None = None,
    resets: Tensor | None = None,
) -> tuple[Any, Any]:
    """Run a GRU as in `torch.nn.GRU` over whole sequences.

    The arguments and results are those of `lstm`, with hx = h_0. With `weight_hr`, hx is (h_0, m_0), as described in
    `gg.cells.GRUP`.

    Example:
        >>> import torch, glassgate as gg
        >>> x, w_ih, w_hh = torch.randn(5, 2, 3), torch.randn(12, 3), torch.randn(12, 4)
        >>> output, h_n = gg.functional.gru(x, torch.zeros(2, 4), w_ih, w_hh)
        >>> output.shape, h_n.shape
        (torch.Size([5, 2, 4]), torch.Size([2, 4]))
    """
    weights = _weights_by_name(weight_ih, weight_hh, bias_ih, bias_hh, weight_hr)
    return recurrent(_cell(cells.GRU), input, hx, weights, batch_first, lengths, resets)


def lstm(
    input: Input,
    hx: tuple[Tensor, Tensor] | None,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None,
    weight_hr: Tensor | None = None,
    *,
    batch_first: bool = False,
    lengths: Tensor | Sequence[int] | None = None,
    resets: Tensor | None = None,
) -> tuple[Any, Any]:
    """Run an LSTM over whole sequences, with a projection if `weight_hr` is given.

    Args:
        input: (L, N, H_in), (N, L, H_in) if batch_first, (L, H_in) unbatched, or a PackedSequence.
        hx: (h_0, c_0) with the shapes (N, H_out) and (N, H_cell), or None for zeros. The states may have a leading axis
            of size 1, (1, N, H), as in `torch.nn`. The final states then have this axis too.
        weight_ih: (gates * H_cell, H_in), one block of rows per gate, in torch's order of gates.
        weight_hh: (gates * H_cell, H_out).
        bias_ih, bias_hh: (gates * H_cell,). If only one is given, the other is zero.
        weight_hr: (H_out, H_cell).
        batch_first: whether input and output are (N, L, H) instead of (L, N, H).
        lengths: the number of steps of each sequence: (N,) integers from 0 to L.
        resets: a mask with the shape of the input without features, (L, N). Where it is true, the states of the
            sequence are set to its initial states before the step.

    Returns:
        the output (L, N, H_out) in the layout of the input, and the final states in the layout of hx.

    Raises:
        ShapeError: a tensor has the wrong shape.

    Example:
        >>> import torch, glassgate as gg
        >>> x, w_ih, w_hh = torch.randn(5, 2, 3), torch.randn(16, 3), torch.randn(16, 4)
        >>> output, (h_n, c_n) = gg.functional.lstm(x, None, w_ih, w_hh, lengths=[5, 2])
        >>> output.shape, h_n.shape, c_n.shape
        (torch.Size([5, 2, 4]), torch.Size([2, 4]), torch.Size([2, 4]))
    """
    weights = _weights_by_name(weight_ih, weight_hh, bias_ih, bias_hh, weight_hr)
    return recurrent(_cell(cells.LSTM), input, hx, weights, batch_first, lengths, resets)


@cache
def _cell(kind: type[Cell], *options: str) -> Cell:
    """Return the same cell object for all calls, so that it is traced only once."""
    return kind(*options)


def recurrent(
    cell: Cell,
    input: Input,
    hx: Any,
    weights: Weights,
    batch_first: bool = False,
    lengths: Tensor | Sequence[int] | None = None,
    resets: Tensor | None = None,
) -> tuple[Any, Any]:
    """Run any cell over whole sequences. Each noise of the cell has its mean.

    Args:
        cell: the equations.
        weights: the parameters, by the names of `cell.shapes`.
        input, hx, batch_first, lengths, resets: as in `lstm`.
    """
    name, weight = type(cell).__name__, weights["weight_ih"]
    cell = cell.projected() if "weight_hr" in weights else cell
    units, proj_size = _check_weights(cell, weights)
    steps, layout = arrange(name, input, weight.shape[1], batch_first, lengths, resets)
    check_like(name, "input", steps.data, weight.dtype, weight.device, "weight_ih")
    widths = [proj_size or units] + [units] * (len(cell.state) - 1)
    initial, has_layer_axis = _initial_states(cell, hx, widths, steps.data, layout)
    noise = {
        key: steps.data.new_full(
            (
                steps.data.shape[0] if spec.per_step else initial[0].shape[0],
                units if spec.state is None else widths[cell.state.index(spec.state)],
            ),
            spec.mean,
        )
        for key, spec in cell.noise.items()
    }
    (result,) = choose.run(steps, [Direction(cell, weights, initial, False, noise)])
    final = tuple(layout.from_ranks(v) for v in result.final)
    if layout.unbatched:
        final = tuple(v.squeeze(0) for v in final)
    if has_layer_axis:
        final = tuple(v.unsqueeze(0) for v in final)
    return layout.restore(result.states[0]), final if len(final) > 1 else final[0]


def step(cell: Cell, ih: Tensor, states: tuple[Tensor, ...], weights: Weights) -> tuple[Tensor, ...]:
    """Compute one step of any cell in plain torch, from the input term of the pre-activations.

    Leading axes broadcast. `W_hh h` is computed before it is broadcast, so M steps from the same state compute it only
    once. In this case `ih` is (N, M, gates * H_cell), and each state is (N, 1, H). Each noise of the cell has its mean.

    Args:
        cell: the equations.
        ih: W_ih x + b_ih, (..., gates * H_cell).
        states: the states before the step, (..., H), in the order of `cell.state`.
        weights: the parameters, by the names of `cell.shapes`. `weight_ih` and `bias_ih` are checked but not used.

    Returns:
        the states after the step.

    Raises:
        ShapeError: a tensor has the wrong shape.

    Example:
        >>> import torch, glassgate as gg
        >>> [(cell, weights)] = gg.GRU(3, 4).weights()
        >>> ih = torch.nn.functional.linear(torch.randn(2, 5, 3), weights["weight_ih"], weights["bias_ih"])
        >>> (h,) = gg.functional.step(cell, ih, (torch.zeros(2, 1, 4),), weights)
        >>> h.shape
        torch.Size([2, 5, 4])
    """
    name, weight = type(cell).__name__, weights["weight_ih"]
    units, proj_size = _check_weights(cell, weights)
    if not isinstance(states, tuple) or len(states) != len(cell.state):
        got = f"{len(states)} of them" if isinstance(states, tuple) else type(states).__name__
        raise ShapeError(f"{name}: states must be a tuple of {len(cell.state)} states {cell.state}, got {got}")
    widths = {"ih": len(cell.gates) * units, **dict.fromkeys(cell.state, units), cell.state[0]: proj_size or units}
    for (key, width), tensor in zip(widths.items(), (ih, *states), strict=True):
        if not isinstance(tensor, Tensor):
            raise ArgumentTypeError(f"{name}: {key} must be a tensor (..., {width}), got {type(tensor).__name__}")
        check_dense(name, key, tensor)
        check_like(name, key, tensor, weight.dtype, weight.device, "weight_ih")
        if tensor.shape[-1:] != (width,):
            raise ShapeError(f"{name}: {key} must be (..., {width}), got {tuple(tensor.shape)}")
    in_memory((ih, *states, *weights.values()))
    try:
        return advance(cell, weights, ih, states)
    except RuntimeError as error:
        if "broadcast" not in str(error):
            raise
        shapes = [tuple(v.shape) for v in states]
        raise ShapeError(f"{name}: ih and states must broadcast, got {tuple(ih.shape)} and {shapes}") from error


def _check_weights(cell: Cell, weights: Weights) -> tuple[int, int]:
    """Check the shapes of the parameters. Return H_cell and the width of the projection (0 for none)."""
    if cell.declaration is not None:
        raise ValueError(
            f"{type(cell).__name__}: functional calls need one number per unit, and this cell declares axes; use "
            "torch.func.functional_call with a gg.Recurrent layer"
        )
    name, weight, rows = type(cell).__name__, weights["weight_ih"], f"{len(cell.gates)} * H_cell"
    for key, value in weights.items():
        if not isinstance(value, Tensor):
            raise ArgumentTypeError(f"{name}: {key} must be a tensor, got {type(value).__name__}")
        check_dense(name, key, value)
    if weight.dim() != 2 or weight.shape[0] % len(cell.gates):
        raise ShapeError(f"{name}: weight_ih must be ({rows}, H_in), got {tuple(weight.shape)}")
    units, weight_hr = weight.shape[0] // len(cell.gates), weights.get("weight_hr")
    if weight_hr is not None and weight_hr.dim() != 2:
        raise ShapeError(f"{name}: weight_hr must be (H_out, H_cell), got {tuple(weight_hr.shape)}")
    proj_size = 0 if weight_hr is None else weight_hr.shape[0]
    letters = {"weight_hh": f"({rows}, H_out)", "weight_hr": "(H_out, H_cell)"}
    for key, shape in cell.shapes(weight.shape[1], units, proj_size, "bias_ih" in weights).items():
        if key not in weights:
            raise ShapeError(f"{name}: {key} must be given, {shape}")
        check_shape(name, key, weights[key], letters.get(key, "(H_cell)" if shape[0] == units else f"({rows})"), shape)
        check_parameters(name, {key: weights[key]}, {key: shape}, weight.dtype, weight.device)
    return units, proj_size


def _initial_states(
    cell: Cell, hx: Any, widths: list[int], data: Tensor, layout: Layout
) -> tuple[tuple[Tensor, ...], bool]:
    """Check `hx` and convert it to one tensor (N, H) per state, with rows in the order of ranks; see `Layout`.

    Args:
        cell, hx: as in `recurrent`.
        widths: the width of each state.
        data: a tensor with the dtype and device of the states.
        layout: the layout of the input.

    Returns:
        the states, and whether the tensors in `hx` have a leading axis of size 1.
    """
    if hx is None:
        return tuple(data.new_zeros(layout.rows, width) for width in widths), False
    name = type(cell).__name__
    states = hx if len(cell.state) > 1 else (hx,)
    if not isinstance(states, tuple | list) or len(states) != len(cell.state):
        got = f"{len(hx)} of them" if isinstance(hx, tuple | list) else type(hx).__name__
        error = ShapeError if isinstance(hx, tuple | list | Tensor) else ArgumentTypeError
        raise error(f"{name}: hx must be a tuple of {len(cell.state)} states {cell.state}, got {got}")
    rows, letters = ((), "") if layout.unbatched else ((layout.rows,), "N, ")
    has_layer_axis = isinstance(states[0], Tensor) and states[0].dim() == len(rows) + 2
    if has_layer_axis:
        rows, letters = (1, *rows), f"1, {letters}"
    for k, (state, value, width) in enumerate(zip(cell.state, states, widths, strict=True)):
        check_shape(name, f"{state}_0", value, f"({letters}{'H_cell' if k else 'H_out'})", (*rows, width))
        check_like(name, f"{state}_0", value, data.dtype, data.device, "input")
    states = in_memory(states)
    return tuple(layout.to_ranks(v.reshape(layout.rows, v.shape[-1])) for v in states), has_layer_axis


def _weights_by_name(
    weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor | None, bias_hh: Tensor | None, weight_hr: Tensor | None
) -> Weights:
    """Return the parameters by name. If only one bias is given, the other one is zero."""
    if (bias_ih is None) != (bias_hh is None) and isinstance(weight_ih, Tensor):
        bias_ih, bias_hh = (weight_ih.new_zeros(weight_ih.shape[0]) if b is None else b for b in (bias_ih, bias_hh))
    others = {"weight_hh": weight_hh, "bias_ih": bias_ih, "bias_hh": bias_hh, "weight_hr": weight_hr}
    return {"weight_ih": weight_ih} | {name: weight for name, weight in others.items() if weight is not None}
