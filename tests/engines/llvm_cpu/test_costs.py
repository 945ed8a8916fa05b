"""The costs of a backend determine which values are saved or recomputed. They do not change the results."""

import torch

import glassgate as gg
from glassgate.engines.llvm_cpu.loops.phases import Step
from glassgate.engines.registry import BACKENDS
from glassgate.engines.symbolic.step import equations_of
from glassgate.engines.symbolic.trace import build_trace
from tests.compare import noise
from tests.engines.costs import EVERY, FREE_MEMORY, FREE_OPERATIONS, OF_CPU
from tests.engines.fuzz.interpreted import interpreted


class CustomCell(gg.Cell):
    """A cell with nested functions, a mean over units, and recurrent weights that multiply a gated state."""

    gates = ("r", "n")
    state = ("h", "c")

    def step(self, a, s):
        r = torch.sigmoid(a.r)
        n = torch.tanh(a.ih.n + a.hh(r * s.h).n)
        c = r * s.c + torch.exp(-n.abs()) * (n - n.mean(-1, keepdim=True))
        return torch.sin(2 * c * r), c


def saved_values(cell, costs):
    """The values that training saves, by column: the name of the variable in the step, or the operation."""
    saved = build_trace(equations_of(cell), costs).saved
    return {(key.kind, key.number): node.name or node.op for key, node in saved.items()}


def test_costs_decide_which_values_are_saved():
    gates = {("ih", k): gate for k, gate in enumerate("ifgo")}
    assert saved_values(gg.cells.LSTM(), OF_CPU) == gates
    assert saved_values(gg.cells.LSTM(), FREE_OPERATIONS) == {key: f"{gate}_pre" for key, gate in gates.items()}
    assert saved_values(gg.cells.LSTM(), FREE_MEMORY) == gates | {("kept", 0): "tanh"}


def test_costs_decide_which_values_are_recomputed():
    equations = equations_of(CustomCell())
    temporaries = [
        len(Step(equations, build_trace(equations, costs), backward=True).temporaries)
        for costs in (FREE_MEMORY, FREE_OPERATIONS)
    ]
    assert temporaries[0] > temporaries[1]


def test_results_are_the_same_for_all_costs(monkeypatch):
    x, resets = noise(9, 5, 2, 3).requires_grad_(), noise(8, 5, 2) > 0.5
    for cell in (gg.cells.LSTM(), CustomCell()):
        layer = gg.Recurrent(cell, 3, 6, bidirectional=True, dtype=torch.float64)
        for k, weight in enumerate(layer.parameters()):
            weight.data = noise(k, *weight.shape)

        def results(layer=layer):
            output, _ = layer(x, resets=resets)
            return [output, *torch.autograd.grad(output.sin().sum(), [x, *layer.parameters()])]

        with gg.engine("reference"):
            truth = results()
        texts = set()
        for costs in EVERY.values():
            monkeypatch.setattr(BACKENDS["cpu"], "costs", costs)
            with gg.engine("cpu"), interpreted() as interpreter:
                torch.testing.assert_close(results(), truth, rtol=1e-12, atol=1e-12)
            texts.add("".join(interpreter.texts))
        assert len(texts) == len(EVERY)
