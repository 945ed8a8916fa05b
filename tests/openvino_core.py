"""OpenVINO in float32, loaded once per process."""

from functools import cache
from typing import Any

import pytest


@cache
def core() -> Any:
    """Return the only core, which is never freed.

    A core's plug-in gives the process another stack for signal handlers, and frees that stack with the core. With a
    second core the process can be left with a freed stack. The next signal, such as Ctrl-C, then ends the process.
    """
    loaded = pytest.importorskip("openvino").Core()
    loaded.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32"})  # the default is bfloat16 where the CPU supports it
    return loaded
