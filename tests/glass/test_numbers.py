"""The scripts of pages write numbers as Python does, and read numbers and ranges of fields."""

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from glassgate.glass.languages import say, with_messages
from glassgate.glass.page_parts import resource
from glassgate.glass.study import Answer, Choice
from glassgate.glass.svg import round_numbers
from glassgate.glass.text_section import sentence_about
from glassgate.glass.wording import fixed, percent, quoted, steps
from tests.export.javascript import node

NUMBERS = [0, 1, -1, 0.04, 0.095, 0.1, 0.381, 0.0004, 0.00051, -0.001, 0.9996, 1.02, 2.345, 9.96, 61.2, 1234.5, -17.25]


def in_node(folder: Path, expression: str, *names: str) -> Any:
    """The value of an expression that uses files of the script."""
    program = "\n".join(
        [
            *(resource(f"script/{name}.js") for name in ("language", *names)),
            f"console.log(JSON.stringify({expression}))",
        ]
    )
    (folder / "program.js").write_text(with_messages(program), "utf-8")
    done = subprocess.run([node(), str(folder / "program.js")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_scripts_write_numbers_as_python_does(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    numbers = [*NUMBERS, *(random.normal(size=200) * 10.0 ** random.integers(-4, 4, 200)).round(7).tolist()]
    lengths, words = [abs(each) for each in numbers], ["word", " ", "x", "\n", "", "ab", "北"]
    expression = (
        f"[{json.dumps(numbers)}.map((v) => [fixed(v), fixed(v, 0), percent(v)]), "
        f"{json.dumps(lengths)}.map(stepsInWords), "
        f'{json.dumps(words)}.map(quoted), [1, 2].map((k) => say("words.units", {{ count: k }})), '
        "[fixed(NaN), fixed(-Infinity), fixed(undefined), stepsInWords(Infinity)], "
        "[roundNumbers(0, 230), roundNumbers(-1.3, 2.2, 4), roundNumbers(3, 3)]]"
    )
    shown, lives, texts, units, special, ticks = in_node(tmp_path, expression, "numbers")
    # Python rounds halves to even digits and JavaScript away from zero, which concerns exact binary fractions only.
    exact = [k for k, v in enumerate(numbers) if (abs(v) * 1000) % 5 or v in NUMBERS[:5]]
    assert len(exact) > 150
    for k in exact:
        assert shown[k] == [fixed(numbers[k]), fixed(numbers[k], 0), percent(numbers[k])]
        assert lives[k] == steps(lengths[k])
    assert texts == list(map(quoted, words))
    assert units == [say("words.units", count=k) for k in (1, 2)] == ["1 unit", "2 units"]
    assert special == [fixed(math.nan), fixed(-math.inf), "\N{EN DASH}", steps(math.inf)]
    assert ticks == [round_numbers(0, 230), round_numbers(-1.3, 2.2, 4), [3]]


def test_scripts_describe_answers_as_python_does(tmp_path: Path) -> None:
    """Numbers have a minus sign and no quotation marks, also those of one digit."""
    answers = [
        Answer(None, [Choice("-5.1", None)], Choice("3", None)),
        Answer(2, [Choice("7", None)], None),
        Answer(0, [Choice("-", 0.75), Choice("well-known", 0.25)], Choice("-", 0.75)),
        Answer(0, [Choice("a", 0.5)], Choice("-1", 0.13)),
    ]
    given = json.dumps([{"best": each.best, "target": each.target} for each in answers])
    described = in_node(tmp_path, f"{given}.map(describeAnswer)", "numbers", "words")
    assert described == list(map(sentence_about, answers))
    assert described[:2] == ["predicts \N{MINUS SIGN}5.1, target 3", "predicts 7"]


def test_units_are_read_or_refused(tmp_path: Path) -> None:
    expected = {
        "3": [3], "0-2, 5": [0, 1, 2, 5], " 1 - 2 ": [1, 2], "1\N{EN DASH}2": [1, 2], "2 4": [2, 4], "": [],
        **dict.fromkeys(("500", "abc", "-1", "1.5", "3-1", "0-99999999999", "1e1", "\N{ARABIC-INDIC DIGIT THREE}")),
    }  # fmt: skip
    results = in_node(
        tmp_path, f"{json.dumps(list(expected))}.map((each) => numbersIn(each, 0, 7))", "numbers", "fields"
    )
    assert dict(zip(expected, results, strict=True)) == expected


def test_steps_are_one_range(tmp_path: Path) -> None:
    typed = ["2-3", "1", "0", "999", "x", "1,3", "1 3", "3-2", "", "-1"]
    results = in_node(tmp_path, f"{json.dumps(typed)}.map((each) => rangeIn(each, 9))", "numbers", "fields")
    assert results == [[1, 3], [0, 1], *[None] * 8]
