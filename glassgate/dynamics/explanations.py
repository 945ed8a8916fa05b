"""How much each input contributed to an answer: layer-wise relevance propagation through any cell, and gradients."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from glassgate.cell import Cell
from glassgate.engines.contract import Direction
from glassgate.engines.meaning import current_equations
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import Node, make
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.engines.symbolic.operations import MASKS, OPERATIONS
from glassgate.engines.symbolic.rewrite import distinguish, merged
from glassgate.glass.measures import ranges
from glassgate.glass.uncompiled import uncompiled
from glassgate.layers.parts import Part
from glassgate.layers.stack import Recurrent
from glassgate.layout import Layout
from glassgate.shapes import check_choice

METHODS = ("lrp", "gradient", "integrated")
SMALLEST = 1e-6
"""Values nearer to zero than this get the relevance of this one: their own is smaller still."""

Target = int | tuple[int, ...] | Tensor | Callable[[Any], Tensor]


class Relevance(NamedTuple):
    """The contributions of the parts of an input to a score."""

    tokens: Tensor
    """In the shape of an input of token numbers; for an input of numbers, without its last axis: summed over it."""
    features: Tensor
    """(*tokens, E): of each number of an embedding or of the input."""
    scores: Tensor
    """The explained scores, one per row."""
    biases: float
    """What biases contributed to the sum of all scores ("lrp" only); zero initial states contribute nothing."""

    @property
    def unexplained(self) -> float:
        """The sum of all scores without the contributions of tokens and biases.

        It is 0 where the method conserves relevance. Constants that equations add, like the 0.5 of a MinGRU, and
        initial states that are passed to the model keep theirs.
        """
        return (self.scores.double().sum() - self.features.double().sum()).item() - self.biases


def relevance(
    model: nn.Module, input: Tensor, target: Target, *, method: str = "lrp", points: int = 32, **arguments: Any
) -> Relevance:
    """The contribution of each token, or each number of a series, to one score of a model.

    "lrp" is layer-wise relevance propagation with the rules of Arras et al. (2017, arXiv:1706.07206; 2019,
    arXiv:1909.12114) on the graph of the cell: in a product of a gate and a signal all relevance goes to the signal, a
    nonlinearity passes it on as it is, and a sum divides it in proportion to its terms. It is conserved: tokens and
    biases add up to the score. "gradient" is gradient times input. "integrated" is the integral of gradients from
    a zero input (Sundararajan et al. 2017, arXiv:1703.01365); its tokens add up to the difference of the scores.

    Args:
        model: a module with recurrent layers of this package. It runs in eval mode and is left as it was.
        input: the model's input: token numbers that an `nn.Embedding` reads, or numbers.
        target: the score: the number of a class in the last axis of the output, one for each row, indices of one
            score of each row such as (step, class), or a function from the output of the model to one score per row.
        method: "lrp", "gradient" or "integrated".
        points: of the integral.
        arguments: passed on to the model.

    Raises:
        TypeError: the model has no recurrent layer of this package, or no embedding reads its token numbers.
        NotTraceable: "lrp" of a cell that has no graph.

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
    layers = [module for module in model.modules() if isinstance(module, Recurrent)]
    if not layers:
        raise TypeError(
            f"relevance: the model must hold a recurrent layer of glassgate, got {type(model).__name__}; "
            "gg.convert(model) replaces the layers of torch.nn"
        )
    training = {module: module.training for module in model.modules()}
    try:
        model.eval()
        with torch.enable_grad(), _explained(layers if method == "lrp" else []):
            if method == "integrated":
                return _integrated(model, input, target, points, arguments)
            return _of_gradients(model, input, target, arguments, method == "lrp")
    finally:
        for module, was in training.items():
            module.training = was


def _of_gradients(model: nn.Module, input: Tensor, target: Target, arguments: Any, with_biases: bool) -> Relevance:
    """Gradient times input; in a model with the rules of "lrp" that is the relevance."""
    biases = _biases(model) if with_biases else []
    frozen = [weight for weight, _ in biases if not weight.requires_grad]
    for weight in frozen:
        weight.requires_grad_()
    try:
        scores, features = _scored(model, input, target, arguments, 1.0)
        d_features, *d_biases = torch.autograd.grad(
            scores.sum(), [features, *(weight for weight, _ in biases)], materialize_grads=True
        )
    finally:
        for weight in frozen:
            weight.requires_grad_(False)
    of_biases = sum(
        float((weight.detach().double() * d).sum()) for (weight, _), d in zip(biases, d_biases, strict=True)
    )
    values = features.detach() * d_features
    return Relevance(values.sum(-1), values, scores.detach(), of_biases)


def _integrated(model: nn.Module, input: Tensor, target: Target, points: int, arguments: Any) -> Relevance:
    """The mean gradient on the way from a zero input, by the midpoint rule, times the input."""
    total: Tensor | None = None
    for k in range(points):
        scores, features = _scored(model, input, target, arguments, (k + 0.5) / points)
        (gradient,) = torch.autograd.grad(scores.sum(), [features])
        total = gradient if total is None else total + gradient
    assert total is not None
    with torch.no_grad():
        start, _ = _scored(model, input, target, arguments, 0.0)
        scores, features = _scored(model, input, target, arguments, 1.0)
        values = features * total / points
    return Relevance(values.sum(-1), values, scores, float(start.double().sum()))


