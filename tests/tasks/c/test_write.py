"""Programs in C print the predictions of `glassgate predict` for the numbers that Python computes from a file."""

import contextlib
import io
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgate.cli import main
from glassgate.tasks.c.program import write_program
from glassgate.tasks.classification import Classification, ClassificationOptions
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.errors import OptionError
from glassgate.tasks.forecasting.options import ForecastingOptions
from glassgate.tasks.forecasting.series import read_series
from glassgate.tasks.forecasting.task import Forecasting
from glassgate.tasks.language_model import LanguageModel, LanguageModelOptions
from glassgate.tasks.regression import Regression, RegressionOptions
from glassgate.tasks.tagging import Tagging, TaggingOptions
from glassgate.tasks.task import Split, Task
from tests.compare import noise

FLAGS = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O0"]
SMALL: dict[str, Any] = {"hidden_size": 5, "embedding_size": 4, "epochs": 1, "dropout": 0.0, "least_count": 1}
LINES = """\
John's dog didn't see the (old) cats... e.g. here!
Well-known <unk> don't O'Neill's \u201cquoted\u201d na\u00efve caf\u00e9, the\u3000end?? #1 3.14 ___ 'tis

 \tblanks  around\ttabs\u200b soft\u00adhyphen \u65e5\u672c\u8a9e the dog
\u6211\u559c\u6b22\u5929\u6c14 \U0001f600 a\\b incomprehensibilities-and-other-very-long-words-of-more-than-32
"""
WORDS = [
    *("The", "dog", "did", "n't", "see", "John", "'s", "cat", ".", "It", "ran", "(", "here", ")", ","),
    *("\u6211", "\u559c\u6b22", "\u5929\u6c14", "caf\u00e9"),
]
SLOTS = ["O", "B-a", "I-a", "B-b", "I-b"]


def tagging(**options: Any) -> Tagging:
    """Return a tagging task trained on a few words."""
    head = {"head": "crf"} if options.get("crf") else {}
    bio = [SLOTS[k % 5] for k in range(len(WORDS))]
    labels = bio if options.get("bio") or head else ["X" if len(word) > 2 else "Y" for word in WORDS]
    tokens = "".join(WORDS) if options.get("tokens") == "character" else WORDS
    labels = [labels[k % len(labels)] for k in range(len(tokens))]
    intents = ["ask", "say"] if options.get("intents") else [None, None]
    chosen = {key: value for key, value in options.items() if key not in ("crf", "bio", "intents")}
    task = Tagging(TaggingOptions(**SMALL, format="text", character_embedding_size=3, **head, **chosen))
    task.fit(Split([Tagged(tokens[part:], labels[part:], intent=intents[part]) for part in (0, 1)]))
    return task


def classification(**options: Any) -> Classification:
    """A classification task of two texts."""
    task = Classification(ClassificationOptions(**SMALL, **options))
    task.fit(Split([Labelled(LINES.splitlines()[0], "good"), Labelled("the cats don't see 's \u65e5", 'bad \\ "?"')]))
    return task


def of_series(
    kind: Any, options: Any, label: Callable[[Any], str], steps: Sequence[int] = (4, 5), has_slopes: bool = False
) -> Any:
    """A task of noise, or of straight lines, with two channels."""
    task = kind(options(**SMALL))
    slopes = [np.outer(np.arange(count), [k, -k]) + 9.0 * (k % 3) for k, count in enumerate(steps)]
    series = slopes if has_slopes else [noise(k, count, 2).numpy() for k, count in enumerate(steps)]
    task.fit(Split([Labelled(each, label(each)) for each in series]))
    return task


def regression() -> Regression:
    """A regression task of two texts."""
    task = Regression(RegressionOptions(**SMALL, num_layers=2, bidirectional=True))
    task.fit(Split([Labelled("so fine", "1.5 2"), Labelled("so foul", "-2 3")]))
    return task


def forecasting(path: Path, times: Callable[[int], str], **options: Any) -> Forecasting:
    """A forecasting task of two series, whose table is written to a file."""
    rows = [f'"{times(k)}",{np.sin(k):.4f},{3 * np.cos(k) + 7:.4f}' for k in range(80)]
    path.write_text("\n".join(["time,first,second one", *rows]) + "\n")
    small = {**SMALL, "embedding_size": 3, "horizon": 5, "batch_size": 64}
    small.pop("least_count")
    task = Forecasting(ForecastingOptions(**small, **options))
    task.fit(task.split(read_series(path, task.options.schema)))
    return task


