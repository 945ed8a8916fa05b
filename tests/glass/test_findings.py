"""Each rule reports a planted structure, and networks without structure have no findings."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import glassgate as gg
from glassgate.glass.controls import CONTROLS, MANY_CONTROLS, with_random_weights
from glassgate.glass.effects.answers import f1_score
from glassgate.glass.findings import RULES, Finding, findings, markdown_table
from glassgate.glass.followers import best_followers
from glassgate.glass.gradients import flow_from_backward
from glassgate.glass.study import Answer, Cause, Choice, Direction, Flow, Passage, Study, WindowCause, directions
from glassgate.glass.text_section import text_section

L, H = 60, 8
NARROW = "\N{NARROW NO-BREAK SPACE}"


def study(change: Callable[[gg.LSTM], None] = lambda layer: None, seed: int = 3, length: int = L) -> Study:
    """A study of an LSTM whose weights were changed, and of its untrained controls."""
    torch.manual_seed(seed)
    layer = gg.LSTM(4, H)
    with torch.no_grad(), gg.engine("reference"):
        change(layer)
        with gg.record(layer) as tape:
            layer(torch.randn(length, 1, 4))
        controls = [directions(with_random_weights(tape, k), brief=True) for k in range(CONTROLS)]
    return Study("x", "", [Passage([str(k) for k in range(length)])], directions(tape), controls=controls)


def sentences(made: Study) -> str:
    return "\n".join(each.sentence for each in findings(made)).replace(NARROW, " ")


@pytest.mark.parametrize("seed", range(6))
def test_an_untrained_network_has_no_findings(seed: int) -> None:
    assert findings(study(seed=seed)) == []


def bias(gate: int, value: float, units: slice = slice(None)) -> Callable[[gg.LSTM], None]:
    def change(layer: gg.LSTM) -> None:
        layer.bias_ih_l0.view(4, H)[gate, units] = value

    return change


def dead(layer: gg.LSTM) -> None:
    bias(3, -30.0, slice(2, 3))(layer)


def dead_layer(layer: gg.LSTM) -> None:
    bias(3, -30.0)(layer)


def counter(layer: gg.LSTM) -> None:
    """Unit 5 adds a constant in each step."""
    for weight in (layer.weight_ih_l0, layer.weight_hh_l0):
        weight.view(4, H, -1)[:, 5] = 0
    layer.bias_ih_l0.view(4, H)[:, 5] = torch.tensor([9.0, 9.0, 0.05, 0.0])
    layer.bias_hh_l0.view(4, H)[:, 5] = 0


def twins(layer: gg.LSTM) -> None:
    """Unit 5 has the weights of unit 1."""
    for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
        rows = getattr(layer, name).view(4, H, -1)
        rows[:, 5] = rows[:, 1]


@pytest.mark.parametrize(
    ("change", "sentence", "fault"),
    [
        (bias(1, 9.0), "100 % of the forget gates of layer0.forward are above 0.9.", False),
        (bias(1, 9.0), "keep half of c for longer than the 60 steps", False),
        (bias(0, -30.0), "The gate i of layer0.forward is stuck closed in 100 % of its units.", True),
        (bias(3, 30.0, slice(0, 2)), "The gate o of layer0.forward is stuck open in 25 % of its units.", True),
        (dead, "1 unit of layer0.forward does nothing: 2.", True),
        (dead_layer, "All units of layer0.forward do nothing: 0, 1,", True),
        (twins, "1 pair of units of layer0.forward behaves alike: 1 and 5.", True),
        (counter, "Unit 5 of layer0.forward counts the steps (correlation 1.00).", False),
    ],
)
def test_planted_structure_is_found(change: Callable[[gg.LSTM], None], sentence: str, fault: bool) -> None:
    made = study(change)
    assert sentence in sentences(made)
    (finding,) = [each for each in findings(made) if sentence in each.sentence.replace(NARROW, " ")]
    assert finding.fault == fault


@pytest.mark.parametrize("change", [bias(0, -30.0), bias(3, 30.0), bias(1, 30.0), dead, twins])
def test_seven_steps_are_too_few_for_statements_about_units(change: Callable[[gg.LSTM], None]) -> None:
    made = study(change, length=7)
    about_units = ("stuck gates", "open forget gates", "dead units", "twins")
    assert not [each for each in findings(made) if each.rule in about_units]


@pytest.mark.parametrize(("equal", "is_finding"), [(None, True), (20, False)])
def test_a_unit_that_follows_a_label_is_compared_with_many_untrained_networks(
    equal: int | None, is_finding: bool
) -> None:
    """The unit is a finding unless a unit of one of the 36 further networks follows the label as closely."""
    labels = ["high" if k // 3 % 3 == 0 else "low" for k in range(L)]
    made, drawn = answered(labels, labels), []
    weak = deepcopy(made.directions)
    made.directions[0].values["c"][:, 3] = [label == "high" for label in labels]
    made.controls = [weak] * CONTROLS

    def control(number: int) -> list[Direction]:
        drawn.append(number)
        return made.directions if number == equal else weak

    made.make_control = control
    assert ("Unit 3 of layer0.forward follows" in sentences(made)) == is_finding
    assert drawn == [*range(CONTROLS, MANY_CONTROLS)]


def test_a_network_that_equals_its_controls_has_no_findings() -> None:
    """Forget gates that are open by their initial bias are not a result of training."""
    made = study(bias(1, 9.0))
    assert "forget gates" in sentences(made)
    made = study(bias(1, 9.0))
    made.controls = [made.directions]
    assert sentences(made) == ""


def flow(curve: list[float], before: list[float] | None = None, one_step: bool = True) -> Study:
    made = study()
    rows, first = np.array([curve] * 9), np.array([before or curve])
    made.directions[0].flow = {name: Flow(list(range(len(curve))), rows, first, None, one_step) for name in "hc"}
    return made


def test_vanishing_and_exploding_gradients_are_found() -> None:
    slow, fast, grows = [0.9**k for k in range(50)], [0.5**k for k in range(50)], [1.2**k for k in range(50)]
    assert sentences(flow(slow, slow)) == ""
    assert sentences(flow(fast, fast)) == ""  # it vanishes before training, too
    assert sentences(flow(fast, slow)) == (
        "The gradient of layer0.forward falls below 1 % within 7 steps. Before training, it does so within 44 steps."
    )
    assert "grows to 7.58e+03 times its norm at lag 0" in sentences(flow(grows, slow))
    assert sentences(flow(grows, grows)) == ""
    assert sentences(flow(grows, slow, one_step=False)) == ""  # gradients enter at every step


def test_lags_count_from_the_step_that_the_loss_reads() -> None:
    """The gradient of a lower layer's reverse direction. The answer does not read it at the start of the sequence."""
    torch.manual_seed(0)
    layer = gg.LSTM(3, 8, num_layers=2, bidirectional=True)
    with gg.engine("reference"), gg.record(layer) as tape:
        output, _ = layer(torch.randn(40, 1, 3))
        output[-1].sum().backward()
    made = Study("x", "", [Passage([str(k) for k in range(40)])], directions(tape))
    flow_from_backward(made, tape)
    grads = tape.grad["layer0.reverse.h"][:, 0].norm(dim=-1)
    (lower,) = [each for each in made.directions if each.label == "layer0.reverse"]
    np.testing.assert_allclose(lower.flow["h"].norms[0], grads.flip(0)[lower.flow["h"].lags], rtol=1e-5)
    assert lower.flow["h"].one_step
    assert "grows" not in sentences(made)
    with gg.engine("reference"), gg.record(layer) as tape:
        output, _ = layer(torch.randn(40, 1, 3))
        output[20].sum().backward()
    made = Study("x", "", [Passage([str(k) for k in range(40)])], directions(tape))
    flow_from_backward(made, tape)
    for each in made.directions:
        grads = tape.grad[f"{each.label}.c"][:, 0].norm(dim=-1)
        ahead = grads[20:] if each.reverse else grads[:21].flip(0)
        np.testing.assert_allclose(each.flow["c"].norms[0], ahead[each.flow["c"].lags], rtol=1e-5)
    with gg.engine("reference"), gg.record(layer) as tape:
        layer(torch.randn(40, 1, 3))[0].sum().backward()
    flow_from_backward(made, tape)
    assert not any(each.flow["h"].one_step for each in made.directions)


