"""Runs of every task as ONNX models give the predictions of the run, in ONNX Runtime and in OpenVINO."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import pytest
import tokenizers
import torch

from glassgate.cli import main
from glassgate.tasks import task_class, task_class_of_run
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.data.pairs import Pair
from glassgate.tasks.data.texts import Text
from glassgate.tasks.data.vocabulary import FIRST, UNKNOWN
from glassgate.tasks.errors import OptionError
from glassgate.tasks.forecasting.series import series_of
from glassgate.tasks.forecasting.series.frequency import TIME, Frequency
from glassgate.tasks.language_model.music import NUM_KEYS, Roll
from glassgate.tasks.onnx.models import write
from glassgate.tasks.translation.search import Search
from tests.exporter import operators_read_once  # noqa: F401
from tests.openvino_core import core

pytestmark = pytest.mark.filterwarnings("ignore")  # a warning of torch's exporter


Model = Callable[..., list[np.ndarray]]
"""Takes inputs by name, and returns the outputs in order."""
Runtime = Callable[[Path], Model]
"""Loads a model."""
SMALL = {"hidden_size": 6, "embedding_size": 5}


def saved(task: Any, examples: Sequence[Any], folder: Path) -> Any:
    """Save a run with random weights."""
    task.vocabularies = task.collect(examples)
    task.network = task.build().eval()
    with torch.no_grad():
        for parameter in task.network.parameters():
            parameter.uniform_(-1, 1)
    task.save(folder)
    return task


def onnx_runtime(path: Path) -> Model:
    model = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda **inputs: model.run(None, inputs)


def openvino(path: Path) -> Model:
    model = core().compile_model(path, "CPU")
    return lambda **inputs: list(model(inputs).values())


def zeros(task: Any, layer: Any) -> dict[str, np.ndarray]:
    """Return zero initial states of one sequence."""
    shape = layer.num_layers, 1, task.options.hidden_size
    return {f"{state}_0": np.zeros(shape, np.float32) for state in layer.cell.state}


def fed_back(layer: Any, results: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Return the final states under the names of the initial ones."""
    return {f"{state}_0": value for state, value in zip(layer.cell.state, results, strict=True)}


def classification(task: Any, folder: Path, examples: Sequence[Any], load: Runtime) -> None:
    model = load(folder / "model.onnx")
    for example in examples:
        tokens = task.encode(example)["units"]
        outputs = model(units=tokens[None], lengths=np.array([len(tokens)]))
        (answer,) = task.predict([example])
        np.testing.assert_allclose(outputs[0][0], list(answer.probabilities.values()), atol=1e-5)
        np.testing.assert_allclose(outputs[1][0], answer.attention, atol=1e-5)


def regression(task: Any, folder: Path, examples: Sequence[Any], load: Runtime) -> None:
    model = load(folder / "model.onnx")
    for example in examples:
        given = {"series": example.content[None].astype(np.float32), "lengths": np.array([len(example.content)])}
        (numbers,) = model(**given)
        np.testing.assert_allclose(numbers[0], task.predict([example])[0], rtol=1e-4, atol=1e-5)


def language_model(task: Any, folder: Path, examples: Sequence[Any], load: Runtime) -> None:
    model, layer = load(folder / "model.onnx"), task.network.encoder
    inputs, states = task.encode(examples[0])["inputs"], zeros(task, layer)
    targets, nats = task.encode(examples[0])["targets"], []
    for before, target in zip(inputs, targets, strict=True):
        given = {"units": before[None, None]} if task.vocabularies else {"notes": before[None, None].astype(np.float32)}
        chances, *states_n = model(**given, **states)
        states, row = fed_back(layer, states_n), chances[0, 0]
        nats.append(-row[target - UNKNOWN] if task.vocabularies else -np.log(np.where(target, row, 1 - row)).sum())
    np.testing.assert_allclose(nats, task.predict(examples)[0], rtol=1e-4, atol=1e-4)