def _biases(model: nn.Module) -> list[tuple[Tensor, str]]:
    """The parameters that are added to something: biases, learned initial states, own parameters of cells."""
    added = set()
    for prefix, layer in model.named_modules():
        for part in layer._parts if isinstance(layer, Recurrent) else ():
            own = [full for name, full in part.names.items() if name in layer.cell.parameters]
            states = [f"{state}_0{part.suffix}" for state in part.widths]
            added |= {f"{prefix}.{name}".lstrip(".") for name in (*own, *states)}
    return [
        (weight, name)
        for name, weight in model.named_parameters()
        if name in added or "bias" in name.rpartition(".")[2]
    ]


def _scored(model: nn.Module, input: Tensor, target: Target, arguments: Any, scale: float) -> tuple[Tensor, Tensor]:
    """The scores of the scaled input or of its scaled embedding, and that input or embedding, (*tokens, E)."""
    if input.is_floating_point():
        leaf = (input.detach() * scale).requires_grad_()
        return _score(model(leaf, **arguments), target), leaf
    found: list[Tensor] = []

    def take(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        if output.shape[:-1] != input.shape:
            return output
        found.append((output.detach() * scale).requires_grad_())
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


class _Explained:
    """Puts the rules of "lrp" in the place of the equations of a layer while it runs."""

    def __init__(self) -> None:
        self._cells: dict[Cell, GraphCell] = {}

    def applied(self, part: Part, call: Direction, layout: Layout) -> Direction:
        """The call with other equations."""
        if call.cell not in self._cells:
            equations = current_equations(call.cell, "weight_hr" in call.weights)
            self._cells[call.cell] = GraphCell(conservative(equations, _gates(call.cell, equations)))
        return call._replace(cell=self._cells[call.cell])


@contextmanager
def _explained(layers: list[Recurrent]) -> Iterator[None]:
    before = [layer._edits for layer in layers]
    with uncompiled("relevance"):
        try:
            for layer in layers:
                layer._edits = _Explained()  # type: ignore[assignment]
            yield
        finally:
            for layer, edits in zip(layers, before, strict=True):
                layer._edits = edits


def _gates(cell: Cell, equations: Equations) -> set[Node]:
    """The values that the cell's author calls gates and that are between 0 and 1."""
    kinds = ranges(cell)
    return {node for gate, node in equations.shown.items() if kinds.get(gate) == "gate"}


def conservative(equations: Equations, gates: set[Node]) -> Equations:
    """Equations whose gradient, times the input, is the relevance of the input.

    Args:
        equations: of one step.
        gates: values between 0 and 1 that only scale others.
    """
    scales = _scaling(equations, gates)

    def rule(node: Node, args: tuple[Any, ...]) -> Node | None:
        if node in scales or not node.inputs or node.op in ("hh", "hr", "row_sum", "where", *MASKS):
            return None
        read = [arg if isinstance(arg, Node) else None for arg in node.args]
        constant = [arg is None or arg in scales for arg in read]
        match node.op:
            case "add" | "sub" | "neg" | "abs" | "minimum" | "maximum" | "detach":
                return None
            case "mul":
                a, b = args
                if not any(constant):
                    return 0.5 * (a * _held(b)) + 0.5 * (_held(a) * b)
                return _held(a) * b if constant[0] else a * _held(b)
            case "div":
                return args[0] / _held(args[1])
        (x,) = [arg for arg, fixed in zip(args, constant, strict=True) if not fixed]
        y = make(node.op, *(_held(arg) for arg in args))
        near = torch.abs(_held(x)) < SMALLEST
        return x * (y / torch.where(near, SMALLEST, _held(x)))

    new = merged(equations.states, rule)
    states = tuple(new[node] for node in equations.states)
    distinguish(states)
    return Equations(
        equations.gates, equations.state, equations.parameters, equations.noise, equations.recurrent, equations.heads,
        equations.projected, states, {},
    )  # fmt: skip


def _held(value: Any) -> Any:
    """The same value as a constant."""
    is_number = not isinstance(value, Node) or value.op in ("size", "constant")
    return value if is_number else make("detach", value)


def _scaling(equations: Equations, gates: set[Node]) -> set[Node]:
    """The values that only scale others: constants, gates, and functions of only these.

    A function that is not 0 at 0, as a sigmoid or an exponential is not, makes a gate, since a signal of 0 would
    have relevance after it.
    """
    found: set[Node] = set()

    def scales(node: Node) -> bool:
        if node in gates or node.op in ("size", "constant"):
            return True
        if node.op == "row_sum":
            return node.args[0] in found
        if node.op not in OPERATIONS or node.op in MASKS:
            return False
        if all(arg in found or arg.op in MASKS or arg.op == "parameter" for arg in node.inputs):
            return True
        return len(node.inputs) == 1 and node.op not in ("add", "sub", "mul", "div") and _starts_above_zero(node)

    for node in equations.nodes:
        if scales(node):
            found.add(node)
    return found


def _starts_above_zero(node: Node) -> bool:
    """Whether an elementwise function of one value is other than 0 at 0."""
    args = [torch.zeros(()) if isinstance(arg, Node) else torch.tensor(arg) for arg in node.args]
    return bool(OPERATIONS[node.op].compute(*args) != 0)
