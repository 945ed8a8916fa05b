"""The CPU as a backend. Numba is loaded with the first kernel."""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from glassgate.cell import Weights
from glassgate.engines.backend import Frozen, Signature
from glassgate.engines.contract import Direction, Reason, Recording, Steps, result_type
from glassgate.engines.memory import COMPUTED_IN
from glassgate.engines.numba_cpu.costs import COSTS
from glassgate.engines.plan import Plan, by_direction, given_of

if TYPE_CHECKING:
    from glassgate.engines.numba_cpu.prepared import PreparedPasses


class CPU:
    """`Backend` for the CPU: fused loops, printed as Numba."""

    costs = COSTS

    def why_not(self, steps: Steps, directions: Sequence[Direction]) -> Reason | None:
        """Why the CPU cannot run a call."""
        if steps.data.device.type != "cpu":
            return Reason(f"kernels run on the CPU, and the input is on {steps.data.device}")
        if steps.data.dtype not in COMPUTED_IN:
            return Reason(f"kernels compute in floating point, and the input is {steps.data.dtype}")
        return None

    def compile(self, plans: tuple[Plan, ...]) -> "Kernels":
        """The kernels of a layer, compiled when they first run."""
        return _kernels(plans)

    def saved_type(self, buffer: str, dtype: torch.dtype) -> torch.dtype:
        """The type that kernels compute in."""
        return COMPUTED_IN[dtype]

    def explain(self, steps: Steps, directions: Sequence[Direction]) -> str | None:
        """The instructions that multiply, where the call asks for products in bfloat16."""
        from glassgate.engines.numba_cpu.amx import explained
        from glassgate.engines.numba_cpu.run import terms_requested

        terms = terms_requested(result_type(steps.data.dtype), given_of(list(directions)))
        return f"products in bfloat16: {explained(terms, len(directions[0].initial[0]))}" if terms else None

    def freeze(self, directions: Sequence[Direction], precision: str, scales: Sequence[Weights]) -> "Frozen | Reason":
        """`Freezer.freeze`."""
        from glassgate.engines.numba_cpu.amx import is_faster
        from glassgate.engines.numba_cpu.packed import PackedLayer

        if precision == "bfloat16" and not is_faster(1, rows=1):
            return Reason(
                "precision='bfloat16' needs a processor with AVX512-BF16 or AMX-BF16, and this one has neither; "
                "use precision='float32' or 'int8'"
            )
        layer = PackedLayer(directions, precision, scales)
        if precision == "int8" and not all([direction.multiplies for direction in layer.directions]):
            return Reason(
                "precision='int8' needs a cell with matrix products, and the equations of this one have none; "
                "use precision='float32'"
            )
        return layer


class Kernels(NamedTuple):
    """`Compiled` for the CPU."""

    plans: tuple[Plan, ...]

    def forward(
        self,
        steps: Steps,
        given: Sequence[Tensor],
        all_states: bool,
        save: bool,
        dtype: torch.dtype,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Tensor]:
        """`Compiled.forward`."""
        from glassgate.engines.numba_cpu import run

        return run.forward(steps, self.plans, given, all_states, save, dtype, recordings)

    def backward(
        self,
        steps: Steps,
        given: Sequence[Tensor],
        flat: Sequence[Tensor],
        d_results: dict[int, Tensor],
        needs_d_data: bool,
        needed: Sequence[bool] | None = None,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Tensor | None]:
        """`Compiled.backward`."""
        from glassgate.engines.numba_cpu import run

        return run.backward(steps, self.plans, given, flat, d_results, needs_d_data, needed, recordings)

    def prepared(
        self,
        given: Sequence[Tensor],
        steps: Steps,
        dtype: torch.dtype,
        signature: Signature,
    ) -> "PreparedPasses | None":
        """`Compiled.prepared`."""
        from glassgate.engines.numba_cpu.prepared import PreparedPasses
        from glassgate.engines.numba_cpu.run import terms_of

        data = steps.data
        inside = data.new_empty(0, data.shape[1], dtype=COMPUTED_IN[data.dtype])
        each = by_direction(self.plans, given)
        sizes = tuple([plan.sizes(own, inside, terms_of(dtype, [plan], own)) for plan, own in each])
        return PreparedPasses(self.plans, sizes, data.shape[0] // sizes[0].N, dtype, signature)


_kernels = lru_cache(1024)(Kernels)
