"""The methods and attributes of `torch.nn.RNNBase`, for subclasses and libraries written for the layers of `torch.nn`.

A layer reads its parameters at each call. Lists of parameters are therefore computed, and need no update after a
parameter was replaced.
"""

import weakref
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from glassgate.layers.base import BaseLayer, weights_of
from glassgate.shapes import ShapeError, check_like

T = TypeVar("T")
COMPUTED = ("all_weights", "_all_weights", "_flat_weights", "_flat_weights_names", "_flat_weight_refs")
"""The attributes that are computed from the parameters."""
_CHECKS = (
    "check_forward_args", "check_input", "check_hidden_size", "get_expected_hidden_size", "get_expected_cell_size",
)  # fmt: skip
REPLACEABLE = (*_CHECKS, "permute_hidden")
"""The methods that `forward` calls if a subclass or an object replaces them."""


class _Computed(list[T]):
    """A list that is computed at each access. Methods that would change it raise, because they would have no effect."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise AttributeError(
            "this list is computed from the parameters of the layer, so it cannot be changed; replace a parameter, for "
            "example layer.weight_ih_l0 = torch.nn.Parameter(...)"
        )

    append = clear = extend = insert = pop = remove = reverse = sort = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __reduce__(self) -> tuple[type[list[T]], tuple[list[T]]]:
        return list, ([*self],)


class TorchInterface(BaseLayer):
    """A `BaseLayer` with the methods and attributes of `torch.nn.RNNBase`."""

    __constants__ = [
        "mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional",
        "proj_size",
    ]  # fmt: skip
    __jit_unused_properties__ = ["all_weights"]

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """A list of the parameters of each layer and direction, as in `torch.nn`."""
        return [list(weights_of(self, part).values()) for part in self.glassgate.parts]

    @property
    def _all_weights(self) -> list[list[str]]:
        """The names of the parameters of each layer and direction."""
        return _Computed(_Computed(part.names.values()) for part in self.glassgate.parts)

    @property
    def _flat_weights_names(self) -> list[str]:
        """The names of the parameters in torch's order."""
        return _Computed(name for part in self.glassgate.parts for name in part.names.values())

    @property
    def _flat_weights(self) -> list[Tensor | None]:
        """The parameters in torch's order; None for a parameter that was deleted."""
        return _Computed(getattr(self, name, None) for name in self._flat_weights_names)

    @property
    def _flat_weight_refs(self) -> list[weakref.ref[Tensor] | None]:
        """Weak references to `_flat_weights`."""
        return _Computed(None if weight is None else weakref.ref(weight) for weight in self._flat_weights)

    def flatten_parameters(self) -> None:
        """Do nothing. This method exists for code written for `torch.nn`; kernels do not need contiguous parameters."""

    def _init_flat_weights(self) -> None:
        """Do nothing, because `_flat_weights` is computed at each access."""

    def _update_flat_weights(self) -> None:
        """Do nothing, because `_flat_weights` is computed at each access."""

    def _weights_have_changed(self) -> bool:
        """Return False: `_flat_weights` never differs from the parameters."""
        return False

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """Raise ShapeError unless the input fits the layer.

        Args:
            input: (L, N, H_in), (N, L, H_in) if batch_first, or with `batch_sizes` packed rows (S, H_in).
            batch_sizes: the batch sizes of packed input; None for other input.
        """
        name, axes = self.glassgate.class_name, 3 if batch_sizes is None else 2
        check_like(name, "input", input, self.weight_ih_l0.dtype, self.weight_ih_l0.device, "the layer")
        if input.dim() != axes or input.shape[-1] != self.input_size:
            raise ShapeError(
                f"{name}: input must have {axes} axes and {self.input_size} features, got {tuple(input.shape)}"
            )

    def check_hidden_size(
        self, hx: Tensor, expected_hidden_size: tuple[int, ...], msg: str = "Expected hidden size {}, got {}"
    ) -> None:
        """Raise ShapeError unless a state has the expected shape. `msg` has places for both shapes."""
        if tuple(hx.shape) != tuple(expected_hidden_size):
            raise ShapeError(f"{self.glassgate.class_name}: {msg.format(expected_hidden_size, list(hx.shape))}")

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """Return the shape of the first state, (num_layers * D, N, H_out). The arguments are as in `check_input`."""
        return self._expected_shape(0, input, batch_sizes)

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """Return the shape of the other states, (num_layers * D, N, H_cell). The arguments are as in `check_input`."""
        return self._expected_shape(-1, input, batch_sizes)

    def _expected_shape(self, state: int, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        parts = self.glassgate.parts
        widths = {[*part.widths.values()][state] for part in parts}
        if len(widths) > 1:
            raise ShapeError(
                f"{self.glassgate.class_name}: the states of hidden_size={self.hidden_size} have no common shape; "
                "check the state of each layer and direction instead"
            )
        N = input.shape[0 if self.batch_first else 1] if batch_sizes is None else int(batch_sizes[0])
        return len(parts), N, widths.pop()

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """Raise ShapeError unless the input and the states `hidden` fit the layer. See `check_input`."""
        self.check_input(input, batch_sizes)
        expected = self.get_expected_hidden_size(input, batch_sizes)
        if isinstance(hidden, Tensor):
            self.check_hidden_size(hidden, expected)
            return
        for k, state in enumerate(hidden):
            shape = self.get_expected_cell_size(input, batch_sizes) if k else expected
            self.check_hidden_size(state, shape, f"Expected hidden[{k}] size {{}}, got {{}}")

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """Return the states with their sequences in another order; unchanged if `permutation` is None."""
        return hx if permutation is None else _permute(hx, permutation)


def _permute(hx: Any, permutation: Tensor) -> Any:
    if isinstance(hx, Tensor):
        return hx.index_select(-2, permutation)
    return tuple([_permute(state, permutation) for state in hx])


def replaced_methods(layer_class: type[TorchInterface]) -> frozenset[str]:
    """Return the names of the methods in `REPLACEABLE` that a class replaces."""
    return frozenset([name for name in REPLACEABLE if getattr(layer_class, name) is not getattr(TorchInterface, name)])


def run_with_replaced_methods(layer: TorchInterface, run: Callable[[Any, Any], Any], input: Any, hx: Any) -> Any:
    """Run a call, and call the replaced methods with the arguments that `torch.nn` passes to them.

    Args:
        layer: a layer with replaced methods.
        run: runs the call.
        input, hx: as in `Recurrent.forward`.
    """
    is_packed, replaced = isinstance(input, PackedSequence), layer.glassgate.replaced_methods
    data, batch_sizes, order, inverse = input if is_packed else (input, None, None, None)
    if not isinstance(data, Tensor) or (not is_packed and data.dim() not in (2, 3)):
        return run(input, hx)  # raises the error
    permutes = "permute_hidden" in replaced
    if permutes and hx is not None:
        hx = layer.permute_hidden(hx, order)
    is_checked = not is_packed or len(layer.cell.state) == 1  # torch's LSTM does not check packed input
    if is_checked and not replaced.isdisjoint(_CHECKS):
        is_batched = is_packed or data.dim() == 3
        batch = data if is_batched else data.unsqueeze(0 if layer.batch_first else 1)
        layer.check_forward_args(batch, _batched_states(layer, batch, batch_sizes, hx, is_batched), batch_sizes)
    if not permutes:
        return run(input, hx)
    # As in torch, the engine receives the sequences in the order of `permute_hidden`.
    output, hidden, *states = run(PackedSequence(data, batch_sizes) if is_packed else input, hx)
    if is_packed:
        output = PackedSequence(output.data, batch_sizes, order, inverse)
        states = [
            {name: PackedSequence(v.data, batch_sizes, order, inverse) for name, v in by_name.items()}
            for by_name in states
        ]
    return output, layer.permute_hidden(hidden, inverse), *states


def _batched_states(layer: TorchInterface, batch: Tensor, batch_sizes: Tensor | None, hx: Any, is_batched: bool) -> Any:
    """Return the initial states of a batch in the form in which `torch.nn` passes them to `check_forward_args`."""
    if hx is None:
        count = len(layer.cell.state)
        zeros = [batch.new_zeros(layer._expected_shape(-k, batch, batch_sizes)) for k in range(count)]
        return tuple(zeros) if count > 1 else zeros[0]
    if is_batched:
        return hx
    return hx.unsqueeze(1) if isinstance(hx, Tensor) else tuple([state.unsqueeze(1) for state in hx])
