"""A linear-chain conditional random field over labels; best paths and marginal probabilities."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from glassgate.tasks.data.batches import move
from glassgate.tasks.data.bio import may_follow
from glassgate.tasks.networks.states import step_mask

_MAX_RANGE = 60.0
"""The range of transition scores, in nats, up to which exponentials neither underflow nor overflow in float32."""


class CRF(nn.Module):
    """A conditional random field: the score of a path is the sum of the scores of its labels and its transitions.

    Lafferty, McCallum and Pereira 2001.

    Args:
        labels: the number of labels, K
    """

    def __init__(self, labels: int):
        super().__init__()
        self.start = nn.Parameter(torch.zeros(labels))
        self.transitions = nn.Parameter(torch.zeros(labels, labels))  # from the row's label to the column's
        self.end = nn.Parameter(torch.zeros(labels))

    def forward(self, scores: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
        """Return the negative log-likelihood of paths, in nats, `(N,)`.

        Args:
            scores: the score of each label at each step, `(N, L, K)`
            labels: the paths, `(N, L)`; labels after the end of a path are ignored
            lengths: the lengths of the paths, from 1 to L, `(N,)`
        """
        with torch.autocast(scores.device.type, enabled=False):
            scores = scores.float() if scores.dtype != torch.float64 else scores
            lengths = move(lengths, scores.device)
            return self._log_partition(scores, lengths) - self._path_scores(scores, labels, lengths)

    def _path_scores(self, scores: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
        """The score of each path, `(N,)`."""
        inside = step_mask(lengths, scores)
        labels = labels.where(inside, 0)
        total = (scores.gather(2, labels[..., None]).squeeze(2) * inside).sum(1)
        total = total + (self.transitions[labels[:, :-1], labels[:, 1:]] * inside[:, 1:]).sum(1)
        last = labels.gather(1, lengths[:, None] - 1).squeeze(1)
        return total + self.start[labels[:, 0]] + self.end[last]

    def _log_partition(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """The logarithm of the sum of the exponentials of all paths' scores, `(N,)`."""
        extend = self._by_product() or self._by_logsumexp
        inside = step_mask(lengths, scores)
        total = self.start + scores[:, 0]
        for step in range(1, scores.shape[1]):
            longer = extend(total) + scores[:, step]
            total = longer.where(inside[:, step, None], total)
        return (total + self.end).logsumexp(1)

    def _by_logsumexp(self, total: Tensor) -> Tensor:
        """The logarithm of the sum over all labels before a transition, `(N, K)`, from that of each label, `(N, K)`."""
        return (total[:, :, None] + self.transitions).logsumexp(1)

    def _by_product(self) -> Callable[[Tensor], Tensor] | None:
        """`_by_logsumexp` as a matrix product, which is faster for many labels on a CPU; None if it could underflow."""
        if not self.transitions.is_cpu:  # the comparison below would make the process wait for the GPU at each step
            return None
        low, high = self.transitions.detach().aminmax()
        if not high - low < _MAX_RANGE:
            return None
        factors = (self.transitions - high).exp()

        def extend(total: Tensor) -> Tensor:
            largest = total.detach().amax(1, keepdim=True)
            return ((total - largest).exp() @ factors).log() + largest + high

        return extend


def best_paths(scores: Tensor, lengths: Tensor, start: Tensor, transitions: Tensor, end: Tensor) -> Tensor:
    """Return the paths with the largest score, `(N, L)`, with 0 after their ends (Viterbi 1967).

    Args:
        scores: the score of each label at each step, `(N, L, K)`
        lengths: the lengths of the paths, from 1 to L, `(N,)`
        start: the score of each label at the first step, `(K,)`; -inf forbids it
        transitions: the scores of transitions from the label of the row to that of the column, `(K, K)`
        end: the score of each label at the last step, `(K,)`

    Example:
        >>> scores = torch.tensor([[[2.0, 1.0], [0.0, 3.0]]])
        >>> never = torch.tensor([[0.0, -torch.inf], [0.0, 0.0]])  # from the first label to the second
        >>> best_paths(scores, torch.tensor([2]), torch.zeros(2), never, torch.zeros(2)).tolist()
        [[1, 1]]
    """
    inside = step_mask(lengths, scores)
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
    inside = step_mask(lengths, scores)[..., None]
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
    """Return scores, 0 or -inf, that forbid invalid BIO paths: of first labels, `(K,)`, and transitions, `(K, K)`."""
    start = [[may_follow(None, label) for label in labels]]
    follow = [[may_follow(before, label) for label in labels] for before in labels]
    allowed = torch.tensor(start + follow)
    values = torch.zeros(allowed.shape).masked_fill(~allowed, -torch.inf)
    return values[0], values[1:]
