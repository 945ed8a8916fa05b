"""A backend that evaluates lowered passes in plain torch. It is the example of writing-a-backend.md."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.engines.contract import Direction, Reason, Recording, Steps
from glassgate.engines.lowering.backward import backward_pass
from glassgate.engines.lowering.evaluate import evaluate
from glassgate.engines.lowering.forward import Form, forward_pass
from glassgate.engines.lowering.ir import Port, Role
from glassgate.engines.memory import COMPUTE_DTYPE
from glassgate.engines.plan import Plan, Sizes, by_direction, state_result_count
from glassgate.engines.symbolic.costs import Costs


class Evaluated:
    """A `Backend` that calls torch for every operation."""

    costs = Costs({}, other=1, read=1, carry=1, keep=1)

    def why_not(self, steps: Steps, directions: Sequence[Direction]) -> Reason | None:
        if steps.data.dtype not in COMPUTE_DTYPE:
            return Reason(f"the evaluator computes in floating point, and the input is {steps.data.dtype}")
        return None

    def compile(self, plans: tuple[Plan, ...]) -> "Layer":
        return Layer(plans)

    def saved_type(self, buffer: str, dtype: torch.dtype) -> torch.dtype:
        return COMPUTE_DTYPE[dtype]

    def explain(self, steps: Steps, directions: Sequence[Direction]) -> str | None:
        return "every operation is a call of torch"


class Layer(NamedTuple):
    """A `CompiledLayer` that runs directions one after another."""

    plans: tuple[Plan, ...]

    def forward(
        self,
        steps: Steps,
        operands: Sequence[Tensor],
        all_states: bool,
        save: bool,
        dtype: torch.dtype,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Tensor]:
        results: list[Tensor] = []
        kept: list[Tensor] = []
        for k, (plan, own) in enumerate(by_direction(self.plans, operands)):
            call = Call(plan, steps, own)
            outputs = evaluate(forward_pass(plan.equations, plan.trace, call.form(save)), call.inputs(), call.extents)
            names = plan.equations.state if all_states or save else plan.equations.state[:1]
            states = [call.rows(outputs[Port(Role.STATES, name)]) for name in names]
            # States that only the backward pass reads keep the dtype of the computation.
            results += [v.to(dtype) if n == 0 or all_states else v for n, v in enumerate(states)]
            results += [outputs[Port(Role.FINAL, name)].to(dtype, copy=True) for name in plan.equations.state]
            kept += call.packed(outputs) if save else []
            if recordings:
                recordings[k].values = {g: call.rows(outputs[Port(Role.GATE, g)]) for g in plan.trace.recorded}
        return [*results, *kept]

    def backward(
        self,
        steps: Steps,
        operands: Sequence[Tensor],
        flat: Sequence[Tensor],
        d_results: Mapping[int, Tensor],
        needs_d_data: bool,
        needed: Sequence[bool] | None = None,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Tensor | None]:
        count = state_result_count(self.plans) // 2
        states, kept = iter(flat[:count]), iter(flat[count:])
        d_data, d_operands, first = torch.zeros_like(steps.data), list[Tensor | None](), 0
        for k, (plan, own) in enumerate(by_direction(self.plans, operands)):
            call, names = Call(plan, steps, own), plan.equations.state
            inputs = call.inputs() | {Port(Role.STATES, name): call.padded(next(states)) for name in names}
            inputs |= call.unpacked([next(kept) for _ in plan.kept_widths(call.sizes)])
            for n, name in enumerate(names):
                d_states, d_final = d_results.get(first + n), d_results.get(first + len(names) + n)
                state = own[len(plan.weights) + n]
                if d_states is None:
                    d_states = state.new_zeros(len(steps.data), state.shape[1])
                inputs[Port(Role.D_STATES, name)] = call.padded(d_states)
                inputs[Port(Role.D_FINAL, name)] = call.cast(torch.zeros_like(state) if d_final is None else d_final)
            first += 2 * len(names)
            outputs = evaluate(backward_pass(plan.equations, plan.trace, call.form(False)), inputs, call.extents)
            d_data += call.rows(outputs[Port(Role.D_DATA)])
            d_operands += call.gradients(outputs)
            if recordings:
                recorded = [port for port in outputs if port.role in (Role.D_GATE, Role.D_NEW)]
                recordings[k].add({port.name: call.rows(outputs[port]) for port in recorded})
        return [d_data if needs_d_data else None, *d_operands]

    def prepare(self, *signature: object) -> None:
        """Prepare no passes, because repeated calls would not be faster."""


class Call:
    """A call of one direction. It converts tensors between rows (S, width) and the form of passes (T, N, width)."""

    def __init__(self, plan: Plan, steps: Steps, own: Sequence[Tensor]) -> None:
        self.plan, self.steps, self.own = plan, steps, own
        self.dtype, S = COMPUTE_DTYPE[steps.data.dtype], len(steps.data)
        self.sizes: Sizes = plan.sizes(own, steps.data)
        N = self.sizes.N
        sizes = torch.full((S // max(N, 1),), N) if steps.batch_sizes is None else steps.batch_sizes
        self.active = torch.arange(N) < sizes[:, None]
        self.extents = {"T": len(sizes), "N": N, "D": self.sizes.D, "H": self.sizes.H}
        if plan.equations.projected:
            self.extents["P"] = self.sizes.P

    def form(self, save: bool) -> Form:
        resets = self.steps.resets is not None
        bias = "bias_ih" in self.plan.weights
        return Form(self.plan.reverse, bias, True, resets, resets and self.plan.restarts, save)

    def inputs(self) -> dict[Port, Tensor]:
        plan, names = self.plan, self.plan.equations.state
        n = len(plan.weights)
        inputs = {Port(Role.WEIGHT, name): v for name, v in zip(plan.weights, self.own, strict=False)}
        inputs |= {Port(Role.INITIAL, name): v for name, v in zip(names, self.own[n:], strict=False)}
        inputs |= {Port(Role.RESTART, name): v for name, v in zip(names, self.own[n + len(names) :], strict=False)}
        for name, v in zip(plan.noise, self.own[n + plan.state_count :], strict=True):
            inputs[Port(Role.NOISE, name)] = self.padded(v) if plan.equations.noise[name].per_step else v
        inputs = {port: self.cast(v) for port, v in inputs.items()} | {Port(Role.DATA): self.padded(self.steps.data)}
        if self.steps.resets is not None:
            inputs[Port(Role.RESETS)] = self.padded(self.steps.resets[:, None])
        return inputs | {Port(Role.LENGTHS): self.active.sum(0)}

    def gradients(self, outputs: Mapping[Port, Tensor]) -> list[Tensor | None]:
        plan, names = self.plan, self.plan.equations.state
        ports = [Port(Role.D_WEIGHT, name) for name in plan.weights]
        ports += [Port(Role.D_INITIAL, name) for name in names]
        ports += [Port(Role.D_RESTART, name) for name in names] if plan.restarts else []
        d = [
            outputs[port].reshape(v.shape).to(v.dtype, copy=True) if port in outputs else torch.zeros_like(v)
            for port, v in zip(ports, self.own, strict=False)
        ]
        return [*d, *[None] * len(plan.noise)]

    def cast(self, v: Tensor) -> Tensor:
        return v.detach().to(self.dtype)

    def padded(self, v: Tensor) -> Tensor:
        """Convert (S, width) to (T, N, width), with zeros after the end of a sequence."""
        v = v if v.dtype == torch.bool else self.cast(v)
        return v.new_zeros(*self.active.shape, v.shape[1]).masked_scatter(self.active[..., None], v)

    def rows(self, v: Tensor) -> Tensor:
        """Convert (T, N, width) to (S, width), with zeros after the last step."""
        v = v.reshape(*self.active.shape, -1)
        rows = v[self.active]
        return torch.cat([rows, rows.new_zeros(len(self.steps.data) - len(rows), v.shape[-1])]).to(self.dtype)

    def packed(self, outputs: Mapping[Port, Tensor]) -> list[Tensor]:
        """Copy the kept values to the buffers of `Plan.kept_widths`."""
        buffers = []
        for name, width in self.plan.kept_widths(self.sizes).items():
            buffers.append(self.steps.data.new_zeros(len(self.steps.data), width, dtype=self.dtype))
            for k in self._columns(name):
                rows = self.rows(outputs[Port(Role.KEPT, name, k)])
                buffers[-1][:, k * rows.shape[1] : (k + 1) * rows.shape[1]] = rows
        return buffers

    def unpacked(self, buffers: Sequence[Tensor]) -> dict[Port, Tensor]:
        """Split the buffers of `Plan.kept_widths` into the kept values."""
        values = {}
        for name, buffer in zip(self.plan.kept_widths(self.sizes), buffers, strict=True):
            width = {"row": 1, "hr": self.sizes.P}.get(name, self.sizes.H)
            for k in self._columns(name):
                values[Port(Role.KEPT, name, k)] = self.padded(buffer[:, k * width : (k + 1) * width])
        return values

    def _columns(self, name: str) -> list[int]:
        return [value.number for value in self.plan.trace.saved if value.kind == name]
