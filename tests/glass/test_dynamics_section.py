"""The section Dynamics reports planted dynamics, and untrained networks have no findings."""

import math
import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import glassgate as gg
from glassgate.glass.controls import CONTROLS, with_random_weights
from glassgate.glass.dynamics_section import dynamics_section
from glassgate.glass.findings import findings
from glassgate.glass.recorded import Recorded
from glassgate.glass.study import Direction, Passage, Study, directions
from glassgate.tasks.report.dynamics import add_dynamics
from tests.compare import noise
from tests.dynamics.test_jacobian import Branching

L, H = 64, 6


class Linear(gg.Cell):
    gates, state = ("n",), ("h",)

    def step(self, a, s):
        return a.n


def study(layer: gg.Recurrent, plant: Callable[[gg.Recurrent], None] = lambda layer: None, length: int = L) -> Study:
    with torch.no_grad(), gg.engine("reference"):
        plant(layer)
        network = torch.nn.ModuleDict({"encoder": layer})
        with gg.record(network) as tape:
            layer(noise(1, length, 2, 3).float())
        untrained = [with_random_weights(tape, seed) for seed in range(CONTROLS)]
    made = Study("", "", [Passage([str(k) for k in range(length)])] * 2, measured(tape))
    made.controls = [measured(each) for each in untrained]
    return made


def measured(tape: Recorded) -> list[Direction]:
    parts = directions(tape, "encoder", brief=True)
    assert add_dynamics(parts, tape) == ""
    return parts


def sentences(made: Study) -> list[str]:
    return [each.sentence for each in findings(made) if each.section == "dynamics"]


def test_a_linear_memory_has_its_time_constant() -> None:
    def leaky(layer: gg.Recurrent) -> None:
        layer.weight_hh_l0.copy_(0.5 * torch.eye(H))
        layer.weight_hh_l0_reverse.copy_(math.exp(-1 / 20) * torch.eye(H))

    made = study(gg.Recurrent(Linear(), 3, H, bidirectional=True, merge="none"), leaky)
    forward, reverse = (each.dynamics for each in made.directions)
    assert forward is not None
    assert reverse is not None
    np.testing.assert_allclose(forward.exponents, math.log(0.5), atol=1e-6)
    np.testing.assert_allclose(reverse.survival[:, 0], np.exp(-np.arange(1, 22) / 20), rtol=1e-5)
    assert sentences(made) == [
        "A small difference in the state of layer0.reverse shrinks by a factor of e in 20 steps."
    ]
    page = dynamics_section(made).body
    assert "\N{MINUS SIGN}0.69 (\N{MINUS SIGN}0.69 to \N{MINUS SIGN}0.69)" in page
    assert "Less than 1\N{NARROW NO-BREAK SPACE}% of a small difference is left after 7 steps" in page
    assert re.findall(r"(No measure|At least one)", page) == ["No measure", "At least one"]


def test_a_bistable_unit_has_two_stable_points_and_a_saddle() -> None:
    def bistable(layer: gg.Recurrent) -> None:
        for parameter in layer.parameters():
            parameter.zero_()
        layer.weight_hh_l0[0, 0] = 3.0
        layer.weight_ih_l0[0, 0] = 2.0

    made = study(gg.RNN(3, H), bistable)
    points = made.directions[0].dynamics.points
    assert points.stable[points.coordinates[:, 0].argsort()].tolist() == [True, False, True]
    assert "layer0.forward has 2 stable fixed points under its mean input." in sentences(made)


def test_growing_differences_are_found() -> None:
    def chaotic(layer: gg.Recurrent) -> None:
        layer.weight_hh_l0.copy_(4 * noise(2, 24, 24) / 24**0.5)

    assert any("grows by" in each for each in sentences(study(gg.RNN(3, 24), chaotic)))


@pytest.mark.parametrize("cell", [gg.RNN, gg.GRU, gg.LSTM])
def test_an_untrained_network_has_no_findings(cell: type[gg.Recurrent]) -> None:
    torch.manual_seed(100)
    made = study(cell(3, H, bidirectional=True))
    assert sentences(made) == []
    assert "At least one" not in dynamics_section(made).body


def test_the_section_explains_why_it_has_no_fixed_points() -> None:
    made = study(gg.LSTM(3, 65), length=16)
    assert made.directions[0].dynamics.points is None
    assert "the search is slow for 130 state variables" in dynamics_section(made).body


def test_a_note_explains_why_the_section_is_left_out() -> None:
    assert (
        reason(gg.GRU(3, H), 7) == "dynamics: the section is left out, because it needs sequences of at least 8 steps."
    )
    assert reason(gg.Recurrent(Branching(), 3, H), 9).startswith(
        "dynamics: the section is left out, because the cell cannot be traced (cell Branching: step uses"
    )


def reason(layer: gg.Recurrent, length: int) -> str:
    with gg.engine("reference"), gg.record(torch.nn.ModuleDict({"encoder": layer})) as tape:
        layer(noise(1, length, 2, 3).float())
    parts = directions(tape, "encoder", brief=True)
    why = add_dynamics(parts, tape)
    assert parts[0].dynamics is None
    assert dynamics_section(Study("", "", [Passage([""] * length)] * 2, parts)).body == ""
    return why


def test_windows_of_ragged_sequences_leave_out_padding() -> None:
    layer, data = gg.GRU(3, H), noise(1, 30, 4, 3).float()

    def survival(padding: float) -> Tensor:
        steps = data.clone()
        for row, length in enumerate(lengths := [30, 9, 17, 20]):
            steps[length:, row] = padding
        with gg.engine("reference"), gg.record(torch.nn.ModuleDict({"encoder": layer})) as tape:
            layer(steps, lengths=lengths)
        (part,) = measured(tape)
        return torch.as_tensor(part.dynamics.survival)

    assert survival(0.0).shape == (10, 6)
    assert torch.equal(survival(0.0), survival(100.0))
