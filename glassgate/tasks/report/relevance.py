"""The relevance of each step to the answers of a run, by layer-wise relevance propagation."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

import glassgate as gg
from glassgate.dynamics.explanations import NotTraceable, propagated
from glassgate.glass.gradients import evenly
from glassgate.glass.study import Relevances, Study
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.report.questions import LAYER, Questions

MOST_ANSWERS = 120
"""The maximum number of answers per passage for which a page contains relevances."""
# Numbers of a matrix of relevances.
_MOST_NUMBERS = 120_000
# Numbers of a gradient that is computed for several answers at once.
_AT_ONCE = 2**22


def relevances(questions: Questions[Any], batch_of: Callable[[int, int], Batch], made: Study) -> None:
    """Add the relevance of each step to a study.

    Args:
        questions: the report's interface to the task
        batch_of: returns a batch with several copies of a passage, from its index and the number of copies
        made: the study, with its passages
    """
    values = []
    try:
        for number, passage in enumerate(made.passages):
            answers = evenly(len(passage.answers), max(1, min(MOST_ANSWERS, _MOST_NUMBERS // len(passage.steps))))
            values.append(relevance(questions, batch_of(number, 1), answers))
    except NotTraceable as error:
        made.notes.append(f"relevance: it is left out, because the cell has no graph. {error}")
        return
    made.relevances = values


def relevance(questions: Questions[Any], batch: Batch, answers: Sequence[int]) -> Relevances:
    """The relevance of each step of a batch of one row to some of its answers.

    Raises:
        NotTraceable: a cell has no graph
    """
    network, cut = questions.task.network, _Cut()
    layer = getattr(network, LAYER)
    # One row has too little work for kernels, and plain torch differentiates all answers in one backward pass.
    with gg.engine("reference"), propagated(network) as biases:
        with cut.of(layer):
            answered = questions.answered(batch)
        inside = set(layer.parameters())
        before, after = ([bias for bias in biases if (bias in inside) == own] for own in (True, False))
        scores = answered.scores[0, list(answers)]
        # The scores of a large vocabulary have a large gradient; that of the layer's outputs is small.
        size = max(1, _AT_ONCE // max(each.logs.numel() for each in answered.groups))
        parts = [
            _gradients([scores], [*cut.leaves, *after], [chosen])
            for chosen in torch.eye(len(answers), device=scores.device).split(size)
        ]
        d_after = [torch.cat(each) for each in zip(*parts, strict=True)]
        d_outputs = d_after[: len(cut.leaves)]
        d_source, *d_before = _gradients(cut.outputs, [cut.source, *before], d_outputs)
    of_biases = sum(
        (d.double() * bias.detach()).flatten(1).sum(1)
        for bias, d in zip([*after, *before], [*d_after[len(cut.leaves) :], *d_before], strict=True)
    )
    matrix = (d_source.double() * cut.source.detach()).sum(-1)[:, 0]
    biases_of = torch.as_tensor(of_biases).expand(len(answers))
    return Relevances(
        list(answers), _numbers(matrix), _numbers(biases_of), _numbers(scores.detach().double()), answered.score_name
    )


def _numbers(values: Tensor) -> np.ndarray:
    return np.asarray(values.cpu())


def _gradients(outputs: Sequence[Tensor], inputs: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of each input, (A, *input), for A gradients of the outputs, (A, *output)."""
    gradients = torch.autograd.grad(
        list(outputs), list(inputs), list(given), retain_graph=True, allow_unused=True, is_grads_batched=True
    )
    many = len(given[0])
    return [each.new_zeros(many, *each.shape) if d is None else d for each, d in zip(inputs, gradients, strict=True)]


class _Cut:
    """Cuts the graph before and after the first call of a layer.

    Attributes:
        source: the input of the layer, (1, L, E), as a leaf
        outputs: the results of the layer that depend on the input
        leaves: the same values, as leaves that the rest of the network reads
    """

    source: Tensor

    def __init__(self) -> None:
        self.outputs: list[Tensor] = []
        self.leaves: list[Tensor] = []
        self._hooks: list[Any] = []

    def of(self, layer: nn.Module) -> "_Cut":
        """Watch the next call of a layer."""
        self._hooks = [layer.register_forward_pre_hook(self._before), layer.register_forward_hook(self._after)]
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _before(self, layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if hasattr(self, "source"):
            return None
        self.source = args[0].detach().requires_grad_()
        return (self.source, *args[1:])

    def _after(self, layer: nn.Module, args: tuple[Any, ...], results: Any) -> Any:
        if self.leaves:
            return None
        every, structure = tree_flatten(results)
        self.outputs = [each for each in every if each.requires_grad]
        self.leaves = [each.detach().requires_grad_() for each in self.outputs]
        leaves = iter(self.leaves)
        return tree_unflatten([next(leaves) if each.requires_grad else each for each in every], structure)
