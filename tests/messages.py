"""Runs the inputs of tests/messages.md. `python -m tests.messages` updates the answers on the page."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).with_suffix(".md")
_BLOCK = re.compile(r"^```(pycon|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_START = {"pycon": ">>> ", "console": "$ "}
_MORE = {"pycon": "... ", "console": "> "}


class Exchange(NamedTuple):
    """An input of the page, and its answer with single spaces."""

    kind: str
    input: tuple[str, ...]
    answer: str

    @property
    def code(self) -> str:
        """The input without prompts."""
        return "\n".join(line[len(_START[self.kind]) :] for line in self.input)


def exchanges(text: str, kind: str) -> Iterator[Exchange]:
    """The exchanges of a block."""
    lines = text.splitlines()
    while lines:
        typed = [lines.pop(0)]
        while lines and (lines[0] + " ").startswith(_MORE[kind]):
            typed.append(lines.pop(0))
        answer = []
        while lines and not lines[0].startswith(_START[kind]):
            answer.append(lines.pop(0))
        yield Exchange(kind, tuple(typed), " ".join(" ".join(answer).split()))


def on_the_page() -> list[Exchange]:
    """All exchanges of the page in order."""
    return [each for block in _BLOCK.finditer(PAGE.read_text("utf-8")) for each in exchanges(block[2], block[1])]


class Reader:
    """Runs the inputs of the page in the current folder."""

    def __init__(self) -> None:
        import torch

        import glassgate as gg

        self.names = {"gg": gg, "torch": torch}

    def answer(self, exchange: Exchange) -> str:
        """Return the error of an input, or else the warnings of a command other than `train`, or an empty string."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            said = self._python(exchange.code) if exchange.kind == "pycon" else self._shell(exchange.code)
        return " ".join(said.replace(str(Path.cwd()), "/home/you").split())

    def _python(self, code: str) -> str:
        try:
            exec(compile(code, "<page>", "exec"), self.names)
        except Exception as error:
            return f"{type(error).__name__}: {error.args[0] if error.args else ''}"
        return ""

    def _shell(self, line: str) -> str:
        from glassgate.cli import main

        first, *words = shlex.split(line)
        if first != "glassgate":
            subprocess.run(["bash", "-e", "-c", line], check=True)
            return ""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = main(words)
            except SystemExit as end:
                status = int(end.code or 0)
        match = re.findall(r"^glassgate.*", err.getvalue(), re.MULTILINE | re.DOTALL) or [""]
        warned = re.findall(r"^warning: .*", out.getvalue() + err.getvalue(), re.MULTILINE)
        return match[0] if status else " ".join(warned * (words[0] != "train"))


def written(exchange: Exchange, answer: str) -> str:
    """Format an exchange for the page."""
    lines = textwrap.wrap(answer, 110, break_long_words=False, break_on_hyphens=False, subsequent_indent="    ")
    return "\n".join([*exchange.input, *lines])


def main() -> None:
    """Update the answers on the page."""
    reader = Reader()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):

        def block(match: re.Match[str]) -> str:
            kind, lines = match[1], []
            for each in exchanges(match[2], kind):
                lines.append(written(each, reader.answer(each)))
                if "-v" in sys.argv:
                    print(lines[-1], flush=True)
            return f"```{kind}\n" + "\n".join(lines) + "\n```"

        page = _BLOCK.sub(block, PAGE.read_text("utf-8"))
    PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    main()
