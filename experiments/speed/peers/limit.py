"""A time limit for the compilation of a peer."""

import signal
import sys
from types import FrameType
from typing import Any

from experiments.speed.peers.layer import Layer

assert sys.platform == "linux"  # for the type checker

SECONDS = 150
"""The time limit of the first call, which compiles."""


def limited(layer: Layer) -> Layer:
    """Return the layer with a time limit: its first call raises TimeoutError after `SECONDS`."""
    run = layer.run

    def first() -> Any:
        signal.signal(signal.SIGALRM, _stop)
        signal.alarm(SECONDS)
        try:
            return run()
        finally:
            signal.alarm(0)
            layer.run = run  # type: ignore[method-assign]

    layer.run = first  # type: ignore[method-assign]
    return layer


def _stop(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"not compiled after {SECONDS} s")
