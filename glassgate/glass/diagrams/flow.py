"""The content of a cell's diagram: the traced step as items, such as gates and functions, and wires between them."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from glassgate.cell import Cell
from glassgate.engines.lowering.expressions import (
    ATOM,
    COMPARISON,
    PRODUCT,
    SIGN,
    SIGNS_AND_ARITHMETIC,
    SUM,
    Expression,
    call,
    infix,
)
from glassgate.engines.symbolic.arrays.value import Value as ArrayValue
from glassgate.engines.symbolic.graph import Node
from glassgate.engines.symbolic.step import trace_step
from glassgate.engines.symbolic.values import NotTraceable
from glassgate.glass.diagrams.array_terms import array_terms
from glassgate.glass.diagrams.terms import LEAVES, Term, product_of_pre_activation

SIGNS = {
    "add": "+", "sub": "−", "mul": "×", "div": "÷", "sigmoid": "σ", "neg": "−", "row_sum": "Σ", "sum": "Σ",
    "mean": "mean", "maximum": "max", "minimum": "min", "where": "if", "lt": "<", "le": "≤", "gt": ">", "ge": "≥",
    "eq": "=", "ne": "≠", "logsigmoid": "log σ", "logical_and": "and", "logical_or": "or", "logical_not": "not",
    "abs": "|·|", "sqrt": "√", "rsqrt": "1/√",
}  # fmt: skip
"""Short labels of operations. The labels of other operations are their names."""
ARITHMETIC = ("add", "sub", "mul", "div")
PRODUCTS = ("ih", "hh", "pre")


class Value(NamedTuple):
    """The source of a wire: an item and the index of its result."""

    item: "Item"
    port: int = 0


@dataclass(eq=False)
class Item:
    """One item of the picture.

    Attributes:
        kind: "state" (before the step), "gate" (a matrix product with an activation), "product" (a matrix product
            without an activation), "operation", "function" (of the user), or "parameter" (outside of other items).
        lines: the lines of the label.
        name: the name of the first result's variable in `step`.
        equation: the equation, with the variables of `step`.
        inputs: the sources of the wires that enter the item, except those of x and the previous output.
        reads: contains "x" if the item multiplies the input by a matrix, and "h" if it multiplies the previous output.
        results: the number of its results.
        nodes: the traced value of each result.
    """

    kind: str
    lines: tuple[str, ...]
    name: str | None
    equation: str
    inputs: tuple[Value, ...] = ()
    reads: tuple[str, ...] = ()
    results: int = 1
    nodes: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Flow:
    """A cell's step as items and wires.

    Attributes:
        states: the items of the states before the step, by name.
        new: the value of each state after the step.
        items: all items except states, each after its inputs.
        axes: the axes of each state of a cell that declares axes, as text; empty for other cells.
    """

    states: dict[str, Item]
    new: dict[str, Value]
    items: tuple[Item, ...]
    axes: dict[str, str] = field(default_factory=dict)

    def name_of(self, value: Value) -> str:
        """The name of the value on a wire: its variable's name, or the number of the item that computes it."""
        item = value.item
        if item.kind == "state":
            return f"{item.lines[0]}_prev"
        for state, new in self.new.items():
            if new == value:
                return state
        name = item.nodes[value.port].name if value.port < len(item.nodes) else item.name
        return name or f"{self.items.index(item)}.{value.port}"


def flow(cell: Cell, projected: bool = False) -> Flow:
    """Convert a cell's step to items and wires.

    Raises:
        NotTraceable: the step uses an operation that no graph can express; the message names it.
    """
    axes: dict[str, str] = {}
    try:
        if cell.declaration is not None:
            step, terms = array_terms(cell)
            axes = {name: " × ".join(own) for name, own in step.state.items()}
        else:
            states, _ = trace_step(cell, projected)
            builder = _TermBuilder()
            terms = [builder.term(node) for node in states]
    except NotTraceable as error:
        raise NotTraceable(f"cell {type(cell).__name__}: step uses {error}, which no diagram can show") from None
    return _ItemBuilder(cell, terms).flow(axes)


