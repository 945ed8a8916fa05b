"""`glassgate report`: a page for every task, its numbers against plain PyTorch, and messages about mistakes."""

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
from glassgate.cli.report import _announce_size
from glassgate.glass.data import decode_array
from glassgate.glass.live.page import Live
from glassgate.tasks import TASKS, task_class
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.errors import OptionError
from glassgate.tasks.report.task_view import view_of
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
    script = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert script is not None
    return text, json.loads(script[1])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run of each task."""
    folder = tmp_path_factory.mktemp("runs")
    for name, split in SPLITS.items():
        kind = task_class(name)
        kind(kind.options_type.from_mapping(SMALL)).fit(split, run=folder / name)
    (folder / "long.txt").write_text("tick " * 600)
    return folder


@pytest.mark.parametrize("name", ["classification", "translation"])
def test_the_data_of_a_program_are_not_mistaken_for_built_in_data(
    name: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", f"{runs}/{name}", f"--output={tmp_path}/a.html"]) == 2
    assert main(["search", f"{runs}/{name}", TEXTS[name], "--steps=1"]) == 2
    assert capsys.readouterr().err.count("got one that was trained on data in memory, which it does not store") == 2
    assert not (tmp_path / "a.html").exists()


@pytest.mark.parametrize("name", [name for name in TASKS if name in TEXTS])
def test_every_task_has_a_page_of_its_own_words(name: str, runs: Path, tmp_path: Path) -> None:
    words = ["report", str(runs / name), TEXTS[name], "-o"]
    assert main([*words, str(tmp_path / "a.html")]) == 0
    assert main([*words, str(tmp_path / "b.html")]) == 0
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    assert len(list(tmp_path.iterdir())) == 2
    text, data = content(tmp_path / "a.html")
    titles = re.findall(r"<h2[^>]*>(.*?)</h2>", text)
    long_enough = data["starts"][-1] >= 8
    assert titles == [
        *("Findings", "The text", "Saturation", "Memory", "Gradient flow", *["Dynamics"] * long_enough, "Connectivity"),
        *("Causes", "Gates by time", "Search", "The cell", "Training", "Cost"),
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


@pytest.mark.parametrize(("model", "steps"), [("direct", 12), ("recursive", 15), ("segments", 3)])
def test_a_page_of_every_way_to_forecast(
    model: str, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recursive model reads the true values of the horizon, too, and a step of segments reads four values."""
    monkeypatch.chdir(tmp_path)
    kind = task_class("forecasting")
    options = kind.options_type.from_mapping(SMALL | {"horizon": 4, "look_back": 12, "model": model, "segment": 4})
    kind(options).fit(run=tmp_path / "run")
    assert main(["report", str(tmp_path / "run")]) == 0
    text, data = content(tmp_path / "report.html")
    assert len(data["steps"][0]) == steps
    assert len(data["answers"][0]) == 4
    assert data["connections"][0]["shape"] == [4, steps]
    missed = [abs(float(best[0][0]) - float(came[0])) for _, best, came in data["answers"][0]]
    told = re.search(r"The forecast of the next 4 steps has a mean absolute error of (\d[-+.e\d]*)\.", text)
    assert told is not None
    assert float(told[1]) == pytest.approx(sum(missed) / 4, rel=6e-3, abs=6e-3)
    assert {"layer0.forward", "layer0.forward.f"} <= {name for name, *_ in data["causes"]}
    assert len(data["windows"]) == steps


def test_attention_is_that_of_the_network(runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(runs / "translation"), TEXTS["translation"], "-o", str(page)]) == 0
    _, data = content(page)
    task: Any = task_class("translation").load(runs / "translation")
    weights_of_page = decode_array(data["connections"][0]["attention"]).reshape(data["connections"][0]["shape"])
    example = view_of(task).example(TEXTS["translation"])
    np.testing.assert_allclose(weights_of_page, task.attend(example).weights, atol=1e-5)
    np.testing.assert_allclose(weights_of_page.sum(1), 1, atol=1e-5)
    network, fields = task.network, task.encode(example)
    source, target = (torch.from_numpy(fields[side])[None] for side in ("source", "target"))
    with torch.no_grad():
        memory, state = network.encode(source, torch.tensor([source.shape[1]]))
        before = torch.nn.functional.pad(target, (1, -1))
        query, _ = network.decoder.layer(network.decoder.embedding(before), state)
        weights = (query[0] @ memory.keys[0].T).softmax(-1)
    np.testing.assert_allclose(weights_of_page, weights, atol=1e-5)


