"""The costs of the CPU, and extreme costs of hypothetical backends."""

from glassgate.engines.llvm_cpu.costs import COSTS as OF_CPU
from glassgate.engines.symbolic.costs import Costs

FREE_MEMORY = Costs({}, other=1, read=0, carry=0, keep=0)
FREE_OPERATIONS = Costs({}, other=0, read=1, carry=2, keep=2)
EVERY = {"of the CPU": OF_CPU, "free memory": FREE_MEMORY, "free operations": FREE_OPERATIONS}