def answered(labels: list[str], best: list[str], targets: bool = True) -> Study:
    made = study()
    made.passages[0].answers = [
        Answer(step, [Choice(name, 0.9), Choice("other", 0.1)], Choice(label, 0.9) if targets else None)
        for step, (label, name) in enumerate(zip(labels, best, strict=True))
    ]
    return made


def test_answers_are_compared_with_the_most_common_one() -> None:
    labels = ["high" if k % 3 else "low" for k in range(L)]
    assert "59 of 60 answers are correct (98 %)." in sentences(answered(labels, ["high", *labels[1:]]))
    assert "40 of 60 answers are correct (67 %), no better than guessing “high” every time (67 %)." in sentences(
        answered(labels, ["high"] * L)
    )
    assert "correct" not in sentences(answered(labels, labels, targets=False))


def test_sets_are_scored_by_f1() -> None:
    chords = [f"{60 + k % 7} {64 + k % 5}" for k in range(L)]
    made = study()
    made.passages[0].answers = [
        Answer(
            step, [Choice(chord.split()[0], 0.5)], Choice(chord, 0.5), f1_score({chord.split()[0]}, set(chord.split()))
        )
        for step, chord in enumerate(chords)
    ]
    assert not any(each.is_wrong for each in made.passages[0].answers)
    assert "The F1 score of the predicted sets is 68 %." in sentences(made)


