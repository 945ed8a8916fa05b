"""`glassgate cells`: the list of cells, and the description of one."""

import inspect
from pathlib import Path

import pytest

import glassgate as gg
from glassgate.cli import main
from glassgate.cli.cells import GROUPS, source

WITHOUT_PAPER = {"ActivatedGRU", "ActivatedLSTM", "GRUP"}


def test_the_list_has_every_cell_with_its_paper(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["cells"]) == 0
    rows = [
        tuple(word.strip() for word in line.split("│")[1:-1])
        for line in capsys.readouterr().out.splitlines()
        if "│" in line
    ]
    cells = {name: cell for group in GROUPS.values() for name, cell in group.items()}
    public = {name for name, cell in vars(gg.cells).items() if inspect.isclass(cell) and issubclass(cell, gg.Cell)}
    assert rows == [(name, *source(cell)) for name, cell in cells.items()]
    assert cells.keys() == public
    assert {name for name, cell in cells.items() if not source(cell)[1]} == WITHOUT_PAPER
    assert ("LEM", "Rusch et al.", "2021", "arXiv:2110.04744, equation 3") in rows


def test_the_description_of_a_cell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cells", "ugrnn", "--input-size=3", "--hidden-size=4"]) == 0
    out = capsys.readouterr().out
    assert "h = g h_prev + (1 - g) n" in out
    assert "gates: g n\nstates: h\n" in out
    words = {tuple(line.replace("│", " ").split()) for line in out.splitlines()}
    assert {("weight_hh", "(8,", "4)", "32"), ("all", "72")} <= words  # 2 * 4 * (3 + 4 + 2)
    assert "cpu runs this call" in out


def test_the_diagram_of_a_cell(tmp_path: Path) -> None:
    file = tmp_path / "cell.svg"
    assert main(["cells", "SGRN", f"--draw={file}"]) == 0
    assert file.read_text("utf-8") == str(gg.draw(gg.cells.CLASSIC["SGRN"]()))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["LST"], "cells: expected the name of a cell, got 'LST'; did you mean LSTM?"),
        (["walk"], "got 'walk'; `glassgate cells` lists them"),
        (["--draw=x.svg"], "--draw needs the name of a cell"),
        (["GRUD", "--input-size=4"], "give another --input-size or --hidden-size"),
    ],
)
def test_mistakes(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cells", *words]) == 2
    assert message in capsys.readouterr().err
