"""The scripts of the interactive report, run in Node, equal the tasks in Python. `make browser` compares the pages."""

import json
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glassgate as gg
from glassgate.glass.edit import editable_values
from glassgate.tasks.errors import OptionError
from glassgate.tasks.live.page import live
from glassgate.tasks.progress import Progress
from glassgate.tasks.report.study import Excerpt, excerpts_of_run
from tests.export.javascript import node
from tests.tasks.live.runs import RUNS, answers, excerpts, random_edits, random_inputs, random_text, trained

READING = """
const reading = ({ answers, numbers, unknown }) => {
  const of = ({ nats, chances }) => (nats === undefined ? [...chances] : -nats);
  const scored = answers.filter((each) => !("nats" in each) || each.expected);
  return { chances: scored.map(of), chosen: answers.map(({ chosen }) => chosen), numbers, unknown };
};
"""
"""The numbers of a page's result: probabilities, or of music the logarithm of the probability of the given notes."""
_MODEL = """
const model = models[data.model.task](withArrays(data.model, unpackWeights(data.weights)),
  (layer, x, count, options) => runLayer(layer, steps, x, count, options));
"""
_CALLS = """
const results = calls.map(([given, edits]) => reading(model.read(given, edits)));
console.log(JSON.stringify(results));
"""


def read_in_node(
    task: Any, excerpt: Excerpt, calls: list[Any], folder: Path, half: bool = False, calls_of: str = ""
) -> list[Any]:
    """Return the results of the script of a task."""
    part = live(task, [excerpt], folder, half)
    begin = part.script.rindex("globalThis.glassgate = ")
    inside = f"const data = {part.data};\nconst calls = {json.dumps(calls)};\n{READING}\n{_MODEL}\n{calls_of or _CALLS}"
    program = f"{part.script[:begin]}\n{inside}\n}})();"
    (folder / "program.js").write_text(program, encoding="utf-8")
    done = subprocess.run([node(), str(folder / "program.js")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    results: list[Any] = json.loads(done.stdout)
    return results


def page_input(task: Any, excerpt: Excerpt, folder: Path) -> Any:
    """Return the text or series that the page shows first."""
    given = json.loads(live(task, [excerpt], folder).data)["given"]
    return given if isinstance(given, str) else given["rows"]


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.matrix)])
@pytest.mark.parametrize("name", RUNS)
def test_the_page_gives_the_predictions_of_the_task(name: str, count: int, tmp_path: Path) -> None:
    """This holds for its first input and for random inputs, with and without random edits."""
    torch.manual_seed(1)
    with gg.engine("reference"):
        task = trained(name)
        excerpt = excerpts(task)[0]
        random = np.random.default_rng(0)
        inputs = [(page_input(task, excerpt, tmp_path), excerpt), *random_inputs(task, excerpt, random, count)]
        cases = [(*each, *edits) for each in inputs for edits in (({}, []), random_edits(task, random))]
        results = read_in_node(task, excerpt, [[given, edits] for given, _, _, edits in cases], tmp_path)
        for got, (given, shown, edits, _) in zip(results, cases, strict=True):
            agrees(task, shown, edits, got, given)


def test_cells_that_declare_axes_run_on_pages(tmp_path: Path) -> None:
    torch.manual_seed(1)
    with gg.engine("reference"):
        task = trained("regression")
        encoder = task.network.encoder
        options = {"batch_first": True, "bidirectional": encoder.bidirectional, "num_layers": encoder.num_layers}
        cell = gg.cells.GatedDeltaNet(heads=2, key_size=3)
        task.network.encoder = gg.Recurrent(cell, encoder.input_size, encoder.hidden_size, **options).eval()
        excerpt = excerpts(task)[0]
        given = page_input(task, excerpt, tmp_path)
        (result,) = read_in_node(task, excerpt, [[given, []]], tmp_path)
        agrees(task, excerpt, {}, result, given)
        assert "heads × key_size × value_size" in live(task, [excerpt], tmp_path).data


def agrees(task: Any, excerpt: Excerpt, edits: dict[str, Any], result: dict[str, Any], given: Any) -> None:
    """Compare the answers of a page with those of Python."""
    target = None
    if task.name == "translation":
        target = translation(task, result["chosen"])
        with gg.edit(task.network, edits) if edits else nullcontext():
            assert target == task.predict([excerpt.example])[0][0].text, given
    expected = answers(task, excerpt, edits, target)
    got = result["chances"] or result["numbers"]
    if task.name == "language-model":
        got = got[: len(expected)]
    if target is not None:
        got, expected = got[: len(expected)], expected[: len(got)]
    said = f"{given!r} {edits}"
    torch.testing.assert_close(
        torch.tensor(got), torch.tensor(expected), atol=1e-4, rtol=1e-4, msg=lambda error: f"{said}: {error}"
    )


