"""Checks of the ten exercises in gates.ipynb, and the script that grades them.

In the notebook, `start("name")` returns the numbers of the exercises, `check_1(answer)` to `check_10(answer)` check the
answers, and `hand_in()` writes them to a file. `python checks.py answers-*.json` prints a table of points.
"""

import glob
import json
import math
import re
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

import glassgate as gg

TRUTHS: dict[int, Callable[[SimpleNamespace], Any]] = {
    1: lambda n: n.cell.forget_gate(n.x, n.h),
    2: lambda n: n.cell(n.x, n.h, n.c)[1],
    3: lambda n: n.cell(n.x, n.h, n.c)[0],
    4: lambda n: [12, 13, 14, 15],
    5: lambda n: n.layer(n.sequence)[0],
    6: lambda n: n.both(n.sequence)[1][0][1],
    7: lambda n: 4 * 20 * (10 + 20 + 2),
    8: lambda n: math.log(0.95 / 0.05),
    9: lambda n: math.log(0.5) / math.log(0.95),
    10: lambda n: _gates(n).prod(0),
}
"""The true answer of each exercise."""

HINTS = {
    "en": {
        1: "sigmoid of W_f x + U_f h + b_f; W_f is linear.weight[:, :3]",
        2: "f c + i g, with g = n.cell.cell_state.candidate(n.x, n.h)",
        3: "o tanh(c'), with the new state c'",
        4: "the order of the gates is i, f, g, o, and each block has 4 rows",
        5: "begin with h = c = torch.zeros(2, 4) and append h after each step",
        6: "the reverse direction ends at the first step; its columns are 4 to 7",
        7: "four gates, each with 20 rows, 10 + 20 columns and two biases",
        8: "solve sigmoid(b) = 0.95 for b",
        9: "solve 0.95 ** k = 0.5 for k",
        10: "multiply the recorded forget gates over the steps: prod(0)",
    },
    "zh": {
        1: "W_f x + U_f h + b_f 的 sigmoid；W_f 是 linear.weight[:, :3]",
        2: "f c + i g，其中 g = n.cell.cell_state.candidate(n.x, n.h)",
        3: "o tanh(c')，其中 c' 是新的记忆元",
        4: "门的顺序是 i、f、g、o，每块有 4 行",
        5: "从 h = c = torch.zeros(2, 4) 开始，每一步之后保存 h",
        6: "反向在第一步结束；它占第 4 到 7 列",
        7: "四个门，每个门有 20 行、10 + 20 列和两个偏置",
        8: "由 sigmoid(b) = 0.95 解出 b",
        9: "由 0.95 ** k = 0.5 解出 k",
        10: "把记录的遗忘门沿时间步相乘：prod(0)",
    },
}
"""A hint for each exercise, by language."""

SENTENCES = {
    "en": {
        "empty": "exercise {}: write your answer in the cell above",
        "right": "exercise {}: correct",
        "wrong": "exercise {}: not yet. Hint: {}",
    },
    "zh": {
        "empty": "练习 {}：请在上面的单元格里写出答案",
        "right": "练习 {}：正确",
        "wrong": "练习 {}：还不对。提示：{}",
    },
}

_numbers: dict[str, SimpleNamespace] = {}
_answers: dict[str, Any] = {}


