"""The relevance of each step for the answers of a run, by layer-wise relevance propagation."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

import glassgate as gg
from glassgate.dynamics.explanations import NotTraceable, relevance_gradients
from glassgate.glass.gradients import evenly_spaced
from glassgate.glass.languages import message, say
from glassgate.glass.study import Relevances, Study
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.networks.maps import KernelScores, StepScores, TokenScores
from glassgate.tasks.report.task_view import LAYER, TaskView

MAX_ANSWERS = 120
"""The maximum number of answers per passage for which a page contains relevances."""
_MAX_RELEVANCES = 120_000  # per passage: answers times steps
_MAX_GRADIENT_SIZE = 2**22  # the maximum number of elements of the score gradients in one backward pass


def add_relevances(view: TaskView[Any], batch_of: Callable[[int, int], Batch], study: Study) -> None:
    """Add the relevance of each step to a study. `batch_of` returns copies of a passage, see `add_causes`."""
    by_passage = []
    try:
        for index, passage in enumerate(study.passages):
            limit = max(1, min(MAX_ANSWERS, _MAX_RELEVANCES // len(passage.steps)))
            by_passage.append(relevance(view, batch_of(index, 1), evenly_spaced(len(passage.answers), limit)))
    except NotTraceable as error:
        study.notes.append(say("relevance.not_traceable", reason=error))
        return
    study.relevances = by_passage
    if any(isinstance(module, KernelScores) for module in view.task.network.modules()):
        study.notes.append(say("relevance.kernel"))


def relevance(view: TaskView[Any], batch: Batch, answers: Sequence[int]) -> Relevances:
    """Return the relevance of each step for the answers with these indices, from a batch of one row."""
    network, cut = view.task.network, _Cut()
    linear = [module for module in network.modules() if isinstance(module, TokenScores | StepScores)]
    layer = getattr(network, LAYER)
    # One row has too little work for kernels, and plain torch differentiates all answers in one backward pass.
    with gg.engine("reference"), relevance_gradients(network) as biases:
        with cut.watch(layer, linear):
            batch_answers = view.answers_for_batch(batch)
        layer_parameters = set(layer.parameters())
        layer_biases = [bias for bias in biases if bias in layer_parameters]
        head_biases = [bias for bias in biases if bias not in layer_parameters]
        scores = batch_answers.scores[0, list(answers)]
        # The gradients of the scores of a large vocabulary are large, so they are computed for few answers at a time.
        size = max(1, _MAX_GRADIENT_SIZE // max(each.logs.numel() for each in batch_answers.groups))
        gradients = [
            _gradients([scores], [*cut.leaves, *cut.direct, *head_biases], [one_hot])
            for one_hot in torch.eye(len(answers), device=scores.device).split(size)
        ]
        d_head = [torch.cat(each) for each in zip(*gradients, strict=True)]
        first, last = len(cut.leaves), len(cut.leaves) + len(cut.direct)
        d_outputs, d_direct, d_head_biases = d_head[:first], d_head[first:last], d_head[last:]
        d_source, *d_layer_biases = _gradients(cut.outputs, [cut.source, *layer_biases], d_outputs)
    bias_total = sum(
        (d.double() * bias.detach()).flatten(1).sum(1)
        for bias, d in zip([*head_biases, *layer_biases], [*d_head_biases, *d_layer_biases], strict=True)
    )
    sources = [(d_source, cut.source), *zip(d_direct, cut.direct, strict=True)]
    step_relevance = torch.stack([(d.double() * value.detach()).sum(-1)[:, 0] for d, value in sources]).sum(0)
    bias_relevance = torch.as_tensor(bias_total).expand(len(answers))
    final_scores, name = scores.detach().double(), batch_answers.score_name or message("quantity.log_odds")
    matrix, by_biases, totals = (np.asarray(each.cpu()) for each in (step_relevance, bias_relevance, final_scores))
    return Relevances(list(answers), matrix, by_biases, totals, name)


def _gradients(outputs: Sequence[Tensor], inputs: Sequence[Tensor], d_outputs: Sequence[Tensor]) -> list[Tensor]:
    """Backpropagate A gradients of each output, (A, *output). Return A gradients of each input, (A, *input)."""
    gradients = torch.autograd.grad(
        list(outputs), list(inputs), list(d_outputs), retain_graph=True, allow_unused=True, is_grads_batched=True
    )
    count = len(d_outputs[0])
    return [each.new_zeros(count, *each.shape) if d is None else d for each, d in zip(inputs, gradients, strict=True)]


class _Cut:
    """Cuts the graph before and after the first call of a layer.

    Attributes:
        source: the input of the layer, (1, L, E), as a leaf
        outputs: the outputs and states of the layer that depend on the input
        leaves: copies of `outputs` as leaves, which the rest of the network reads
        direct: the parts of each step that linear maps add to the scores, (1, L, K) each, as leaves
    """

    source: Tensor

    def __init__(self) -> None:
        self.outputs: list[Tensor] = []
        self.leaves: list[Tensor] = []
        self.direct: list[Tensor] = []

    @contextmanager
    def watch(self, layer: nn.Module, linear: Sequence[nn.Module]) -> Iterator[None]:
        """Cut the graph at the first call of a layer in this block, and after linear maps."""
        hooks = [layer.register_forward_pre_hook(self._before), layer.register_forward_hook(self._after)]
        hooks += [each.register_forward_hook(self._after_linear) for each in linear]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _before(self, layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if hasattr(self, "source"):
            return None
        self.source = args[0].detach().requires_grad_()
        return (self.source, *args[1:])

    def _after(self, layer: nn.Module, args: tuple[Any, ...], results: Any) -> Any:
        if self.leaves:
            return None
        tensors, structure = tree_flatten(results)
        self.outputs = [each for each in tensors if each.requires_grad]
        self.leaves = [each.detach().requires_grad_() for each in self.outputs]
        leaves = iter(self.leaves)
        return tree_unflatten([next(leaves) if each.requires_grad else each for each in tensors], structure)

    def _after_linear(self, module: nn.Module, args: tuple[Any, ...], parts: Tensor) -> Tensor:
        self.direct.append(parts.detach().requires_grad_())
        return self.direct[-1]
