"""Runs Triton kernels in Triton's interpreter, on tensors of the CPU. Without Triton, these tests are skipped."""

from collections.abc import Iterator
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from glassgate.engines.choose import engine

collect_ignore_glob = [] if find_spec("triton") else ["*"]


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Patch Triton's language once per test. The interpreter patches it at each launch and each call of a function."""
    from triton.runtime import interpreter

    monkeypatch.setenv("TRITON_INTERPRET", "1")
    patch, no_scope, scopes = interpreter._patch_lang, SimpleNamespace(restore=lambda: None), []

    def patch_once(function: object) -> object:
        if not scopes:
            scopes.append(patch(function))
        return no_scope

    monkeypatch.setattr(interpreter, "_patch_lang", patch_once)
    with engine("triton"):
        yield
    for scope in scopes:
        scope.restore()
