"""Kernels under the transforms of torch.func compute the same as the reference engine."""

import pytest
import torch
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.utils._pytree import tree_leaves

import glassgate as gg
from tests.compare import EXACT, noise
from tests.engines.llvm_cpu.array_cells import Decayed

# torch scripts functions of its own when forward mode is first used.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")

CELLS = {
    "LSTM": gg.cells.LSTM(),
    "GRU": gg.cells.GRU(),
    "peephole": gg.cells.PeepholeLSTM(),
    "IndRNN": gg.cells.IndRNN(),
    "two heads": gg.cells.SLSTM(heads=2),
    "a matrix as state": Decayed(2, 3, 2),
    "gates shared by the heads": gg.cells.Mamba2(2, 3),
    "a matrix and recurrent products": gg.cells.LMU(),
}


class Problem:
    """A layer, its weights as a dictionary, inputs, and a loss of one sequence.

    Attributes:
        w: the weights.
        d_w: a tangent of the weights.
        ensemble: two sets of weights, stacked.
        x: (L, N, D), a batch.
        sequence: (L, D), a single sequence. It is also used as the tangent of a sequence.
        resets: (L, 1) the mask of resets of each sequence.
        weight: the weights of the outputs in the loss.
    """

    def __init__(self, cell: gg.Cell, **options) -> None:
        self.layer = gg.Recurrent(cell, 3, 4, dtype=torch.float64, **options)
        self.w = {name: noise(k, *v.shape) / 2 for k, (name, v) in enumerate(self.layer.named_parameters())}
        self.d_w = {name: noise(20 + k, *v.shape) for k, (name, v) in enumerate(self.w.items())}
        self.ensemble = {name: torch.stack([v, v / 2]) for name, v in self.w.items()}
        self.x, self.sequence = noise(50, 5, 4, 3), noise(51, 5, 3)
        self.resets, self.weight = noise(52, 5, 1) > 0, noise(53, 5, 1, self.layer.output_size)

    def output(self, w, sequence):
        return functional_call(self.layer, w, (sequence.unsqueeze(1),), {"resets": self.resets})

    def loss(self, w, sequence):
        output, final = self.output(w, sequence)
        return (output * self.weight[: len(sequence)]).sum() + sum(v.square().sum() for v in tree_leaves(final))

    def per_sample_gradients(self, w):
        return vmap(grad(self.loss), (None, 1))(w, self.x)

    def sum_of_squares(self, w):
        return sum(v.square().sum() for v in tree_leaves(self.per_sample_gradients(w)))


CALLS = {
    "vmap over sequences": lambda p: vmap(lambda sequence: p.output(p.w, sequence), 1)(p.x),
    "per-sample gradients": lambda p: p.per_sample_gradients(p.w),
    "ensemble": lambda p: vmap(grad(p.loss), (0, None))(p.ensemble, p.sequence),
    "jvp": lambda p: jvp(p.loss, (p.w, p.x[:, 0]), (p.d_w, p.sequence)),
    "jvp of the input": lambda p: jvp(lambda sequence: p.output(p.w, sequence), (p.x[:, 0],), (p.sequence,)),
    "jacrev": lambda p: jacrev(lambda sequence: p.output(p.w, sequence)[0])(p.sequence),
    "jacfwd": lambda p: jacfwd(lambda sequence: p.output(p.w, sequence)[0])(p.sequence),
    "hessian": lambda p: hessian(lambda sequence: p.loss(p.w, sequence))(p.sequence[:2]),
    "gradient of per-sample gradients": lambda p: grad(p.sum_of_squares)(p.w),
    "jvp of per-sample gradients": lambda p: jvp(p.per_sample_gradients, (p.w,), (p.d_w,)),
}
TYPICAL_CALLS = ("per-sample gradients", "jvp")


def compare(problem: Problem, name: str) -> None:
    if name == "hessian":
        problem.resets = problem.resets[:2]
    with gg.engine("cpu"):
        by_kernels = tree_leaves(CALLS[name](problem))
    with gg.engine("reference"):
        expected = tree_leaves(CALLS[name](problem))
    assert len(by_kernels) == len(expected)
    for v, truth in zip(by_kernels, expected, strict=True):
        torch.testing.assert_close(v, truth, rtol=0, atol=10 * EXACT * max(1.0, truth.abs().max().item()))


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("cell", ["LSTM", "a matrix as state"])
def test_all_transforms(cell: str, name: str) -> None:
    compare(Problem(CELLS[cell]), name)


