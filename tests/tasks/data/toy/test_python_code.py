"""Each character of Python code has the label of its token, in every version of Python."""

from pathlib import Path

import pytest

from glassgate.tasks.data.toy.python_code import LABELS, label, read, standard_library
from glassgate.tasks.errors import DataError

CODE = '''"""Module."""
import os  # a comment

@app.route("/")
async def f(x: int = 0x1F) -> str:
    """Text
    of two lines."""
    text = f"{x!r} and {len(f'{x}')}" "more"
    "alone"  # and a comment
    return os.open(text) @ y
'''


def labelled(part: str, after: str = "") -> set[str]:
    """Return the labels of a part of CODE, the first occurrence after a given text."""
    start = CODE.index(part, CODE.index(after))
    return set((label(CODE).labels or ())[start : start + len(part)])


@pytest.mark.parametrize(
    ("part", "after", "kind"),
    [
        ('"""Module."""', "", "docstring"),
        ("import", "", "keyword"),
        ("os", "", "name"),
        ("# a comment", "", "comment"),
        ("@app.route", "", "decorator"),
        ("(", "@app", "operator"),
        ('"/"', "", "string"),
        ("async", "", "keyword"),
        ("int", "x:", "builtin"),
        ("0x1F", "", "number"),
        ("->", "", "operator"),
        ('"""Text\n    of two lines."""', "", "docstring"),
        ("f\"{x!r} and {len(f'{x}')}\"", "", "string"),
        ('"more"', "", "string"),
        ('"alone"', "", "docstring"),
        ("open", "os.", "name"),
        ("@", "text)", "operator"),
        (" ", "import", "other"),
    ],
)
def test_labels(part: str, after: str, kind: str) -> None:
    assert kind in LABELS
    assert labelled(part, after) == {kind}


def test_tokens_cover_all_that_is_labelled() -> None:
    tagged = label(CODE)
    words = [0, *tagged.words]
    assert [word > 0 for word in tagged.words] == [each != "other" for each in tagged.labels or ()]
    texts = ["".join(c for c, word in zip(CODE, tagged.words, strict=True) if word == k) for k in range(1, max(words))]
    assert texts[:4] == ['"""Module."""', "import", "os", "# a comment"]


def test_a_file_that_is_not_python(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text('x = """never closed\n')
    with pytest.raises(DataError, match=r"a\.py:1: expected a Python file, got one that does not parse: .*; correct"):
        read(path)
    assert read(path, labelled=False)[0].labels is None


def test_files_are_split_as_a_whole(tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / f"module_{number}.py").write_text(CODE * 3)
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "passed_over.py").write_text(CODE * 3)
    (tmp_path / "latin.py").write_bytes(b"# \xe9\n" * 200)
    train, held_out = standard_library(tmp_path)
    names = [{each.source for each in part} for part in (train, held_out)]
    assert not names[0] & names[1]
    assert names[0] | names[1] == {f"module_{number}.py" for number in range(60)}
    assert 1 <= len(held_out) <= 10
    some, same = standard_library(tmp_path, every=7)
    assert {each.source for each in some} < names[0]
    assert len(some) in (len(train) // 7, len(train) // 7 + 1)
    assert [each.source for each in same] == [each.source for each in held_out]
