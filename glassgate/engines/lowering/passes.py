"""The lowered passes of all calls. Equal calls share a pass."""

from functools import lru_cache

from glassgate.engines.lowering.backward import backward_pass
from glassgate.engines.lowering.forward import Form, forward_pass
from glassgate.engines.lowering.ir import Pass
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.trace import Trace


@lru_cache(1024)
def lowered_pass(equations: Equations, trace: Trace, form: Form, backward: bool) -> Pass:
    """Return the forward or the backward pass of one direction, see `forward_pass` and `backward_pass`."""
    return (backward_pass if backward else forward_pass)(equations, trace, form)