def test_a_unit_that_follows_a_label_is_found() -> None:
    labels = ["high" if k // 3 % 3 == 0 else "low" for k in range(L)]
    made = answered(labels, labels)
    made.directions[0].values["c"][:, 3] = [label == "high" for label in labels]
    best = best_followers(made)[0]
    assert (best.mark, best.unit) in {("high", 3), ("low", 3)}
    assert best.correlation == pytest.approx(1.0)
    assert "Unit 3 of layer0.forward follows" in sentences(made)
    assert "follows" not in sentences(answered(labels, labels))
    made = answered(labels, labels, targets=False)  # the marks are the network's own answers
    made.directions[0].values["c"][:, 3] = [label == "high" for label in labels]
    assert "follows" not in sentences(made)


def test_a_negative_correlation_keeps_its_sign() -> None:
    labels = [("high", "low", "middle")[k // 3 % 3] for k in range(L)]
    noise = 0.8 * np.random.default_rng(0).standard_normal(L)
    made = answered(labels, labels)
    made.directions[0].values["c"][:, 3] = noise - [2.0 * (label == "high") for label in labels]
    expected = np.corrcoef(made.directions[0].values["c"][:, 3], [label == "high" for label in labels])[0, 1]
    assert -0.9 < expected < -0.5
    best = best_followers(made)[0]
    assert (best.mark, best.unit, best.correlation) == ("high", 3, pytest.approx(expected, abs=1e-3))
    shown = f"{expected:.2f}".replace("-", "\N{MINUS SIGN}")
    assert f"Unit 3 of layer0.forward follows “high” with the opposite sign (correlation {shown})" in sentences(made)
    html = text_section(made).body
    assert f'<td class="num">{shown}</td>' in html
    assert "the unit that follows “high” most closely with the opposite sign" in html
    made = answered(labels, labels)
    made.directions[0].values["c"][:, 5] = -np.arange(L)
    assert "Unit 5 of layer0.forward counts the steps down (correlation \N{MINUS SIGN}1.00)" in sentences(made)
    made.directions[0].values["h"][:, 4] = -made.directions[0].values["h"][:, 2]
    assert "2 and 4 with the opposite sign" in sentences(made)


def trained(losses: list[float], train: float = 0.1) -> Study:
    made = study()
    made.training = [{"step": 10.0 * k, "train_loss": train, "dev_loss": loss} for k, loss in enumerate(losses)]
    return made


def test_overfitting_is_a_rise_of_the_dev_loss() -> None:
    assert sentences(trained([2.0, 1.5, 1.2, 1.1, 1.0])) == ""  # best at the last step
    assert sentences(trained([0.5, 0.001, 0.000229, 0.00023], 0.00013)) == ""
    assert sentences(trained([2.0, 1.0, 1.03, 0.99, 1.01])) == ""  # noise
    assert sentences(trained([2.0, 1.0, 1.2, 1.5, 1.9])) == "The dev loss rose from 1 at step 10 to 1.9 at the end."


def caused(causes: list[Cause], windows: list[WindowCause] = []) -> Study:  # noqa: B006
    made = study()
    made.unit, made.points, made.shuffled_loss, made.causes, made.windows = (
        "nats per answer",
        "points of accuracy",
        2.0,
        causes,
        windows,
    )
    return made


def test_causes_are_compared_with_shuffled_targets() -> None:
    strong, weak = Cause("layer0.forward", 0.4, 7.25, 0.3, 0.5), Cause("layer0.reverse", 0.2, 0.0, 0.15, 0.25)
    text = sentences(caused([Cause("layer0.forward.f", 0.9, 9, 0.8, 1.0), strong, weak]))
    assert text.splitlines() == [
        "Holding layer0.forward at its mean costs 7.2 points of accuracy.",
        "Holding layer0.reverse at its mean costs 0.2 nats per answer.",
    ]
    assert sentences(caused([strong, weak._replace(control=0.2)])).count("at its mean costs") == 1
    assert sentences(caused([strong, weak._replace(low=0.01)])).count("at its mean costs") == 1
    made = caused([strong, weak])
    made.shuffled_loss = None  # no reference
    assert sentences(made) == ""


def test_the_most_important_window_is_found() -> None:
    def sentence_on(windows: list[WindowCause], answers: int = 10) -> str:
        made = caused([], windows)
        made.passages[0].answers = [Answer(step, [Choice("1.0", None)], None) for step in range(answers)]
        return sentences(made)

    windows = [WindowCause(0, k, k + 10, 0.05, 0, 0.0, 0.1) for k in range(0, 60, 10)]
    assert sentence_on(windows) == ""
    windows[2] = WindowCause(0, 20, 30, 0.7, 12, 0.6, 0.8)
    assert sentence_on(windows) == "Steps 21 to 30 matter most: 12.0 points of accuracy."
    assert sentence_on(windows, answers=1) == ""  # a single answer shows no spread


def test_an_unread_direction_is_found() -> None:
    made = study()
    (one,) = made.directions
    small, whole = np.full((5, 6), 1e-5), np.ones((5, 6))
    both = [
        replace(one, label=f"layer0.{name}", flow={"h": Flow(list(range(6)), value, whole)})
        for name, value in (("forward", whole), ("reverse", small))
    ]
    made.directions = both
    assert "The answers do not depend on layer0.reverse." in sentences(made)
    both[1].flow["h"] = Flow(list(range(6)), small, small)
    made.thresholds = {}
    assert "do not depend" not in sentences(made)


def test_thresholds_are_computed_once() -> None:
    made = study(bias(1, 9.0))
    first = findings(made)
    made.controls = [made.directions]
    assert findings(made) == first
    assert made.thresholds["open forget gates: layer0.forward.f"] < 1


def test_every_finding_has_a_plot_and_a_meaning() -> None:
    sections = {"text", "saturation", "memory", "flow", "dynamics", "gates", "causes", "training"}
    assert {rule.section for rule in RULES} <= sections
    for change in (bias(1, 9.0), bias(0, -30.0), dead, twins):
        for each in findings(study(change)):
            assert isinstance(each, Finding)
            assert each.meaning.endswith(".")
            assert "threshold" in each.evidence


def test_the_documentation_has_the_table_of_rules() -> None:
    assert markdown_table() in Path("docs/report.md").read_text(encoding="utf-8")
    assert all(isinstance(each, Direction) for each in study().directions)
