"""The contribution of each input to an answer, by four methods. The rules of two are in other modules."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import jvp, vmap

from glassgate.cell import Cell
from glassgate.dynamics.contextual import ContextualCell
from glassgate.dynamics.propagation import Outside, conservative
from glassgate.engines.choose import engine
from glassgate.engines.contract import Direction
from glassgate.engines.meaning import current_equations
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import Node, NotTraceable
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.glass.measures import ranges
from glassgate.glass.uncompiled import uncompiled
from glassgate.layers.parts import Part
from glassgate.layers.stack import Recurrent
from glassgate.layout import Layout
from glassgate.shapes import ShapeError, check_choice

__all__ = ["NotTraceable", "Relevance", "contribution", "propagated", "relevance"]

METHODS = ("lrp", "contextual", "gradient", "integrated")
PHRASES_AT_ONCE = 64
"""The number of phrases whose decompositions are computed together."""

Target = int | tuple[int, ...] | Tensor | Callable[[Any], Tensor]
Change = Callable[[Tensor], Tensor]


class Relevance(NamedTuple):
    """The contributions of the parts of an input to a score."""

    tokens: Tensor
    """In the shape of an input of token numbers; for an input of numbers, without its last axis."""
    features: Tensor | None
    """(*tokens, E): of each number of an embedding or of the input; None for "contextual"."""
    scores: Tensor
    """The explained scores, one per row."""
    biases: float
    """The contribution of biases to the sum of all scores ("lrp" only); zero initial states contribute nothing."""

    @property
    def unexplained(self) -> float:
        """The sum of all scores without the contributions of tokens and biases.

        It is 0 where the method conserves relevance. Constants that equations add, like the 0.5 of a MinGRU, and
        initial states that are passed to the model keep theirs. For "contextual" it also contains the biases and the
        interactions between tokens.
        """
        return (self.scores.double().sum() - self.tokens.double().sum()).item() - self.biases


def relevance(
    model: nn.Module, input: Tensor, target: Target, *, method: str = "lrp", points: int = 32, **arguments: Any
) -> Relevance:
    """The contribution of each token, or each step of a series, to one score of a model.

    "lrp" is layer-wise relevance propagation with the rules of Arras et al. (2017, arXiv:1706.07206; 2019,
    arXiv:1909.12114) on the graph of the cell: in a product of a gate and a signal all relevance goes to the signal, a
    nonlinearity passes it on as it is, and a sum divides it in proportion to its terms. It is conserved: tokens and
    biases add up to the score. Around the layers a tanh passes relevance on, and the weights of a softmax are gates.
    "contextual" is contextual decomposition (Murdoch et al. 2018, arXiv:1801.05453) with each token as a phrase; see
    `contribution`. "gradient" is gradient times input. "integrated" is the integral of gradients from a zero input
    (Sundararajan et al. 2017, arXiv:1703.01365); its tokens add up to the difference of the scores.

    Args:
        model: a module with recurrent layers of this package. It runs in eval mode and is left as it was.
        input: the model's input: token numbers that an `nn.Embedding` reads, or numbers.
        target: the score: the number of a class in the last axis of the output, one for each row, indices of one
            score of each row such as (step, class), or a function from the output of the model to one score per row.
        method: "lrp", "contextual", "gradient" or "integrated".
        points: of the integral.
        arguments: passed on to the model.

    Raises:
        TypeError: the model has no recurrent layer of this package, or no embedding reads its token numbers.
        NotTraceable: "lrp" or "contextual" of a cell that has no graph.

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
        >>> found = gg.dynamics.relevance(Reader(), torch.tensor([[1, 5, 2, 7]]), target=1)
        >>> found.tokens.shape, abs(found.unexplained) < 1e-5
        (torch.Size([1, 4]), True)
    """
    check_choice("relevance", "method", method, METHODS)
    layers = _layers("relevance", model)
    if method == "lrp":
        with propagated(model) as biases:
            return _of_gradients(model, input, target, arguments, biases)
    with _evaluated(model):
        if method == "integrated":
            return _integrated(model, input, target, points, arguments)
        if method == "gradient":
            return _of_gradients(model, input, target, arguments, [])
        scores, features = _scored(model, input, target, arguments, Tensor.detach)
        step_axis = _step_axis(layers, features.shape[:-1], scores)
        steps = features.shape[step_axis]
        phrases = torch.eye(steps, dtype=torch.bool, device=features.device)
        phrases = phrases.view(steps, *(steps if axis == step_axis else 1 for axis in range(features.dim() - 1)))
        found = _contributions(model, input, target, arguments, layers, phrases)
        tokens = found.movedim(0, step_axis) if features.dim() > 2 else found.flatten()
        return Relevance(tokens, None, scores.detach(), 0.0)


def contribution(model: nn.Module, input: Tensor, target: Target, phrase: Tensor, **arguments: Any) -> Tensor:
    """The contribution of a phrase to a score, by contextual decomposition (Murdoch et al. 2018, arXiv:1801.05453).

    Every value of the network is the sum of the phrase's part, which contains the interactions of its tokens, and the
    context's part. The rules are those of the authors' program for an LSTM; `ContextualCell` lists them for any cell.
    The score minus the result is the contribution of the context.

    Args:
        model, input, target, arguments: as for `relevance`.
        phrase: bool, true for the tokens of the phrase, in the shape of an input of token numbers, or of an input of
            numbers without its last axis.

    Returns:
        One number per row, as the scores.

    Raises:
        ShapeError: the phrase has another shape.
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
    with _evaluated(model):
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
def propagated(model: nn.Module) -> Iterator[list[nn.Parameter]]:
    """Inside, the gradient of a score, times any value of the model, is the relevance of that value by "lrp".

    Yields the biases: the parameters that are added to something. Their gradients are computed, too.

    Raises:
        TypeError: the model has no recurrent layer of this package.
        NotTraceable: a cell has no graph.
    """
    layers, biases = _layers("relevance", model), _biases(model)
    frozen = [bias for bias in biases if not bias.requires_grad]
    with _evaluated(model), _explained(layers, _lrp), Outside():
        try:
            for bias in frozen:
                bias.requires_grad_()
            yield biases
        finally:
            for bias in frozen:
                bias.requires_grad_(False)