TEXTS: dict[str, Callable[[], Task[Any, Any, Any]]] = {
    "tags": lambda: tagging(num_layers=2, bidirectional=True),
    "tags, paths and intents": lambda: tagging(crf=True, intents=True, cell="gru"),
    "tags, valid paths": lambda: tagging(bio=True, character_size=0),
    "tags of characters": lambda: tagging(tokens="character"),
    "classes": lambda: classification(pooling="attention", bidirectional=True),
    "classes by the last state": lambda: classification(tokens="token", pooling="last", bidirectional=True),
    "classes by the last, the mean and the largest": lambda: classification(pooling="concat", bidirectional=True),
    "classes by the mean": lambda: classification(tokens="byte", pooling="mean"),
    "classes by the largest": lambda: classification(tokens="character", pooling="max", cell="layernormlstm"),
    "numbers": regression,
}
SERIES: dict[str, Callable[[], Task[Any, Any, Any]]] = {
    "classes": lambda: of_series(Classification, ClassificationOptions, lambda x: "ab"[len(x) - 4]),
    "numbers": lambda: of_series(Regression, RegressionOptions, lambda x: str(len(x))),
    "numbers with a kernel": lambda: of_series(
        Regression, RegressionOptions, lambda x: str(x[1, 0] - x[0, 0]), (9, 8, 9, 8, 9, 8), has_slopes=True
    ),
    "numbers with a linear map": lambda: of_series(Regression, RegressionOptions, lambda x: str(x.sum()), (2,) * 5),
}
TABLES: dict[str, tuple[Callable[[int], str], dict[str, Any]]] = {
    "hours": (
        lambda k: str(np.datetime64("2024-02-27T05:00:00") + np.timedelta64(k, "h")).replace("T", " "),
        {"calendar": True, "head": "quantiles", "normalize": "window"},
    ),
    "months": (
        lambda k: str(np.datetime64("2019-11") + np.timedelta64(k + 1, "M") - np.timedelta64(1, "D")),
        {"calendar": True, "head": "gaussian", "model": "segments", "segment": 4},
    ),
    "weekdays": (
        lambda k: str(np.busday_offset(np.datetime64("2024-02-01"), k)),
        {"calendar": True, "model": "recursive"},
    ),
    "whole numbers": (lambda k: str(1900 + 10 * k), {"bidirectional": True, "head": "mae", "normalize": "none"}),
}  # fmt: skip


PAGE = (Path(__file__).parents[3] / "docs/deployment.md").read_text("utf-8")
OF_SEQUENCES, OF_FORECASTS = (
    PAGE[PAGE.index(begin) :].partition("```")[0] for begin in ("from glassgate.tasks import", "back, horizon = ")
)


def numbers_of(task: Task[Any, Any, Any], file: Path, run: Path) -> str:
    """Return the numbers that the program reads for the examples of a file, computed by the code of the page."""
    code = OF_SEQUENCES
    if isinstance(task, Forecasting):
        code = OF_SEQUENCES[: OF_SEQUENCES.index("for ")] + OF_FORECASTS
        if not task.statistics.num_known:
            code = code.replace(', *fields["known"].ravel()', "")
    task.save(run)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(re.sub(r"new\.\w+", str(file), code.replace("runs/reviews", str(run))), {})
    return output.getvalue()


def expected_of(task: Task[Any, Any, Any], example: Any, prediction: Any) -> str:
    """Return the prediction as the program prints it: without times, and with numbers instead of tokens."""
    lines = task.text(example, prediction).splitlines()
    if task.name == "tagging":
        lines = [line if line.startswith("# intent") else line.rpartition("\t")[2] for line in lines] + [""]
    if task.name == "forecasting":
        lines = ["\t".join(cell for k, cell in enumerate(line.split("\t")) if k != 1) for line in lines]
    if task.name == "classification" and "pooling" in vars(task.options) and task.options.pooling == "attention":
        label, probability, shares = lines[0].split("\t")
        weights = [each.rpartition(":")[2] for each in shares.split(" ")]
        lines = ["\t".join([label, probability, " ".join(f"{k + 1}:{each}" for k, each in enumerate(weights))])]
    return "".join(f"{line}\n" for line in lines)


