"""The demo with three small files, and the colours of its output."""

import json
import os
import shutil
import signal
import sys
import sysconfig
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Span

from glassgate.cli import demo, main, parallel
from glassgate.cli.colours import can_colour, colour
from glassgate.cli.progress import display
from glassgate.tasks.data.toy.python_code import standard_library
from glassgate.tasks.errors import UserError
from glassgate.tasks.progress import Progress
from tests.forked import forked


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Both models train on one file of the standard library and are compared on two held-out files."""
    files = tmp_path / "library"
    files.mkdir()
    for name in ("urllib/error.py", "urllib/response.py", "asyncio/format_helpers.py"):
        shutil.copy(Path(sysconfig.get_path("stdlib"), name), files)
    library = partial(standard_library, files)
    monkeypatch.setattr(demo, "standard_library", library)
    monkeypatch.setattr(parallel, "get_context", lambda method: forked())
    run = tmp_path / "demo"
    assert main(["demo", "--every=400", f"--run={run}"]) == 0
    out = capsys.readouterr().out
    train, held_out = library(every=400)
    assert (len(train), len(held_out)) == (1, 2)
    summary = json.loads((run / "demo.json").read_text())
    assert summary["held_out"] == [each.source for each in held_out]
    assert all(Path(name).name in out for name in summary["held_out"])
    for name in ("bidirectional", "one-directional"):
        scores = summary["results"][name]["test"]
        assert scores.keys() == {"accuracy", "macro_f1", "whole_tokens"}
        assert all(f"{value:.2%}" in out for value in scores.values())
        assert f"as the {name} model sees it" in out
        assert json.loads((run / name / "metrics.json").read_text()) == summary["results"][name]
        assert main(["evaluate", str(run / name), __file__]) == 0
    assert f"glassgate report {run}/bidirectional --live " in out
    assert str(run / "live.html") in out
    assert "Try it" in (run / "live.html").read_text("utf-8")
    assert f"glassgate predict {run}/bidirectional FILE.py" in out


def test_mistakes_are_marked() -> None:
    text = colour(
        "if x:", ["keyword"] * 2 + ["keyword", "name", "operator"], ["keyword"] * 2 + ["other"] + ["name"] * 2
    )
    assert text.plain == "if␣x:"
    assert text.spans == [
        Span(0, 2, "bold magenta"),
        Span(2, 3, "white on red"),
        Span(4, 5, "white on red"),
    ]


def test_what_can_be_coloured() -> None:
    assert can_colour("ab", ["name", "other"])
    assert not can_colour("ab", ["NOUN", "VERB"])
    assert not can_colour(["a", "b"], ["name", "other"])


def _kill_itself(progress: Progress) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_killed_training_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "get_context", lambda method: forked())
    with pytest.raises(UserError, match="first: the process was ended by SIGKILL, probably because memory was full"):
        parallel.run_parallel({"first": _kill_itself}, display(Console()))