def translation(task: Any, chosen: list[int]) -> str:
    """Return the text of the tokens that a page chose."""
    symbols = task.vocabularies["target"].symbols
    text: str = task.join([symbols[number - 1] for number in chosen if number != 1], 1)
    return text


_PYTHON = """
const results = calls.map(([given, edits]) => {
  for (const edit of edits.filter(({ kind }) => kind === "replace")) {
    edit.values = [...model.read(edit.text, []).parts[partOf(edit)].values[shortOf(edit)]];
  }
  return { ...reading(model.read(given, edits)), code: pythonOf(edits, model.python(given, data.run, data.given)) };
});
console.log(JSON.stringify(results));
"""


@pytest.mark.parametrize(
    "name", ["tagging", "classification", "fill-blanks", "translation", "forecasting", "regression"]
)
def test_the_python_code_of_a_page_gives_its_answers(name: str, tmp_path: Path) -> None:
    torch.manual_seed(2)
    run, random = tmp_path / "run", np.random.default_rng(5)
    with gg.engine("reference"):
        task = trained(name)
        if name == "forecasting":
            task.fit(task.split([each.part(0, 300) for each in task.read_for_forecast(None)]))
        task.save(run)
        excerpt = excerpts_of_run(task, Progress())[0] if name == "forecasting" else excerpts(task)[0]
        given = page_input(task, excerpt, run)
        if name == "forecasting":
            given = [[value + 0.5] for (value,) in given]
        _, edits = random_edits(task, random)
        edits = [{"from": None, "to": None, **each} for each in edits if each["kind"] != "replace"]
        first = editable_state(task)
        edits.append({"name": first, "kind": "hold", "value": -0.5, "units": None, "from": 1, "to": 2})
        if isinstance(given, str) and name != "translation":
            patch = {
                "name": first,
                "kind": "replace",
                "units": [2],
                "from": 0,
                "to": 1,
                "text": random_text(task, random),
            }
            edits.append(patch)
        (result,) = read_in_node(task, excerpt, [[given, edits]], run, calls_of=_PYTHON)
        printed: list[Any] = []
        exec(result["code"], {"print": printed.append})
    (answers,) = printed
    if "numbers" in result:
        numbers = [float(each.best[0].name) for each in answers]
        torch.testing.assert_close(torch.tensor(numbers), torch.tensor(result["numbers"]), atol=1e-3, rtol=1e-4)
        return
    best = [each.best[0].probability for each in answers]
    torch.testing.assert_close(
        torch.tensor(best), torch.tensor([max(each) for each in result["chances"]]), atol=1e-4, rtol=1e-4
    )


def editable_state(task: Any) -> str:
    """Return the name of the first state of the encoder."""
    return next(name for name in editable_values(task.network) if name.startswith("encoder.") and name.endswith(".h"))


def test_sixteen_bits_change_answers_little_and_the_error_is_known(tmp_path: Path) -> None:
    with gg.engine("reference"):
        task = trained("tagging")
        excerpt = excerpts(task)[0]
    full, half = (read_in_node(task, excerpt, [["play it", []]], tmp_path, bits) for bits in (False, True))
    difference = np.abs(np.array(full[0]["chances"]) - np.array(half[0]["chances"])).max()
    assert 0 < difference < 1e-2
    parts = [live(task, [excerpt], tmp_path, bits) for bits in (False, True)]
    assert parts[0].error == 0 < parts[1].error < 1e-2
    assert len(parts[1].data) < 0.8 * len(parts[0].data)


def test_unknown_symbols_are_listed(tmp_path: Path) -> None:
    with gg.engine("reference"):
        task = trained("language-model")
        excerpt = excerpts(task)[0]
    (result,) = read_in_node(task, excerpt, [["tick Žuž tock", []]], tmp_path)
    assert result["unknown"] == ["Ž", "u", "ž"]


def test_a_cell_that_cannot_be_expressed_is_named(tmp_path: Path) -> None:
    from tests.export.test_javascript import Sorted

    with gg.engine("reference"):
        task = trained("regression")
        excerpt = excerpts(task)[0]
    task.network.encoder = gg.Recurrent(Sorted(), 5, 6, batch_first=True)
    with pytest.raises(OptionError, match=r"--live: cell Sorted: step uses .*sort"):
        live(task, [excerpt], tmp_path)


def test_a_task_without_a_page_is_refused(tmp_path: Path) -> None:
    class Other:
        name = "other"

    with pytest.raises(OptionError, match=r"--live: a run of other has no interactive page; leave the option out"):
        live(Other(), [], tmp_path)  # type: ignore[arg-type]
