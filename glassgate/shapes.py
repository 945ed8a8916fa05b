"""Checks of arguments. An error message names the operation, the tensor, and the expected and given shape.

Axis letters: L steps, N sequences, D directions (1 or 2), H_in input features, H_cell units (hidden_size), H_out output
features of one direction (proj_size or hidden_size). `operation` is the name of a class or function, for messages.
"""

from collections.abc import Mapping, Sequence
from numbers import Integral, Real

import numpy as np
import torch
from torch import Tensor


class ShapeError(RuntimeError, ValueError, IndexError):
    """A tensor has the wrong shape, dtype, device or layout, or a tuple has the wrong length.

    `torch.nn` raises RuntimeError, ValueError or IndexError for such errors.
    """


class ArgumentTypeError(TypeError, AttributeError):
    """An argument is not a tensor, or not a tuple. `torch.nn` raises TypeError or AttributeError for such errors."""


def check_shape(operation: str, name: str, tensor: Tensor, letters: str, expected: Sequence[int]) -> None:
    """Raise ShapeError unless `tensor` has the shape `expected`. `letters` are the names of its axes, for messages."""
    if not isinstance(tensor, Tensor):
        raise ArgumentTypeError(
            f"{operation}: {name} must be a tensor {letters} = {tuple(expected)}, got {type(tensor).__name__}"
        )
    check_dense(operation, name, tensor)
    if tuple(tensor.shape) != tuple(expected):
        raise ShapeError(f"{operation}: {name} must be {letters} = {tuple(expected)}, got {tuple(tensor.shape)}")


def check_dense(operation: str, name: str, tensor: Tensor) -> None:
    """Raise ShapeError unless `tensor` has a number in memory for each of its elements."""
    if tensor.layout is not torch.strided:
        raise ShapeError(
            f"{operation}: {name} must be a dense tensor, got the layout {tensor.layout}; convert it: {name}.to_dense()"
        )
    if tensor.is_nested:
        raise ShapeError(
            f"{operation}: {name} must be a dense tensor, got a nested tensor; "
            f"convert it: torch.nested.to_padded_tensor({name}, 0.0)"
        )
    if tensor.is_quantized:
        raise ShapeError(
            f"{operation}: {name} must be a dense tensor, got a quantized tensor; convert it: {name}.dequantize()"
        )


def check_like(operation: str, name: str, tensor: Tensor, dtype: torch.dtype, device: torch.device, owner: str) -> None:
    """Raise ShapeError unless `tensor` has the dtype and device of the tensor `owner`. Autocast permits any dtype."""
    if tensor.device != device:
        raise ShapeError(
            f"{operation}: {name} must be on {owner}'s device {device}, got {tensor.device}; "
            f"move it: {name}.to({str(device)!r})"
        )
    if tensor.dtype != dtype and not torch.is_autocast_enabled(device.type):
        raise ShapeError(
            f"{operation}: {name} must have {owner}'s dtype {dtype}, got {tensor.dtype}; convert it: {name}.to({dtype})"
        )


def check_parameters(
    operation: str,
    parameters: Mapping[str, Tensor],
    shapes: Mapping[str, tuple[int, ...]],
    dtype: torch.dtype,
    device: torch.device,
    suffix: str = "",
) -> None:
    """Raise unless each parameter is a dense tensor with the expected shape, dtype and device.

    The dtype may differ under autocast. Kernels read memory by address, and users can replace a parameter at any time.
    Therefore every call checks the parameters.

    Args:
        operation: the name of the layer's class.
        parameters: the parameters by name.
        shapes: their expected shapes by name.
        dtype, device: the dtype and device of `weight_ih`.
        suffix: the end of the names of the parameters in messages, such as "_l0_reverse".
    """
    for name, value in parameters.items():
        try:
            is_valid = value.shape == shapes[name] and value.dtype == dtype and value.device == device
            if is_valid and value.layout is torch.strided:
                continue
        except AttributeError:  # not a tensor
            pass
        except RuntimeError as error:  # a subclass of Tensor that supports only some functions, such as ExpandedWeight
            raise RuntimeError(
                f"{operation}: {name + suffix} must support torch's usual operations, got the tensor subclass "
                f"{type(value).__name__}; for per-sample gradients use torch.func.vmap and torch.func.grad"
            ) from error
        owner = f"weight_ih{'_l0' * bool(suffix)}"
        _check_parameter(operation, name + suffix, value, shapes[name], dtype, device, owner)


def _check_parameter(
    operation: str,
    name: str,
    value: object,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
    owner: str,
) -> None:
    """Raise unless one parameter fulfils the conditions of `check_parameters`."""
    if not isinstance(value, Tensor):
        raise ArgumentTypeError(f"{operation}: {name} must be a tensor {shape}, got {type(value).__name__}")
    check_dense(operation, name, value)
    if tuple(value.shape) != shape:
        raise ShapeError(f"{operation}: {name} must be {shape}, got {tuple(value.shape)}")
    if not value.dtype.is_floating_point:
        raise ShapeError(f"{operation}: {name} must have floating point numbers, got {value.dtype}")
    check_like(operation, name, value, dtype, device, owner)


def check_size(operation: str, name: str, value: object, minimum: int = 1) -> int:
    """Return `value` as an int. Raise unless it is an integer of at least `minimum`, 0 or 1. NumPy's are accepted."""
    bound = "above zero" if minimum else "of at least zero"
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{operation}: {name} must be an int {bound}, got {value!r} of type {type(value).__name__}")
    if value < minimum:
        if minimum:
            raise ValueError(f"{operation}: {name} must be greater than zero, got {value}")
        raise ShapeError(f"{operation}: {name} must be an int {bound}, got {value}")
    return int(value)


def check_flag(operation: str, name: str, value: object) -> bool:
    """Return `value` as a bool. Raise TypeError unless it is a bool of Python or NumPy."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{operation}: {name} must be a bool, got {value!r} of type {type(value).__name__}")
    return bool(value)


def check_rate(operation: str, name: str, value: object) -> float:
    """Return `value` as a float. Raise ValueError unless it is a real number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= 1:
        raise ValueError(f"{operation}: {name} must be a number in range [0, 1], got {value!r}")
    return float(value)


def check_choice(operation: str, name: str, value: object, choices: Sequence[str]) -> None:
    """Raise ValueError unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{operation}: {name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
