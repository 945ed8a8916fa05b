"""A linear-chain conditional random field over labels, and the best path through any chain of scores."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from glassgate.tasks.data.bio import may_follow


class CRF(nn.Module):
    """Lafferty, McCallum and Pereira 2001: a path's score is the sum of its labels' scores and its transitions' scores.

    Args:
        labels: the number of labels, K
    """

    def __init__(self, labels: int):
        super().__init__()
        self.start = nn.Parameter(torch.zeros(labels))
        self.transitions = nn.Parameter(torch.zeros(labels, labels))  # from the row's label to the column's
        self.end = nn.Parameter(torch.zeros(labels))

    def forward(self, scores: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
        """Return minus the logarithm of the paths' probabilities, nats, `(N,)`.

        Args:
            scores: of each label at each step, `(N, L, K)`
            labels: the paths, `(N, L)`; labels after a path's end are ignored
            lengths: of the paths, from 1 to L, `(N,)`
        """
        with torch.autocast(scores.device.type, enabled=False):
            scores = scores.float() if scores.dtype != torch.float64 else scores
            lengths = lengths.to(scores.device)
            return self._all(scores, lengths) - self._one(scores, labels, lengths)

    def _one(self, scores: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
        """The score of each path, `(N,)`."""
        inside = _inside(scores, lengths)
        labels = labels.where(inside, 0)
        total = (scores.gather(2, labels[..., None]).squeeze(2) * inside).sum(1)
        total = total + (self.transitions[labels[:, :-1], labels[:, 1:]] * inside[:, 1:]).sum(1)
        last = labels.gather(1, lengths[:, None] - 1).squeeze(1)
        return total + self.start[labels[:, 0]] + self.end[last]

    def _all(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """The logarithm of the sum of the exponentials of all paths' scores, `(N,)`."""
        factors = self.transitions.exp()
        inside = _inside(scores, lengths)
        total = self.start + scores[:, 0]
        for step in range(1, scores.shape[1]):
            # A product of matrices in place of logsumexp, which is several times slower. The largest entry is 1 before
            # the product, so nothing is lost unless a transition's score falls below -87.
            largest = total.detach().amax(1, keepdim=True)
            longer = ((total - largest).exp() @ factors).log() + largest + scores[:, step]
            total = longer.where(inside[:, step, None], total)
        return (total + self.end).logsumexp(1)


def best_paths(scores: Tensor, lengths: Tensor, start: Tensor, transitions: Tensor, end: Tensor) -> Tensor:
    """Return the paths of the largest score, `(N, L)`, 0 after their ends (Viterbi 1967).

    Args:
        scores: of each label at each step, `(N, L, K)`
        lengths: of the paths, from 1 to L, `(N,)`
        start: of each label at the first step, `(K,)`; -inf forbids it
        transitions: from the row's label to the column's, `(K, K)`
        end: of each label at the last step, `(K,)`

    Example:
        >>> scores = torch.tensor([[[2.0, 1.0], [0.0, 3.0]]])
        >>> never = torch.tensor([[0.0, -torch.inf], [0.0, 0.0]])  # from the first label to the second
        >>> best_paths(scores, torch.tensor([2]), torch.zeros(2), never, torch.zeros(2)).tolist()
        [[1, 1]]
    """
    inside = _inside(scores, lengths.to(scores.device))
    stay = torch.arange(scores.shape[2], device=scores.device).expand(len(scores), -1)
    total, before = start + scores[:, 0], []
    for step in range(1, scores.shape[1]):
        longer, where = (total[:, :, None] + transitions).max(1)
        total = (longer + scores[:, step]).where(inside[:, step, None], total)
        before.append(where.where(inside[:, step, None], stay))
    path = [(total + end).argmax(1)]
    for where in reversed(before):
        path.append(where.gather(1, path[-1][:, None]).squeeze(1))
    return torch.stack(path[::-1], 1) * inside


def marginals(scores: Tensor, lengths: Tensor, start: Tensor, transitions: Tensor, end: Tensor) -> Tensor:
    """Return the probability of each label at each step over all paths, `(N, L, K)` (forward-backward algorithm).

    Args:
        scores, lengths, start, transitions, end: as for `best_paths`

    Example:
        >>> scores = torch.tensor([[[2.0, 1.0], [0.0, 3.0]]])
        >>> never = torch.tensor([[0.0, -torch.inf], [0.0, 0.0]])  # from the first label to the second
        >>> marginals(scores, torch.tensor([2]), torch.zeros(2), never, torch.zeros(2)).argmax(-1).tolist()
        [[1, 1]]
    """
    inside = _inside(scores, lengths.to(scores.device))[..., None]
    forward = [start + scores[:, 0]]
    for step in range(1, scores.shape[1]):
        longer = (forward[-1][:, :, None] + transitions).logsumexp(1) + scores[:, step]
        forward.append(longer.where(inside[:, step], forward[-1]))
    backward = [end.expand(len(scores), -1)]
    for step in range(scores.shape[1] - 1, 0, -1):
        longer = (transitions + (scores[:, step] + backward[-1])[:, None]).logsumexp(2)
        backward.append(longer.where(inside[:, step], backward[-1]))
    both = torch.stack(forward, 1) + torch.stack(backward[::-1], 1)
    return both.softmax(-1) * inside


def penalties(labels: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return what keeps paths valid, 0 or -inf: of each label at the start, `(K,)`, and behind each other, `(K, K)`."""
    start = [[may_follow(None, label) for label in labels]]
    follow = [[may_follow(before, label) for label in labels] for before in labels]
    allowed = torch.tensor(start + follow)
    values = torch.zeros(allowed.shape).masked_fill(~allowed, -torch.inf)
    return values[0], values[1:]


def _inside(scores: Tensor, lengths: Tensor) -> Tensor:
    return torch.arange(scores.shape[1], device=scores.device) < lengths[:, None]
