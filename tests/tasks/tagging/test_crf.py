"""Probabilities and best paths of the CRF equal an enumeration of all paths; its gradients equal finite differences."""

import math
from copy import deepcopy
from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from glassgate.tasks.tagging.crf import CRF, best_paths, marginals

LENGTHS = torch.tensor([4, 1, 3])


def chain(labels: int = 3, scale: float = 1.0) -> tuple[CRF, Tensor, Tensor]:
    """Return a CRF with random transition scores, random label scores, and random paths."""
    crf = CRF(labels).double()
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter, std=scale)
    scores = (scale * torch.randn(3, 4, labels, dtype=torch.float64)).requires_grad_()
    return crf, scores, torch.randint(labels, (3, 4))


def score(crf: CRF, scores: Tensor, path: tuple[int, ...]) -> Tensor:
    total = crf.start[path[0]] + crf.end[path[-1]]
    for step, label in enumerate(path):
        total = total + scores[step, label]
    for before, label in pairwise(path):
        total = total + crf.transitions[before, label]
    return total


@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_probabilities_by_every_path(scale: float) -> None:
    crf, scores, labels = chain(scale=scale)
    nats = crf(scores, labels, LENGTHS).detach()
    for row, length in enumerate(LENGTHS.tolist()):
        every = torch.stack([score(crf, scores[row], path) for path in product(range(3), repeat=length)])
        own = score(crf, scores[row], tuple(labels[row, :length].tolist()))
        assert float(nats[row]) == pytest.approx(float((every.logsumexp(0) - own).detach()), rel=1e-10, abs=1e-10)


@pytest.mark.parametrize(
    ("mean", "spread"), [(95.0, 0.0), (-95.0, 0.0), (1e4, 1.0), (0.0, 19.0), (50.0, 200.0)], ids=str
)
def test_large_scores_of_transitions(mean: float, spread: float) -> None:
    """In float32, the loss and its gradients equal those of a forward algorithm with logsumexp in float64."""
    crf, scores, labels = chain(labels=7)
    with torch.no_grad():
        crf.transitions.copy_(mean + spread * torch.rand(7, 7))
    crf, scores = crf.float(), scores.detach().float()
    nats = crf(scores, labels, LENGTHS)
    nats.sum().backward()
    exact = deepcopy(crf).double()
    exact.zero_grad()
    total = exact.start + scores[:, 0]
    ends = [total]
    for step in range(1, 4):
        total = (total[:, :, None] + exact.transitions).logsumexp(1) + scores[:, step]
        ends.append(total)
    partition = torch.stack([(ends[n - 1][row] + exact.end).logsumexp(0) for row, n in enumerate(LENGTHS.tolist())])
    paths = [score(exact, scores[row].double(), tuple(labels[row, :n].tolist())) for row, n in enumerate(LENGTHS)]
    expected = partition - torch.stack(paths)
    expected.sum().backward()
    size = max(1.0, partition.abs().max().item())
    torch.testing.assert_close(nats.double(), expected, rtol=0, atol=1e-6 * size)
    torch.testing.assert_close(crf.transitions.grad.double(), exact.transitions.grad, rtol=0, atol=1e-6 * size)


def test_probabilities_of_all_paths_sum_to_one() -> None:
    crf, scores, _ = chain(labels=2)
    paths = torch.tensor(list(product(range(2), repeat=4)))
    nats = crf(scores[:1].expand(len(paths), -1, -1), paths, torch.full((len(paths),), 4))
    assert nats.neg().exp().sum().item() == pytest.approx(1, rel=1e-12)


def test_gradients() -> None:
    crf, scores, labels = chain()
    labels[1, 1:] = -100
    assert torch.autograd.gradcheck(
        lambda s, *_: crf(s, labels, LENGTHS), (scores, crf.start, crf.transitions, crf.end)
    )
    crf(scores, labels, LENGTHS).sum().backward()
    assert scores.grad is not None
    assert not scores.grad[1, 1:].any()


@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_best_paths_by_every_path(scale: float) -> None:
    crf, scores, _ = chain(scale=scale)
    paths = best_paths(scores, LENGTHS, crf.start, crf.transitions, crf.end)
    for row, length in enumerate(LENGTHS.tolist()):
        best = max(product(range(3), repeat=length), key=lambda path: score(crf, scores[row], path).item())
        assert paths[row].tolist() == [*best, *[0] * (4 - length)]


def test_marginals_by_every_path() -> None:
    """The probability of a label at a step is the sum over all paths through it, without forbidden paths."""
    crf, scores, _ = chain()
    transitions = crf.transitions.detach().clone()
    transitions[0, 1] = -math.inf
    with torch.no_grad():
        crf.transitions.copy_(transitions)
        probabilities = marginals(scores, LENGTHS, crf.start, transitions, crf.end)
        for row, length in enumerate(LENGTHS.tolist()):
            paths = list(product(range(3), repeat=length))
            chances = torch.stack([score(crf, scores[row], path) for path in paths]).softmax(0)
            expected = torch.zeros(4, 3, dtype=torch.float64)
            for path, chance in zip(paths, chances, strict=True):
                expected[range(length), list(path)] += chance
            torch.testing.assert_close(probabilities[row], expected)


def test_forbidden_paths_are_not_taken() -> None:
    _, scores, _ = chain()
    never = torch.zeros(3, 3, dtype=torch.float64)
    never[0, 1] = never[1, 1] = never[2, 0] = -math.inf
    start = torch.tensor([0.0, -math.inf, 0.0], dtype=torch.float64)
    paths = best_paths(scores, LENGTHS, start, never, torch.zeros(3, dtype=torch.float64)).tolist()
    for path, length in zip(paths, LENGTHS.tolist(), strict=True):
        assert path[0] != 1
        assert not {(0, 1), (1, 1), (2, 0)} & set(pairwise(path[:length]))


def test_the_crf_computes_in_float32_under_autocast() -> None:
    crf, scores, labels = chain()
    crf, scores = crf.float(), scores.detach().float()
    expected = crf(scores, labels, LENGTHS)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(crf(scores, labels, LENGTHS), expected)
