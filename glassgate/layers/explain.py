"""`gg.explain` reports which engine would run a call of a layer, and why the others would not."""

from typing import Any

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from glassgate.engines import choose
from glassgate.layers.arguments import arrange_call, directions_of_call
from glassgate.layers.stack import Recurrent
from glassgate.layers.states import State


def explain(
    layer: Recurrent,
    input: Tensor | PackedSequence,
    hx: State | None = None,
    *,
    return_states: bool = False,
    **kwargs: Any,
) -> choose.Choice:
    """Report which engine would run a call, and why the others would not.

    Args:
        layer: a layer of this package.
        input, hx, return_states, kwargs: the arguments of the call.

    Returns:
        the choice for the first layer of the stack. Print it to read the reasons against the other engines.

    Raises:
        TypeError: `layer` is not a layer of glassgate.

    Example:
        >>> import torch, glassgate as gg
        >>> with gg.engine("reference"):
        ...     gg.explain(gg.LSTM(3, 4), torch.randn(5, 2, 3)).engine
        'reference'
    """
    if not isinstance(layer, Recurrent):
        raise TypeError(f"explain: expected a layer of glassgate, such as gg.LSTM or gg.Recurrent, got {type(layer)}")
    steps, _, initial, restart_states = arrange_call(layer, input, hx, **kwargs)
    directions = directions_of_call(layer, initial, restart_states)[: layer.num_directions]
    return choose.choose(steps, directions, return_states)
