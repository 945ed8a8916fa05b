"""Checks of arguments raise the right message for each error, and accept correct arguments."""

import pytest
import torch

from glassgate import shapes

CPU = torch.device("cpu")
X = torch.zeros(2, 3)


def test_correct_arguments_are_accepted():
    shapes.check_shape("op", "x", X, "(N, H)", (2, 3))
    shapes.check_like("op", "x", X, torch.float32, CPU, "y")
    shapes.check_size("op", "n", 1)
    shapes.check_flag("op", "b", False)
    shapes.check_choice("op", "c", "a", ("a", "b"))
    for rate in (0, 1, 0.5):
        shapes.check_rate("op", "p", rate)


FAULTS = {
    "op: x must be (N, H) = (2, 4), got (2, 3)": (
        shapes.ShapeError,
        lambda: shapes.check_shape("op", "x", X, "(N, H)", (2, 4)),
    ),
    "op: x must be a tensor (N, H) = (2, 4), got list": (
        shapes.ArgumentTypeError,
        lambda: shapes.check_shape("op", "x", [], "(N, H)", (2, 4)),
    ),
    "op: x must have y's dtype torch.float64, got torch.float32; convert it: x.to(torch.float64)": (
        shapes.ShapeError,
        lambda: shapes.check_like("op", "x", X, torch.float64, CPU, "y"),
    ),
    "op: x must be on y's device meta, got cpu; move it: x.to('meta')": (
        shapes.ShapeError,
        lambda: shapes.check_like("op", "x", X, torch.float32, torch.device("meta"), "y"),
    ),
    "op: n must be greater than zero, got 0": (ValueError, lambda: shapes.check_size("op", "n", 0)),
    "op: n must be an int above zero, got True of type bool": (TypeError, lambda: shapes.check_size("op", "n", True)),
    "op: b must be a bool, got 0 of type int": (TypeError, lambda: shapes.check_flag("op", "b", 0)),
    "op: p must be a number in range [0, 1], got 1.01": (ValueError, lambda: shapes.check_rate("op", "p", 1.01)),
    "op: p must be a number in range [0, 1], got nan": (
        ValueError,
        lambda: shapes.check_rate("op", "p", float("nan")),
    ),
    "op: p must be a number in range [0, 1], got None": (ValueError, lambda: shapes.check_rate("op", "p", None)),
    "op: c must be one of 'a', 'b', got 'x'": (ValueError, lambda: shapes.check_choice("op", "c", "x", ("a", "b"))),
}


@pytest.mark.parametrize("message", FAULTS)
def test_wrong_arguments_are_rejected(message):
    kind, call = FAULTS[message]
    with pytest.raises(kind) as error:
        call()
    assert type(error.value) is kind
    assert str(error.value) == message


def test_the_dtype_may_differ_under_autocast():
    with torch.autocast("cpu", torch.bfloat16):
        shapes.check_like("op", "x", X, torch.bfloat16, CPU, "y")


def test_errors_have_all_types_that_torch_raises():
    assert issubclass(shapes.ShapeError, RuntimeError)
    assert issubclass(shapes.ShapeError, ValueError)
    assert issubclass(shapes.ShapeError, IndexError)
    assert issubclass(shapes.ArgumentTypeError, TypeError)
    assert issubclass(shapes.ArgumentTypeError, AttributeError)
