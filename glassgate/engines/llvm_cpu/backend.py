"""The CPU backend. It imports llvmlite only when a kernel is needed, which keeps `import glassgate` fast."""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from glassgate.cell import Weights
from glassgate.engines.backend import ArrayKernels
from glassgate.engines.contract import Direction, Reason, Steps, result_type
from glassgate.engines.fixed_weights import FrozenDirections
from glassgate.engines.llvm_cpu.availability import obstacle
from glassgate.engines.llvm_cpu.costs import COSTS
from glassgate.engines.memory import COMPUTE_DTYPE
from glassgate.engines.plan import Plan, operands_of

if TYPE_CHECKING:
    from glassgate.engines.llvm_cpu.layer import Layer


class CPU:
    """`backend.Backend` for the CPU. LLVM compiles each loop over time to one fused kernel."""

    costs = COSTS

    def why_not(self, steps: Steps, directions: Sequence[Direction]) -> Reason | None:
        """See `Backend.why_not`."""
        if steps.data.device.type != "cpu":
            return Reason(f"kernels run on the CPU, and the input is on {steps.data.device}")
        if steps.data.dtype not in COMPUTE_DTYPE:
            return Reason(f"kernels compute in floating point, and the input is {steps.data.dtype}")
        if (text := obstacle()) is not None:
            return Reason(f"{text}; layers run on slower engines", is_general=True)
        return None

    @property
    def array_kernels(self) -> ArrayKernels:
        """See `backend.ArrayKernels`."""
        from glassgate.engines.llvm_cpu.arrays.engine import ENGINE

        return ENGINE

    def compile(self, plans: tuple[Plan, ...]) -> "Layer":
        """See `Backend.compile`. Kernels are compiled at their first use."""
        return _layer(plans)

    def saved_type(self, buffer: str, dtype: torch.dtype) -> torch.dtype:
        """Return the dtype of the computation, which is the dtype of all buffers."""
        return COMPUTE_DTYPE[dtype]

    def explain(self, steps: Steps, directions: Sequence[Direction]) -> str | None:
        """Describe how products in bfloat16 are computed; None if the call does not request them."""
        from glassgate.engines.llvm_cpu.amx import describe_method
        from glassgate.engines.llvm_cpu.layer import requested_arithmetic

        arithmetic = requested_arithmetic(result_type(steps.data.dtype), operands_of(list(directions)))
        if not arithmetic:
            return None
        return f"products in bfloat16: {describe_method(arithmetic, len(directions[0].initial[0]))}"

    def freeze(
        self, directions: Sequence[Direction], precision: str, scales: Sequence[Weights]
    ) -> "FrozenDirections | Reason":
        """See `Freezer.freeze`."""
        from glassgate.engines.llvm_cpu.amx import is_faster
        from glassgate.engines.llvm_cpu.packed import PackedLayer
        from glassgate.engines.llvm_cpu.sizes import Arithmetic

        if precision == "bfloat16" and not is_faster(Arithmetic.BFLOAT16, rows=1):
            return Reason(
                "precision='bfloat16' needs a processor with AVX512-BF16 or AMX-BF16, and this one has neither; "
                "use precision='float32' or 'int8'"
            )
        if directions[0].cell.declaration is not None:
            from glassgate.engines.llvm_cpu.arrays.packed import PackedArrayLayer, PackedArrays

            own_scales = scales or [{} for _ in directions]
            pairs = zip(directions, own_scales, strict=True)
            return PackedArrayLayer([PackedArrays(direction, precision, own) for direction, own in pairs])
        layer = PackedLayer.of(directions, precision, scales)
        if precision == "int8" and not all([direction.has_products for direction in layer.directions]):
            return Reason(
                "precision='int8' needs a cell with matrix products, and the equations of this one have none; "
                "use precision='float32'"
            )
        return layer


@lru_cache(1024)
def _layer(plans: tuple[Plan, ...]) -> "Layer":
    from glassgate.engines.llvm_cpu.layer import Layer

    return Layer(plans)