def printed(task: Task[Any, Any, Any], file: Path, folder: Path, *flags: str, **options: Any) -> tuple[str, str]:
    """Return the predictions of a task for a file, and the output of its program."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    examples = task.read(str(file), labelled=False)
    pairs = zip(examples, task.predict(examples), strict=True)
    expected = "".join(expected_of(task, *pair) for pair in pairs)
    build(write_program(task, folder, "net", **options), folder, *flags)
    lines = numbers_of(task, file, folder / "run").replace("\n", "\r\n")
    done = subprocess.run(["./net"], cwd=folder, input=lines, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return expected, done.stdout


def build(paths: list[Path], folder: Path, *flags: str) -> None:
    """Build the program `net`, without warnings."""
    sources = [path.name for path in paths if path.suffix == ".c"]
    done = subprocess.run(
        ["gcc", *FLAGS, *flags, *sources, "-lm", "-o", "net"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[:3000]


def check(expected: str, printed: str) -> None:
    """Compare texts; numbers may differ in the last digit."""
    number = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
    assert number.sub("0", printed) == number.sub("0", expected)
    for ours, theirs in zip(number.findall(printed), number.findall(expected), strict=True):
        assert float(ours) == pytest.approx(float(theirs), rel=2e-4, abs=2e-4)


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name: str, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("\ufeff" + LINES + "last line\r\n", encoding="utf-8")
    weights = "file" if name == "classes" else "const"
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"] if "intents" in name else []
    check(*printed(TEXTS[name](), file, tmp_path, *sanitizers, weights=weights))


@pytest.mark.parametrize("name", SERIES)
def test_series(name: str, tmp_path: Path) -> None:
    file = tmp_path / "series.ts"
    rows = "# comment\n@problemName x\n@classLabel true 1 2\n@data\n1,2.5,-3e-1:4,5,6:1\n0.5, 1:-1 ,2:2\n"
    file.write_text(rows)
    check(*printed(SERIES[name](), file, tmp_path))


@pytest.mark.parametrize("name", TABLES)
def test_tables(name: str, tmp_path: Path) -> None:
    times, options = TABLES[name]
    file = tmp_path / "table.csv"
    check(*printed(forecasting(file, times, **options), file, tmp_path))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    task = regression()
    task.save(run)
    assert main(["export", str(run), "--to", "c", "--name", "scores"]) == 0
    assert f"build it with: cc -std=c99 -O3 {run}/c/scores.c {run}/c/scores_main.c -lm" in capsys.readouterr().out
    names = sorted(path.name for path in (run / "c").iterdir())
    assert names == ["scores.c", "scores.h", "scores_main.c", "scores_tables.h"]
    assert main(["export", str(run), "--to", "c", "--weight-precision", "int8"]) == 2
    assert "--to c writes float32, got --weight-precision int8" in capsys.readouterr().err


def test_a_name_that_begins_like_the_functions_of_the_templates(tmp_path: Path) -> None:
    path = write_program(regression(), tmp_path, "net_v2")[-1]
    text = path.read_text("utf-8")
    assert "Build: cc -std=c99 -O3 net_v2.c net_v2_main.c -lm -o net_v2 */" in text
    assert '#include "net_v2_tables.h"' in text
    assert "net_v2_v2" not in text


def test_runs_that_cannot_be_written(tmp_path: Path) -> None:
    model = LanguageModel(LanguageModelOptions(hidden_size=4))
    with pytest.raises(OptionError, match=r"--to c does not support runs of language-model; write its"):
        write_program(model, tmp_path)
    path = tmp_path / "table.csv"
    task = forecasting(path, str, head="student-t")
    path.unlink()
    with pytest.raises(OptionError, match=r"the random paths of --head student-t .*; train a run with --head quant"):
        write_program(task, tmp_path)
    task = forecasting(path, str, past="second one")
    path.unlink()
    with pytest.raises(
        OptionError, match="--to c cannot express the covariates of the past of this forecasting run; train a"
    ):
        write_program(task, tmp_path)
    with pytest.raises(OptionError, match="name must be a C identifier, got 'a b'"):
        write_program(regression(), tmp_path, "a b")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match=r"--output: cannot write to .*file: .*; choose another path"):
        write_program(regression(), tmp_path / "file")


def test_input_that_is_not_in_the_tables_is_refused(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    task = tagging()
    build(write_program(task, tmp_path, "net"), tmp_path)
    for text, reason in (
        ("3 1 2\n\n99999 1 2\n", "line 3: expected an index into a table of the run"),
        ("1.5 1 2", "line 1: expected an index"),
        ("3 33", "line 1: expected an index"),
        ("3 0", "line 1: expected the characters of each token"),
        ("3 2 2", "line 1: expected more numbers"),
        ("the dog", "line 1: expected numbers separated by blanks"),
        ("3 1 nan", "line 1: expected an index"),
    ):
        done = subprocess.run(["./net"], cwd=tmp_path, input=text, capture_output=True, text=True)
        assert (done.returncode, done.stderr[: len(reason)]) == (1, reason)


def test_empty_lines_have_no_answer(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    build(write_program(regression(), tmp_path, "net"), tmp_path)
    done = subprocess.run(["./net"], cwd=tmp_path, input="3 4\n\n3 4\n", capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first == second