@pytest.mark.parametrize("name", TYPICAL_CALLS)
@pytest.mark.parametrize("cell", [name for name in CELLS if name not in ("LSTM", "a matrix as state")])
def test_typical_transforms_of_other_cells(cell: str, name: str) -> None:
    compare(Problem(CELLS[cell]), name)


def test_transforms_of_two_directions_and_two_layers() -> None:
    compare(Problem(CELLS["GRU"], bidirectional=True, num_layers=2), "per-sample gradients")


def test_autograd_of_per_sample_gradients() -> None:
    problem = Problem(CELLS["LSTM"])
    leaves = {name: v.requires_grad_() for name, v in problem.w.items()}
    with gg.engine("cpu"):
        by_kernels = torch.autograd.grad(problem.sum_of_squares(leaves), list(leaves.values()))
    with gg.engine("reference"):
        expected = torch.autograd.grad(problem.sum_of_squares(leaves), list(leaves.values()))
    torch.testing.assert_close(by_kernels, expected, rtol=1e-10, atol=1e-10)


def test_forward_mode_without_torch_func() -> None:
    problem = Problem(CELLS["LSTM"])
    x, tangent = problem.x, noise(70, 5, 4, 3)
    with gg.engine("cpu"), torch.autograd.forward_ad.dual_level():
        output, _ = problem.layer(torch.autograd.forward_ad.make_dual(x, tangent))
        by_kernels = torch.autograd.forward_ad.unpack_dual(output).tangent
    after, before = (problem.layer(x + step * tangent)[0] for step in (1e-6, -1e-6))
    torch.testing.assert_close(by_kernels, (after - before) / 2e-6, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("options", "call", "reason"),
    [
        ({"proj_size": 2}, {}, "do not support proj_size"),
        ({}, {"lengths": [5, 3, 0, 1]}, "sequences of the same length"),
    ],
)
def test_errors_state_why_a_transform_is_not_supported(options, call, reason) -> None:
    layer, x = gg.LSTM(3, 4, **options), torch.zeros(5, 4, 3)
    with gg.engine("cpu"), pytest.raises(gg.EngineError, match=reason):
        jvp(lambda x: layer(x, **call)[0], (x,), (x,))
    output, _ = jvp(lambda x: layer(x, **call)[0], (x,), (x,))
    assert output.shape[:2] == (5, 4)


def penalty(p: Problem, w, sequence):
    """Inner transforms with and without a gradient of the layer. The outer transform has one of both."""
    loss = grad(lambda factor: p.loss(w, sequence) * factor)(torch.ones((), dtype=torch.float64))
    return loss * grad(p.loss, 1)(w, sequence).square().sum()


@pytest.mark.parametrize(("cell", "loss"), [("LSTM", penalty), ("a matrix as state", Problem.loss)])
def test_compiled_transforms(cell: str, loss) -> None:
    """torch.compile traces the transforms, and the operator of the layer runs at the level of each."""
    problem = Problem(CELLS[cell])
    torch._dynamo.reset()
    gradients = grad(lambda w, sequence: loss(problem, w, sequence))
    with gg.engine("cpu"):
        by_kernels = torch.compile(gradients, fullgraph=True, backend="aot_eager")(problem.w, problem.sequence)
        expected = gradients(problem.w, problem.sequence)
    torch.testing.assert_close(by_kernels, expected, rtol=1e-12, atol=EXACT)


def test_a_batch_of_gradients_of_one_call() -> None:
    layer, x = gg.LSTM(3, 4, dtype=torch.float64), noise(1, 5, 2, 3)
    for lengths in (None, [3, 5]):
        for _ in range(3):  # the last call is prepared
            output, _ = layer(x, lengths=lengths)
        vectors, weights = noise(2, 3, *output.shape), list(layer.parameters())

        def gradients(vector, output=output, weights=weights):
            return torch.autograd.grad(output, weights, vector, retain_graph=True)

        by_autograd = torch.autograd.grad(output, weights, vectors, retain_graph=True, is_grads_batched=True)
        for batch in (vmap(gradients)(vectors), by_autograd):
            for k, vector in enumerate(vectors):
                for one, other in zip(batch, gradients(vector), strict=True):
                    torch.testing.assert_close(one[k], other, rtol=1e-12, atol=1e-12)
