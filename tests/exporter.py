"""Fixtures with which torch's exporter to ONNX reads its operators once, not in each export."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import onnxscript
import pytest
from torch.onnx._internal.exporter._registration import ONNXRegistry


@pytest.fixture(autouse=True, scope="module")
def operators_read_once() -> Iterator[None]:
    """Keep the parsed source of each operator, and the table of all operators, of which each export has a copy."""
    build, traced = cache(ONNXRegistry.from_torchlib), onnxscript.values.TracedOnnxFunction
    parse = cache(traced.function_ir.fget)

    def copied(*version: Any, **named: Any) -> ONNXRegistry:
        table, registry = build(*version, **named), ONNXRegistry()
        vars(registry).update(vars(table))
        registry.functions = {target: [*functions] for target, functions in table.functions.items()}
        return registry

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(traced, "function_ir", property(parse))
        patched.setattr(ONNXRegistry, "from_torchlib", staticmethod(copied))
        yield