def test_strips_in_a_terminal(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(runs / "tagging"), "play it on a day", "--terminal"]) == 0
    printed = capsys.readouterr().out
    assert "play it on a day" in printed
    assert re.search("[▁▂▃▄▅▆▇█]", printed)
    assert re.search(r"^ *f\d+ ", printed, re.MULTILINE)  # the gate that keeps the state, derived from the equations


def test_a_series_and_examples_of_the_runs_own_data(tmp_path: Path) -> None:
    kind = task_class("classification")
    waves = [np.sin(np.arange(9)[:, None] * speed).astype(np.float32) for speed in (1, 2)]
    rows = [Labelled(wave, name) for wave, name in zip(waves, ("slow", "fast"), strict=True)] * 4
    task = kind(kind.options_type.from_mapping(SMALL | {"cell": "gru", "num_layers": 2}))
    task.fit(Split(rows, rows[:2]))
    from glassgate.glass.page import page
    from glassgate.tasks.report.study import Excerpt, study

    made = study(task, [Excerpt(each, 0, 9) for each in rows[:2]], "waves")
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


def test_input_that_is_too_long_is_cut(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassgate.tasks.report.study.MAX_STEPS", 20)
    from glassgate.tasks.progress import Progress
    from glassgate.tasks.report.study import excerpts_of_file, excerpts_of_text

    (text,) = excerpts_of_text(task_class("tagging").load(runs / "tagging"), "it " * 25)
    assert (text.start, text.stop) == (0, 20)
    assert text.note.startswith("the text: the first 20 of 25 steps are shown")
    (file,) = excerpts_of_file(
        task_class("language-model").load(runs / "language-model"), str(runs / "long.txt"), Progress()
    )
    assert (file.start, file.stop) == (0, 20)
    assert "the first 20 of 3,0" in file.note


def test_two_runs_side_by_side(runs: Path, tmp_path: Path) -> None:
    both = [str(runs / "tagging"), str(runs / "tagging")]
    assert main(["report", *both, "play it now", "-o", str(tmp_path / "page.html")]) == 0
    text, data = content(tmp_path / "page.html")
    assert data["runs"][0] == data["runs"][1]
    assert text.count('class="pair"') == 12
    assert {'data-run="0"', 'data-run="1"'} <= set(re.findall(r'data-run="\d"', text))


def test_a_translation_without_reference_has_no_right_answers(runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(runs / "translation"), "one two two", "-o", str(page)]) == 0
    text, data = content(page)
    assert all(target is None for _, _, target in data["answers"][0])
    assert "answers are correct" not in text
    assert "points of accuracy" not in text
    assert [each for each in data["causes"] if each[0] == "encoder.layer0.forward"]
    assert [each for each in data["causes"] if each[0] == "decoder.layer0.forward"]
    assert [each["label"] for each in data["parts"]] == ["encoder.layer0.forward", "encoder.layer0.reverse"]
    assert "<h3>encoder.layer0.reverse</h3>" in text


def test_an_interactive_page_reports_its_size_before_it_is_written(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "live.html"
    assert main(["report", str(runs / "tagging"), "play it", "--live", "--bits", "16", "-o", str(page)]) == 0
    said = capsys.readouterr().err
    assert re.search(r"report: the page has 0\.\d MB; weights have 16 bits, each within \S+ of its value\n.*live", said)
    text = page.read_text("utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 2
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy[1]
    assert "unsafe" not in policy[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere", "x"], "nowhere: no such run folder"),
        (["{runs}/tagging", " "], "text: expected some text, got an empty one"),
        (["{runs}/tagging", "zzz qqq"], "text: none of its 2 tokens"),
        (["{runs}/tagging", "--file", "nowhere.conllu"], "nowhere.conllu"),
        (["{runs}/tagging", "{runs}/translation", "it"], "must be of one task, got tagging and translation"),
        (["{runs}/tagging", "it", "--file", "x.conllu"], "expected a text or a file, got both"),
        (["{runs}/tagging", "it", "-o", "no/such/folder.html"], "the folder no/such does not exist"),
        (
            ["{runs}/tagging", "it", "--live", "--terminal"],
            "--live: expected one run and no --terminal; leave out the second",
        ),
        (
            ["{runs}/tagging", "{runs}/tagging", "--live"],
            "--live: expected one run and no --terminal; leave out the second",
        ),
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


def test_an_interactive_page_that_is_too_large_is_refused() -> None:
    with pytest.raises(
        OptionError, match=r"--live: the page would have 20\.0 MB.*; for weights with 16 bits, add --bits 16"
    ):
        _announce_size(Live("", "", "", "", 0.0), "x" * 20_000_001)
