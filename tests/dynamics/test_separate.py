"""Separate layers have the same states as in the stack."""

import pytest
import torch

import glassgate as gg
from tests.compare import noise


@pytest.mark.parametrize("merge", ["concat", "sum", "mean", "none"])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("proj_size", [0, 3])
def test_separate_layers_compute_the_same_as_the_stack(merge: str, residual: bool, proj_size: int) -> None:
    options = {"merge": merge, "residual": residual, "proj_size": proj_size, "learn_initial_state": True}
    stack = gg.LSTM(3, 4, 3, bidirectional=True, batch_first=True, dtype=torch.float64, **options)
    with torch.no_grad():
        for k, weight in enumerate(stack.parameters()):
            weight.copy_(noise(k, *weight.shape))
    check(stack, noise(1, 7, 2, 3))


def test_sizes_and_constraints_may_differ_between_layers() -> None:
    stack = gg.GRU(3, [(4, 2), (6, 5)], 2, bidirectional=True, bias=False, residual=True, dtype=torch.float64)
    gg.constrain(stack, gg.constraints.Orthogonal())
    check(stack, noise(1, 7, 2, 3))


def test_one_direction_of_a_custom_cell() -> None:
    check(gg.Recurrent(gg.cells.CTRNN(), 3, 4, 2, residual=True, dtype=torch.float64), noise(1, 7, 2, 3))


def check(stack: gg.Recurrent, inputs: torch.Tensor) -> None:
    with gg.engine("reference"):
        *_, states = stack(inputs.transpose(0, 1) if stack.batch_first else inputs, return_states=True)
        for label, layer, own in gg.dynamics.separate(stack, inputs):
            expected, own_output = states[f"{label}.{stack.cell.state[0]}"], layer(own)[0]
            expected = expected.transpose(0, 1) if stack.batch_first else expected
            own_output = own_output.flip(0) if label.endswith("reverse") else own_output
            assert torch.allclose(own_output, expected, rtol=0, atol=1e-12), label
            assert (layer.num_directions, layer.num_layers, layer.training) == (1, 1, False)


def test_invalid_arguments_raise_errors() -> None:
    with pytest.raises(gg.ShapeError, match=r"separate: inputs must be \(L, N, H_in\) with H_in = 3, got \(7, 2, 4\)"):
        gg.dynamics.separate(gg.GRU(3, 4), noise(1, 7, 2, 4))
    with pytest.raises(TypeError, match=r"separate: layer must be a glassgate layer such as gg\.LSTM, got Linear"):
        gg.dynamics.separate(torch.nn.Linear(3, 4), noise(1, 7, 2, 3))
