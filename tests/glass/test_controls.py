"""Networks without structure have almost no findings: untrained networks, and networks trained on random labels.

`pytest -m matrix tests/glass/test_controls.py` runs 200 untrained networks and 50 trainings. Other runs include a few.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glassgate as gg
from glassgate.glass.controls import CONTROLS, with_random_weights
from glassgate.glass.findings import Finding, findings
from glassgate.glass.gradients import flow_from_backward
from glassgate.glass.study import Passage, Study, directions
from glassgate.tasks import TASKS, task_class
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.data.pairs import Pair
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.data.texts import Text
from glassgate.tasks.forecasting.series import series_of
from glassgate.tasks.forecasting.series.frequency import TIME, Frequency
from glassgate.tasks.report.study import Excerpt, study
from glassgate.tasks.report.task_view import view_of
from glassgate.tasks.task import Split

WORDS = ["red", "green", "blue", "one", "two", "three", "up", "down", "left", "right"]
PASSAGES, STEPS = 12, 10
L, H = 60, 8
# Findings about scores and training, which are true for a network without structure, too.
SCORE_RULES = ("answers", "no better than a guess", "overfitting")


def split(name: str, seed: int) -> Split[Any]:
    """Data of a task whose labels, order or targets are random."""
    random = np.random.default_rng(seed)

    def words(count: int = STEPS) -> list[str]:
        return [WORDS[k] for k in random.integers(len(WORDS), size=count)]

    def example() -> Any:
        if name == "tagging":
            return Tagged(tuple(words()), tuple("ABC"[k] for k in random.integers(3, size=STEPS)))
        if name == "classification":
            return Labelled(" ".join(words()), "AB"[random.integers(2)])
        if name == "regression":
            return Labelled(" ".join(words()), f"{random.normal():.3f}")
        if name == "translation":
            return Pair(" ".join(words(6)), " ".join(words(5)))
        return Text(" ".join(words(30)))

    if name == "forecasting":
        values = random.normal(size=160)
        return Split([series_of(values, "", np.datetime64("2024-01-01", "us"), Frequency(TIME, 10**6))])
    if name in ("language-model", "fill-blanks"):
        return Split([example()], [example()])
    return Split([example() for _ in range(32)], [example() for _ in range(PASSAGES)])


def trained(name: str, seed: int, epochs: int, hidden_size: int = 12) -> tuple[Any, list[Excerpt]]:
    kind, data = task_class(name), split(name, seed)
    options = {"hidden_size": hidden_size, "embedding_size": 8, "epochs": epochs, "threads": 1, "seed": seed}
    if name == "translation":
        options |= {"source_tokens": "word", "target_tokens": "word"}
    task = kind(kind.options_type.from_mapping(options))
    task.fit(data)
    shown = data.dev or data.train
    view = view_of(task)
    return task, [Excerpt(each, *view.excerpt(each, (0, min(150, len(view.steps(each)))))) for each in shown]


@cache
def prepared(name: str) -> tuple[Any, list[Excerpt]]:
    return trained(name, 0, 1)


def study_of_random_weights(name: str, seed: int) -> Study:
    task, excerpts = prepared(name)
    with torch.random.fork_rng():
        torch.manual_seed(1000 + seed)
        task.network = task.build().eval()
    return study(task, excerpts, name)


def study_of_random_labels(name: str, seed: int) -> Study:
    return study(*trained(name, seed, 8), name)


def structural_findings(made: Study) -> list[Finding]:
    return [each for each in findings(made) if each.rule not in SCORE_RULES]


@pytest.mark.parametrize("name", ["tagging", "language-model"])
def test_untrained_networks_have_no_structural_findings(name: str) -> None:
    assert structural_findings(study_of_random_weights(name, 0)) == []


@pytest.mark.matrix
def test_at_most_one_of_twenty_networks_without_structure_has_a_structural_finding() -> None:
    """200 untrained networks and 50 networks trained on random labels, over all tasks."""
    of_weights, of_labels = (
        structural_findings_of(study_of_random_weights, 200),
        structural_findings_of(study_of_random_labels, 50),
    )
    assert len(of_weights) <= 200 / 20, of_weights
    assert len(of_labels) <= 50 / 20, of_labels


def structural_findings_of(make: Callable[[str, int], Study], count: int) -> list[tuple[str, int, str]]:
    """The structural findings of a number of networks, alternating between tasks."""
    tasks = list(TASKS)
    made = ((tasks[number % len(tasks)], 1 + number) for number in range(count))
    return [(*each, finding.sentence) for each in made for finding in structural_findings(make(*each))]


def unread_direction(layer: gg.LSTM, head: torch.nn.Linear) -> str:
    head.weight[:, H:] = 0
    return "The answers do not depend on layer0.reverse."


def dead_direction(layer: gg.LSTM, head: torch.nn.Linear) -> str:
    layer.bias_ih_l0_reverse.view(4, H)[3] = -30
    return "All units of layer0.reverse do nothing"


def counting_unit(layer: gg.LSTM, head: torch.nn.Linear) -> str:
    for weight in (layer.weight_ih_l0, layer.weight_hh_l0):
        weight.view(4, H, -1)[:, 5] = 0
    layer.bias_ih_l0.view(4, H)[:, 5] = torch.tensor([9.0, 9.0, 0.05, 0.0])
    layer.bias_hh_l0.view(4, H)[:, 5] = 0
    return "Unit 5 of layer0.forward counts the steps"


def exploding_matrix(layer: gg.RNN, head: torch.nn.Linear) -> str:
    torch.nn.init.orthogonal_(layer.weight_hh_l0, 1.2)
    return "The gradient of layer0.forward grows to"


PLANTED = (unread_direction, dead_direction, counting_unit, exploding_matrix)


def planted(plant: Any, seed: int) -> tuple[str, list[str]]:
    """The sentence on a planted structure, and the sentences of the findings."""
    torch.manual_seed(seed)
    explodes = plant is exploding_matrix
    layer = gg.RNN(4, H) if explodes else gg.LSTM(4, H, bidirectional=True)
    head = torch.nn.Linear(H if explodes else 2 * H, 2)
    x = torch.randn(L, 1, 4) * (1e-6 if explodes else 1)
    with torch.no_grad():
        for name, bias in layer.named_parameters():
            if explodes and name.startswith("bias"):
                bias.zero_()
        sentence = plant(layer, head)
    with gg.engine("reference"), gg.record(layer) as tape:
        output, _ = layer(x)
        head(output[-1 if explodes else L // 2]).sum().backward()
        controls = [directions(with_random_weights(tape, k), brief=True) for k in range(CONTROLS)]
    made = Study("", "", [Passage([str(k) for k in range(L)])], directions(tape), controls=controls)
    flow_from_backward(made, tape)
    return sentence, [each.sentence for each in findings(made)]


@pytest.mark.parametrize("plant", PLANTED)
def test_planted_structure_is_found(plant: Any) -> None:
    sentence, sentences = planted(plant, 0)
    assert any(each.startswith(sentence) for each in sentences), sentences


@pytest.mark.matrix
@pytest.mark.parametrize("plant", PLANTED)
def test_planted_structure_is_found_in_nineteen_of_twenty_networks(plant: Any) -> None:
    networks = [planted(plant, seed) for seed in range(20)]
    assert sum(any(each.startswith(sentence) for each in said) for sentence, said in networks) >= 19


@pytest.mark.matrix
def test_overfitting_is_found_in_nineteen_of_twenty_trainings(tmp_path: Path) -> None:
    """Networks that memorise 32 sentences with random labels."""
    detections = 0
    for seed in range(20):
        kind = task_class("classification")
        options = {"hidden_size": 32, "epochs": 30, "threads": 1, "seed": seed, "dropout": 0.0, "learning_rate": 0.02}
        task = kind(kind.options_type.from_mapping(options))
        data, folder = split("classification", seed), tmp_path / str(seed)
        task.fit(data, run=folder)
        made = study(task, [Excerpt(each, 0, STEPS) for each in data.dev], "", folder)
        detections += any(each.rule == "overfitting" for each in findings(made))
    assert detections >= 19


def test_controls_have_the_lengths_of_their_own_layer() -> None:
    """The name of the second layer is the beginning of the name of the first."""
    layers = torch.nn.ModuleDict({"encoder": gg.GRU(3, H), "enc": gg.GRU(3, H)})
    with gg.record(layers) as tape:
        layers["encoder"](torch.randn(5, 2, 3), lengths=[5, 4])
        layers["enc"](torch.randn(3, 2, 3), lengths=[3, 1])
    controls = with_random_weights(tape, seed=1)
    for name, lengths in (("encoder", [5, 4]), ("enc", [3, 1])):
        assert controls.unpadded(f"{name}.layer0.forward").sum(0).tolist() == lengths
