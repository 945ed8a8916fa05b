"""The recurrent layers of a task's network, and helpers for their states, `(layers, N, H)`, and their lengths."""

from typing import Any

import torch
from torch import Tensor

import glassgate as gg
from glassgate.tasks import cells
from glassgate.tasks.data.batches import Batch, draw_for, move
from glassgate.tasks.data.vocabulary import UNKNOWN
from glassgate.tasks.errors import OptionError
from glassgate.tasks.options import Options

States = tuple[Tensor, ...]


def encoder(options: Options, input_size: int | None = None, **others: Any) -> gg.Recurrent:
    """Build layers that map `(N, L, input_size)` and `lengths` to outputs, `(N, L, hidden_size * D)`, and final states.

    Args:
        options: cell, sizes, depth, directions and dropout
        input_size: the number of features of a step; `embedding_size` if None
        others: other arguments of the layer's constructor

    Raises:
        OptionError: the hidden size is not a multiple of the number of heads of the cell
    """
    cell = cells.build_cell(options.cell)
    if options.hidden_size % cell.heads:
        raise OptionError(
            f"hidden_size: expected a multiple of the {cell.heads} heads of {type(cell).__name__}, got "
            f"{options.hidden_size}"
        )
    return gg.Recurrent(
        cell,
        input_size or options.embedding_size,
        options.hidden_size,
        options.num_layers,
        batch_first=True,
        dropout=options.dropout if options.num_layers > 1 else 0.0,
        bidirectional=options.bidirectional,
        init=getattr(gg.init, _scheme(cell) if options.init == "auto" else options.init),
        **others,
    )


def _scheme(cell: gg.Cell) -> str:
    """The scheme `xavier_orthogonal` if the gates that keep the state of a cell can be derived, otherwise `torch`."""
    try:
        gg.init.keeping_gates(cell)
    except ValueError:
        return "torch"
    return "xavier_orthogonal"


def last_outputs(layer: gg.Recurrent, state: Tensor | States) -> Tensor:
    """Return the last output of each direction of the last layer, `(N, hidden_size * D)`, from the final states."""
    return as_tuple(state)[0][-layer.num_directions :].transpose(0, 1).flatten(1)


def as_tuple(state: Tensor | States) -> States:
    """Return the states of a layer as a tuple, even if its cell has only one state."""
    return state if isinstance(state, tuple) else (state,)


def as_hx(states: States) -> Tensor | States:
    """Return states in the form that a layer takes: a tensor if its cell has only one state."""
    return states if len(states) > 1 else states[0]


def select_rows(state: Tensor | States | None, rows: Tensor) -> Tensor | States | None:
    """Select rows of the states. None, the default initial state, stays None."""
    return None if state is None else as_hx(tuple(each.index_select(1, rows) for each in as_tuple(state)))


def repeat_rows(state: Tensor | States | None, count: int) -> Tensor | States | None:
    """Repeat each row of the states `count` times."""
    return None if state is None else as_hx(tuple(each.repeat_interleave(count, 1) for each in as_tuple(state)))


def drop_tokens(batch: Batch, fraction: float, first: int) -> Tensor:
    """Return the tokens of a batch, `(N, L)`; a fraction of those from index `first` on become the unknown token.

    Networks train the embedding of the unknown token in this way.
    """
    tokens = batch["units"]
    if not fraction:
        return tokens
    drawn = draw_for(batch, lambda shape: torch.rand(shape, device=tokens.device))
    return tokens.masked_fill((tokens >= first) & (drawn < fraction), UNKNOWN)


def step_mask(lengths: Tensor, steps: Tensor) -> Tensor:
    """Return the mask `(N, L)` of the steps `(N, L, ...)` that are not padding, from the lengths `(N,)`."""
    return torch.arange(steps.shape[1], device=steps.device) < move(lengths, steps.device)[:, None]
