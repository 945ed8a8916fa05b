"""The contribution of each token or step of the input to a score, by four methods.

The rules of "lrp" are in `propagation`, and those of "contextual" in `contextual`.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import jvp, vmap

from glassgate.cell import Cell
from glassgate.dynamics.contextual import ContextualCell
from glassgate.dynamics.propagation import OutsideRules, relevance_equations, relevance_step
from glassgate.engines.choose import engine
from glassgate.engines.contract import Direction
from glassgate.engines.symbolic.arrays.cell import ArrayCell
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import Node
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.engines.symbolic.values import NotTraceable
from glassgate.engines.traced_cells import current_array_step, current_equations
from glassgate.glass.contexts import eval_mode, uncompiled
from glassgate.glass.measures import ranges
from glassgate.layers.parts import Part, sizes_of
from glassgate.layers.stack import Recurrent
from glassgate.layout import Layout
from glassgate.shapes import ShapeError, check_choice

__all__ = ["NotTraceable", "Relevance", "contribution", "relevance", "relevance_gradients"]

METHODS = ("lrp", "contextual", "gradient", "integrated")
PHRASES_AT_ONCE = 64
"""The number of phrases whose decompositions are computed together."""

Target = int | tuple[int, ...] | Tensor | Callable[[Any], Tensor]
"""The selection of a score; see `relevance`."""
Change = Callable[[Tensor], Tensor]
"""A function from the embedded tokens or the numeric features to the values that replace them."""


class Relevance(NamedTuple):
    """The contribution of each token, step and feature of an input to a score."""

    tokens: Tensor
    """One number per token or step, (*tokens): the shape of token IDs, or of numeric features without the last axis."""
    features: Tensor | None
    """The contribution of each feature of the embedding or input, (*tokens, E); None for "contextual"."""
    scores: Tensor
    """The explained scores, one per row."""
    biases: float
    """The contribution of biases to the sum of all scores ("lrp"), the sum of the scores of a zero input
    ("integrated"), or 0."""

    @property
    def unexplained(self) -> float:
        """The sum of all scores minus the contributions of tokens and biases.

        It is 0 if the method conserves relevance. It contains the relevance of initial states that are passed to the
        model, and of constants in the equations, such as the 0.5 of a MinGRU. For "contextual" it also contains the
        contributions of biases and of interactions between tokens.
        """
        return (self.scores.double().sum() - self.tokens.double().sum()).item() - self.biases


def relevance(
    model: nn.Module, input: Tensor, target: Target, *, method: str = "lrp", points: int = 32, **arguments: Any
) -> Relevance:
    """The contribution of each token, or of each step of a series, to one score of a model.

    - "lrp": layer-wise relevance propagation with the rules of Arras et al. (2017, arXiv:1706.07206; 2019,
      arXiv:1909.12114) on the graph of the cell. In a product of a gate and a signal, all relevance goes to the signal.
      A nonlinearity passes relevance on unchanged. A sum divides relevance in proportion to the terms. The same rules
      apply to tanh, sigmoid and softmax outside of the recurrent layers. The relevance of tokens and biases adds up to
      the score.
    - "contextual": contextual decomposition (Murdoch et al. 2018, arXiv:1801.05453) with each token as a phrase; see
      `contribution`.
    - "gradient": gradient times input.
    - "integrated": the integral of gradients from a zero input (Sundararajan et al. 2017, arXiv:1703.01365). The tokens
      add up to the score minus the score of the zero input.

    Args:
        model: a module with recurrent layers of this package. It runs in eval mode. Its mode is restored afterwards.
        input: the model's input: token IDs that an `nn.Embedding` reads, or numeric features.
        target: selects the score: the index of a class in the last axis of the output, a tensor with one index per
            row, a tuple of indices such as (step, class), or a function from the output of the model to one score per
            row.
        method: "lrp", "contextual", "gradient" or "integrated".
        points: the number of points at which the integral is evaluated ("integrated" only).
        arguments: keyword arguments of the model.

    Raises:
        TypeError: the model has no recurrent layer of this package, or not exactly one embedding reads the token IDs.
        ValueError: the score has no gradient, for example after an argmax, or with "lrp" after a sigmoid or softmax.
        NotTraceable: the method is "lrp" or "contextual", and a cell has no graph.

    Example:
        >>> import torch, glassgate as gg
        >>> class Reader(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.embedding, self.lstm = torch.nn.Embedding(10, 4), gg.LSTM(4, 6, batch_first=True)
        ...         self.linear = torch.nn.Linear(6, 2)
        ...     def forward(self, tokens):
        ...         output, _ = self.lstm(self.embedding(tokens))
        ...         return self.linear(output[:, -1])
        >>> result = gg.dynamics.relevance(Reader(), torch.tensor([[1, 5, 2, 7]]), target=1)
        >>> result.tokens.shape, abs(result.unexplained) < 1e-5
        (torch.Size([1, 4]), True)
    """
    check_choice("relevance", "method", method, METHODS)
    layers = _layers("relevance", model)
    if method == "lrp":
        with relevance_gradients(model) as biases:
            return _gradient_times_input(model, input, target, arguments, biases)
    with eval_mode(model), torch.enable_grad():
        if method == "integrated":
            return _integrated_gradients(model, input, target, points, arguments)
        if method == "gradient":
            return _gradient_times_input(model, input, target, arguments, [])
        scores, features = _score_and_features(model, input, target, arguments, Tensor.detach)
        step_axis = _step_axis(layers, features.shape[:-1], scores)
        steps = features.shape[step_axis]
        phrases = torch.eye(steps, dtype=torch.bool, device=features.device)
        phrases = phrases.view(steps, *(steps if axis == step_axis else 1 for axis in range(features.dim() - 1)))
        contributions = _contributions(model, input, target, arguments, layers, phrases)
        tokens = contributions.movedim(0, step_axis) if features.dim() > 2 else contributions.flatten()
        return Relevance(tokens, None, scores.detach(), 0.0)


def contribution(model: nn.Module, input: Tensor, target: Target, phrase: Tensor, **arguments: Any) -> Tensor:
    """The contribution of a phrase to a score, by contextual decomposition (Murdoch et al. 2018, arXiv:1801.05453).

    A phrase is a set of tokens. Its context is all other tokens. Every value of the network is the sum of the
    phrase's part and the context's part. Interactions between tokens of the phrase are in the phrase's part. For an
    LSTM the rules are those of the authors' program. `ContextualCell` lists the rules for any cell. The score minus the
    result is the contribution of the context and the biases.

    Args:
        model, input, target, arguments: as for `relevance`.
        phrase: a bool mask of the tokens of the phrase, with the shape of the token IDs, or of numeric features
            without the last axis.

    Returns:
        One number per row.

    Raises:
        ShapeError: the mask has another shape or dtype.
        TypeError: as in `relevance`.
        NotTraceable: the cell has no graph.

    Example:
        >>> import torch, glassgate as gg
        >>> layer, series = gg.LSTM(2, 3), torch.randn(6, 1, 2)
        >>> phrase = torch.zeros(6, 1, dtype=torch.bool)
        >>> phrase[2:4] = True
        >>> gg.dynamics.contribution(layer, series, lambda result: result[0][-1].sum(-1), phrase).shape
        torch.Size([1])
    """
    layers = _layers("contribution", model)
    shape = input.shape[:-1] if input.is_floating_point() else input.shape
    if phrase.shape != shape or phrase.dtype != torch.bool:
        raise ShapeError(
            f"contribution: phrase must be bool, one per token, {tuple(shape)}, got {phrase.dtype} "
            f"{tuple(phrase.shape)}"
        )
    with eval_mode(model), torch.enable_grad():
        return _contributions(model, input, target, arguments, layers, phrase.unsqueeze(0))[0]


def _layers(operation: str, model: nn.Module) -> list[Recurrent]:
    layers = [module for module in model.modules() if isinstance(module, Recurrent)]
    if not layers:
        raise TypeError(
            f"{operation}: the model must hold a recurrent layer of glassgate, got {type(model).__name__}; "
            "gg.convert(model) replaces the layers of torch.nn"
        )
    return layers


@contextmanager
def relevance_gradients(model: nn.Module) -> Iterator[list[nn.Parameter]]:
    """Change the model in a `with` block so that gradient times value gives the "lrp" relevance of any value.

    Yields the additive parameters, such as biases, with gradients enabled.

    Raises:
        TypeError: the model has no recurrent layer of this package.
        NotTraceable: a cell has no graph.
    """
    layers, biases = _layers("relevance", model), _biases(model)
    frozen = [bias for bias in biases if not bias.requires_grad]
    with eval_mode(model), torch.enable_grad(), _with_rule(layers, _lrp), OutsideRules():
        try:
            for bias in frozen:
                bias.requires_grad_()
            yield biases
        finally:
            for bias in frozen:
                bias.requires_grad_(False)


def _step_axis(layers: list[Recurrent], shape: torch.Size, scores: Tensor) -> int:
    """The axis of the steps in the shape of the tokens.

    The other axis has one element per score. If both axes have equal lengths, the layout of the first layer decides.
    """
    if len(shape) < 2 or shape[0] != shape[1]:
        return int(len(shape) > 1 and shape[0] == scores.numel())
    return int(layers[0].batch_first)


def _contributions(
    model: nn.Module, input: Tensor, target: Target, arguments: Any, layers: list[Recurrent], phrases: Tensor
) -> Tensor:
    """The contribution of each of K phrases to each of N scores, (K, N). `phrases` has the shape (K, *tokens)."""
    _, features = _score_and_features(model, input, target, arguments, Tensor.detach)

    def score_with(values: Tensor) -> Tensor:
        return _score_and_features(model, input, target, arguments, lambda _: values)[0]

    def phrase_part(phrase: Tensor) -> Tensor:
        derivative: Tensor = jvp(score_with, (features,), (features * phrase.unsqueeze(-1),))[1]
        return derivative

    with torch.no_grad(), engine("reference"), _with_rule(layers, _contextual), warnings.catch_warnings():
        # torch.func raises this warning about its own functions when it is first used.
        # Its category differs between versions of torch.
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated")
        by_phrase: Tensor = vmap(phrase_part, chunk_size=PHRASES_AT_ONCE)(phrases)
    return by_phrase


def _gradient_times_input(
    model: nn.Module, input: Tensor, target: Target, arguments: Any, biases: Sequence[Tensor]
) -> Relevance:
    """Gradient times input. If the cells of the model follow the rules of "lrp", this is the relevance."""
    scores, features = _score_and_features(model, input, target, arguments, _scaled_leaf(1.0))
    _check_differentiable(scores)
    d_features, *d_biases = torch.autograd.grad(scores.sum(), [features, *biases], materialize_grads=True)
    bias_relevance = sum(float((bias.detach().double() * d).sum()) for bias, d in zip(biases, d_biases, strict=True))
    values = features.detach() * d_features
    return Relevance(values.sum(-1), values, scores.detach(), bias_relevance)


def _integrated_gradients(model: nn.Module, input: Tensor, target: Target, points: int, arguments: Any) -> Relevance:
    """The mean gradient on the line from a zero input, by the midpoint rule, times the input."""
    total: Tensor | None = None
    for k in range(points):
        scores, features = _score_and_features(model, input, target, arguments, _scaled_leaf((k + 0.5) / points))
        _check_differentiable(scores)
        (gradient,) = torch.autograd.grad(scores.sum(), [features])
        total = gradient if total is None else total + gradient
    assert total is not None
    with torch.no_grad():
        start, _ = _score_and_features(model, input, target, arguments, _scaled_leaf(0.0))
        scores, features = _score_and_features(model, input, target, arguments, _scaled_leaf(1.0))
        values = features * total / points
    return Relevance(values.sum(-1), values, scores, float(start.double().sum()))


def _biases(model: nn.Module) -> list[nn.Parameter]:
    """The additive parameters: biases, learned initial states, and extra parameters of cells."""
    added = set()
    for prefix, layer in model.named_modules():
        for part in layer.glassgate.parts if isinstance(layer, Recurrent) else ():
            extra = [full for name, full in part.names.items() if name in layer.cell.parameters]
            states = [f"{state}_0{part.suffix}" for state in part.widths]
            added |= {f"{prefix}.{name}".lstrip(".") for name in (*extra, *states)}
    return [weight for name, weight in model.named_parameters() if name in added or "bias" in name.rpartition(".")[2]]


def _check_differentiable(scores: Tensor) -> None:
    if not scores.requires_grad:
        raise ValueError(
            "relevance: expected a score that is differentiable in the input, got one without a gradient; let target "
            "select the logits: an argmax has no gradient, nor has a sigmoid or softmax with method='lrp'"
        )


def _scaled_leaf(scale: float) -> Change:
    """A function that scales values and returns them as a leaf that requires a gradient."""
    return lambda values: (values.detach() * scale).requires_grad_()


def _score_and_features(
    model: nn.Module, input: Tensor, target: Target, arguments: Any, change: Change
) -> tuple[Tensor, Tensor]:
    """Run the model with changed features or embeddings. Returns the scores and the changed tensor, (*tokens, E)."""
    if input.is_floating_point():
        leaf = change(input)
        return _score(model(leaf, **arguments), target), leaf
    changed: list[Tensor] = []

    def change_embedding(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        if output.shape[:-1] != input.shape:
            return output
        changed.append(change(output))
        return changed[-1]

    hooks = [
        module.register_forward_hook(change_embedding) for module in model.modules() if isinstance(module, nn.Embedding)
    ]
    try:
        output = model(input, **arguments)
    finally:
        for hook in hooks:
            hook.remove()
    if len(changed) != 1:
        raise TypeError(
            f"relevance: the token IDs {tuple(input.shape)} must be read by one nn.Embedding, {len(changed)} read "
            "them; call the part of the model after its embeddings with their output instead"
        )
    return _score(output, target), changed[0]


def _score(output: Any, target: Target) -> Tensor:
    """One score per row."""
    if callable(target):
        return target(output)
    if not isinstance(output, Tensor):
        raise TypeError(
            f"relevance: the model returns a {type(output).__name__}, so target must be a function from it to one "
            "score per row"
        )
    if isinstance(target, Tensor):
        return output.gather(-1, target.long().view(*output.shape[:-1], 1)).squeeze(-1)
    for index in reversed(target if isinstance(target, tuple) else (target,)):
        output = output[..., index]
    return output


Replacement = Callable[[Direction], Cell]
"""Returns the new cell for a direction of a call."""
Rule = Callable[[Recurrent], Replacement]


class _CellReplacement:
    """Replaces the cell of a layer in each call. It takes the place of the layer's `Edits`."""

    def __init__(self, replacement: Replacement) -> None:
        self._replacement = replacement

    def apply(self, part: Part, direction: Direction, layout: Layout) -> Direction:
        """Return the direction with the replaced cell."""
        return direction._replace(cell=self._replacement(direction))


def _lrp(layer: Recurrent) -> Replacement:
    """The cell whose gradient, times the input, is the relevance of the input."""
    cell = layer.glassgate.eval_cell
    if cell.declaration is None:
        new: Cell = GraphCell(relevance_equations(*_equations_and_gates(layer)))
    else:
        kinds, steps = ranges(cell), {}
        for sizes in {sizes_of(cell, part) for part in layer.glassgate.parts}:
            step = current_array_step(cell, *sizes)
            gates = {v.value for name, v in step.locals.items() if kinds.get(name) == "gate"}
            steps[sizes] = relevance_step(step, gates)
        new = ArrayCell.like(cell, steps)
    return lambda direction: new


def _contextual(layer: Recurrent) -> Replacement:
    """The cell that divides its states between a phrase and its context."""
    equations, gates = _equations_and_gates(layer)
    return lambda direction: ContextualCell(equations, gates, direction.weights.get("bias_ih"))


@contextmanager
def _with_rule(layers: list[Recurrent], rule: Rule) -> Iterator[None]:
    """Replace the cells of the layers."""
    previous = [layer.glassgate.edits for layer in layers]
    with uncompiled("relevance"):
        try:
            for layer in layers:
                layer.glassgate.edits = _CellReplacement(rule(layer))  # type: ignore[assignment]
            yield
        finally:
            for layer, edits in zip(layers, previous, strict=True):
                layer.glassgate.edits = edits


def _equations_and_gates(layer: Recurrent) -> tuple[Equations, set[Node]]:
    """The equations of the cell of a layer, and the nodes of the gates whose values are between 0 and 1."""
    cell = layer.glassgate.eval_cell
    equations, kinds = current_equations(cell, "weight_hr" in layer.glassgate.parts[0].names), ranges(cell)
    return equations, {node for gate, node in equations.gate_values.items() if kinds.get(gate) == "gate"}