class _TermBuilder:
    """Converts nodes to terms. The operations of a function call become one term, and equal values share one term."""

    def __init__(self) -> None:
        self._of_node: dict[Node, Term] = {}
        self._known: dict[Any, Term] = {}

    def term(self, node: Node) -> Term:
        if node not in self._of_node:
            self._of_node[node] = self._new(node)
        return self._of_node[node]

    def _new(self, node: Node) -> Term:
        op, own = (node.op, ()) if isinstance(node.op, str) else (node.op.symbol, node.op.contents)
        call, port, args = None, 0, tuple[Any, ...]((*own, *node.args))
        if node.origin is not None:
            call, port = node.origin
            op, args = call.name, call.args
        elif (product := product_of_pre_activation(node)) is not None:
            op, args = "pre", product
        args = tuple(self.term(arg) if isinstance(arg, Node) else arg for arg in args)
        # A function may have several results, one per port. Terms with the same key are the same value.
        key = (op, port, *(id(arg) if isinstance(arg, Term) else arg for arg in args))
        known = self._known.setdefault(key, Term(op, args, node.name, node, call, port))
        known.name = known.name or node.name
        return known


class _ItemBuilder:
    """Converts terms to items.

    A matrix product and its activation become one gate. Successive arithmetic with parameters becomes one item.
    """

    def __init__(self, cell: Cell, results: list[Term]) -> None:
        self._cell, self._results = cell, results
        self._uses = Counter([*results, *(arg for term in _all_terms(results) for arg in term.terms)])
        self._values: dict[Any, Value] = {}
        self._items: list[Item] = []
        self._states: dict[str, Item] = {}

    def flow(self, axes: dict[str, str]) -> Flow:
        """Return the items and wires. `axes` are those of each state, as text."""
        cell = self._cell
        for name in cell.state:
            self._states[name] = Item("state", (name,), f"{name}_prev", f"{name}_prev: {name} of the step before")
        new = {name: self._value(term) for name, term in zip(cell.state, self._results, strict=True)}
        return Flow(self._states, new, tuple(self._items), axes)

    def _value(self, term: Term) -> Value:
        if term.op == "state":
            item = self._states[term.args[0]]
            item.nodes = [term.node]
            return Value(item)
        key = id(term.call) if term.call is not None and term.call.result_count > 1 else term
        if key not in self._values:
            self._values[key] = Value(self._item(term))
            self._items.append(self._values[key].item)
        item = self._values[key].item
        while len(item.nodes) <= term.port:
            item.nodes.append(term.node)
        item.nodes[term.port] = term.node
        return Value(item, term.port)

    def _item(self, term: Term) -> Item:
        gate = self._gate_item(term)
        if gate is not None:
            return gate
        chain = self._arithmetic_chain(term)
        lines = tuple(line for link in reversed(chain) for line in _label_lines(link))
        kind = "parameter" if term.op in LEAVES else "operation"
        results = 1
        if term.call is not None and not term.call.of_torch:
            kind, results = "function", term.call.result_count
        inputs = tuple(self._value(arg) for arg in chain[-1].wired_terms)
        return Item(kind, lines, term.name, _equation(term), inputs, (), results)

    def _gate_item(self, term: Term) -> Item | None:
        """The gate or product of a term; None if the term is neither.

        A gate also contains the addition of a peephole, which is a state times a parameter.
        """
        if term.op in PRODUCTS:
            matrix = {"ih": "Wₓ", "hh": "Wₕ", "pre": "W"}[term.op]
            return self._product_item("product", (matrix,), term, term)
        if term.op in ARITHMETIC or len(term.wired_terms) != 1 or len(term.args) != 1:
            return None
        (argument,) = term.wired_terms
        if self._uses[argument] > 1:
            return None
        label = _label_lines(term)
        if argument.op in PRODUCTS:
            return self._product_item("gate", label, term, argument)
        if argument.op == "add" and argument.call is None and len(argument.terms) == 2:
            for product, other in (argument.terms, argument.terms[::-1]):
                peephole = (
                    other.op == "mul" and other.call is None and len(other.wired_terms) == 1 and len(other.terms) == 2
                )
                if product.op in PRODUCTS and self._uses[product] == self._uses[other] == 1 and peephole:
                    return self._product_item("gate", label, term, product, other.wired_terms[0])
        return None

    def _product_item(self, kind: str, label: tuple[str, ...], term: Term, product: Term, *more: Term) -> Item:
        reads = ["x"] if product.op in ("ih", "pre") else []
        inputs = [self._value(each) for each in more]
        if product.op in ("hh", "pre"):
            u = product.args[1]
            if u.op == "state" and u.args[0] == self._cell.state[0]:
                reads.append("h")
            else:
                inputs.append(self._value(u))
        name = (term.name if kind == "gate" else None) or product.args[0]
        text = _expression(product).text
        if kind == "gate":
            (before,) = term.wired_terms
            text = f"{term.op}({text if before is product else _expression(before).text})"
        return Item(kind, label, name, f"{term.name} = {text}" if term.name else text, tuple(inputs), tuple(reads))

    def _arithmetic_chain(self, term: Term) -> list[Term]:
        """The term, then the affine operations before it that have no name and only one use, from last to first."""
        chain = [term]
        while _is_affine(chain[-1]):
            (before,) = chain[-1].wired_terms
            if not _is_affine(before) or self._uses[before] > 1 or (before.name is not None):
                break
            chain.append(before)
        return chain


