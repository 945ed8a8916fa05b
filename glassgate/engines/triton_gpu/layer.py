"""Runs the directions of a layer on a GPU: converts tensors to inputs of passes, and outputs of passes to results."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.engines.contract import Direction, Recording, Steps, result_type
from glassgate.engines.lowering.forward import Form, kept_port
from glassgate.engines.lowering.ir import Port, Role
from glassgate.engines.lowering.passes import lowered_pass
from glassgate.engines.plan import Plan, Sizes, by_direction, operands_of, plan_of, state_result_count
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.ops import SavedKind
from glassgate.engines.symbolic.trace import build_trace
from glassgate.engines.triton_gpu.costs import COSTS
from glassgate.engines.triton_gpu.emit import write_step_kernels
from glassgate.engines.triton_gpu.launch import LoopKernels, module_text
from glassgate.engines.triton_gpu.passes import PassRun, run_loops
from glassgate.engines.triton_gpu.phases import Phases
from glassgate.engines.triton_gpu.precision import Precision, saved_type
from glassgate.engines.triton_gpu.rows import Rows
from glassgate.engines.triton_gpu.select import Chip, select_kernel


class GPULayer(NamedTuple):
    """The protocol `CompiledLayer` for a GPU; see `backend.py`."""

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
        """`CompiledLayer.forward`."""
        calls = [
            DirectionCall(plan, steps, of_direction, Precision.of(dtype))
            for plan, of_direction in by_direction(self.plans, operands)
        ]
        runs, outputs, saved = list[PassRun](), list[list[Tensor]](), list[Tensor]()
        for k, call in enumerate(calls):
            plan, widths = call.plan, call.plan.state_widths(call.sizes)
            names = plan.equations.state if all_states or save else plan.equations.state[:1]
            types = {s: dtype if all_states or s == names[0] else torch.float32 for s in names}
            new_states = {Port(Role.STATES, s): call.empty(widths[s], types[s]) for s in names}
            kept = plan.kept_widths(call.sizes) if save else {}
            buffers = {n: call.empty(width, saved_type(n, dtype)) for n, width in kept.items()}
            gates = {Port(Role.GATE, g): call.empty(call.sizes.H, torch.float32) for g in plan.trace.recorded}
            final = {Port(Role.FINAL, s) for s in plan.equations.state}
            loop_outputs = new_states | call.kept_columns(buffers) | gates
            runs.append(call.begin_pass(False, save, call.inputs(), loop_outputs, final))
            outputs.append([*new_states.values()])
            saved += buffers.values()
            if recordings:
                recordings[k].values = {port.name: v for port, v in gates.items()}
        run_loops(runs)
        for call, run, states in zip(calls, runs, outputs, strict=True):
            results = run.end()
            states += [results[Port(Role.FINAL, s)].to(dtype, copy=True) for s in call.plan.equations.state]
        return [*chain(*outputs), *saved]

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
        """`CompiledLayer.backward`."""
        count = state_result_count(self.plans) // 2
        states, saved = iter(flat[:count]), iter(flat[count:])
        are_needed = iter([True] * len(operands) if needed is None else needed)
        calls, runs, ports, first_result = list[DirectionCall](), list[PassRun](), list[list[Port | None]](), 0
        recorded: list[dict[Port, Tensor]] = []
        for plan, of_direction in by_direction(self.plans, operands):
            names = plan.equations.state
            new_states = {Port(Role.STATES, s): next(states) for s in names}
            dtype = new_states[Port(Role.STATES, names[0])].dtype
            call = DirectionCall(plan, steps, of_direction, Precision.of(dtype))
            inputs = call.inputs() | {port: call.without_padding(v) for port, v in new_states.items()}
            inputs |= call.kept_columns({name: next(saved) for name in plan.kept_widths(call.sizes)})
            for n, s in enumerate(names):
                initial = inputs[Port(Role.INITIAL, s)]
                d_states, d_final = (d_results.get(first_result + k) for k in (n, len(names) + n))
                inputs[Port(Role.D_STATES, s)] = (
                    call.zeros(initial.shape[1]) if d_states is None else call.without_padding(d_states)
                )
                inputs[Port(Role.D_FINAL, s)] = torch.zeros_like(initial) if d_final is None else d_final.float()
            first_result += 2 * len(names)
            own_ports = [port if next(are_needed) else None for port in call.gradient_ports()]
            widths = call.recorded_gradient_widths() if recordings else {}
            recorded.append({port: call.empty(width, torch.float32) for port, width in widths.items()})
            outputs = {port for port in own_ports if port} | ({Port(Role.D_DATA)} if needs_d_data else set())
            calls.append(call)
            ports.append(own_ports)
            runs.append(call.begin_pass(True, False, inputs, recorded[-1], outputs))
        run_loops(runs)
        d_data, d_operands = list[Tensor](), list[Tensor | None]()
        for call, run, own_ports in zip(calls, runs, ports, strict=True):
            results = run.end()
            d_operands += call.operand_gradients(results, own_ports)
            d_data += [results[Port(Role.D_DATA)]] if needs_d_data else []
        for recording, gradients in zip(recordings or (), recorded, strict=False):
            recording.add({port.name: v for port, v in gradients.items()})
        return [
            calls[0].with_padding(sum(d_data[1:], d_data[0])).to(steps.data.dtype) if needs_d_data else None,
            *d_operands,
        ]

    def prepare(self, *signature: object) -> None:
        """Return None: repeated calls run like first calls."""


class DirectionCall:
    """The tensors of one direction in one call.

    Args:
        plan: the plan of the direction.
        steps: the input of the layer.
        operands: the operands of the direction.
        precision: the precision of matrix products.
    """

    def __init__(self, plan: Plan, steps: Steps, operands: Sequence[Tensor], precision: Precision) -> None:
        self.plan, self.steps, self.operands, self.precision = plan, steps, operands, precision
        self.sizes: Sizes = plan.sizes(operands, steps.data)
        self.rows = Rows(steps, self.sizes.N)

    def begin_pass(
        self,
        backward: bool,
        save: bool,
        inputs: Mapping[Port, Tensor],
        loop_outputs: Mapping[Port, Tensor],
        needed_ports: set[Port],
    ) -> PassRun:
        """Prepare a pass, and execute its lines before the loop."""
        sizes = {"T": self.rows.T, "N": self.sizes.N, "D": self.sizes.D, "H": self.sizes.H, "P": self.sizes.P}
        loop_outputs = {port: self.without_padding(v) for port, v in loop_outputs.items()}
        loop = _loop(self.plan, self.form(save), backward)
        run = PassRun(loop, sizes, self.rows, self.precision, loop_outputs, frozenset(needed_ports))
        run.begin(inputs)
        return run

    def form(self, save: bool) -> Form:
        """The form of the passes of this call."""
        resets = self.steps.resets is not None
        bias = "bias_ih" in self.plan.weights
        return Form(self.plan.reverse, bias, self.rows.ragged, resets, resets and self.plan.restarts, save)

    def inputs(self) -> dict[Port, Tensor]:
        """The inputs that the forward and the backward pass have in common."""
        plan, names, n = self.plan, self.plan.equations.state, len(self.plan.weights)
        operands = [v.detach() for v in self.operands]
        inputs = {Port(Role.WEIGHT, name): v for name, v in zip(plan.weights, operands, strict=False)}
        inputs |= {Port(Role.INITIAL, name): v for name, v in zip(names, operands[n:], strict=False)}
        inputs |= {Port(Role.RESTART, name): v for name, v in zip(names, operands[n + len(names) :], strict=False)}
        for name, v in zip(plan.noise, operands[n + plan.state_count :], strict=True):
            inputs[Port(Role.NOISE, name)] = self.without_padding(v) if plan.equations.noise[name].per_step else v
        inputs = {port: v if port.name in PRODUCT_WEIGHTS else v.float() for port, v in inputs.items()}
        if self.steps.resets is not None:
            inputs[Port(Role.RESETS)] = self.without_padding(self.steps.resets)
        return inputs | {Port(Role.DATA): self.without_padding(self.steps.data.detach())}

    def gradient_ports(self) -> list[Port | None]:
        """For each operand of the direction, the port of its gradient; None for noise."""
        plan, names = self.plan, self.plan.equations.state
        ports: list[Port | None] = [Port(Role.D_WEIGHT, name) for name in plan.weights]
        ports += [Port(Role.D_INITIAL, name) for name in names]
        ports += [Port(Role.D_RESTART, name) for name in names] if plan.restarts else []
        return [*ports, *[None] * len(plan.noise)]

    def operand_gradients(self, gradients: Mapping[Port, Tensor], ports: Sequence[Port | None]) -> list[Tensor | None]:
        """The gradients of the operands of the direction; None for each port that is None."""
        d: list[Tensor | None] = []
        for v, port in zip(self.operands, ports, strict=True):
            if port is None:
                d.append(None)
            else:
                d.append(
                    gradients[port].reshape(v.shape).to(v.dtype, copy=True)
                    if port in gradients
                    else torch.zeros_like(v)
                )
        return d

    def recorded_gradient_widths(self) -> dict[Port, int]:
        """The widths of the gradients that a recording stores, by port."""
        widths = self.plan.state_widths(self.sizes)
        trace = self.plan.trace
        gates = {Port(Role.D_GATE, gate): self.sizes.H for gate in (*trace.recorded, *trace.factors)}
        states = zip(widths.items(), trace.backward.d_new, strict=False)
        return gates | {Port(Role.D_NEW, state): width for (state, width), _ in states}

    def kept_columns(self, buffers: Mapping[SavedKind, Tensor]) -> dict[Port, Tensor]:
        """The values kept for the backward pass, by port: columns of the buffers of `Plan.kept_widths`."""
        columns = {}
        widths = {SavedKind.ROW_SUM: 1, SavedKind.PROJECTED: self.sizes.P}
        for value in [value for value in self.plan.trace.saved if value.kind in buffers]:
            first, width = value.number, widths.get(value.kind, self.sizes.H)
            columns[kept_port(value)] = self.without_padding(
                buffers[value.kind][:, first * width : (first + 1) * width]
            )
        return columns

    def empty(self, width: int, dtype: torch.dtype) -> Tensor:
        """Uninitialised rows, followed by padding of zeros."""
        rows = torch.empty(len(self.steps.data), width, dtype=dtype, device=self.steps.data.device)
        rows[self.rows.total :].zero_()
        return rows

    def zeros(self, width: int) -> Tensor:
        """Rows of zeros. All rows use the memory of one row."""
        zeros = torch.zeros(width, device=self.steps.data.device)
        # `expand` would give a single row another stride, for which Triton would compile another kernel.
        return zeros.as_strided((self.rows.total, width), (0, 1))

    def without_padding(self, v: Tensor) -> Tensor:
        """Rows without the padding after them."""
        return v[: self.rows.total]

    def with_padding(self, v: Tensor) -> Tensor:
        """Rows with padding of zeros after them."""
        missing = len(self.steps.data) - len(v)
        return torch.cat([v, v.new_zeros(missing, v.shape[1])]) if missing else v


PRODUCT_WEIGHTS = ("weight_ih", "weight_hh", "weight_hr")
"""The parameters that are read only by matrix products."""


@lru_cache(1024)
def _loop(plan: Plan, form: Form, backward: bool) -> LoopKernels:
    key = plan.equations, plan.trace, form._replace(reverse=False), backward
    title = _title(backward) + ("_reverse" if form.reverse else "")
    return LoopKernels(Phases(lowered_pass(plan.equations, plan.trace, form, backward)), title, form.lengths, key)


def explain_kernel(steps: Steps, directions: Sequence[Direction]) -> str:
    """Describe the kernel that runs the forward pass of the first direction.

    Args:
        steps: the input of the layer.
        directions: the directions of the layer.
    """
    direction, data = directions[0], steps.data
    plan = plan_of(direction, COSTS)
    call = DirectionCall(plan, steps, operands_of([direction]), Precision.of(result_type(data.dtype, data.device.type)))
    save = torch.is_grad_enabled() and any(v.requires_grad for v in (data, *operands_of([*directions])))
    phases = _loop(plan, call.form(save), False).phases
    sizes = {"T": call.rows.T, "N": call.sizes.N, "H": call.sizes.H, "P": call.sizes.P, "heads": phases.heads}
    return str(select_kernel(phases, sizes, call.precision.dtype, Chip.of(data.device), len(directions)))


def _title(backward: bool) -> str:
    return "backward" if backward else "forward"


def source_of(equations: Equations) -> str:
    """The source of a module with the kernels that train a cell, without support for lengths and resets.

    Args:
        equations: the equations of the cell.
    """
    trace, form = build_trace(equations, COSTS), Form(save=True)
    passes = [(Phases(lowered_pass(equations, trace, form, backward)), backward) for backward in (False, True)]
    return module_text(
        [kernel for phases, backward in passes for kernel in write_step_kernels(phases, _title(backward), False).all]
    )
