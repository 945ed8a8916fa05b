"""Tasks predict with inference sessions, and the results are those of the trained network."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import glassgate as gg
from glassgate.cli import main
from glassgate.tasks import task_class
from glassgate.tasks.errors import OptionError
from tests.tasks.test_every_task import SPLITS

SMALL = {"hidden_size": 4, "embedding_size": 4, "epochs": 1, "threads": 1}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("tagging", {"character_size": 4}),
    ("classification", {"pooling": "attention"}),
    ("language-model", {"num_layers": 2}),
    ("translation", {}),
    ("fill-blanks", {}),
    ("regression", {}),
    ("forecasting", {}),
    ("forecasting", {"model": "recursive", "head": "gaussian"}),
    ("forecasting", {"model": "segments", "segment": 6}),
]


def trained(name: str, **options: Any) -> Any:
    """Return a task trained for one epoch."""
    kind = task_class(name)
    task = kind(kind.options_type.from_mapping(SMALL | options))
    task.fit(SPLITS[name])
    return task


def tensors(value: Any) -> Iterator[Tensor]:
    """Return all tensors of an output."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from tensors(each)


INFERENCE: dict[str, Callable[[Any, Any], Any]] = {
    "language-model": lambda task, examples: list(task.generate("tick", 5, temperature=0.0)),
    "fill-blanks": lambda task, examples: task.fill("salt ___ pepper"),
    "forecasting": lambda task, examples: list(task.backtest(examples, 20)),
    "translation": lambda task, examples: task.translate(["one two"]),
}
"""Methods that predict, in addition to `predict` and `evaluate`."""


@pytest.mark.parametrize(("name", "options"), CASES)
def test_every_method_of_inference_uses_a_session(
    name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, examples = trained(name, **options), SPLITS[name].train
    encoded, frozen = task.encoded(examples), task.frozen()
    outputs = [each for output, *_ in frozen.outputs(encoded) for each in tensors(output)]
    wanted = [each for output, *_ in task.outputs(encoded) for each in tensors(output)]
    for value, truth in zip(outputs, wanted, strict=True):
        torch.testing.assert_close(value, truth, rtol=1e-6, atol=1e-6)
    assert frozen.frozen() is frozen
    assert task.network is not frozen.network
    inference = INFERENCE.get(name, lambda task, examples: None)
    results = frozen.predict(examples), frozen.evaluate(examples), inference(frozen, examples)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a layer that is not frozen was called")

    monkeypatch.setattr(gg.Recurrent, "forward", refuse)
    assert (task.predict(examples), task.evaluate(examples), inference(task, examples)) == results
    with pytest.raises(AssertionError, match="not frozen"):
        next(task.outputs(encoded))


def test_networks_with_hooks_or_recordings_are_not_replaced() -> None:
    task = trained("regression")
    (layer,) = [part for part in task.network.modules() if isinstance(part, gg.Recurrent)]
    with gg.record(task.network) as tape:
        task.predict(SPLITS["regression"].train)
    assert tape.values
    calls: list[Any] = []
    hook = layer.register_forward_hook(lambda *given: calls.append(given))
    task.predict(SPLITS["regression"].train)
    hook.remove()
    assert calls
    assert task.frozen() is not task


def test_int8_and_its_errors(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    task = trained("tagging", hidden_size=16, embedding_size=16)
    task.save(tmp_path / "run")
    small = task.frozen("int8")
    assert {layer.precision for layer in small.network.modules() if hasattr(layer, "precision")} == {"int8"}
    (tmp_path / "data.tsv").write_text("play\tO\njazz\tB-genre\n")
    for command in (["predict"], ["evaluate", "--json"]):
        assert main([*command, str(tmp_path / "run"), str(tmp_path / "data.tsv"), "--weight-precision=int8"]) == 0
    assert '"accuracy"' in capsys.readouterr().out
    with pytest.raises(OptionError, match=r"precision must be one of .* got 'int4'"):
        task.frozen("int4")