def start(name: str, language: str = "en") -> SimpleNamespace:
    """Return the numbers of the exercises. They depend on the name, so most answers cannot be copied.

    Args:
        name: the student's name.
        language: the language of the hints, "en" or "zh".

    Returns:
        cell: a `gg.gates.LSTMCell` with 3 inputs and 4 units. x, h, c: an input (2, 3) and states (2, 4).
        layer: a `gg.LSTM` with the weights of the cell. both: a bidirectional one. sequence: 20 steps (20, 2, 3).
    """
    assert language in HINTS, f'expected language="en" or "zh", got {language!r}'
    with torch.random.fork_rng():
        torch.manual_seed(zlib.crc32(name.strip().lower().encode()))
        cell, both = gg.gates.LSTMCell(3, 4), gg.LSTM(3, 4, bidirectional=True)
        x, h, c, sequence = (torch.randn(size) for size in ((2, 3), (2, 4), (2, 4), (20, 2, 3)))
    layer = gg.LSTM(3, 4)
    layer.load_state_dict({f"{key}_l0": value for key, value in cell.to_fused().state_dict().items()})
    for module in (cell, layer, both):
        module.requires_grad_(False)
    numbers = SimpleNamespace(
        name=name, language=language, cell=cell, layer=layer, both=both, x=x, h=h, c=c, sequence=sequence
    )
    _numbers["now"] = numbers
    _answers.clear()
    return numbers


def _gates(numbers: SimpleNamespace) -> torch.Tensor:
    with gg.record(numbers.layer) as tape:
        numbers.layer(numbers.sequence)
    return tape["layer0.forward.f"]


def is_right(number: int, answer: Any, numbers: SimpleNamespace) -> bool:
    """Whether an answer to an exercise is right: a number, a list or a tensor."""
    truth, given = torch.as_tensor(TRUTHS[number](numbers), dtype=torch.float64), _as_tensor(answer)
    if given is None or given.shape != truth.shape:
        return False
    return bool(((given - truth).abs() <= 1e-3 * truth.abs().max()).all())


def _as_tensor(answer: Any) -> torch.Tensor | None:
    """Return an answer as a tensor, or None if it does not consist of numbers."""
    try:
        return torch.as_tensor(answer, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        return None


def check(number: int, answer: Any) -> None:
    """Print whether an answer is right, with a hint if it is not, and keep it for `hand_in`."""
    numbers = _numbers.get("now")
    assert numbers is not None, 'expected start("your name") before the first check'
    sentences = SENTENCES[numbers.language]
    if answer is None:
        print(sentences["empty"].format(number))
        return
    given = _as_tensor(answer)
    _answers[str(number)] = None if given is None else given.tolist()
    right = is_right(number, answer, numbers)
    print(sentences["right" if right else "wrong"].format(number, HINTS[numbers.language][number]))


def _check(number: int) -> Callable[[Any], None]:
    return lambda answer: check(number, answer)


check_1, check_2, check_3, check_4, check_5 = (_check(number) for number in range(1, 6))
check_6, check_7, check_8, check_9, check_10 = (_check(number) for number in range(6, 11))


def hand_in(folder: str = ".") -> Path:
    """Write the answers to `answers-NAME.json`, and return the path."""
    name = _numbers["now"].name
    stem = "-".join(re.findall(r"[\w-]+", name))
    path = Path(folder, f"answers-{stem}.json")
    path.write_text(json.dumps({"name": name, "answers": _answers}, ensure_ascii=False), "utf-8")
    return path


def grade(path: Path) -> tuple[str, list[int]]:
    """Return the name in a file of answers, and the numbers of the right answers."""
    content = json.loads(path.read_text("utf-8"))
    numbers = start(content["name"])
    answers = {int(number): answer for number, answer in content["answers"].items()}
    return content["name"], [number for number in TRUTHS if is_right(number, answers.get(number), numbers)]


def main(paths: list[str]) -> None:
    """Print the points of each file."""
    if not paths:
        sys.exit("checks.py: expected files of answers, got none; for example: python checks.py answers-*.json")
    expanded = [path for each in paths for path in glob.glob(each) or [each]]  # shells of Windows pass the pattern
    for path in sorted(map(Path, expanded)):
        try:
            name, right = grade(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            print(f"{path}: expected a file that hand_in() has written, got {error!r}")
        else:
            wrong = [str(number) for number in TRUTHS if number not in right]
            print(
                f"{len(right):2} of {len(TRUTHS)}  {name}"
                + (f"  (missing or wrong: {', '.join(wrong)})" if wrong else "")
            )


if __name__ == "__main__":
    main(sys.argv[1:])
