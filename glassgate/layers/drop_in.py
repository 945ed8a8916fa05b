"""The namesakes of `torch.nn.RNN`, `GRU` and `LSTM`: the same constructor, plus what `Recurrent` has, keyword-only."""

from typing import Any

from glassgate import cells
from glassgate.cell import Cell
from glassgate.layers.parts import Sizes
from glassgate.layers.stack import Recurrent


class RNN(Recurrent):
    """`torch.nn.RNN`, and more.

    Args:
        input_size, hidden_size, num_layers: as in `Recurrent`.
        nonlinearity: "tanh" or "relu".
        cell: other equations in its place.
        args, kwargs: as in `Recurrent`, in torch's order.

    Example:
        >>> import torch, glassgate as gg
        >>> output, h_n = gg.RNN(3, 4, nonlinearity="relu")(torch.randn(5, 2, 3))
        >>> output.shape, h_n.shape
        (torch.Size([5, 2, 4]), torch.Size([1, 2, 4]))
    """

    plain = cells.RNN

    def __init__(
        self,
        input_size: int,
        hidden_size: Sizes,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        *args: Any,
        cell: Cell | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(cell or cells.RNN(nonlinearity), input_size, hidden_size, num_layers, *args, **kwargs)
        self.nonlinearity = nonlinearity


class GRU(Recurrent):
    """`torch.nn.GRU`, and more.

    Args:
        input_size, hidden_size: as in `Recurrent`.
        cell: other equations in its place, such as `gg.cells.GRUv1()`.
        args, kwargs: as in `Recurrent`, in torch's order. With proj_size there are two states, (h, m), as
            `gg.cells.GRUP` has them.

    Example:
        >>> import torch, glassgate as gg
        >>> output, h_n = gg.GRU(3, (4, 6), bidirectional=True)(torch.randn(5, 2, 3))
        >>> output.shape, [h.shape for h in h_n]
        (torch.Size([5, 2, 10]), [torch.Size([2, 4]), torch.Size([2, 6])])
    """

    plain = cells.GRU

    def __init__(
        self, input_size: int, hidden_size: Sizes, *args: Any, cell: Cell | None = None, **kwargs: Any
    ) -> None:
        super().__init__(cell or cells.GRU(), input_size, hidden_size, *args, **kwargs)


class LSTM(Recurrent):
    """`torch.nn.LSTM`, and more.

    Args:
        input_size, hidden_size: as in `Recurrent`.
        cell: other equations in its place.
        args, kwargs: as in `Recurrent`, in torch's order.

    Example:
        >>> import torch, glassgate as gg
        >>> layer = gg.LSTM(8, 16, bidirectional=True)
        >>> output, (h_n, c_n) = layer(torch.randn(3, 5, 8), lengths=[3, 2, 0, 1, 3])
        >>> output.shape, h_n.shape, c_n.shape
        (torch.Size([3, 5, 32]), torch.Size([2, 5, 16]), torch.Size([2, 5, 16]))
    """

    plain = cells.LSTM

    def __init__(
        self, input_size: int, hidden_size: Sizes, *args: Any, cell: Cell | None = None, **kwargs: Any
    ) -> None:
        super().__init__(cell or cells.LSTM(), input_size, hidden_size, *args, **kwargs)
