"""Each rule on a network made to have its fault, and silence on healthy ones."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

import glassgate as gg
from glassgate.glass.findings import RULES, Finding, findings
from glassgate.glass.followers import follows
from glassgate.glass.study import Cause, Flow, Lapse, Passage, Said, Study, directions

L, H = 60, 8


def study(change: Callable[[gg.LSTM], None] = lambda layer: None) -> Study:
    """A study of an LSTM whose weights were changed."""
    torch.manual_seed(3)
    layer = gg.LSTM(4, H)
    with torch.no_grad():
        for each in layer.parameters():
            each.mul_(2)
        change(layer)
        with gg.record(layer) as tape:
            layer(torch.randn(L, 1, 4))
    return Study("x", "", [Passage([str(k) for k in range(L)])], directions(tape))


def said(made: Study) -> str:
    return "\n".join(each.sentence for each in findings(made))


def test_a_healthy_network_has_no_fault() -> None:
    assert not [each for each in findings(study()) if each.fault]


def bias(gate: int, value: float, units: slice = slice(None)) -> Callable[[gg.LSTM], None]:
    def change(layer: gg.LSTM) -> None:
        layer.bias_ih_l0.view(4, H)[gate, units] = value

    return change


def dead(layer: gg.LSTM) -> None:
    bias(3, -30.0, slice(2, 3))(layer)


def twins(layer: gg.LSTM) -> None:
    """Unit 5 has the weights of unit 1."""
    for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
        rows = getattr(layer, name).view(4, H, -1)
        rows[:, 5] = rows[:, 1]


@pytest.mark.parametrize(
    ("change", "sentence", "fault"),
    [
        (bias(1, 9.0), "100 % of the forget gates of layer0.forward stand above 0.9.", False),
        (bias(1, 9.0), "keep half of c for longer than the 60 steps", False),
        (bias(0, -30.0), "The gate i of layer0.forward is stuck closed in 8 of 8 units.", True),
        (bias(3, 30.0, slice(0, 2)), "The gate o of layer0.forward is stuck open in 2 of 8 units.", True),
        (dead, "1 unit of layer0.forward does nothing: 2.", True),
        (twins, "1 pair of units of layer0.forward is twins: 1 and 5.", True),
    ],
)
def test_a_fault_is_found(change: Callable[[gg.LSTM], None], sentence: str, fault: bool) -> None:
    sentence = sentence.replace(" %", "\N{NARROW NO-BREAK SPACE}%")
    assert sentence not in said(study())
    made = study(change)
    (found,) = [each for each in findings(made) if sentence in each.sentence]
    assert found.fault == fault


def flow(curve: list[float]) -> Study:
    made = study()
    trained = np.array([curve, curve, curve])
    made.directions[0].flow["c"] = Flow(list(range(len(curve))), trained, np.array(curve), None)
    return made


def test_gradients_that_vanish_or_explode() -> None:
    assert "gradient" not in said(flow([0.9**k for k in range(40)]))
    assert "layer0.forward is under 1" in said(flow([0.5**k for k in range(40)]))
    assert "after 7 steps (7 steps at initialisation)" in said(flow([0.5**k for k in range(40)]))
    (found,) = [each for each in findings(flow([1.2**k for k in range(40)])) if "gradient" in each.sentence]
    assert found.fault
    assert "grows to 1225 times" in found.sentence


def test_answers_a_follower_and_what_was_learned_by_heart() -> None:
    made = study()
    values = made.directions[0].values["c"][:, 3]
    labels = ["high" if value > np.median(values) else "low" for value in values]
    answers = [Said(step, [(label, 0.9), ("low", 0.1)], (label, 0.9)) for step, label in enumerate(labels)]
    answers[7] = Said(7, [("other", 0.6), ("low", 0.4)], (labels[7], 0.1))
    made.passages = [Passage(made.passages[0].steps, answers)]
    made.directions[0].values["c"][:, 3] = [label == "high" for label in labels]
    best = follows(made)[0]
    assert (best.label, best.unit) in {("high", 3), ("low", 3)}
    assert best.correlation == pytest.approx(1.0)
    assert "59 of 60 answers are right" in said(made)
    assert "Unit 3 of layer0.forward follows" in said(made)
    row = {"step": 1.0, "train_loss": 1.0, "dev_loss": 1.0}
    made.training = [row, row | {"step": 2.0, "train_loss": 0.5, "dev_loss": 0.6}]
    assert "in training" not in said(made)
    made.training.append({"step": 3.0, "train_loss": 0.1, "dev_loss": 0.9})
    assert "The loss is 0.9 on dev data and 0.1 in training." in said(made)
    made.unit, made.points = "nats an answer", "points of accuracy"
    made.causes = [
        Cause("layer0.forward.f", 0.9, 9),
        Cause("layer0.forward", 0.4, 7.25),
        Cause("layer0.reverse", 0.2, None),
    ]
    assert "layer0.forward is worth 7.2 points of accuracy." in said(made)
    assert "layer0.reverse is worth 0.2 nats an answer." in said(made)
    assert "layer0.forward.f is worth" not in said(made)
    made.lapses = [Lapse(0, 0, 20, 0.1, 0), Lapse(0, 20, 40, 0.7, 12), Lapse(0, 40, 60, -0.1, 0)]
    assert "Steps 21 to 40 matter most: 12.0 points of accuracy." in said(made)


def test_every_finding_has_a_plot_and_a_meaning() -> None:
    sections = {"text", "saturation", "memory", "flow", "gates", "causes", "training"}
    for change in (bias(1, 9.0), bias(0, -30.0), dead, twins):
        for each in findings(study(change)):
            assert isinstance(each, Finding)
            assert each.section in sections
            assert each.meaning.endswith(".")
    assert len(RULES) == 11