@contextmanager
def _evaluated(model: nn.Module) -> Iterator[None]:
    """Inside, the model is in eval mode, and gradients are computed."""
    training = {module: module.training for module in model.modules()}
    try:
        model.eval()
        with torch.enable_grad():
            yield
    finally:
        for module, was in training.items():
            module.training = was


def _step_axis(layers: list[Recurrent], shape: torch.Size, scores: Tensor) -> int:
    """The axis of the steps among those of the tokens, from the number of scores or the layout of the first layer."""
    if len(shape) < 2 or shape[0] != shape[1]:
        return int(len(shape) > 1 and shape[0] == scores.numel())
    return int(layers[0].batch_first)


def _contributions(
    model: nn.Module, input: Tensor, target: Target, arguments: Any, layers: list[Recurrent], phrases: Tensor
) -> Tensor:
    """(K, N): the contribution of each phrase, (K, *tokens), to each score."""
    _, features = _scored(model, input, target, arguments, Tensor.detach)

    def score(values: Tensor) -> Tensor:
        return _scored(model, input, target, arguments, lambda _: values)[0]

    def part(phrase: Tensor) -> Tensor:
        found: Tensor = jvp(score, (features,), (features * phrase.unsqueeze(-1),))[1]
        return found

    with torch.no_grad(), engine("reference"), _explained(layers, _contextual), warnings.catch_warnings():
        # Of torch.func itself, which compiles its own functions when it is first used.
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
        found: Tensor = vmap(part, chunk_size=PHRASES_AT_ONCE)(phrases)
    return found


def _of_gradients(
    model: nn.Module, input: Tensor, target: Target, arguments: Any, biases: Sequence[Tensor]
) -> Relevance:
    """Gradient times input; in a model with the rules of "lrp" that is the relevance."""
    scores, features = _scored(model, input, target, arguments, _leaf(1.0))
    d_features, *d_biases = torch.autograd.grad(scores.sum(), [features, *biases], materialize_grads=True)
    of_biases = sum(float((bias.detach().double() * d).sum()) for bias, d in zip(biases, d_biases, strict=True))
    values = features.detach() * d_features
    return Relevance(values.sum(-1), values, scores.detach(), of_biases)