def fill_blanks(task: Any, folder: Path, examples: Sequence[Any], load: Runtime) -> None:
    """Compare the probability of the best candidate of two tokens, for a blank at the start of a text."""
    text, layer, known = "___er, ", task.network.encoder, task.vocabularies["units"]
    best = task.fill(text, length=2)[0][0]
    after = known.encode(text[3:])
    beside = {}
    if layer.bidirectional:
        (state_after,) = load(folder / "model-after.onnx")(units=after[None], lengths=np.array([len(after)]))
        beside = {"after": state_after}
    before = load(folder / ("model-before.onnx" if layer.bidirectional else "model.onnx"))
    tokens, length, states, total = np.zeros((1, 1), np.int64), np.array([0]), zeros(task, layer), 0.0
    for missing, number in zip((2, 1), known.encode(best.text), strict=True):
        scores, lengths, *states_n = before(
            units=tokens, lengths=length, missing=np.array([missing]), **states, **beside
        )
        if missing == 2:
            np.testing.assert_allclose(np.exp(lengths).sum(), 1, rtol=1e-5)
        tokens, length, states = number[None, None], np.array([1]), fed_back(layer, states_n)
        total += scores[0, number - UNKNOWN]
    np.testing.assert_allclose(np.exp(total), best.probability, rtol=1e-4)


def tokenizer(path: Path) -> Any:
    """Return the tokenizer of source texts that is stored in a file."""
    stored = onnxruntime.InferenceSession(path).get_modelmeta().custom_metadata_map
    return tokenizers.Tokenizer.from_str(json.dumps(json.loads(stored["run"])["fitted"]["subwords"][0]))


def translation(task: Any, folder: Path, examples: Sequence[Any], load: Runtime) -> None:
    task.search = Search(beam=1)
    encoder, step = load(folder / "model-encoder.onnx"), load(folder / "model-decoder.onnx")
    decoder, symbols = task.network.decoder, task.vocabularies["target"].symbols
    layer = decoder.layer
    subwords = tokenizer(folder / "model-encoder.onnx")
    for example in examples:
        assert subwords.encode(example.source).tokens == task.source_tokens(example)
        source = task.encode(example)["source"]
        lengths = np.array([len(source)])
        results = encoder(source=source[None], lengths=lengths)
        count = len(layer.cell.state)
        states = fed_back(layer, results[:count])
        memory = dict(zip(("values", "keys"), results[count:], strict=False))
        memory |= {"lengths": lengths} if memory else {}
        readout = {"readout": np.zeros((1, decoder.readout_size), np.float32)} if decoder.input_feeding else {}
        previous, written, total = 0, [], 0.0
        for place in range(limit := 10 + int(2 * task.fitted["ratio"] * len(source))):
            scores, *rest = step(previous=np.array([previous]), **states, **readout, **memory)
            previous = FIRST if place == limit - 1 else int(scores[0, 1:].argmax()) + FIRST
            total += scores[0, previous - UNKNOWN]
            if previous == FIRST:
                break
            written.append(symbols[previous - FIRST])
            states = fed_back(layer, rest[:count])
            readout = dict(zip(readout, rest[count:], strict=True))
        (hypothesis,) = task.predict([example])[0]
        assert hypothesis.text == task.join(written, 1)
        np.testing.assert_allclose(np.exp(total), hypothesis.probability, rtol=1e-3)


def forecasting(task: Any, folder: Path, examples: Sequence[Any], load: Runtime) -> None:
    options, model = task.options, load(folder / "model.onnx")
    for series in examples:
        (forecast,) = task.predict([series])[0]
        start, stop = len(series) - options.steps_back, len(series)
        values = series.values[start:stop].astype(np.float32)
        number = task.statistics.indices.get(series.name, -1)
        given = {"values": values[None], "series": np.array([number])}
        if task.statistics.num_known:
            encoded = task.statistics.encode(series.part(start, stop), options.horizon)
            given["known"] = encoded["known"][None]  # of the calendar, which is not scaled
        results = model(**given)
        np.testing.assert_allclose(results[0][0], forecast.values, rtol=1e-4, atol=1e-4)
        if forecast.quantiles:
            np.testing.assert_allclose(results[1][0], forecast.quantiles, rtol=1e-4, atol=1e-4)


