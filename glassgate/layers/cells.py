"""Modules that compute one step: `RNNCell`, `GRUCell` and `LSTMCell` as in `torch.nn`, and `RecurrentCell`."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, ClassVar

import torch
from torch import Tensor, fx, nn
from torch.nn.functional import linear

from glassgate import cells
from glassgate import init as schemes
from glassgate.cell import Cell, Weights
from glassgate.cell_checks import check_cell, check_heads
from glassgate.display import Drawable
from glassgate.engines import choose, torch_kernels
from glassgate.engines.contract import PLAIN_TYPES, Steps, is_eager
from glassgate.engines.memory import LOW_ADDRESS, in_memory
from glassgate.engines.reference_step import advance
from glassgate.layers.parts import state_forms
from glassgate.layers.regularisers import draw
from glassgate.layers.states import with_axes
from glassgate.layers.symbolic_call import symbolic_call
from glassgate.shapes import (
    ArgumentTypeError,
    ShapeError,
    check_dense,
    check_like,
    check_parameters,
    check_shape,
    check_size,
)

_shape, _dtype = attrgetter("shape"), attrgetter("dtype")
_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class RecurrentCell(Drawable, nn.Module):
    """A module that computes one step of any cell.

    Args:
        cell: the equations.
        input_size: H_in.
        hidden_size: H_cell.
        bias: whether the module has `bias_ih` and `bias_hh`.
        device, dtype: the device and dtype of the parameters.
        init: one scheme of `gg.init`, or several. They are applied in order, after torch's uniform initialisation.

    Shapes:
        input: (N, H_in) or (H_in).
        hx: (N, H_cell) or (H_cell). For a cell with several states, a tuple of such tensors. The default is zero. A
            state with declared axes has these axes, except the output, which is flat.
        output: the new states, with the structure of hx.
    """

    __constants__ = ["input_size", "hidden_size", "bias"]

    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor
    bias_hh: Tensor

    _default_cell: ClassVar[type[Cell] | None] = None
    """The cell of `RNNCell`, `GRUCell` or `LSTMCell`; None for other classes."""

    def __init__(
        self,
        cell: Cell,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        init: Callable[[nn.Module], None] | Sequence[Callable[[nn.Module], None]] = (),
    ) -> None:
        super().__init__()
        name = type(self).__name__
        # As in `torch.nn`, the sizes of a cell may be 0, and `bias` may have any type.
        input_size = check_size(name, "input_size", input_size, 0)
        hidden_size, bias = check_size(name, "hidden_size", hidden_size, 0), bool(bias)
        check_cell(name, cell)
        check_heads(name, cell, (hidden_size,))
        self.cell, self.input_size, self.hidden_size, self.bias, self.init = cell, input_size, hidden_size, bias, init
        for parameter, shape in cell.shapes(input_size, hidden_size, 0, bias).items():
            self.register_parameter(parameter, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self.reset_parameters()

    def weights(self) -> Iterator[tuple[Cell, Weights]]:
        """Yield one pair: the cell, and its parameters by name. `Recurrent` yields a pair per layer and direction."""
        names = self.cell.shapes(self.input_size, self.hidden_size, 0, self.bias)
        yield self.cell, {name: getattr(self, name) for name in names}

    __prepare_scriptable__ = choose.refuse_scripting

    def reset_parameters(self) -> None:
        """Initialise all parameters again."""
        schemes.initialise(self, self.init)

    def extra_repr(self) -> str:
        """Return the sizes, and the cell and `bias` unless they are the default, for the repr of the module."""
        sizes, bias = f"{self.input_size}, {self.hidden_size}", "" if self.bias else "bias=False"
        parts = [sizes, self.cell.repr_in_layer(self._default_cell)] if self._default_cell else [repr(self.cell), sizes]
        return ", ".join(part for part in (*parts, bias) if part)

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """Compute one step. The shapes are in the docstring of the class.

        Args:
            input: the input of the step.
            hx: the states before the step.

        Returns:
            the states after the step.

        Raises:
            ShapeError: a shape does not match.
            TypeError: an argument has the wrong type.
        """
        new = self._step_by_torch(input, hx)
        if new is not None:
            return new
        if isinstance(input, fx.Proxy):
            return symbolic_call(self, (input, hx), {})
        name = type(self).__name__
        if not isinstance(input, Tensor):
            raise ArgumentTypeError(f"{name}: input must be a tensor, got {type(input).__name__}")
        check_dense(name, "input", input)
        if input.dim() not in (1, 2):
            raise ShapeError(
                f"{name}: input must be 1D (H_in) or 2D (N, H_in), got {input.dim()}D {tuple(input.shape)}"
            )
        batch_shape = input.shape[:-1]
        check_shape(name, "input", input, "(N, H_in)" if batch_shape else "(H_in)", (*batch_shape, self.input_size))
        cell, weights = next(self.weights())
        weight = weights["weight_ih"]
        if not isinstance(weight, Tensor):
            raise ArgumentTypeError(f"{name}: weight_ih must be a tensor, got {type(weight).__name__}")
        check_like(name, "input", input, weight.dtype, weight.device, "the cell")
        shapes = cell.shapes(self.input_size, self.hidden_size, 0, self.bias)
        check_parameters(name, weights, shapes, weight.dtype, weight.device)
        forms = state_forms(cell, self.input_size, self.hidden_size)
        if hx is None:
            hx = tuple(input.new_full((*batch_shape, *form.shape), form.start) for form in forms.values())
        elif len(cell.state) == 1:
            hx = (hx,)
        if not isinstance(hx, tuple | list) or len(hx) != len(cell.state):
            error = ShapeError if isinstance(hx, tuple | list | Tensor) else ArgumentTypeError
            raise error(f"{name}: hx must be a tuple of {len(cell.state)} states {cell.state}, got {type(hx).__name__}")
        for state, value in zip(cell.state, hx, strict=True):
            form = forms[state]
            axes = form.letters if len(form.shape) > 1 else "H_cell"
            letters = f"(N, {axes})" if batch_shape else f"({axes})"
            check_shape(name, f"{state}_0", value, letters, (*batch_shape, *form.shape))
            check_like(name, f"{state}_0", value, input.dtype, input.device, "input")
        in_memory((input, *hx, *weights.values()))
        ih = linear(
            input if cell.declaration is None else input[..., : weight.shape[1]], weight, weights.get("bias_ih")
        )
        hx = tuple([v if v.dim() == len(batch_shape) + 1 else v.reshape(*batch_shape, -1) for v in hx])
        noise = {}
        if cell.noise and self.training:
            steps, states = Steps(torch.atleast_2d(ih), None, None), tuple(map(torch.atleast_2d, hx))
            noise = {key: v.reshape(*batch_shape, -1) for key, v in draw(cell, steps, states, self.hidden_size).items()}
        new = advance(cell, weights, ih, hx, noise, x=input)
        new = tuple([with_axes(v, form) for v, form in zip(new, forms.values(), strict=True)])
        return new if len(new) > 1 else new[0]

    def _step_by_torch(self, input: Any, hx: Any) -> Any:
        """Compute the step with a function of torch. None if the function does not support the call, or on an error."""
        function = torch_kernels.step_function(self.cell)
        if function is None or type(input) is not Tensor or not is_eager():
            return None
        if torch.is_autocast_enabled("cpu") or choose.requested_engine() not in ("auto", "torch"):
            return None
        H, state_count = self.hidden_size, len(self.cell.state)
        try:
            N = input.shape[0]
            if hx is None:
                zeros = input.new_zeros(N, H)
                hx = (zeros,) * state_count if state_count > 1 else zeros
            states = hx if type(hx) is tuple and state_count > 1 else (hx,)
            weights = [*map(self._parameters.get, _WEIGHTS if self.bias else _WEIGHTS[:2])]
            tensors = (input, *states, *weights)
            if not PLAIN_TYPES.issuperset(map(type, tensors)) or not input.is_cpu:
                return None
            shapes = _step_shapes(N, self.input_size, H, len(self.cell.gates), state_count, len(weights) > 2)
            if [*map(_shape, tensors)] != shapes or len({*map(_dtype, tensors)}) > 1:
                return None
            # Sparse tensors have no address. Those on the device meta and those whose memory was freed have address 0.
            return function(input, hx, *weights) if min(map(Tensor.data_ptr, tensors)) >= LOW_ADDRESS else None
        except (RuntimeError, IndexError):  # the checks in `forward` report the error
            return None


@lru_cache(256)
def _step_shapes(N: int, H_in: int, H: int, gates: int, states: int, bias: bool) -> list[tuple[int, ...]]:
    """The shapes of the input, the states and the parameters of a step."""
    return [(N, H_in), *[(N, H)] * states, (gates * H, H_in), (gates * H, H), *[(gates * H,)] * 2 * bias]


class RNNCell(RecurrentCell):
    """A drop-in replacement for `torch.nn.RNNCell`.

    Args and shapes are as in `RecurrentCell`, except `cell`. `nonlinearity` is "tanh" or "relu".

    Example:
        >>> import torch, glassgate as gg
        >>> gg.RNNCell(3, 4)(torch.randn(2, 3)).shape
        torch.Size([2, 4])
    """

    __constants__ = [*RecurrentCell.__constants__, "nonlinearity"]
    _default_cell = cells.RNN

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(cells.RNN(nonlinearity), input_size, hidden_size, bias, *args, **kwargs)
        self.nonlinearity = nonlinearity


class GRUCell(RecurrentCell):
    """A drop-in replacement for `torch.nn.GRUCell`. Args and shapes are as in `RecurrentCell`, except `cell`.

    Example:
        >>> import torch, glassgate as gg
        >>> gg.GRUCell(3, 4)(torch.randn(2, 3)).shape
        torch.Size([2, 4])
    """

    _default_cell = cells.GRU

    def __init__(self, input_size: int, hidden_size: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(cells.GRU(), input_size, hidden_size, *args, **kwargs)


class LSTMCell(RecurrentCell):
    """A drop-in replacement for `torch.nn.LSTMCell`. Args and shapes are as in `RecurrentCell`, except `cell`.

    Example:
        >>> import torch, glassgate as gg
        >>> h, c = gg.LSTMCell(3, 4)(torch.randn(2, 3))
        >>> h.shape, c.shape
        (torch.Size([2, 4]), torch.Size([2, 4]))
    """

    _default_cell = cells.LSTM

    def __init__(self, input_size: int, hidden_size: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(cells.LSTM(), input_size, hidden_size, *args, **kwargs)
