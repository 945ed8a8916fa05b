"""Runs one direction of a cell on the evaluator of passes and on the reference engine, with equal inputs."""

from dataclasses import dataclass

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines import reference
from glassgate.engines.contract import Direction, Steps
from glassgate.engines.lowering.backward import backward_pass
from glassgate.engines.lowering.evaluate import evaluate
from glassgate.engines.lowering.forward import Form, forward_pass
from glassgate.engines.lowering.ir import Port, Role
from glassgate.engines.symbolic.costs import Costs
from glassgate.engines.symbolic.step import equations_of
from glassgate.engines.symbolic.trace import build_trace
from tests.cases import Shape
from tests.compare import Results, measure, noise
from tests.engines.costs import OF_CPU

D_OF = {
    Role.DATA: Role.D_DATA,
    Role.WEIGHT: Role.D_WEIGHT,
    Role.INITIAL: Role.D_INITIAL,
    Role.RESTART: Role.D_RESTART,
}
"""The role of the gradient of an input, by the role of the input."""


@dataclass
class Trial:
    """A call of one direction. Its sequences are sorted by length, longest first, as engines require."""

    cell: Cell
    shape: Shape
    form: Form
    costs: Costs = OF_CPU
    seed: int = 0

    def __post_init__(self) -> None:
        s, cell, form = self.shape, self.cell, self.form
        self.widths = dict.fromkeys(cell.state, s.H_cell) | {cell.state[0]: s.H_out or s.H_cell}
        self.lengths = torch.tensor(sorted(s.lengths or [s.L] * s.N, reverse=True))
        self.active = torch.arange(s.L)[:, None] < self.lengths
        shapes: dict[Port, tuple[int, ...]] = {
            Port(Role.WEIGHT, name): shape
            for name, shape in cell.shapes(s.H_in, s.H_cell, s.H_out, self.form.bias).items()
        }
        shapes |= {Port(Role.INITIAL, name): (s.N, width) for name, width in self.widths.items()}
        if form.restarts:
            shapes |= {Port(Role.RESTART, name): (s.N, width) for name, width in self.widths.items()}
        scale = s.H_cell**-0.5
        self.leaves = {
            port: (noise(self.seed + k, *shape) * (scale if port.role is Role.WEIGHT else 1)).requires_grad_()
            for k, (port, shape) in enumerate(shapes.items())
        }
        x = noise(self.seed + 90, s.L, s.N, s.H_in) * self.active[..., None]
        self.leaves[Port(Role.DATA)] = x.requires_grad_()
        self.resets = noise(self.seed + 91, s.L, s.N) > 0.5
        self.factors = {}
        for k, (name, spec) in enumerate(cell.noise.items()):
            width = self.widths.get(spec.state or "", s.H_cell)
            rows = (s.L, s.N, width) if spec.per_step else (s.N, width)
            self.factors[name] = noise(self.seed + 70 + k, *rows).abs()

    def by_reference(self) -> Results:
        """Return the states at every step, the final states, and the gradients of all leaves."""
        flat = self.leaves[Port(Role.DATA)][self.active]
        sizes = self.active.sum(1)
        steps = Steps(flat, sizes, self.resets[self.active] if self.form.resets else None)
        weights = {port.name: v for port, v in self.leaves.items() if port.role is Role.WEIGHT}
        per_step = {name: spec.per_step for name, spec in self.cell.noise.items()}
        factors = {name: v[self.active] if per_step[name] else v for name, v in self.factors.items()}
        direction = Direction(
            self.cell, weights, self._states(Role.INITIAL), self.form.reverse, factors, self._states(Role.RESTART)
        )
        (result,) = reference.run(steps, [direction], all_states=True)
        outputs = {}
        for name, every, final in zip(self.cell.state, result.states, result.final, strict=True):
            padded = every.new_zeros(*self.active.shape, every.shape[1])
            outputs[f"states {name}"] = padded.masked_scatter(self.active[..., None], every)
            outputs[f"final state {name}"] = final
        # The sum adds outputs to the graph that depend on no leaf.
        outputs = {name: v + 0.0 * self.leaves[Port(Role.DATA)].sum() for name, v in outputs.items()}
        return measure(outputs, {str(port): v for port, v in self.leaves.items()}, self.seed)

    def by_passes(self) -> Results:
        """Return the same results, computed by the forward and backward passes."""
        cell = equations_of(self.cell, bool(self.shape.H_out))
        traced = build_trace(cell, self.costs)
        values = self.inputs()
        forward = evaluate(forward_pass(cell, traced, self.form._replace(save=True)), values, self.sizes)
        outputs = {}
        for name in cell.state:
            outputs |= {port: forward[port] for port in (Port(Role.STATES, name), Port(Role.FINAL, name))}
        of = {Role.STATES: Role.D_STATES, Role.FINAL: Role.D_FINAL}
        d = {Port(of[p.role], p.name): noise(self.seed + k, *v.shape) for k, (p, v) in enumerate(outputs.items())}
        gradients = evaluate(backward_pass(cell, traced, self.form), values | forward | d, self.sizes)
        results = {str(port): v for port, v in outputs.items()}
        return results | {
            f"grad {p}": gradients[Port(D_OF[p.role], p.name)].reshape_as(v) for p, v in self.leaves.items()
        }

    @property
    def sizes(self) -> dict[str, int]:
        s = self.shape
        return {"T": s.L, "N": s.N, "D": s.H_in, "H": s.H_cell} | ({"P": s.H_out} if s.H_out else {})

    def inputs(self) -> dict[Port, Tensor]:
        values = {port: v.detach() for port, v in self.leaves.items()}
        values |= {Port(Role.NOISE, name): v for name, v in self.factors.items()}
        return values | {Port(Role.LENGTHS): self.lengths, Port(Role.RESETS): self.resets}

    def _states(self, role: Role) -> tuple[Tensor, ...]:
        return tuple(self.leaves[port] for port in self.leaves if port.role is role)
