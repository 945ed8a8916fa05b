"""The measurements of the defaults: the page, the search, and the continuation of a stopped measurement."""

from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from experiments.defaults import __main__ as program
from experiments.defaults import report
from experiments.defaults.search import SEEDS, Results, Settings, best, defaults, search
from experiments.defaults.sets import ACCURACY, SETS, Set
from tests.tasks.corpus import sentences, write_conllu

START = Settings(batch_size=4, learning_rate=3e-3, dropout=0.0, hidden_size=128, epochs=60)
SET = replace(SETS[0], epochs=0, score=ACCURACY)
BEST = Settings(batch_size=16, learning_rate=8e-3, dropout=0.2, hidden_size=64, epochs=40)


def test_the_page_is_generated_from_the_stored_results(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the picture needs the extra pictures")
    (tmp_path / "docs").mkdir()
    program.main(["--report", "--root", str(tmp_path)])
    page = Path("docs", "defaults.md")
    assert (tmp_path / page).read_text("utf-8") == (program.ROOT / page).read_text("utf-8")
    assert (tmp_path / "docs/defaults.svg").read_text("utf-8").count("<svg") == 1


def test_the_page_of_an_empty_folder_says_so(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the picture needs the extra pictures")
    (tmp_path / "docs").mkdir()
    program.main(["--report", "--out", str(tmp_path / "figures"), "--root", str(tmp_path)])
    assert "No data set has been measured." in (tmp_path / "docs/defaults.md").read_text("utf-8")


def test_the_page_on_training_has_the_rule() -> None:
    page = (program.ROOT / "docs/training.md").read_text("utf-8")
    for examples in (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000):
        assert report.rule(examples) in page


def test_the_search_finds_the_best_settings_and_ends() -> None:
    """The score is a sum over settings, so changes of one setting at a time lead to the best settings."""

    def dev(settings: Settings) -> float:
        return -sum(abs(getattr(settings, name) / value - 1) for name, value in asdict(BEST).items())

    proposals = search(SET, START)
    tried = [next(proposals)]
    with suppress(StopIteration):
        while True:
            tried.append(proposals.send({"dev": dev(tried[-1])}))
    assert len(set(tried)) == len(tried) < 40
    assert tried[0] == START
    assert best(SET, [{"settings": asdict(settings), "dev": dev(settings)} for settings in tried]) == BEST


def test_a_stopped_measurement_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_conllu(tmp_path / "toy.conllu", sentences(9))
    small = {"hidden_size": 4, "embedding_size": 4, "character_size": 0}
    paths = dict.fromkeys(("data", "dev", "test"), "toy.conllu")
    toy = Set("toy", "tagging", "a toy grammar", paths, small, ACCURACY, epochs=1)
    figures = Results(tmp_path / "figures")
    trained: list[int] = []

    def train_twice_then_stop(*arguments: Any) -> Any:
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(1)
        return original_train(*arguments)

    original_train = program.train
    for module in (program, report):
        monkeypatch.setattr(module, "SETS", (toy,))
    monkeypatch.setenv("GLASSGATE_DATA", str(tmp_path))
    monkeypatch.setattr(program, "train", train_twice_then_stop)
    (tmp_path / "docs").mkdir()
    arguments = ["toy", "--seconds", "0", "--out", str(figures.folder), "--root", str(tmp_path)]
    with pytest.raises(SystemExit, match="stopped; run the same command to continue"):
        program.main(arguments)
    first = figures.points("toy")
    assert len(first) == 2
    monkeypatch.setattr(program, "train", original_train)
    program.main(arguments)
    results = figures.points("toy")
    assert results[:2] == first
    for compared in (defaults(toy, results[0]["examples"]), best(toy, figures.searched(toy))):
        assert [r["seed"] for r in results if Settings(**r["settings"]) == compared] == list(SEEDS)
    (row,) = report.rows(figures)
    assert row.seeds == list(SEEDS)
    program.main(arguments)  # nothing is missing
    assert figures.points("toy") == results
    page = (tmp_path / "docs/defaults.md").read_text("utf-8")
    assert "| tagging | a toy grammar | accuracy, % |" in page
    assert page.count(f" | {len(SEEDS)} |\n") == 1
    assert "most frequent label of each token" in figures.simple(toy)


def test_a_missing_folder_and_an_unknown_set_raise_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLASSGATE_DATA", str(tmp_path / "missing"))
    with pytest.raises(SystemExit, match=r"expected a folder of data in GLASSGATE_DATA, got .*missing; docs"):
        program.main([])
    with pytest.raises(SystemExit, match=r"no set 'taging'; there are: tagging-tiny, "):
        program.main(["taging"])
