"""The list of backends."""

from glassgate.engines.backend import Backend
from glassgate.engines.llvm_cpu.backend import CPU
from glassgate.engines.triton_gpu.backend import GPU

BACKENDS: dict[str, Backend] = {"cpu": CPU(), "triton": GPU()}
"""The backends, in the order in which the engine "auto" tries them. `gg.engine(name)` requests one."""