class Case(NamedTuple):
    """A run of a task, and the function that compares its models with its predictions."""

    task: str
    options: dict[str, Any]
    examples: Sequence[Any]
    check: Callable[[Any, Path, Sequence[Any], Runtime], None]


def series(name: str, seed: int) -> Any:
    noise = np.random.default_rng(seed).normal(size=40)
    return series_of(
        np.arange(40) % 7 * 3 + noise, name, np.datetime64("2024-01-01", "us"), Frequency(TIME, 3_600_000_000)
    )


TEXTS = [Labelled(f"{word} day", word) for word in ("good", "bad")]
SERIES = [Labelled(np.outer(np.arange(9 - k % 2), [k, -k]) + 9 * (k % 3), f"{k} {-k}.5") for k in range(6)]
EQUAL_SERIES = [Labelled(np.full((5, 2), k), f"{k}") for k in range(4)]
PAIRS = [Pair("one two", "two one"), Pair("two three four", "four three two")]
STEPS = {"horizon": 3, "look_back": 6, "segment": 3}
CASES = {
    "texts": Case("classification", {"pooling": "attention"}, TEXTS, classification),
    "series": Case("regression", {"bidirectional": True}, SERIES, regression),
    "series of equal lengths": Case("regression", {}, EQUAL_SERIES, regression),
    "letters": Case("language-model", {"num_layers": 2}, [Text("tick tock")], language_model),
    "music": Case(
        "language-model",
        {"tokens": "notes"},
        [Roll(np.random.default_rng(1).integers(0, 2, (4, NUM_KEYS)).astype(np.uint8))],
        language_model,
    ),
    "blanks": Case("fill-blanks", {"num_layers": 2}, [Text("salt and pepper, ")], fill_blanks),
    "pairs of subwords": Case("translation", {"input_feeding": True, "num_layers": 2}, PAIRS, translation),
    "quantiles": Case(
        "forecasting",
        STEPS | {"head": "gaussian", "calendar": True},
        [series("a", 1), series("b", 2), series("new", 3)],
        forecasting,
    ),
    "step by step": Case(
        "forecasting", {"horizon": 2, "look_back": 4, "model": "recursive"}, [series("a", 1)], forecasting
    ),
    "segments": Case("forecasting", STEPS | {"model": "segments"}, [series("a", 1), series("b", 2)], forecasting),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.matrix) if name in ("music", "segments") else name for name in CASES]
)
def test_models_predict_as_the_run_does(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = CASES[name]
    kind = task_class(case.task)
    train = [each for each in case.examples if getattr(each, "name", "") != "new"]
    folder = tmp_path / "run"
    saved(kind(kind.options_type.from_mapping(SMALL | case.options)), train, folder)
    assert main(["export", str(folder), "--to", "onnx"]) == 0
    assert "returns" in capsys.readouterr().out
    task = task_class_of_run(folder).load(folder)
    case.check(task, folder, case.examples, onnx_runtime)
    case.check(task, folder, case.examples, openvino)


def test_random_paths_are_refused_and_leave_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind = task_class("forecasting")
    options = STEPS | {"model": "recursive", "head": "gaussian"}
    saved(kind(kind.options_type.from_mapping(SMALL | options)), [series("a", 1)], tmp_path / "run")
    before = sorted(tmp_path.rglob("*"))
    assert main(["export", str(tmp_path / "run"), "--to", "onnx"]) == 2
    assert "forecasts by random paths, which an ONNX model cannot draw; train a run with" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_task_without_models_is_refused(tmp_path: Path) -> None:
    class Other:
        name = "other"

    message = "--to onnx does not support runs of other; write their layers with gg.to_onnx"
    with pytest.raises(OptionError, match=message):
        write(Other(), None, tmp_path / "model.onnx")  # type: ignore[arg-type]
