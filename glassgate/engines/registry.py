"""The backends by name."""

from glassgate.engines.backend import Backend
from glassgate.engines.numba_cpu.backend import CPU

BACKENDS: dict[str, Backend] = {"cpu": CPU()}
"""In the order in which "auto" tries them. `gg.engine(name)` selects one."""
