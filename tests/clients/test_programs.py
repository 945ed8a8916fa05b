"""Third-party libraries train to the same weights with these layers as with those of `torch.nn`."""

import re
import warnings
from pathlib import Path

import pytest
from torch import nn

import glassgate as gg
from tests.clients.programs import PROGRAMS, Program, exchanged, trained

PAGE = Path(__file__).parents[2] / "docs/clients.md"

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("default")]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.title)
def test_the_same_numbers(program: Program) -> None:
    theirs, _ = trained(program, nn)
    ours, _ = trained(program, gg)
    assert (theirs - ours).abs().max() <= program.close * theirs.abs().max()


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for code in re.findall(r"^```py\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        with exchanged(nn, LSTM=None, GRU=None, RNNBase=None), warnings.catch_warnings():  # restores replaced names
            warnings.simplefilter("ignore")
            exec(compile(code, str(PAGE), "exec"), {"__name__": "__main__"})
