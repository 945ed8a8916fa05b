"""`glassgate report`: a page for every task, its numbers against plain PyTorch, and what mistakes are told."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassgate.cli import main
from glassgate.glass.data import array
from glassgate.tasks import TASKS, task_class
from glassgate.tasks.data.table import Labelled
from glassgate.tasks.task import Split
from tests.tasks.test_every_task import SPLITS

SMALL = {"hidden_size": 6, "embedding_size": 5, "epochs": 1, "threads": 1}
TEXTS = {
    "tagging": "play it now",
    "classification": "good day",
    "language-model": "tick tock",
    "translation": "one two three",
    "fill-blanks": "salt",
}


def content(page: Path) -> tuple[str, dict[str, Any]]:
    """A page and the numbers in it."""
    text = page.read_text("utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return text, json.loads(found[1])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run of each task."""
    folder = tmp_path_factory.mktemp("runs")
    for name, split in SPLITS.items():
        kind = task_class(name)
        kind(kind.options_type.from_mapping(SMALL)).fit(split, run=folder / name)
    return folder


@pytest.mark.parametrize("name", [name for name in TASKS if name in TEXTS])
def test_every_task_has_a_page_of_its_own_words(name: str, runs: Path, tmp_path: Path) -> None:
    words = ["report", str(runs / name), TEXTS[name], "-o"]
    assert main([*words, str(tmp_path / "a.html")]) == 0
    assert main([*words, str(tmp_path / "b.html")]) == 0
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    assert len(list(tmp_path.iterdir())) == 2
    text, data = content(tmp_path / "a.html")
    titles = re.findall(r"<h2[^>]*>(.*?)</h2>", text)
    assert titles == [
        *("Findings", "The text", "Saturation", "Memory", "Gradient flow", "Connectivity", "Causes", "Gates by time"),
        *("The cell", "Training", "Cost"),
    ]
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'")
    for tag in ("style", "script"):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1]
    assert " style=" not in text.split("<script", 1)[0]
    assert not re.findall(r"(?:src|href)=\"(?!data:|#)", text)
    assert data["starts"][-1] == sum(map(len, data["steps"]))


