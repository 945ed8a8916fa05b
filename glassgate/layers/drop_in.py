"""`RNN`, `GRU` and `LSTM`: the arguments of `torch.nn`, plus the keyword-only options of `Recurrent`."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict, TypeVar, Unpack

import torch
from torch import nn

from glassgate import cells
from glassgate.cell import Cell
from glassgate.layers.parts import HiddenSizes
from glassgate.layers.stack import Recurrent

Layer = TypeVar("Layer", bound=type[Recurrent])


class Options(TypedDict, total=False):
    """The keyword-only arguments of `Recurrent`, for editors and type checkers."""

    merge: str
    residual: bool
    zoneout: float | tuple[float, ...] | Mapping[str, float]
    recurrent_dropout: float
    recurrent_dropout_on: str
    weight_dropout: float
    variational_dropout: bool
    learn_initial_state: bool
    recompute: bool
    init: Callable[[nn.Module], None] | Sequence[Callable[[nn.Module], None]]


def _with_full_help(layer: Layer) -> Layer:
    """Complete a layer's signature and docstring with the arguments and shapes of `Recurrent`, for `help()`."""
    base_parameters = inspect.signature(Recurrent.__init__).parameters
    parameters = dict(inspect.signature(layer.__init__).parameters)
    parameters.pop("options", None)  # GRU and LSTM share a constructor; for LSTM, GRU has already replaced `options`
    parameters |= {name: base_parameters[name] for name in Options.__annotations__}
    signature = inspect.Signature([*parameters.values()], return_annotation=None)
    layer.__init__.__signature__ = signature  # type: ignore[attr-defined]
    summary, example = inspect.cleandoc(layer.__doc__ or "").split("\n\nExample:")
    arguments = inspect.cleandoc(Recurrent.__doc__ or "").split("Args:\n", 1)[1].split("\n", 2)[2]
    layer.__doc__ = f"{summary}\n{arguments}\n\nExample:{example}"
    return layer


@_with_full_help
class RNN(Recurrent):
    """A drop-in replacement for `torch.nn.RNN` with more options.

    Args:
        cell: the cell to use instead of `gg.cells.RNN`.
        input_size: the number of features of the input, H_in.
        nonlinearity: "tanh" or "relu".

    Example:
        >>> import torch, glassgate as gg
        >>> output, h_n = gg.RNN(3, 4, nonlinearity="relu")(torch.randn(5, 2, 3))
        >>> output.shape, h_n.shape
        (torch.Size([5, 2, 4]), torch.Size([1, 2, 4]))
    """

    _default_cell = cells.RNN

    def __init__(
        self,
        input_size: int,
        hidden_size: HiddenSizes,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        cell: Cell | None = None,
        **options: Unpack[Options],
    ) -> None:
        torch_options = (bias, batch_first, dropout, bidirectional, proj_size, device, dtype)
        super().__init__(
            cell or cells.RNN(nonlinearity), input_size, hidden_size, num_layers, *torch_options, **options
        )

    @property
    def nonlinearity(self) -> str:
        """The activation of the cell. Assign another cell to change it: `layer.cell = gg.cells.RNN("relu")`."""
        return getattr(self.cell, "nonlinearity", "tanh")

    @property
    def mode(self) -> str:
        """The name of the layer's kind in `torch.nn`, "RNN_TANH" or "RNN_RELU"."""
        return f"RNN_{self.nonlinearity.upper()}"


class _Gated(Recurrent):
    """The common constructor of `GRU` and `LSTM`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: HiddenSizes,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        cell: Cell | None = None,
        **options: Unpack[Options],
    ) -> None:
        assert self._default_cell is not None
        torch_options = (bias, batch_first, dropout, bidirectional, proj_size, device, dtype)
        super().__init__(cell or self._default_cell(), input_size, hidden_size, num_layers, *torch_options, **options)


@_with_full_help
class GRU(_Gated):
    """A drop-in replacement for `torch.nn.GRU` with more options.

    With proj_size, the layer has two states, (h, m), as described in `gg.cells.GRUP`.

    Args:
        cell: the cell to use instead of `gg.cells.GRU`, such as `gg.cells.GRUv3()`.
        input_size: the number of features of the input, H_in.

    Example:
        >>> import torch, glassgate as gg
        >>> output, h_n = gg.GRU(3, (4, 6), bidirectional=True)(torch.randn(5, 2, 3))
        >>> output.shape, [h.shape for h in h_n]
        (torch.Size([5, 2, 10]), [torch.Size([2, 4]), torch.Size([2, 6])])
    """

    _default_cell = cells.GRU
    mode = "GRU"


@_with_full_help
class LSTM(_Gated):
    """A drop-in replacement for `torch.nn.LSTM` with more options.

    Args:
        cell: the cell to use instead of `gg.cells.LSTM`.
        input_size: the number of features of the input, H_in.

    Example:
        >>> import torch, glassgate as gg
        >>> layer = gg.LSTM(8, 16, bidirectional=True)
        >>> output, (h_n, c_n) = layer(torch.randn(3, 5, 8), lengths=[3, 2, 0, 1, 3])
        >>> output.shape, h_n.shape, c_n.shape
        (torch.Size([3, 5, 32]), torch.Size([2, 5, 16]), torch.Size([2, 5, 16]))
    """

    _default_cell = cells.LSTM
    mode = "LSTM"
