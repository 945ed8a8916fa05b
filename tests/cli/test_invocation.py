"""What is printed to try next begins as the command was started."""

import sys
from pathlib import Path

import pytest

from glassgate.cli.parser import invocation


@pytest.mark.parametrize(
    ("given", "on_path", "said"),
    [
        ("/somewhere/bin/glassgate", True, "glassgate"),
        (".venv/bin/glassgate", False, ".venv/bin/glassgate"),
        ("/elsewhere/bin/glassgate", False, "/elsewhere/bin/glassgate"),
        ("/somewhere/glassgate/__main__.py", True, "python -m glassgate"),
        ("/somewhere/glassgate/__main__.py", False, ".venv/bin/python -m glassgate"),
        ("/usr/bin/pytest", False, "glassgate"),
    ],
)
def test_started(given: str, on_path: bool, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    for name in ("python", "glassgate"):
        (folder / name).touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [given])
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", str(folder) if on_path else "/nowhere")
    assert invocation() == said
