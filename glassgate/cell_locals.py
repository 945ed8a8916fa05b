"""Reports the local variables of a cell's methods, so that recordings and traces know the names of values."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from glassgate.cell import Cell


@contextmanager
def trace_locals(
    on_local: Callable[[str, Any], None],
    on_return: Callable[[FrameType, Any], None] | None = None,
    on_call: Callable[[FrameType, Any], None] | None = None,
) -> Iterator[None]:
    """Report the local variables of a cell's methods, each time one of these methods returns inside the `with` block.

    Args:
        on_local: called with the name and the value of each local variable.
        on_return: called with the frame and the result of every Python function that is not a cell's method.
        on_call: called before each function runs, with two arguments: the frame of the caller, and the frame of the
            function, or the function itself if it is built-in. If `on_call` raises, the function does not run.
    """

    def on_event(frame: FrameType, event: str, value: Any) -> None:
        if on_call is not None and event == "c_call":
            on_call(frame, value)
        elif on_call is not None and event == "call" and frame.f_back is not None:
            on_call(frame.f_back, frame)
        if event != "return":
            return
        if isinstance(cell := frame.f_locals.get("self"), Cell):
            for name, local in cell.values_by_name(frame.f_locals).items():
                on_local(name, local)
        elif on_return is not None:
            on_return(frame, value)

    previous: Any = sys.getprofile()
    sys.setprofile(on_event)
    try:
        yield
    finally:
        sys.setprofile(previous if callable(previous) else None)
        if hasattr(previous, "enable"):  # a profiler in C, which setprofile cannot reinstall
            previous.enable()
