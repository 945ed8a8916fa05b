"""Each message of the package has an input in tests/messages.md that causes it, or a test that checks it."""

from pathlib import Path

import pytest

from tests.messages import PAGE, Reader, on_the_page
from tests.raised import read_by_tests, read_in, sites

NOT_MADE = {
    "a package that the tests have is not installed": [
        "picture: drawing needs matplotlib",
        "reading .mat needs SciPy",
        "reading .xlsx needs openpyxl",
        "units of subwords need the package tokenizers",
        "scores of translations need the package sacrebleu",
        "this Python came without its documentation",
    ],
    "it takes another user, a full disk or a device": [
        "no permission to read this file",
        "no permission to write to ",
        "this cannot be opened (",
        "it is closed; give a file, or send text",
        ": other users can write to it",
        ": this is not a regular file",
    ],
    "a race: files that change between two steps of a command": [
        " data has changed since the run began",
        "expected text to learn from, got none",
        "the run's data contains no example",
        "expected examples to show, got an empty file",
    ],
    "said in Python alone, of objects made by other code": [
        "is that of a layer ",
        "no time stamp is later than the one before it",
        "expected a frame that turns into an Arrow table",
        ": expected a Split of examples, got rows of a table",
        " has no attention to look at",
        " has no report yet",
        "expected a text, as in training, got a series",
        "two series have this name",
        "the source is empty; remove the line",
        "expected a translation to learn from",
        "`observed` reads whole texts, as contexts extend over the bounds of batches",
        "`observed` compares texts, not the tokens of batches",
        ", row ",
    ],
    "an error of another library, or inside of another message": [
        ": ONNX Runtime returns ",
        " and the options ",
    ],
    "a step that only looks equal to itself": ["is not the same when it is run twice"],
    "a run of minutes": [
        " steps or more are too long for one page",
        " does not read text; give a file with --file, or omit the text",
    ],
}
"""Messages without an input, by reason."""


def test_each_input_causes_the_documented_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The inputs run in order, in one folder. `python -m tests.messages` writes new answers into the page."""
    monkeypatch.chdir(tmp_path)
    reader = Reader()
    wrong = [
        f"{each.code}\n  page: {each.answer}\n  said: {said}"
        for each in on_the_page()
        if (said := reader.answer(each)) != each.answer
    ]
    assert not wrong, "\n".join(wrong)


def test_every_message_has_an_input_that_causes_it() -> None:
    page, texts = " ".join(PAGE.read_text("utf-8").split()), read_by_tests()
    excused = [text for each in NOT_MADE.values() for text in each]
    unread = [site for site in sites() if not (site.is_in(page) or read_in(site, texts))]
    untested = [site for site in unread if not any(text in part for part in site.parts for text in excused)]
    assert not untested, f"add inputs to tests/messages.md: {untested}"
