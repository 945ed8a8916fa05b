"""Runs Triton's kernels in its interpreter, on tensors of the CPU. Without Triton these tests are skipped."""

from collections.abc import Iterator
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from glassgate.engines.choose import engine

collect_ignore_glob = [] if find_spec("triton") else ["*"]


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The interpreter replaces Triton's language at each launch and each call of a function. Here it does so once."""
    from triton.runtime import interpreter

    monkeypatch.setenv("TRITON_INTERPRET", "1")
    replace, nothing, replaced = interpreter._patch_lang, SimpleNamespace(restore=lambda: None), []

    def once(function: object) -> object:
        if not replaced:
            replaced.append(replace(function))
        return nothing

    monkeypatch.setattr(interpreter, "_patch_lang", once)
    with engine("triton"):
        yield
    for scope in replaced:
        scope.restore()
