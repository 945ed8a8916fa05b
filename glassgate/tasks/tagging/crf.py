"""A linear-chain conditional random field over paths of labels, its best paths and its marginal probabilities."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from glassgate.tasks.data.batches import move
from glassgate.tasks.data.bio import may_follow
from glassgate.tasks.networks.encoder import step_mask

_MAX_RANGE = 60.0
"""The largest range of transition scores, in nats, whose exponentials do not underflow in float32."""


class CRF(nn.Module):
    """A conditional random field over K labels (Lafferty, McCallum and Pereira 2001).

    The score of a path is the sum of the scores of its labels, its transitions, its first label and its last label.
    """

    def __init__(self, num_labels: int):
        super().__init__()
        self.start = nn.Parameter(torch.zeros(num_labels))
        self.transitions = nn.Parameter(torch.zeros(num_labels, num_labels))  # from the row's label to the column's
        self.end = nn.Parameter(torch.zeros(num_labels))

    def forward(self, scores: Tensor, paths: Tensor, lengths: Tensor) -> Tensor:
        """Return the negative log-likelihood, in nats, `(N,)`, of paths, `(N, L)`, of lengths from 1 to L, `(N,)`.

        `scores` are those of each label at each step, `(N, L, K)`. Values after the end of a path are ignored.
        """
        with torch.autocast(scores.device.type, enabled=False):
            scores = scores.float() if scores.dtype != torch.float64 else scores
            lengths = move(lengths, scores.device)
            return self._log_partition(scores, lengths) - self._path_scores(scores, paths, lengths)

    def _path_scores(self, scores: Tensor, paths: Tensor, lengths: Tensor) -> Tensor:
        """The score of each path, `(N,)`."""
        mask = step_mask(lengths, scores)
        paths = paths.where(mask, 0)
        total = (scores.gather(2, paths[..., None]).squeeze(2) * mask).sum(1)
        total = total + (self.transitions[paths[:, :-1], paths[:, 1:]] * mask[:, 1:]).sum(1)
        last_labels = paths.gather(1, lengths[:, None] - 1).squeeze(1)
        return total + self.start[paths[:, 0]] + self.end[last_labels]

    def _log_partition(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """The logarithm of the sum of the exponentials of all paths' scores, `(N,)` (forward algorithm)."""
        transition = self._transition()
        mask = step_mask(lengths, scores)
        log_sums = self.start + scores[:, 0]
        for step in range(1, scores.shape[1]):
            extended = transition(log_sums) + scores[:, step]
            log_sums = extended.where(mask[:, step, None], log_sums)
        return (log_sums + self.end).logsumexp(1)

    def _transition(self) -> Callable[[Tensor], Tensor]:
        """One step of the forward algorithm: add the scores of transitions, and sum over the previous label.

        Its argument has, for each label, the logarithm of the sum over all paths that end with it, `(N, K)`. On a CPU,
        a matrix product is faster for many labels, unless it could underflow.
        """
        if self.transitions.is_cpu:  # the comparison below would wait for the GPU at each call
            low, high = self.transitions.detach().aminmax()
            if high - low < _MAX_RANGE:
                factors = (self.transitions - high).exp()
                return lambda log_sums: _log_product(log_sums, factors) + high
        return lambda log_sums: (log_sums[:, :, None] + self.transitions).logsumexp(1)


def _log_product(logs: Tensor, factors: Tensor) -> Tensor:
    """The logarithm of the product of the exponentials of `logs`, `(N, K)`, and a matrix, `(K, K)`."""
    largest = logs.detach().amax(1, keepdim=True)
    return ((logs - largest).exp() @ factors).log() + largest


def best_paths(scores: Tensor, lengths: Tensor, start: Tensor, transitions: Tensor, end: Tensor) -> Tensor:
    """Return the paths with the largest score, `(N, L)`, with 0 after their ends (Viterbi 1967).

    The scores of labels, `(N, L, K)`, the lengths of the paths, `(N,)`, and the scores of first labels, transitions and
    last labels are those of `CRF`. -inf forbids a label or a transition.

    Example:
        >>> scores = torch.tensor([[[2.0, 1.0], [0.0, 3.0]]])
        >>> transitions = torch.tensor([[0.0, -torch.inf], [0.0, 0.0]])  # forbid 0 to 1
        >>> best_paths(scores, torch.tensor([2]), torch.zeros(2), transitions, torch.zeros(2)).tolist()
        [[1, 1]]
    """
    mask = step_mask(lengths, scores)
    same_label = torch.arange(scores.shape[2], device=scores.device).expand(len(scores), -1)
    totals, back_pointers = start + scores[:, 0], []
    for step in range(1, scores.shape[1]):
        extended, previous_labels = (totals[:, :, None] + transitions).max(1)
        totals = (extended + scores[:, step]).where(mask[:, step, None], totals)
        back_pointers.append(previous_labels.where(mask[:, step, None], same_label))
    reversed_path = [(totals + end).argmax(1)]
    for previous_labels in reversed(back_pointers):
        reversed_path.append(previous_labels.gather(1, reversed_path[-1][:, None]).squeeze(1))
    return torch.stack(reversed_path[::-1], 1) * mask


def marginals(scores: Tensor, lengths: Tensor, start: Tensor, transitions: Tensor, end: Tensor) -> Tensor:
    """Return the probability of each label at each step over all paths, `(N, L, K)` (forward-backward algorithm).

    It is 0 after the end of a path. The arguments are those of `best_paths`.
    """
    mask = step_mask(lengths, scores)[..., None]
    forward = [start + scores[:, 0]]
    for step in range(1, scores.shape[1]):
        extended = (forward[-1][:, :, None] + transitions).logsumexp(1) + scores[:, step]
        forward.append(extended.where(mask[:, step], forward[-1]))
    backward = [end.expand(len(scores), -1)]
    for step in range(scores.shape[1] - 1, 0, -1):
        extended = (transitions + (scores[:, step] + backward[-1])[:, None]).logsumexp(2)
        backward.append(extended.where(mask[:, step], backward[-1]))
    log_sums = torch.stack(forward, 1) + torch.stack(backward[::-1], 1)
    return log_sums.softmax(-1) * mask


def bio_penalties(label_names: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return scores of first labels, `(K,)`, and of transitions, `(K, K)`: 0 if BIO allows them, and -inf if not."""
    is_allowed_first = [[may_follow(None, label) for label in label_names]]
    is_allowed_transition = [[may_follow(previous, label) for label in label_names] for previous in label_names]
    is_allowed = torch.tensor(is_allowed_first + is_allowed_transition)
    scores = torch.zeros(is_allowed.shape).masked_fill(~is_allowed, -torch.inf)
    return scores[0], scores[1:]
