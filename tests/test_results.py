"""The comparison with plain PyTorch on a toy grammar: equal layers, interleaved training, resumption, and pages."""

import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import glassgate as gg
from experiments.common.score import Score
from experiments.quality import readme, report
from experiments.quality.__main__ import FIGURES, ROOT, main, run
from experiments.quality.case import Case, Reported
from experiments.quality.cases import CASES
from experiments.quality.plain import PlainLayers
from experiments.quality.store import Results
from experiments.quality.training import train
from glassgate.tasks import task_class
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.task import Split
from tests.forked import forked
from tests.tasks.corpus import sentences


def grammar(data: Path) -> Split[Tagged]:
    return Split(sentences(40), sentences(20, seed=1), sentences(20, seed=2))


TOY = Case(
    "toy",
    "A toy grammar",
    "tagging",
    {"data": "toy"},
    {"hidden_size": 8, "embedding_size": 8, "epochs": 2, "character_size": 4, "learning_rate": 0.02},
    1,
    (Score("accuracy", "accuracy"),),
    (Reported("accuracy", 50.0, "a coin", "two tags"),),
    read=grammar,
)


def trained(case: Case, side: str, runs: Path, wait: Callable[[], object] = lambda: None) -> dict[str, Any]:
    return train(case, 1, side, runs, runs, lambda epoch: None, wait)


@pytest.mark.parametrize(("directions", "merge"), [(1, "concat"), (2, "concat"), (2, "none")])
@pytest.mark.parametrize("kind", [gg.LSTM, gg.GRU, gg.RNN])
def test_plain_layers_have_the_results_of_glassgate(kind, directions, merge):
    ours = kind(3, 5, 1 if merge == "none" else 2, batch_first=True, bidirectional=directions == 2, merge=merge)
    plain, lengths = PlainLayers(ours), torch.tensor([7, 4, 0])
    input = torch.randn(3, 7, 3)
    outputs = [layers(input, lengths=lengths)[0] for layers in (ours, plain)]
    pairs = zip(*outputs, strict=True) if merge == "none" else [outputs]
    for expected, output in pairs:
        for row, length in enumerate(lengths):
            torch.testing.assert_close(output[row, :length], expected[row, :length])
    if directions == 2:
        expected, state = (layers(input[:2], lengths=lengths[:2])[1] for layers in (ours, plain))
        torch.testing.assert_close(state, expected)


def test_both_sides_train_in_turn_and_finished_runs_are_not_repeated(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: forked())
    store = Results(tmp_path / "figures")
    run([TOY], tmp_path, store, 1, tmp_path / "runs")
    epochs = [line.split()[4:6] + line.split()[6:8] for line in capsys.readouterr().out.splitlines() if "epoch" in line]
    assert [words[0] + words[2] for words in epochs] == ["ours1", "plain1", "ours2", "plain2"]
    ((ours, plain),) = store.pairs(TOY)
    for our_epoch, plain_epoch in zip(ours["history"], plain["history"], strict=True):
        assert plain_epoch == pytest.approx(our_epoch, rel=1e-4)
    assert plain["test"] == pytest.approx(ours["test"], abs=0.02)
    assert ours["crosswise"] < 1e-6
    assert [epoch["epoch"] for epoch in ours["times"]] == [1, 2]
    assert all(epoch["processor"] > 0 and epoch["units"] > 0 for epoch in ours["times"])
    run([TOY], tmp_path, store, 1, tmp_path / "runs")
    assert "2 trainings are done, 0 are missing" in capsys.readouterr().out
    assert store.missing_sides(replace(TOY, options={**TOY.options, "epochs": 3}), 1) == ["ours", "plain"]


def test_an_interrupted_training_continues(tmp_path):
    def stop_in_the_second_epoch() -> None:
        if (tmp_path / "broken" / "toy-1-ours.times").read_text():
            raise EOFError

    whole = trained(TOY, "ours", tmp_path / "whole")
    with pytest.raises(EOFError):
        trained(TOY, "ours", tmp_path / "broken", stop_in_the_second_epoch)
    waits: list[int] = []
    resumed = trained(TOY, "ours", tmp_path / "broken", lambda: waits.append(1))
    assert len(waits) == 1
    assert resumed["history"] == whole["history"]
    assert resumed["test"] == whole["test"]
    assert [epoch["epoch"] for epoch in resumed["times"]] == [1, 2]


def test_the_page_is_generated_from_the_files(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="the pictures need the extra pictures")
    store = Results(tmp_path)
    for side in ("ours", "plain"):
        store.add(TOY.name, TOY.key(1, side), trained(TOY, side, tmp_path / "runs"))
    monkeypatch.setattr(report, "CASES", (TOY,))
    report.write(store, tmp_path / "results.md")
    page = (tmp_path / "results.md").read_text("utf-8")
    accuracy = 100 * store.get(TOY, 1, "ours")["test"]["accuracy"]
    assert f"| [A toy grammar](#toy) | accuracy, % | {accuracy:.1f} | {accuracy:.1f} | " in page
    assert " | 1 | +0.0 | 0 | - |" in page
    assert "- a coin (two tags): 50 % accuracy" in page
    for name in ("results-curves.svg", "results-scores.svg"):
        assert name in page
        assert "<svg" in (tmp_path / name).read_text("utf-8")


def test_the_page_of_the_documentation_is_current(tmp_path):
    pytest.importorskip("matplotlib", reason="the pictures need the extra pictures")
    report.write(Results(FIGURES), tmp_path / "results.md")
    assert (tmp_path / "results.md").read_text("utf-8") == (ROOT / "docs/results.md").read_text("utf-8")


@pytest.mark.parametrize("page", readme.HEADINGS)
def test_the_tables_of_the_readmes_are_generated_from_the_files(page, tmp_path):
    store = Results(FIGURES)
    begin, end = f"<!-- {readme.NAME}, written by make results -->\n", f"<!-- end of {readme.NAME} -->"
    current = begin + readme.table_of(store, page) + end
    assert current in (ROOT / page).read_text("utf-8")
    for name in readme.HEADINGS:
        (tmp_path / name).write_text(f"before\n{begin}old\n{end}\nafter\n")
    readme.write(store, tmp_path)
    assert (tmp_path / page).read_text("utf-8") == f"before\n{current}\nafter\n"
    (tmp_path / page).write_text("no table")
    with pytest.raises(SystemExit, match="expected the comments <!-- table of results, written by make results -->"):
        readme.write(store, tmp_path)


def test_each_case_has_a_command_and_the_scores_of_its_published_figures():
    assert len({case.name for case in CASES}) == len(CASES)
    shakespeare = next(case for case in CASES if case.name == "shakespeare")
    assert shakespeare.command().startswith(
        "glassgate train language-model --data $GLASSGATE_DATA/char_lm/tinyshakespeare.txt --hidden-size 128"
    )
    for case in CASES:
        task_class(case.task).options_type.from_mapping({**case.run_options(Path("data")), **case.options})
        assert {figure.score for figure in case.reported} <= {score.key for score in case.scores}, case.name


def test_missing_folders_and_unknown_cases_raise_errors(tmp_path, monkeypatch):
    monkeypatch.delenv("GLASSGATE_DATA", raising=False)
    with pytest.raises(SystemExit, match="expected a folder of data in GLASSGATE_DATA, got none"):
        main([])
    with pytest.raises(SystemExit, match=r"expected results of both sides of a case in .*, got none"):
        main(["--report", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"no case 'vowel'; there are: .*vowels"):
        main(["vowel"])