def _is_affine(term: Term) -> bool:
    return term.op in ARITHMETIC and term.call is None and len(term.wired_terms) == 1 and len(term.args) == 2


def _label_lines(term: Term) -> tuple[str, ...]:
    """The lines of the label of an operation."""
    sign = SIGNS.get(term.op, term.op.strip("_").replace("_", " "))
    if term.op in LEAVES:
        return (_argument_text(term),)
    if _is_affine(term) and len(term.wired_terms) == 1:
        first, last = term.args
        if isinstance(first, Term) and first is term.wired_terms[0]:
            return (f"{sign} {_argument_text(last)}",)
        return (
            (f"{sign} {_argument_text(first)}",) if term.op in ("add", "mul") else (f"{_argument_text(first)} {sign}",)
        )
    numbers = [arg for arg in term.args if not isinstance(arg, Term)]
    if len(term.wired_terms) == 1 and numbers and (term.call is None or term.call.of_torch):
        return (f"{sign} {', '.join(_argument_text(n) for n in numbers)}",)
    return (sign,)


_FORMS = {
    **SIGNS_AND_ARITHMETIC,
    # Sums and products of several values need no parentheses for readers.
    **{"add": infix("+", SUM, SUM), "mul": infix("*", PRODUCT, PRODUCT)},
    **{op: infix(sign, COMPARISON, SUM) for op, sign in {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}.items()},
}
"""The operations that an equation shows as operators. It shows the others as calls of functions."""


def _equation(term: Term) -> str:
    text, axes = _expression(term).text, axes_of(term.node)
    return f"{term.name}{f'[{axes}]' if axes else ''} = {text}" if term.name else text


def axes_of(node: Any) -> str:
    """The axes of a traced value of a cell that declares axes, as text; empty for other cells."""
    return ", ".join(node.axes) if isinstance(node, ArrayValue) else ""


def _argument_text(arg: Any) -> str:
    return _argument(arg).text


def _argument(arg: Any) -> Expression:
    """The name of an argument, or its expression if it has no name."""
    if not isinstance(arg, Term):
        is_negative = isinstance(arg, float) and math.copysign(1.0, arg) < 0
        return Expression(f"{arg:.6g}" if isinstance(arg, float) else str(arg), SIGN if is_negative else ATOM)
    is_shown = arg.name is None or arg.op in PRODUCTS
    return _expression(arg) if is_shown else Expression(str(arg.name))


def _expression(term: Term) -> Expression:
    match term.op:
        case "state":
            return Expression(f"{term.args[0]}_prev")
        case "size":
            return Expression("units")
        case "parameter" | "noise" | "input":
            return Expression(term.name or "_".join(str(arg) for arg in term.args if arg))
        case "constant":
            return _argument(term.args[0])
        case "ih" | "hh" | "pre":
            return _product(term)
        case "hr":
            return Expression(f"W_hr {_argument(term.args[0]).as_operand(ATOM)}")
    name = {"row_sum": "sum"}.get(term.op, term.op)
    if term.call is not None and not term.call.of_torch and len(term.args) > 2:
        return Expression(f"{name}(…)")
    form = _FORMS.get(term.op) if term.call is None else None
    return (form or call(name, len(term.args))).apply([*map(_argument, term.args)])


def _product(term: Term) -> Expression:
    """The matrix products of a gate, with their biases."""
    gate, terms = term.args[0], []
    if term.op != "hh":
        terms.append(f"W_ih[{gate}] x + b_ih[{gate}]")
    if term.op != "ih":
        u = term.args[1]
        vector = "h_prev" if u.op == "state" else _argument(u).as_operand(ATOM)
        terms.append(f"W_hh[{gate}] {vector} + b_hh[{gate}]")
    return Expression(" + ".join(terms), SUM)


def _all_terms(results: list[Term]) -> Iterator[Term]:
    """Yield all terms that the results depend on, each once."""
    visited: set[Term] = set()
    stack = list(results)
    while stack:
        term = stack.pop()
        if term not in visited:
            visited.add(term)
            stack += term.terms
            yield term