def test_numbers_of_the_page_equal_a_loop_in_plain_pytorch(runs: Path, tmp_path: Path) -> None:
    """The tagger's page: gates, measures and gradients, from its weights and its text alone."""
    page = tmp_path / "page.html"
    assert main(["report", str(runs / "tagging"), "play it now stop it", "-o", str(page)]) == 0
    _, data = content(page)
    task = task_class("tagging").load(runs / "tagging")
    network: Any = task.network
    encoded = task.encode(task.of_text("play it now stop it"))
    batch = {name: torch.from_numpy(encoded[name])[None] for name in ("units", "characters")}
    with torch.no_grad():
        x = torch.cat([network.embedding(batch["units"]), network.spelling(batch["characters"])], -1)[0]
    x.requires_grad_()
    steps: dict[str, dict[str, list[torch.Tensor]]] = {}
    for direction, suffix in (("forward", ""), ("reverse", "_reverse")):
        w = {k: getattr(network.encoder, f"{k}_l0{suffix}") for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        h = c = torch.zeros(6)
        of = steps[direction] = {name: [] for name in "ifgohc"}
        for t in range(5) if direction == "forward" else reversed(range(5)):
            a = w["weight_ih"] @ x[t] + w["bias_ih"] + w["weight_hh"] @ h + w["bias_hh"]
            i, f, g, o = a.chunk(4)
            i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
            c = f * c + i * g
            h = o * c.tanh()
            for name, value in zip("ifgohc", (i, f, g, o, h, c), strict=True):
                if name in "hc":
                    value.retain_grad()
                of[name].append(value)
        if suffix:
            for values in of.values():
                values.reverse()
    output = torch.cat([torch.stack(steps["forward"]["h"]), torch.stack(steps["reverse"]["h"])], 1)
    chances = network.head(output).log_softmax(-1)
    for part, (direction, of) in zip(data["parts"], steps.items(), strict=True):
        assert part["label"] == f"layer0.{direction}"
        for name, values in of.items():
            stacked = torch.stack(values).detach().numpy()
            np.testing.assert_allclose(array(part["values"][name]).reshape(5, 6), stacked, atol=1e-5)
        f = torch.stack(of["f"]).detach()
        np.testing.assert_allclose(part["half_life"]["c"], np.log(0.5) / f.log().mean(0), rtol=1e-5)
        np.testing.assert_allclose(part["saturation"]["f"][1], (f > 0.9).float().mean(0), atol=1e-5)
    symbols = task.vocabularies["labels"].symbols
    norms: dict[str, dict[int, list[float]]] = {name: {k: [] for k in range(5)} for name in "hc"}
    matrix = array(data["connections"][0]["values"]).reshape(data["connections"][0]["shape"])
    for t, (step, best, target) in enumerate(data["said"][0]):
        assert step == t
        assert target is None
        assert best[0][0] == symbols[int(chances[t].argmax())]
        assert best[0][1] == pytest.approx(float(chances[t].detach().max().exp()), abs=1e-5)
        x.grad = None
        for of in steps.values():
            for name in "hc":
                for value in of[name]:
                    value.grad = None
        chances[t].max().backward(retain_graph=True)
        assert x.grad is not None
        np.testing.assert_allclose(matrix[t], (x.grad * x).sum(-1).detach(), atol=1e-5)
        for name in "hc":
            for k in range(t + 1):
                grad = steps["forward"][name][t - k].grad
                norms[name][k].append(0.0 if grad is None else float(grad.norm()))
    for name, by_lag in norms.items():
        flow = data["parts"][0]["flow"][name]
        wanted = [float(np.median(by_lag[k])) for k in flow["lags"]]
        np.testing.assert_allclose(flow["trained"][0], wanted, atol=1e-5)


def test_a_forecast_and_strips_in_a_terminal(
    tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kind = task_class("forecasting")
    options = kind.options_type.from_mapping(SMALL | {"horizon": 4, "look_back": 12})
    kind(options).fit(run=tmp_path / "run")
    assert main(["report", str(tmp_path / "run")]) == 0
    _, data = content(tmp_path / "report.html")
    assert len(data["steps"][0]) == 12
    assert len(data["said"][0]) == 4
    assert data["connections"][0]["shape"] == [4, 12]
    capsys.readouterr()
    assert main(["report", str(runs / "tagging"), "play it now", "--terminal"]) == 0
    printed = capsys.readouterr().out
    assert "play it now" in printed
    assert re.search("[▁▂▃▄▅▆▇█]", printed)


def test_a_series_and_examples_of_the_runs_own_data(tmp_path: Path) -> None:
    kind = task_class("classification")
    waves = [np.sin(np.arange(9)[:, None] * speed).astype(np.float32) for speed in (1, 2)]
    rows = [Labelled(wave, name) for wave, name in zip(waves, ("slow", "fast"), strict=True)] * 4
    task = kind(kind.options_type.from_mapping(SMALL | {"cell": "gru", "num_layers": 2}))
    task.fit(Split(rows, rows[:2]))
    from glassgate.glass.page import page
    from glassgate.tasks.study import Stretch, study

    made = study(task, [Stretch(each, 0, 9) for each in rows[:2]], "waves")
    assert [part.label for part in made.directions] == [
        "layer0.forward",
        "layer0.reverse",
        "layer1.forward",
        "layer1.reverse",
    ]
    text = page(made)
    assert "The series" in text
    assert text.count("<svg") > 10
    assert len(text) < 1_000_000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere", "x"], "nowhere: no such run folder"),
        (["{runs}/tagging", " "], "text: expected some text, got an empty one"),
        (["{runs}/tagging", "zzz qqq"], "text: none of its 2 units"),
        (["{runs}/tagging", "it " * 2001], "too long for one page, which shows up to 2,000"),
        (["{runs}/tagging", "--file", "nowhere.conllu"], "nowhere.conllu"),
        (["{runs}/tagging", "it", "--file", "x.conllu"], "expected a text or a file, got both"),
        (["{runs}/tagging", "it", "-o", "no/such/folder.html"], "there is no folder no/such"),
    ],
)
def test_mistakes_get_a_sentence_and_leave_no_file(
    words: list[str],
    said: str,
    runs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", *(word.format(runs=runs) for word in words)]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