def _integrated(model: nn.Module, input: Tensor, target: Target, points: int, arguments: Any) -> Relevance:
    """The mean gradient on the way from a zero input, by the midpoint rule, times the input."""
    total: Tensor | None = None
    for k in range(points):
        scores, features = _scored(model, input, target, arguments, _leaf((k + 0.5) / points))
        (gradient,) = torch.autograd.grad(scores.sum(), [features])
        total = gradient if total is None else total + gradient
    assert total is not None
    with torch.no_grad():
        start, _ = _scored(model, input, target, arguments, _leaf(0.0))
        scores, features = _scored(model, input, target, arguments, _leaf(1.0))
        values = features * total / points
    return Relevance(values.sum(-1), values, scores, float(start.double().sum()))


def _biases(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that are added to something: biases, learned initial states, own parameters of cells."""
    added = set()
    for prefix, layer in model.named_modules():
        for part in layer._parts if isinstance(layer, Recurrent) else ():
            own = [full for name, full in part.names.items() if name in layer.cell.parameters]
            states = [f"{state}_0{part.suffix}" for state in part.widths]
            added |= {f"{prefix}.{name}".lstrip(".") for name in (*own, *states)}
    return [weight for name, weight in model.named_parameters() if name in added or "bias" in name.rpartition(".")[2]]


def _leaf(scale: float) -> Change:
    """The values times a factor, as a leaf that gets a gradient."""
    return lambda values: (values.detach() * scale).requires_grad_()


def _scored(model: nn.Module, input: Tensor, target: Target, arguments: Any, change: Change) -> tuple[Tensor, Tensor]:
    """The scores of the changed input or of its changed embedding, and that input or embedding, (*tokens, E)."""
    if input.is_floating_point():
        leaf = change(input)
        return _score(model(leaf, **arguments), target), leaf
    found: list[Tensor] = []

    def take(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        if output.shape[:-1] != input.shape:
            return output
        found.append(change(output))
        return found[-1]

    hooks = [module.register_forward_hook(take) for module in model.modules() if isinstance(module, nn.Embedding)]
    try:
        output = model(input, **arguments)
    finally:
        for hook in hooks:
            hook.remove()
    if len(found) != 1:
        raise TypeError(
            f"relevance: the token numbers {tuple(input.shape)} must be read by one nn.Embedding, {len(found)} read "
            "them; call the part of the model after its embeddings with their output instead"
        )
    return _score(output, target), found[0]


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
    for at in reversed(target if isinstance(target, tuple) else (target,)):
        output = output[..., at]
    return output


Rule = Callable[[Equations, set[Node], Direction], Cell]
"""From the equations of a cell, its gates and a call to the cell that takes its place in that call."""


class _Explained:
    """Puts other cells in the place of that of a layer while it runs."""

    def __init__(self, layer: Recurrent, rule: Rule) -> None:
        cell = layer._eval_cell
        self._rule, self._equations = rule, current_equations(cell, "weight_hr" in layer._parts[0].names)
        self._gates = _gates(cell, self._equations)

    def applied(self, part: Part, call: Direction, layout: Layout) -> Direction:
        """The call with another cell."""
        return call._replace(cell=self._rule(self._equations, self._gates, call))


def _lrp(equations: Equations, gates: set[Node], call: Direction) -> Cell:
    """The cell whose gradient, times the input, is the relevance of the input."""
    return GraphCell(conservative(equations, gates))


def _contextual(equations: Equations, gates: set[Node], call: Direction) -> Cell:
    """The cell that divides its states between a phrase and its context."""
    return ContextualCell(equations, gates, call.weights.get("bias_ih"))


@contextmanager
def _explained(layers: list[Recurrent], rule: Rule) -> Iterator[None]:
    before = [layer._edits for layer in layers]
    with uncompiled("relevance"):
        try:
            for layer in layers:
                layer._edits = _Explained(layer, rule)  # type: ignore[assignment]
            yield
        finally:
            for layer, edits in zip(layers, before, strict=True):
                layer._edits = edits


def _gates(cell: Cell, equations: Equations) -> set[Node]:
    """The values that the cell's author calls gates and that are between 0 and 1."""
    kinds = ranges(cell)
    return {node for gate, node in equations.shown.items() if kinds.get(gate) == "gate"}
